"""Rewards of the probe: a number for each logged segment."""

from __future__ import annotations

import numpy as np

from sept_offline.errors import ConfigError
from sept_offline.latent.model import LatentModel
from sept_offline.settings import REWARDS, Reward
from sept_offline.training.inputs import Doubles, SegmentsLike


def segment_rewards(kind: Reward, model: LatentModel, segments: SegmentsLike) -> Doubles:
    """The reward of each segment, [N].

    elbo: how well the VAE knows it (the paper's); negative-elbo: how badly (maximum entropy);
    total-variation: how far the state moves, the paper's TotalVar;
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


def total_variation(segments: SegmentsLike, final_state: bool = True) -> Doubles:
    """1/T_p Σ_t Σ_i |s_{t+1,i} − s_{t,i}|, [N]: the paper's, in the observations' own units.

    The paper's trajectory ends before the state that the last action leads to; with `final_state`
    that change counts as well.
    """
    length = segments.actions.shape[1]
    seen = segments.observations[:, : length + final_state].astype(np.float64)
    return np.asarray(np.abs(np.diff(seen, axis=1)).sum(axis=(1, 2)) / length)
