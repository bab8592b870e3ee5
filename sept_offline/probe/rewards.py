"""What a probe is rewarded for: a number for each logged segment."""

from __future__ import annotations

import numpy as np

from sept_offline.errors import ConfigError
from sept_offline.latent.arrays import Doubles, SegmentsLike, fit_scaling
from sept_offline.latent.model import LatentModel
from sept_offline.probe.config import REWARDS, Reward


def segment_rewards(kind: Reward, model: LatentModel, segments: SegmentsLike) -> Doubles:
    """The reward of each segment, [N].

    elbo: how well the VAE knows it (the paper's); negative-elbo: how badly (maximum entropy);
    total-variation: how far the state moves, feature by feature in standard deviations;
    information: log q(m_i|segment), how surely it gives its instance's latent away.
    """
    if kind == "elbo":
        return model.elbo(segments)
    if kind == "negative-elbo":
        return -model.elbo(segments)
    if kind == "information":
        return model.information(segments)
    if kind == "total-variation":
        return total_variation(segments)
    raise ConfigError(f"probe.reward is {kind!r}; expected one of {', '.join(REWARDS)}.")


def total_variation(segments: SegmentsLike) -> Doubles:
    """Σ_t Σ_j |Δs_j| in standard deviations of the states' feature j, [N]."""
    length, width = segments.actions.shape[1], segments.observations.shape[-1]
    seen = segments.observations[:, : length + 1]
    scale = fit_scaling(seen.reshape(-1, width)).scale
    return np.asarray((np.abs(np.diff(seen, axis=1)) / scale).sum(axis=(1, 2)), dtype=np.float64)
