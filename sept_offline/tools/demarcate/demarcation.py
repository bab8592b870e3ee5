"""Instance labels for logs whose borders between instances are unknown, or the reason for none."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data import Dataset, opened
from sept_offline.data.filesystems import kind_of
from sept_offline.errors import DataError
from sept_offline.files import real_path
from sept_offline.progress import Progress, Silent
from sept_offline.settings import DemarcateConfig
from sept_offline.tools.demarcate.clusters import check_sklearn
from sept_offline.tools.demarcate.labels import name_labels, write_card, write_labelled
from sept_offline.tools.demarcate.search import Found, find_groups, separation
from sept_offline.tools.demarcate.transitions import transitions_of
from sept_offline.training.inputs import Floats, Integers

FEWEST = 20
"""Episodes below which halves of them could agree by chance alone."""


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
    config, progress = config or DemarcateConfig(), progress or Silent()
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
        found = find_groups(
            transitions_of(logs.steps(), logs.episode_index.length, logs.action_space),
            config,
            seed,
            progress,
        )
        names, labels = name_labels(logs, found.groups, within, config.smallest_of(count))
        kept = ~found.unsure if config.unsure == "drop" else np.ones(count, dtype=np.bool_)
        sizes = np.bincount(labels[kept], minlength=len(names))
        reasons = _reasons(found, config, config.smallest_of(count))
        record = {
            "source": logs.content_hash,
            "episodes": count,
            "groups": found.grouping.count,
            "sizes": dict(zip(names, sizes.tolist(), strict=True)),
            "stability": found.stability,
            "half_groups": list(found.counts),
            "separation": separation(found),
            "unsure": int(found.unsure.sum()),
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
            unsure=found.unsure,
            latent=found.latents.mean,
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


def _reasons(found: Found, config: DemarcateConfig, smallest: int) -> tuple[str, ...]:
    """Reasons against the labels, one or two sentences each."""
    reasons = []
    if found.grouping.count == 1:
        reasons.append("All episodes look like one instance: no groups differ in their dynamics.")
    if found.stability < config.stable:
        reasons.append(
            f"Independent halves of the episodes agree by {found.stability:.2f} (adjusted Rand), "
            f"below {config.stable:g}: they find {found.counts[0]} and {found.counts[1]} groups. "
            f"Groups of fewer than {smallest} episodes are ignored; --smallest lowers that."
        )
    share = float(found.unsure.mean())
    if share > config.most_unsure:
        reasons.append(
            f"{share:.0%} of the episodes fit no group, or two equally well; expected at most "
            f"{config.most_unsure:.0%}."
        )
    return tuple(reasons)
