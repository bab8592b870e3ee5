"""The window objective: a latent of the last T steps that predicts the next ones.

For dynamics that may change within an episode a latent cannot belong to the instance. What the
encoder reads off a window must serve the decoder in the T steps that follow it, and nothing else:

    loss = − E_{z ~ q(z | window)} log p(Δs | s, a, z) + β · KL(q ‖ N(0, I)) / (T · RUN)

with a step drawn from the next T, and β that rises from 0. It is an ELBO of what follows,
amortised; as the window's own steps are not decoded, z has no use for copies of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser, varying
from sept_offline.data.records import Segments, Steps
from sept_offline.errors import DataError
from sept_offline.latent.model import LatentModel
from sept_offline.latent.networks import WindowNetwork
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig
from sept_offline.training.inputs import (
    Balanced,
    Integers,
    changes,
    check_segments,
    standardised,
)
from sept_offline.training.layers import kl_standard, log_normal, sample
from sept_offline.training.updates import UpdateStage

RUN = 100
"""Consecutive windows that share the KL of one latent: dynamics do not change at every step."""
WARM = 0.5
"""The first share of the updates, in which β rises from 0."""


@dataclass(frozen=True)
class Windows(Segments):
    """All W windows of T steps, in the order of the step that completes them."""

    last: Integers
    """[W], the step that completes the window, an index into the columns of `Steps`"""
    left: Integers
    """[W], how many steps of its episode follow"""


def all_windows(steps: Steps, length: int) -> Windows:
    """The windows of `length` steps; those of an episode overlap in all but one."""
    last = np.flatnonzero(steps.time >= length - 1)
    inside = last[:, None] + np.arange(length) - (length - 1)
    # one row more than steps: the state the window ends in
    rows = steps.row[last][:, None] + np.arange(length + 1) - (length - 1)
    ends = np.flatnonzero(np.append(steps.time[1:] == 0, True))
    return Windows(
        observations=steps.observations[rows],
        actions=steps.actions[inside],
        rewards=steps.rewards[inside],
        propensities=None,
        instance=steps.instance[last],
        episode=steps.episode[last],
        skipped=0,
        last=last,
        left=ends[np.searchsorted(ends, last)] - last,
    )


class WindowLatentStage(UpdateStage):
    """Learns encoder and decoder from windows and the steps that follow them; see above."""

    watched = ("log_likelihood", "kl")

    def __init__(
        self,
        steps: Steps,
        windows: Windows,
        config: LatentConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
    ) -> None:
        check_segments(windows, space, num_instances)
        self._followed = np.flatnonzero(windows.left > 0)
        if not len(self._followed):
            raise DataError(
                "No window is followed by a step, because every episode ends with the probe; lower "
                "probe_steps."
            )
        super().__init__("latent", config.updates, (config.learning_rate, config.learning_rate_end))
        self.config, self.space, self.num_instances = config, space, num_instances
        self._length = windows.actions.shape[1]
        before = steps.observations[steps.row]
        change = changes(before, steps.observations[steps.row + 1])
        width = windows.observations.shape[-1]
        first = windows.observations[:, : self._length].reshape(-1, width)
        moved = changes(first, windows.observations[:, 1 : self._length + 1].reshape(-1, width))
        scalings = {
            "state": Standardiser.fit(before),
            "change": Standardiser.fit(change),
            "segment_state": Standardiser.fit(first),
            "segment_change": Standardiser.fit(moved),
        }
        self.network = WindowNetwork(
            self._length,
            space.width,
            config.dim,
            config.hidden,
            scalings,
            varying(change),
            torch_generator(seed, "latent", "initialise"),
        )
        head = self.network.pooled[-1]
        assert isinstance(head, nn.Linear)
        with torch.no_grad():
            # narrow at first: a decoder that sees only noise learns to ignore z
            head.bias[config.dim :] = 2 * math.log(config.initial_spread)
        self.optimise({"network": self.network}, torch_generator(seed, "latent", "train"))
        self._states = standardised(scalings["state"], before)
        self._changes = standardised(scalings["change"], change)
        self._chosen = torch.from_numpy(space.encode(steps.actions))
        with torch.no_grad():
            self._features = self.network.segment_features(
                torch.from_numpy(windows.observations[self._followed]),
                torch.from_numpy(space.encode(windows.actions[self._followed])),
            )
        self._last = torch.from_numpy(windows.last[self._followed])
        ahead = np.minimum(windows.left[self._followed], self._length)
        self._ahead = torch.from_numpy(ahead)
        self._draws = Balanced(windows.instance[self._followed])

    def _update(self) -> Tensor:
        config, rng = self.config, self.rng
        picked = self._draws.draw(config.transitions, rng)
        q = self.network.posterior(self._features[picked])
        step = torch.rand(len(picked), generator=rng, dtype=torch.float64)
        rows = self._last[picked] + 1 + (step * self._ahead[picked]).long()
        predicted = self.network.predict(self._states[rows], self._chosen[rows], sample(q, rng))
        likelihood = log_normal(self._changes[rows], *predicted).mean()
        prior = kl_standard(q).mean()
        # increased gradually: at full weight from the start, ignoring z is cheaper
        weight = config.beta / (self._length * RUN) * min(1.0, self.done / (WARM * self.total))
        self._descend(-likelihood + weight * prior)
        return torch.stack((likelihood, prior)).detach()

    def result(self) -> LatentModel:
        """The fitted latent; instances have no posteriors."""
        nothing = np.zeros((self.num_instances, self.config.dim), dtype=np.float32)
        return LatentModel(self.network, self.space, nothing, nothing)
