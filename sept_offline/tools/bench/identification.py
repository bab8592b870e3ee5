"""How well z identifies test instances, computed from the tables of a bench."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.errors import FamilyError
from sept_offline.family import known_family
from sept_offline.latent.identification import explained, vote

Row = Mapping[str, Any]
Latents = NDArray[np.float32]
NEIGHBOURS = 5


def told_apart(episodes: Sequence[Row]) -> float | None:
    """Share of test episodes of a seed whose nearest neighbours in z are of the same instance.

    None unless every instance was played at least three times.
    """
    inferred = [row for row in episodes if row["latent"] is not None]
    names = sorted({row["instance"] for row in inferred})
    labels = np.array([names.index(row["instance"]) for row in inferred], dtype=np.int64)
    if len(names) < 2 or np.bincount(labels).min() < 3:
        return None
    latents = _latents(inferred, "latent")
    latents = latents / np.maximum(latents.std(axis=0), 1e-6)
    # No more neighbours than the smallest instance has other episodes.
    count = min(NEIGHBOURS, int(np.bincount(labels).min()) - 1)
    named = [
        vote(np.delete(latents, i, 0), np.delete(labels, i), latents[i : i + 1], count)
        for i in range(len(inferred))
    ]
    return float((np.concatenate(named) == labels).mean())


def hidden_explained(
    episodes: Sequence[Row], segments: Sequence[Row], family: str, split: str
) -> dict[str, float] | None:
    """R² of each hidden parameter on test instances, by a ridge regression on training segments.

    None where the hidden parameters are not known, or do not vary.
    """
    try:
        record = known_family(family)
        truths = dict(zip(record.instance_ids(split), record.instances(split), strict=True))
    except FamilyError:
        return None
    known = [row for row in segments if row["hidden"] is not None]
    asked = [row for row in episodes if row["latent"] is not None and row["instance"] in truths]
    if not known or not asked:
        return None
    # The many segments of an instance share one JSON text.
    read = {text: json.loads(text) for text in dict.fromkeys(row["hidden"] for row in known)}
    names = list(read[known[0]["hidden"]])
    targets = np.array([[read[row["hidden"]][name] for name in names] for row in known])
    truth = np.array([[truths[row["instance"]].get(name, 0.0) for name in names] for row in asked])
    varied = (targets.std(axis=0) > 0) & (truth.std(axis=0) > 0)
    if not varied.any():
        return None
    shares = explained(
        _latents(known, "z"), targets[:, varied], _latents(asked, "latent"), truth[:, varied]
    )
    kept = [name for name, varies in zip(names, varied, strict=True) if varies]
    return dict(zip(kept, map(float, shares), strict=True))


def _latents(rows: Sequence[Row], column: str) -> Latents:
    return np.array([row[column] for row in rows], dtype=np.float32)
