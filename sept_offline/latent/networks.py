"""The torch networks of the latent: of single transitions, of windows, and the paper's LSTMs.

All of them take encoded actions `[..., A]`: one-hot, or the scaled components of a box. Each of
them exports its encoder and its decoder to the NumPy classes that an agent acts with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sept_offline.agent.encoders import (
    AnyEncoder,
    LstmEncoder,
    LstmWeights,
    PooledEncoder,
    TransitionEncoder,
)
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.agent.novelty import TransitionDecoder
from sept_offline.settings import LatentConfig
from sept_offline.training.layers import (
    Gaussian,
    array,
    initialise,
    log_normal,
    lstm,
    perceptron,
    to_numpy,
)

LOG_VARIANCE = (-10.0, 4.0)
"""Bounds of a decoder's log-variance, in standardised units: noiseless dynamics have no floor of
their own, and a density without one grows for ever."""
POSTERIOR_LOG_VARIANCE = (-12.0, 4.0)
"""Bounds of an encoder's log-variance."""

LOG_PRECISION = (-10.0, 8.0)
"""Bounds of the log-precision of one transition's evidence."""
RESIDUAL = 10.0
"""A transition's residual counts as evidence up to this size."""
NEVER = 1e30
"""The unit of a column that never changes, so that any change of it is negligible."""


def bounded(output: Tensor, bounds: tuple[float, float]) -> Gaussian:
    """Split a network's output into mean and log-variance."""
    mean, log_variance = output.chunk(2, dim=-1)
    return mean, log_variance.clamp(*bounds)


def outer(actions: Tensor, values: Tensor) -> Tensor:
    """a ⊗ v, flattened action by action: [..., A] and [..., k] to [..., A·k]."""
    return (actions.unsqueeze(-1) * values.unsqueeze(-2)).flatten(-2)


class LatentNetwork(nn.Module, ABC):
    """A latent of segments of T steps, `[n, T+1, d]` and `[n, T, A]`, with k columns.

    Scalings are buffers, so that they travel with the weights.
    """

    def __init__(self, steps: int, action_width: int, dim: int, width: int) -> None:
        super().__init__()
        self.steps, self.action_width, self.dim, self.width = steps, action_width, dim, width

    @abstractmethod
    def encode(self, observations: Tensor, actions: Tensor) -> Gaussian:
        """q(z|segment), two [n, k]; what follows the first T steps is not read."""

    @abstractmethod
    def log_prob(self, observations: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """log p(segment|z), [n], in standardised units."""

    @abstractmethod
    def to_encoder(self) -> AnyEncoder:
        """q(z|segment) in NumPy, for the agent."""

    def to_decoder(self) -> TransitionDecoder | None:
        """p(s′−s|s, a, z) in NumPy, for novelty; the paper's LSTM decoder has no such form."""
        return None

    def keep(self, name: str, scaling: Standardiser) -> None:
        """Store a scaling."""
        self.register_buffer(f"{name}_mean", torch.from_numpy(scaling.mean.copy()))
        self.register_buffer(f"{name}_scale", torch.from_numpy(scaling.scale.copy()))

    def scaled(self, name: str, values: Tensor) -> Tensor:
        """`values` in the units of a scaling."""
        return (values - self.get_buffer(f"{name}_mean")) / self.get_buffer(f"{name}_scale")

    def scaling(self, name: str) -> Standardiser:
        """A scaling in NumPy."""
        mean, scale = (self.get_buffer(f"{name}_{part}") for part in ("mean", "scale"))
        return Standardiser(array(mean), array(scale))

    def first_steps(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The states, actions and next states of the first T steps, [n, T, ·] each."""
        steps = self.steps
        return observations[:, :steps], actions[:, :steps], observations[:, 1 : steps + 1]

    def _transition_decoder(self, hidden: int) -> nn.Sequential:
        """A network of (s, a, z, a⊗z) with 2d outputs; its weights are not yet drawn."""
        inputs = self.width + self.action_width + self.dim + self.action_width * self.dim
        return perceptron(inputs, (hidden, hidden), 2 * self.width)


def decode(
    decoder: nn.Sequential,
    states: Tensor,
    chosen: Tensor,
    z: Tensor,
    varies: Tensor,
    bounds: tuple[float, float],
) -> Gaussian:
    """The change given standardised states; `varies[2d]`: 0 for a unit normal."""
    inputs = torch.cat((states, chosen, z, outer(chosen, z)), dim=-1)
    return bounded(varies * decoder(inputs), bounds)


class WindowNetwork(LatentNetwork):
    """The window encoder and the transition decoder of the window objective.

    Given z the dynamics are Markov, so a segment is a set of transitions: `each` reads them one by
    one, in the same way at every time, and `pooled` their mean. Sharing keeps the encoder from
    overfitting few segments.

    Scalings, all over [d]: `segment_state` and `segment_change` (first steps, which vary less
    than the rest), `state` and `change` (all transitions). varies[d]: a feature that never
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
        width = len(scalings["state"].mean)
        super().__init__(steps, action_width, dim, width)
        for name, scaling in scalings.items():
            self.keep(name, scaling)
        self.register_buffer("varies", torch.from_numpy(np.tile(varies, 2).astype(np.float32)))
        per_step = 2 * width + action_width + action_width * width
        self.each = perceptron(per_step, (hidden,), hidden)
        self.pooled = perceptron(hidden, (hidden,), 2 * dim)
        self.decoder = self._transition_decoder(hidden)
        initialise(self, rng)

    def segment_features(self, observations: Tensor, actions: Tensor) -> Tensor:
        """(s, a, Δs, a⊗Δs) of each step, [n, T, 2d + A + A·d]."""
        before, chosen, after = self.first_steps(observations, actions)
        states = self.scaled("segment_state", before)
        changes = self.scaled("segment_change", after - before)
        return torch.cat((states, chosen, changes, outer(chosen, changes)), dim=-1)

    def posterior(self, features: Tensor) -> Gaussian:
        """q(z|segment) from `segment_features`."""
        pooled = torch.relu(self.each(features)).mean(1)
        return bounded(self.pooled(pooled), POSTERIOR_LOG_VARIANCE)

    def predict(self, states: Tensor, chosen: Tensor, z: Tensor) -> Gaussian:
        """p(standardised Δs | s, a, z) from standardised states."""
        return decode(self.decoder, states, chosen, z, self.get_buffer("varies"), LOG_VARIANCE)

    def encode(self, observations: Tensor, actions: Tensor) -> Gaussian:
        """See LatentNetwork."""
        return self.posterior(self.segment_features(observations, actions))

    def log_prob(self, observations: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """Σ_t log p(s_{t+1} | s_t, a_t, z), in standardised units of change."""
        before, chosen, after = self.first_steps(observations, actions)
        repeated = z.unsqueeze(1).expand(-1, self.steps, -1)
        mean, log_variance = self.predict(self.scaled("state", before), chosen, repeated)
        return log_normal(self.scaled("change", after - before), mean, log_variance).sum(-1)

    def to_encoder(self) -> PooledEncoder:
        """See LatentNetwork."""
        return PooledEncoder(
            to_numpy(self.each),
            to_numpy(self.pooled),
            self.scaling("segment_state"),
            self.scaling("segment_change"),
            action_width=self.action_width,
            steps=self.steps,
            log_var_range=POSTERIOR_LOG_VARIANCE,
        )

    def to_decoder(self) -> TransitionDecoder:
        """See LatentNetwork."""
        return TransitionDecoder(
            to_numpy(self.decoder, array(self.get_buffer("varies"))),
            self.scaling("state"),
            self.scaling("change"),
            action_width=self.action_width,
            latent_dim=self.dim,
            log_var_range=LOG_VARIANCE,
        )


class TransitionNetwork(LatentNetwork):
    """The average model, the transition encoder and the decoder of the transitions objective.

    state: scaling of the states, over [d]; change_scale[d]: unit of each column's change, 0 for a
    column that never changes, which is left out. Changes are read as what the average model leaves
    of them, in units of `rest[d]`, the size of what it leaves. steps: T, how many first steps
    `encode` and `log_prob` read. least: lower bound of the decoder's log-variance in those units.
    What is left is mostly zero where states jump, such as cells of a grid: with a low bound a few
    jumps are given all the weight.
    """

    def __init__(
        self,
        steps: int,
        action_width: int,
        dim: int,
        hidden: int,
        state: Standardiser,
        change_scale: NDArray[np.float32],
        least: float,
        rng: torch.Generator,
    ) -> None:
        width = len(state.mean)
        super().__init__(steps, action_width, dim, width)
        self.log_variance = (least, LOG_VARIANCE[1])
        self.keep("state", state)
        scale = torch.from_numpy(change_scale)
        self.register_buffer("varies", (scale > 0).float())
        self.register_buffer("per_change", torch.where(scale > 0, 1 / scale.clamp(min=1e-30), 0.0))
        self.register_buffer("rest", torch.zeros(width))
        self.average = perceptron(width + action_width, (hidden, hidden), width)
        self.encoder = perceptron(
            2 * width + action_width + action_width * width, (hidden, hidden), 2 * dim
        )
        self.decoder = self._transition_decoder(hidden)
        initialise(self, rng)

    def left(self, states: Tensor, chosen: Tensor, changes: Tensor) -> Tensor:
        """Residuals of the average model for raw `changes[..., d]`, in units of the changes."""
        guess: Tensor = self.average(torch.cat((states, chosen), dim=-1))
        return changes * self.get_buffer("per_change") - guess * self.get_buffer("varies")

    def residual(self, states: Tensor, chosen: Tensor, changes: Tensor) -> Tensor:
        """The same in units of its root mean square: ρ."""
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
        varies = self.get_buffer("varies").repeat(2)
        return decode(self.decoder, states, chosen, z, varies, self.log_variance)

    def read(self, before: Tensor, actions: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Standardised states, actions and ρ of raw transitions."""
        states = self.scaled("state", before)
        return states, actions, self.residual(states, actions, after - before)

    def evidence_of(self, before: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        """[..., 2k]: λm and λ of raw transitions."""
        return self.evidence(*self.read(before, actions, after))

    def encode(self, observations: Tensor, actions: Tensor) -> Gaussian:
        """See LatentNetwork."""
        return posterior(self.evidence_of(*self.first_steps(observations, actions)).sum(1))

    def log_prob(self, observations: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """Σ_t log p(ρ_t | s_t, a_t, z), [n]."""
        states, chosen, residual = self.read(*self.first_steps(observations, actions))
        repeated = z.unsqueeze(1).expand(-1, self.steps, -1)
        return log_normal(residual, *self.predict(states, chosen, repeated)).sum(-1)

    def to_encoder(self) -> TransitionEncoder:
        """See LatentNetwork."""
        average, state, change = self._residual_parts()
        return TransitionEncoder(
            average,
            to_numpy(self.encoder),
            state,
            change,
            action_width=self.action_width,
            steps=self.steps,
            residual_range=RESIDUAL,
            log_precision_range=LOG_PRECISION,
        )

    def to_decoder(self) -> TransitionDecoder:
        """See LatentNetwork."""
        average, state, change = self._residual_parts()
        return TransitionDecoder(
            to_numpy(self.decoder, np.tile(array(self.get_buffer("varies")), 2)),
            state,
            change,
            action_width=self.action_width,
            latent_dim=self.dim,
            log_var_range=self.log_variance,
            average=average,
        )

    def _residual_parts(self) -> tuple[MLP, Standardiser, Standardiser]:
        """The average model and the scalers of states and changes, in units of its residuals."""
        rest, per_change, varies = (
            array(self.get_buffer(name)) for name in ("rest", "per_change", "varies")
        )
        unit = np.where(varies > 0, rest / np.maximum(per_change, 1 / NEVER), NEVER)
        average = to_numpy(self.average, varies / rest)
        return average, self.scaling("state"), Standardiser(np.zeros_like(unit), unit)


def posterior(evidence: Tensor) -> Gaussian:
    """q(z) from summed evidence [..., 2k] and the prior N(0, I)."""
    weighted, precision = evidence.chunk(2, dim=-1)
    return weighted / (1 + precision), -torch.log1p(precision)


class SegmentNetwork(LatentNetwork):
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
        config: LatentConfig,
        scaling: Standardiser,
        rng: torch.Generator,
        change: Standardiser | None = None,
    ) -> None:
        width, dim = len(scaling.mean), config.dim
        super().__init__(steps, action_width, dim, width)
        self.keep("state", scaling)
        self.changes = change is not None
        if change is not None:
            self.keep("change", change)
        self.pair = pair = width + action_width
        read, decoded = (pair + width, width) if self.changes else (pair, pair)
        self.encoder_lstm = lstm(read, config.encoder_units, bidirectional=True)
        self.encoder_head = perceptron(2 * config.encoder_units, (), 2 * dim)
        self.decoder_lstm = lstm(pair + dim, config.decoder_units)
        self.decoder_head = perceptron(config.decoder_units, (), 2 * decoded)
        initialise(self, rng)

    def read(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The T steps, standardised: (s, a), [n, T, d + A], or (s, a, s′ − s)."""
        before, chosen, after = self.first_steps(observations, actions)
        parts = [self.scaled("state", before), chosen]
        if self.changes:
            parts.append(self.scaled("change", after - before))
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

    def to_encoder(self) -> LstmEncoder:
        """See LatentNetwork."""
        lstm, parts = self.encoder_lstm, LstmWeights._fields
        return LstmEncoder(
            LstmWeights(*(array(getattr(lstm, f"{part}_l0")) for part in parts)),
            LstmWeights(*(array(getattr(lstm, f"{part}_l0_reverse")) for part in parts)),
            to_numpy(self.encoder_head),
            self.scaling("state"),
            action_width=self.action_width,
            steps=self.steps,
            log_var_range=POSTERIOR_LOG_VARIANCE,
            delta_scaler=self.scaling("change") if self.changes else None,
        )
