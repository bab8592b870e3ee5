"""From groups to instance labels: names, known borders kept, a new dataset and its card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.dataset import Dataset
from sept_offline.data.writer import DatasetWriter
from sept_offline.files import write_text
from sept_offline.progress import Progress
from sept_offline.training.inputs import Integers

FATE = {"nearest": "given to the likeliest group", "drop": "left out"}
"""What happened to unsure episodes."""


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
        own = np.flatnonzero(owner == code)
        sizes = np.bincount(groups[own])
        kept = np.flatnonzero(sizes >= min(smallest, int(sizes.max())))
        theirs = np.where(np.isin(groups[own], kept), groups[own], int(sizes.argmax()))
        for group in np.unique(theirs):
            labels[own[theirs == group]] = len(names)
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
    meta = data.metadata
    progress.start("writing", float(kept.sum()), "episodes")
    with DatasetWriter(
        out,
        action_space=data.action_space,
        observation_dim=data.observation_dim,
        family=meta.family,
        family_arguments=meta.family_arguments,
        observation_names=meta.observation_names,
        action_names=meta.action_names,
        root_seed=meta.root_seed,
        instances=names,
        probe_steps=meta.probe_steps,
        extra={**meta.extra, "demarcation": record},
    ) as writer:
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
