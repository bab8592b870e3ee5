"""The torch networks of the latent: of single transitions, of windows, and the paper's LSTMs.

All of them take encoded actions `[..., A]`: one-hot, or the scaled components of a box.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sept_offline.agent.networks import Standardiser
from sept_offline.training.gaussians import Gaussian, log_normal
from sept_offline.training.layers import initialise, lstm, perceptron

LOG_VARIANCE = (-10.0, 4.0)
"""Bounds of a decoder's log-variance, in standardised units: noiseless dynamics have no floor of
their own, and a density without one grows for ever."""
POSTERIOR_LOG_VARIANCE = (-12.0, 4.0)
"""Bounds of an encoder's log-variance."""

LOG_PRECISION = (-10.0, 8.0)
"""Bounds of the log-precision of one transition's evidence."""
RESIDUAL = 10.0
"""A transition's residual counts as evidence up to this size."""


class LatentNetwork(Protocol):
    """The interface of a learned latent, in torch."""

    dim: int

    def encode(self, observations: Tensor, actions: Tensor) -> Gaussian:
        """q(z|segment): [n, T+1, d] and [n, T, A] to two [n, k]."""
        ...

    def log_prob(self, observations: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """log p(segment|z), [n]."""
        ...


def bounded(output: Tensor, bounds: tuple[float, float]) -> Gaussian:
    """Split a network's output into mean and log-variance."""
    mean, log_variance = output.chunk(2, dim=-1)
    return mean, log_variance.clamp(*bounds)


def outer(actions: Tensor, values: Tensor) -> Tensor:
    """a ⊗ v, flattened action by action: [..., A] and [..., k] to [..., A·k]."""
    return (actions.unsqueeze(-1) * values.unsqueeze(-2)).flatten(-2)


class _Scaled(nn.Module):
    """A module that keeps scalings as buffers, so that they travel with its weights."""

    def keep(self, name: str, scaling: Standardiser) -> None:
        self.register_buffer(f"{name}_mean", torch.from_numpy(scaling.mean.copy()))
        self.register_buffer(f"{name}_scale", torch.from_numpy(scaling.scale.copy()))

    def scaled(self, name: str, values: Tensor) -> Tensor:
        mean: Tensor = getattr(self, f"{name}_mean")
        scale: Tensor = getattr(self, f"{name}_scale")
        return (values - mean) / scale


class WindowNetwork(_Scaled):
    """The window encoder and the transition decoder of the window objective.

    Given z the dynamics are Markov, so a segment is a set of transitions: `each` reads them one by
    one, in the same way at every time, and `pooled` their mean. Sharing keeps the encoder from
    overfitting few segments.

    Scalings, all over [d]: `segment_state` and `segment_change` (first steps, which are more alike
    than all the rest), `state` and `change` (all transitions). varies[d]: a feature that never
    changes is given a unit normal instead of a prediction; its density would grow without bound and
    its gradient drown all others.
    """

    def __init__(
        self,
        steps: int,
        action_width: int,
        dim: int,
        hidden: int,
        scalings: dict[str, Standardiser],
        varies: NDArray[np.bool_],
        rng: torch.Generator,
    ) -> None:
        super().__init__()
        width = len(scalings["state"].mean)
        self.steps, self.action_width, self.dim, self.width = steps, action_width, dim, width
        for name, scaling in scalings.items():
            self.keep(name, scaling)
        self.register_buffer("varies", torch.from_numpy(np.tile(varies, 2).astype(np.float32)))
        per_step = 2 * width + action_width + action_width * width
        self.each = perceptron(per_step, (hidden,), hidden)
        self.pooled = perceptron(hidden, (hidden,), 2 * dim)
        self.decoder = perceptron(
            width + action_width + dim + action_width * dim, (hidden, hidden), 2 * width
        )
        initialise(self, rng)

    def segment_features(self, observations: Tensor, actions: Tensor) -> Tensor:
        """(s, a, Δs, a⊗Δs) of each step, [n, T, 2d + A + A·d]."""
        before = observations[:, : self.steps]
        states = self.scaled("segment_state", before)
        changes = self.scaled("segment_change", observations[:, 1 : self.steps + 1] - before)
        chosen = actions[:, : self.steps]
        return torch.cat((states, chosen, changes, outer(chosen, changes)), dim=-1)

    def posterior(self, features: Tensor) -> Gaussian:
        """q(z|segment) from `segment_features`."""
        pooled = torch.relu(self.each(features)).mean(1)
        return bounded(self.pooled(pooled), POSTERIOR_LOG_VARIANCE)

    def predict(self, states: Tensor, chosen: Tensor, z: Tensor) -> Gaussian:
        """p(standardised Δs | s, a, z) from standardised states."""
        inputs = torch.cat((states, chosen, z, outer(chosen, z)), dim=-1)
        varies: Tensor = self.get_buffer("varies")
        return bounded(varies * self.decoder(inputs), LOG_VARIANCE)

    def encode(self, observations: Tensor, actions: Tensor) -> Gaussian:
        """See LatentNetwork; what follows the first T steps is not looked at."""
        return self.posterior(self.segment_features(observations, actions))

    def log_prob(self, observations: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """Σ_t log p(s_{t+1} | s_t, a_t, z), in standardised units of change."""
        before = observations[:, : self.steps]
        change = self.scaled("change", observations[:, 1 : self.steps + 1] - before)
        chosen = actions[:, : self.steps]
        repeated = z.unsqueeze(1).expand(-1, self.steps, -1)
        mean, log_variance = self.predict(self.scaled("state", before), chosen, repeated)
        return log_normal(change, mean, log_variance).sum(-1)


class TransitionNetwork(_Scaled):
    """The average model, the transition encoder and the decoder of the transitions objective.

    state: scaling of the states, over [d]; change_scale[d]: unit of each column's change, 0 for a
    column that never changes, which is left out. Changes are read as what the average model leaves
    of them, in units of `rest[d]`, the size of what it leaves. steps: T, how many first steps
    `encode` and `log_prob` read.
    """

    def __init__(
        self,
        steps: int,
        action_width: int,
        dim: int,
        hidden: int,
        state: Standardiser,
        change_scale: NDArray[np.float32],
        rng: torch.Generator,
    ) -> None:
        super().__init__()
        width = len(state.mean)
        self.steps, self.action_width, self.dim, self.width = steps, action_width, dim, width
        self.keep("state", state)
        scale = torch.from_numpy(change_scale)
        self.register_buffer("varies", (scale > 0).float())
        self.register_buffer("per_change", torch.where(scale > 0, 1 / scale.clamp(min=1e-30), 0.0))
        self.register_buffer("rest", torch.zeros(width))
        self.average = perceptron(width + action_width, (hidden, hidden), width)
        self.encoder = perceptron(
            2 * width + action_width + action_width * width, (hidden, hidden), 2 * dim
        )
        self.decoder = perceptron(
            width + action_width + dim + action_width * dim, (hidden, hidden), 2 * width
        )
        initialise(self, rng)

    def left(self, states: Tensor, chosen: Tensor, changes: Tensor) -> Tensor:
        """Residuals of the average model for raw `changes[..., d]`, in units of the changes."""
        guess: Tensor = self.average(torch.cat((states, chosen), dim=-1))
        return changes * self.get_buffer("per_change") - guess * self.get_buffer("varies")

    def residual(self, states: Tensor, chosen: Tensor, changes: Tensor) -> Tensor:
        """The same in units of what it leaves: ρ."""
        return self.left(states, chosen, changes) / self.get_buffer("rest")

    def evidence(self, states: Tensor, chosen: Tensor, residual: Tensor) -> Tensor:
        """[..., 2k]: λm and λ of each transition."""
        seen = residual.clamp(-RESIDUAL, RESIDUAL)
        inputs = torch.cat((states, chosen, seen, outer(chosen, seen)), dim=-1)
        mean, raw = self.encoder(inputs).chunk(2, dim=-1)
        precision = torch.exp(raw.clamp(*LOG_PRECISION))
        return torch.cat((precision * mean, precision), dim=-1)

    def predict(self, states: Tensor, chosen: Tensor, z: Tensor) -> Gaussian:
        """p(ρ | s, a, z) from standardised states."""
        inputs = torch.cat((states, chosen, z, outer(chosen, z)), dim=-1)
        varies = self.get_buffer("varies").repeat(2)
        return bounded(varies * self.decoder(inputs), LOG_VARIANCE)

    def read(self, before: Tensor, actions: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Standardised states, actions and ρ of raw transitions."""
        states = self.scaled("state", before)
        return states, actions, self.residual(states, actions, after - before)

    def evidence_of(self, before: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        """[..., 2k]: λm and λ of raw transitions."""
        return self.evidence(*self.read(before, actions, after))

    def encode(self, observations: Tensor, actions: Tensor) -> Gaussian:
        """See LatentNetwork; what follows the first T steps is not looked at."""
        steps = self.steps
        seen = observations[:, : steps + 1]
        return posterior(self.evidence_of(seen[:, :-1], actions[:, :steps], seen[:, 1:]).sum(1))

    def log_prob(self, observations: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """Σ_t log p(ρ_t | s_t, a_t, z), [n]."""
        seen = observations[:, : self.steps + 1]
        states, chosen, residual = self.read(seen[:, :-1], actions[:, : self.steps], seen[:, 1:])
        repeated = z.unsqueeze(1).expand(-1, self.steps, -1)
        return log_normal(residual, *self.predict(states, chosen, repeated)).sum(-1)


def posterior(evidence: Tensor) -> Gaussian:
    """q(z) from summed evidence [..., 2k] and the prior N(0, I)."""
    weighted, precision = evidence.chunk(2, dim=-1)
    return weighted / (1 + precision), -torch.log1p(precision)


class SegmentNetwork(_Scaled):
    """The paper's VAE: a bi-LSTM encoder, mean-pooled, and an LSTM decoder.

    Scalings: `state` over [d] and, where there is one, `change` over [d]. Without it the segment is
    T pairs (s, a), without the final state, and the decoder predicts the next pair. With it each
    step is (s, a, s′ − s), the final state is in the last one, and the decoder predicts each change
    given its state and action: actions are the probe's own and say nothing about the instance.
    """

    def __init__(
        self,
        steps: int,
        action_width: int,
        dim: int,
        encoder_units: int,
        decoder_units: int,
        scaling: Standardiser,
        rng: torch.Generator,
        change: Standardiser | None = None,
    ) -> None:
        super().__init__()
        width = len(scaling.mean)
        self.steps, self.action_width, self.dim, self.width = steps, action_width, dim, width
        self.keep("state", scaling)
        self.changes = change is not None
        if change is not None:
            self.keep("change", change)
        self.pair = pair = width + action_width
        read, decoded = (pair + width, width) if self.changes else (pair, pair)
        self.encoder_lstm = lstm(read, encoder_units, bidirectional=True)
        self.encoder_head = perceptron(2 * encoder_units, (), 2 * dim)
        self.decoder_lstm = lstm(pair + dim, decoder_units)
        self.decoder_head = perceptron(decoder_units, (), 2 * decoded)
        initialise(self, rng)

    def read(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The T steps, standardised: (s, a), [n, T, d + A], or (s, a, s′ − s)."""
        before = observations[:, : self.steps]
        parts = [self.scaled("state", before), actions[:, : self.steps]]
        if self.changes:
            parts.append(self.scaled("change", observations[:, 1 : self.steps + 1] - before))
        return torch.cat(parts, dim=-1)

    def posterior(self, steps: Tensor) -> Gaussian:
        """q(z|segment) from the steps that `read` gives."""
        outputs, _ = self.encoder_lstm(steps)
        return bounded(self.encoder_head(outputs.mean(1)), POSTERIOR_LOG_VARIANCE)

    def likelihood(self, steps: Tensor, z: Tensor) -> Tensor:
        """Σ_t log p(s_{t+1}, a_{t+1} | s_≤t, a_≤t, z), or Σ_t log p(Δs_t | s_t, a_t, z), [n]."""
        if self.changes:
            known, target = steps[..., : self.pair], steps[..., self.pair :]
        else:
            known, target = steps[:, :-1], steps[:, 1:]
        repeated = z.unsqueeze(1).expand(-1, known.shape[1], -1)
        inputs = torch.cat((known, repeated), dim=-1)
        if self.changes:
            # Each step by itself: from earlier ones the decoder would infer what z is to say.
            inputs, target = inputs.flatten(0, 1).unsqueeze(1), target.flatten(0, 1).unsqueeze(1)
        outputs, _ = self.decoder_lstm(inputs)
        mean, log_variance = bounded(self.decoder_head(outputs), LOG_VARIANCE)
        return log_normal(target, mean, log_variance).reshape(len(z), -1).sum(-1)

    def encode(self, observations: Tensor, actions: Tensor) -> Gaussian:
        """See LatentNetwork."""
        return self.posterior(self.read(observations, actions))

    def log_prob(self, observations: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """See LatentNetwork."""
        return self.likelihood(self.read(observations, actions), z)
