"""Clusters of episodes' latents by density; how many there are is found."""

from __future__ import annotations

import importlib.util

import numpy as np

from sept_offline.errors import ConfigError
from sept_offline.seeding import generator
from sept_offline.tools.demarcate.latents import Latents
from sept_offline.training.inputs import Integers

CLUSTERED = 5000
"""Maximum number of episodes to cluster; of more, a sample is drawn and the rest assigned later."""
NEIGHBOURS = 5
"""Neighbours for the density estimate: few, because gaps between groups can be narrow."""


def check_sklearn() -> None:
    """Refuse where scikit-learn is missing."""
    if importlib.util.find_spec("sklearn") is None:
        raise ConfigError(
            'Clustering needs scikit-learn; install it with pip install "sept-offline[cluster]".'
        )


def cluster(latents: Latents, smallest: int, seed: int) -> Integers:
    """A cluster for each episode, −1 for those in none, [E].

    Distances are in units of the posteriors' spread: an uninformative dimension has means
    within it, and so no weight.
    """
    from sklearn.cluster import HDBSCAN

    places = latents.mean / np.sqrt((latents.spread.astype(np.float64) ** 2).mean(axis=0))
    count = len(places)
    found = np.full(count, -1, dtype=np.int64)
    chosen = np.arange(count)
    if count > CLUSTERED:
        chosen = np.sort(
            generator(seed, "demarcate", "clustered").choice(count, CLUSTERED, replace=False)
        )
    least = max(2, min(smallest, smallest * len(chosen) // count))
    if len(chosen) < 2 * least:
        return found
    density = HDBSCAN(min_cluster_size=least, min_samples=min(NEIGHBOURS, least), copy=True)
    found[chosen] = density.fit_predict(places[chosen])
    return found
