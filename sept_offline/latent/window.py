"""The window objective: a latent of the last T steps that predicts the next ones.

For dynamics that may change within an episode a latent cannot belong to the instance. What the
encoder reads off a window must serve the decoder in the T steps that follow it, and nothing else:

    loss = − E_{z ~ q(z | window)} log p(Δs | s, a, z) + β · KL(q ‖ N(0, I)) / (T · RUN)

with a step drawn from the next T, and β that rises from 0. It is an ELBO of what follows,
amortised; as the window's own steps are not decoded, z has no use for copies of them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser, varying
from sept_offline.data.records import Steps
from sept_offline.errors import DataError
from sept_offline.latent.model import LatentModel
from sept_offline.latent.networks import WindowNetwork
from sept_offline.latent.windows import Windows
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig
from sept_offline.training.draws import Balanced
from sept_offline.training.gaussians import kl_standard, log_normal, sample
from sept_offline.training.inputs import SegmentsLike, check_segments, standardised
from sept_offline.training.updates import UpdateStage, annealed, check_finite, descend

RUN = 100
"""Windows in a row that share what their latent costs: dynamics change, but not at every step."""
WARM = 0.5
"""The first share of the updates, in which β rises from 0."""


class WindowLatentStage(UpdateStage):
    """Learns encoder and decoder from windows and the steps that follow them; see above."""

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
        super().__init__("latent", config.updates)
        self.config, self.space, self.num_instances = config, space, num_instances
        self._length = windows.actions.shape[1]
        before = steps.observations[steps.row]
        change = steps.observations[steps.row + 1] - before
        scalings = {
            "state": Standardiser.fit(before),
            "change": Standardiser.fit(change),
            **segment_scalings(windows),
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
        self.rng = torch_generator(seed, "latent", "train")
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=config.learning_rate, fused=True
        )
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

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the metrics are means over these updates."""
        values = self._repeat(updates, 2)
        metrics = dict(zip(("log_likelihood", "kl"), values, strict=True))
        check_finite(metrics, self.name, self.done)
        return metrics

    def _update(self) -> Tensor:
        config, rng = self.config, self.rng
        picked = self._draws.draw(config.transitions, rng)
        q = self.network.posterior(self._features[picked])
        step = torch.rand(len(picked), generator=rng, dtype=torch.float64)
        rows = self._last[picked] + 1 + (step * self._ahead[picked]).long()
        predicted = self.network.predict(self._states[rows], self._chosen[rows], sample(q, rng))
        likelihood = log_normal(self._changes[rows], *predicted).mean()
        prior = kl_standard(q).mean()
        rate = annealed(config.learning_rate, config.learning_rate_end, self.done, self.total)
        # increased gradually: at full weight from the start, ignoring z is cheaper
        weight = config.beta / (self._length * RUN) * min(1.0, self.done / (WARM * self.total))
        descend(self.optimiser, -likelihood + weight * prior, rate)
        return torch.stack((likelihood, prior)).detach()

    def _modules(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    def result(self) -> LatentModel:
        """The fitted latent; instances have no posteriors."""
        nothing = np.zeros((self.num_instances, self.config.dim), dtype=np.float32)
        return LatentModel(self.network, self.space, nothing, nothing)


def segment_scalings(segments: SegmentsLike) -> dict[str, Standardiser]:
    """Scalings of the first steps' states and changes, [d] each."""
    length, width = segments.actions.shape[1], segments.observations.shape[-1]
    before = segments.observations[:, :length]
    change = segments.observations[:, 1 : length + 1] - before
    return {
        "segment_state": Standardiser.fit(before.reshape(-1, width)),
        "segment_change": Standardiser.fit(change.reshape(-1, width)),
    }
