"""Instance labels for logs whose borders between instances are unknown, or the reason for none."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data import Dataset, DatasetWriter, opened
from sept_offline.data.filesystems import kind_of
from sept_offline.errors import DataError
from sept_offline.files import real_path, write_text
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import generator, integer, root_seed
from sept_offline.settings import DemarcateConfig
from sept_offline.threads import one_thread
from sept_offline.tools.demarcate.groups import Grouping, refine
from sept_offline.tools.demarcate.latents import (
    Latents,
    Transitions,
    check_sklearn,
    cluster,
    fit_latents,
    transitions_of,
)
from sept_offline.training.inputs import Floats, Integers

FEWEST = 20
"""Episodes below which halves of them could agree by chance alone."""
FATE = {"nearest": "given to the likeliest group", "drop": "left out"}
"""What happened to unsure episodes."""


@dataclass(frozen=True)
class Demarcation:
    """Proposed instances of E episodes, and whether the logs support them."""

    instances: tuple[str, ...]
    """Names of the proposed instances"""
    labels: Integers
    """[E], indices into `instances`, in the order of the dataset's episodes"""
    unsure: NDArray[np.bool_]
    """[E], episodes that fit no group, or two equally well"""
    latent: Floats
    """[E, k], the means of the episodes' latents"""
    reasons: tuple[str, ...]
    """Why the logs do not support the labels; empty if they do"""
    record: dict[str, Any]
    """Figures and settings, as JSON holds them"""
    path: Path | None
    """The dataset that was written, if one was"""
    card_path: Path | None
    """The card next to it"""

    @property
    def supported(self) -> bool:
        """Whether the logs support the labels."""
        return not self.reasons


def demarcate_dataset(
    data: Dataset | str | Path,
    out: str | Path | None = None,
    config: DemarcateConfig | None = None,
    *,
    seed: int = 0,
    within: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Demarcation:
    """Propose an instance for each episode by its dynamics; write a dataset with them to `out`.

    The dataset's own instance labels are ignored. With `within` they are kept as boundaries: each
    instance may be split, but no two are merged. Hidden parameters are never read. Labels that the
    logs do not support are written only with `force`.
    """
    config, progress, seed = config or DemarcateConfig(), progress or Silent(), root_seed(seed)
    check_sklearn()
    target = None if out is None else Path(out)
    with opened(data, check=True) as given:
        logs = given.without_hidden()
        if target is not None:
            _check_target(target, logs)
        count = logs.num_episodes
        if count < FEWEST:
            raise DataError(
                f"{logs.path} has {count} episodes; demarcation needs at least {FEWEST}, because "
                "groups must be found again in each half of them."
            )
        smallest = config.smallest_of(count)
        if smallest > count // 2:
            raise DataError(
                f"{logs.path} has {count} episodes, too few for two groups of at least {smallest} "
                f"(smallest); set smallest to at most {count // 2}."
            )
        grouping = find_groups(
            transitions_of(logs.steps(), logs.episode_index.length, logs.action_space),
            config,
            seed,
            progress,
        )
        names, labels = name_labels(logs, grouping.groups, within, smallest)
        kept = ~grouping.unsure if config.unsure == "drop" else np.ones(count, dtype=np.bool_)
        sizes = np.bincount(labels[kept], minlength=len(names))
        reasons = _reasons(grouping, config, smallest)
        record = {
            "source": logs.content_hash,
            "episodes": count,
            "groups": grouping.grouping.count,
            "sizes": dict(zip(names, sizes.tolist(), strict=True)),
            "stability": grouping.stability,
            "half_groups": list(grouping.counts),
            "separation": min((pair.gain for pair in grouping.grouping.pairs), default=None),
            "unsure": int(grouping.unsure.sum()),
            "supported": not reasons,
            "within": within,
            "seed": seed,
            "settings": asdict(config),
        }
        card = None
        if target is not None and (not reasons or force):
            write_labelled(logs, target, names, labels, kept, record, progress)
            card = write_card(target, record, reasons)
        return Demarcation(
            instances=tuple(names),
            labels=labels,
            unsure=grouping.unsure,
            latent=grouping.latents.mean,
            reasons=reasons,
            record=record,
            path=target if card else None,
            card_path=card,
        )


def _check_target(target: Path, logs: Dataset) -> None:
    kind_of(target)
    if real_path(target) == real_path(Path(str(logs.path))):
        raise DataError(f"{target} is the input dataset; choose another output file.")
    if not target.parent.is_dir():
        raise DataError(f"There is no folder {target.parent} to write {target.name} to.")


def _reasons(groups: FoundGroups, config: DemarcateConfig, smallest: int) -> tuple[str, ...]:
    """Reasons against the labels, one or two sentences each."""
    reasons = []
    if groups.grouping.count == 1:
        reasons.append("All episodes look like one instance: no groups differ in their dynamics.")
    if groups.stability < config.stable:
        reasons.append(
            f"Independent halves of the episodes agree by {groups.stability:.2f} (adjusted Rand), "
            f"below {config.stable:g}: they find {groups.counts[0]} and {groups.counts[1]} groups. "
            f"Groups of fewer than {smallest} episodes are ignored; --smallest lowers that."
        )
    share = float(groups.unsure.mean())
    if share > config.most_unsure:
        reasons.append(
            f"{share:.0%} of the episodes fit no group, or two equally well; expected at most "
            f"{config.most_unsure:.0%}."
        )
    return tuple(reasons)


@dataclass(frozen=True)
class FoundGroups:
    """Groups of E episodes, and how far they are to be believed."""

    groups: Integers
    """[E], 0 … K−1 by first appearance"""
    unsure: NDArray[np.bool_]
    """[E]"""
    grouping: Grouping
    latents: Latents
    stability: float
    """Mean adjusted Rand of three pairs of groupings: of all episodes, and of two halves"""
    counts: tuple[int, int]
    """Groups found in each half alone"""


def find_groups(
    data: Transitions, config: DemarcateConfig, seed: int, progress: Progress
) -> FoundGroups:
    """Fit all episodes, then two random halves of them; each fit names the groups of all."""
    from sklearn.metrics import adjusted_rand_score

    order = generator(seed, "demarcate", "halves").permutation(data.episodes)
    middle = data.episodes // 2
    parts = {
        "all": np.arange(data.episodes),
        "first half": np.sort(order[:middle]),
        "second half": np.sort(order[middle:]),
    }
    labels: list[Integers] = []
    counts: list[int] = []
    with one_thread():
        for name, episodes in parts.items():
            latents, grouping = _fit(data.take(episodes), config, seed, name, progress)
            groups, unsure = grouping.assign(data)
            labels.append(groups)
            counts.append(grouping.count)
            if name == "all":
                whole = latents, grouping, unsure
    scores = [adjusted_rand_score(*pair) for pair in itertools.combinations(labels, 2)]
    latents, grouping, unsure = whole
    return FoundGroups(
        groups=_by_appearance(labels[0]),
        unsure=unsure,
        grouping=grouping,
        latents=latents,
        stability=float(np.mean(scores)),
        counts=(counts[1], counts[2]),
    )


def _fit(
    data: Transitions, config: DemarcateConfig, seed: int, name: str, progress: Progress
) -> tuple[Latents, Grouping]:
    progress.start(f"latents, {name}", config.updates, "updates")
    seed = integer(seed, "demarcate", name)
    latents = fit_latents(data, config, seed, progress.update)
    progress.finish()
    clusters = cluster(latents, config.smallest_of(data.episodes), seed)
    progress.start(f"groups, {name}", config.rounds, "rounds")
    grouping = refine(
        data, clusters, config, seed, name, lambda done: progress.update(min(done, config.rounds))
    )
    progress.finish()
    return latents, grouping


def _by_appearance(groups: Integers) -> Integers:
    """The same groups, numbered in the order of their first episodes."""
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int64)


def name_labels(
    data: Dataset, groups: Integers, within: bool, smallest: int
) -> tuple[list[str], Integers]:
    """The proposed instances, and the one of each episode, [E].

    With `within`, an instance of the file is divided and never joined with another; a group of too
    few of its episodes is not worth an instance and goes to the largest group of the same.
    """
    if not within:
        count = int(groups.max()) + 1
        return [f"group-{group}" for group in range(count)], groups
    names: list[str] = []
    labels = np.empty_like(groups)
    owner = data.episode_index.instance
    for code in np.unique(owner):
        members = np.flatnonzero(owner == code)
        sizes = np.bincount(groups[members])
        kept = np.flatnonzero(sizes >= min(smallest, int(sizes.max())))
        theirs = np.where(np.isin(groups[members], kept), groups[members], int(sizes.argmax()))
        for group in np.unique(theirs):
            labels[members[theirs == group]] = len(names)
            names.append(f"{data.instances[code]}/group-{group}")
    return names, labels


def write_labelled(
    data: Dataset,
    out: Path,
    names: Sequence[str],
    labels: Integers,
    kept: NDArray[np.bool_],
    record: dict[str, Any],
    progress: Progress,
) -> None:
    """The kept episodes under their proposed instances; hidden parameters stay behind."""
    progress.start("writing", float(kept.sum()), "episodes")
    extra = {**data.metadata.extra, "demarcation": record}
    with DatasetWriter.like(data, out, instances=names, extra=extra) as writer:
        episodes = data.episodes()
        for done, position in enumerate(np.flatnonzero(kept).tolist()):
            writer.copy(episodes[position], instance=names[labels[position]])
            if done % 500 == 499:
                progress.update(done + 1)
    progress.finish()


def write_card(out: Path, record: dict[str, Any], reasons: Sequence[str]) -> Path:
    """Write `<stem>.card.md` next to the dataset: how its labels were found."""
    path = out.with_name(f"{out.stem}.card.md")
    separation = record["separation"]
    rows = {
        "from": f"content {record['source'][:16]}, {record['episodes']:,} episodes",
        "groups": f"{record['groups']} found, not given",
        "episodes of each instance": ", ".join(
            f"{name} {size:,}" for name, size in record["sizes"].items()
        ),
        "stability": f"{record['stability']:.3f} (adjusted Rand of independent halves; "
        f"{record['half_groups'][0]} and {record['half_groups'][1]} groups in them)",
        "separation": "–"
        if separation is None
        else f"{separation:.3f} nats per step between the two most similar groups",
        "unsure episodes": f"{record['unsure']:,}, {FATE[record['settings']['unsure']]}",
        "known borders": "kept" if record["within"] else "none known",
        "seed": record["seed"],
    }
    lines = [
        f"# {out.name}",
        "",
        "The instances of this dataset are proposals by `sept-offline demarcate`, from the "
        "dynamics",
        "of the episodes, with one instance per episode. They have not been confirmed.",
        *(["", "**The logs do not support them:** " + " ".join(reasons)] if reasons else []),
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows.items()),
        "",
    ]
    write_text(path, "\n".join(lines))
    return path
