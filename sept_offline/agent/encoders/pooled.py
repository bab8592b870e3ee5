"""Encoders with one network for every step, or for all steps side by side."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...errors import AgentError
from ..fields import pair
from ..networks import MLP, Array, Standardiser
from ..records import Stored, Value, Weights
from .base import SCALERS, SIZES, SegmentEncoder, check_segments, halves, step_features


class _StepsEncoder(SegmentEncoder):
    """Base of encoders that read `step_features`.

    `observation_scaler` and `delta_scaler` have d columns. Log-variances are clipped to
    `log_var_range`.
    """

    stored: ClassVar[tuple[Stored, ...]] = (*SCALERS, *SIZES, Value("log_var_range", pair))

    def __init__(
        self,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        steps: int,
        log_var_range: tuple[float, float],
    ) -> None:
        self.observation_scaler, self.delta_scaler = observation_scaler, delta_scaler
        self.action_width, self.steps, self.log_var_range = action_width, steps, log_var_range
        self.observation_dim = dim = observation_scaler.dim
        self.step_dim = 2 * dim + action_width + action_width * dim
        if delta_scaler.dim != dim:
            raise AgentError(
                f"An encoder of {dim} columns needs as many scales of their changes, "
                f"found {delta_scaler.dim}."
            )

    def _check_network(self, network: MLP, inputs: int) -> None:
        if network.input_dim != inputs or network.output_dim % 2:
            raise AgentError(
                f"A {self.kind} encoder of {self.steps} steps, {self.observation_dim} columns and "
                f"{self.action_width} actions needs {inputs} inputs and an even number of outputs, "
                f"found {network.input_dim} and {network.output_dim}."
            )

    def _features(self, observations: NDArray[Any], taken: NDArray[Any]) -> Array:
        check_segments(self, observations, taken)
        return step_features(observations, taken, self.observation_scaler, self.delta_scaler)


class PooledEncoder(_StepsEncoder):
    """One network for every step, the mean over steps, then a head to mean and log-variance.

    `each` takes the features of a step, 2d + w + w·d inputs; its outputs go through a ReLU and are
    averaged over the T steps. `head` takes that average and gives 2k outputs.
    """

    kind = "pooled"
    stored = (
        Weights("each", MLP.from_arrays),
        Weights("head", MLP.from_arrays),
        *_StepsEncoder.stored,
    )

    def __init__(
        self,
        each: MLP,
        head: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
    ) -> None:
        super().__init__(observation_scaler, delta_scaler, action_width, steps, log_var_range)
        self.each, self.head, self.latent_dim = each, head, head.output_dim // 2
        if each.input_dim != self.step_dim:
            raise AgentError(
                f"A pooled encoder of {self.observation_dim} columns and {action_width} actions "
                f"reads {self.step_dim} inputs of each step, found {each.input_dim}."
            )
        self._check_network(head, each.output_dim)

    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `taken[n, T, w]`."""
        features = self._features(observations, taken)
        read = np.maximum(self.each(features.reshape(-1, self.step_dim)), np.float32(0))
        pooled = read.reshape(len(features), self.steps, -1).mean(axis=1)
        return halves(self.head(pooled), self.log_var_range)


class FlatEncoder(_StepsEncoder):
    """One network on all steps' features side by side, to mean and log-variance.

    `network` takes T·(2d + w + w·d) inputs and gives 2k outputs. Agents of earlier versions have
    such an encoder; nothing writes a new one.
    """

    kind = "flat"
    stored = (Weights("network", MLP.from_arrays), *_StepsEncoder.stored)

    def __init__(
        self,
        network: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
    ) -> None:
        super().__init__(observation_scaler, delta_scaler, action_width, steps, log_var_range)
        self.network, self.latent_dim = network, network.output_dim // 2
        self._check_network(network, steps * self.step_dim)

    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `taken[n, T, w]`."""
        features = self._features(observations, taken)
        output = self.network(features.reshape(len(features), -1))
        return halves(output, self.log_var_range)
