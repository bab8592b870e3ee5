"""Groups of episodes found in all of them, and in two halves of them that know nothing of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sept_offline.progress import Progress
from sept_offline.seeding import generator, integer
from sept_offline.settings import DemarcateConfig
from sept_offline.threads import one_thread
from sept_offline.tools.demarcate.clusters import cluster
from sept_offline.tools.demarcate.latents import Latents, fit_latents
from sept_offline.tools.demarcate.refinement import Grouping, refine
from sept_offline.tools.demarcate.transitions import Transitions
from sept_offline.training.inputs import Doubles, Integers


@dataclass(frozen=True)
class Found:
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


def find_groups(data: Transitions, config: DemarcateConfig, seed: int, progress: Progress) -> Found:
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
    scores = [adjusted_rand_score(one, other) for one, other in itertools.combinations(labels, 2)]
    latents, grouping, unsure = whole
    return Found(
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
    own = integer(seed, "demarcate", name)
    latents = fit_latents(data, config, own, progress.update)
    progress.finish()
    clusters = cluster(latents, config.smallest_of(data.episodes), own)
    progress.start(f"groups, {name}", config.rounds, "rounds")
    grouping = refine(
        data, clusters, config, own, name, lambda done: progress.update(min(done, config.rounds))
    )
    progress.finish()
    return latents, grouping


def _by_appearance(groups: Integers) -> Integers:
    """The same groups, numbered in the order of their first episodes."""
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int64)


def separation(found: Found) -> float | None:
    """The least gain of any two groups, nats a step; None where there is one group."""
    gains: Doubles = np.array([pair.gain for pair in found.grouping.pairs])
    return float(gains.min()) if len(gains) else None
