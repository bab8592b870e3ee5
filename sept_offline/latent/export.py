"""From torch networks to the NumPy classes an agent acts with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from sept_offline.agent.encoders import LstmEncoder, LstmWeights, PooledEncoder, TransitionEncoder
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.agent.novelty import TransitionDecoder
from sept_offline.latent.networks import (
    LOG_PRECISION,
    LOG_VARIANCE,
    POSTERIOR_LOG_VARIANCE,
    RESIDUAL,
    SegmentNetwork,
    TransitionNetwork,
    WindowNetwork,
)
from sept_offline.training.layers import layers_of


def array(tensor: Tensor) -> NDArray[np.float32]:
    """A copy of a tensor's values."""
    return tensor.detach().numpy().astype(np.float32, copy=True)


def perceptron_to_numpy(network: nn.Sequential) -> MLP:
    """The same network in NumPy."""
    return MLP([(array(weight), array(bias)) for weight, bias in layers_of(network)])


def _standardiser(network: nn.Module, name: str) -> Standardiser:
    return Standardiser(
        array(getattr(network, f"{name}_mean")), array(getattr(network, f"{name}_scale"))
    )


def pooled_encoder(network: WindowNetwork) -> PooledEncoder:
    """The encoder of the window objective."""
    return PooledEncoder(
        perceptron_to_numpy(network.each),
        perceptron_to_numpy(network.pooled),
        _standardiser(network, "segment_state"),
        _standardiser(network, "segment_change"),
        action_width=network.action_width,
        steps=network.steps,
        log_var_range=POSTERIOR_LOG_VARIANCE,
    )


def transition_decoder(network: WindowNetwork) -> TransitionDecoder:
    """The decoder of the window objective."""
    *layers, (weight, bias) = [(array(w), array(b)) for w, b in layers_of(network.decoder)]
    varies = array(network.get_buffer("varies"))
    return TransitionDecoder(
        MLP([*layers, (weight * varies[:, None], bias * varies)]),
        _standardiser(network, "state"),
        _standardiser(network, "change"),
        action_width=network.action_width,
        latent_dim=network.dim,
        log_var_range=LOG_VARIANCE,
    )


NEVER = 1e30
"""The unit of a column that never changes, so that any change of it is negligible."""


def _masked(network: nn.Sequential, factor: NDArray[np.float32]) -> MLP:
    """The same network in NumPy, its outputs multiplied by `factor`."""
    *layers, (weight, bias) = [(array(w), array(b)) for w, b in layers_of(network)]
    return MLP([*layers, (weight * factor[:, None], bias * factor)])


def _residual_parts(network: TransitionNetwork) -> tuple[MLP, Standardiser, Standardiser]:
    """The average model and the scalers of states and changes, in units of what it leaves."""
    rest, per_change = array(network.get_buffer("rest")), array(network.get_buffer("per_change"))
    varies = array(network.get_buffer("varies"))
    unit = np.where(varies > 0, rest / np.maximum(per_change, 1 / NEVER), NEVER)
    return (
        _masked(network.average, varies / rest),
        _standardiser(network, "state"),
        Standardiser(np.zeros_like(unit), unit),
    )


def transition_encoder(network: TransitionNetwork) -> TransitionEncoder:
    """The encoder of the transitions objective."""
    average, state, change = _residual_parts(network)
    return TransitionEncoder(
        average,
        perceptron_to_numpy(network.encoder),
        state,
        change,
        action_width=network.action_width,
        steps=network.steps,
        residual_range=RESIDUAL,
        log_precision_range=LOG_PRECISION,
    )


def residual_decoder(network: TransitionNetwork) -> TransitionDecoder:
    """The decoder of the transitions objective."""
    average, state, change = _residual_parts(network)
    return TransitionDecoder(
        _masked(network.decoder, np.tile(array(network.get_buffer("varies")), 2)),
        state,
        change,
        action_width=network.action_width,
        latent_dim=network.dim,
        log_var_range=LOG_VARIANCE,
        average=average,
    )


def lstm_encoder(network: SegmentNetwork) -> LstmEncoder:
    """The encoder of the segment objective."""
    lstm, parts = network.encoder_lstm, LstmWeights._fields
    return LstmEncoder(
        LstmWeights(*(array(getattr(lstm, f"{part}_l0")) for part in parts)),
        LstmWeights(*(array(getattr(lstm, f"{part}_l0_reverse")) for part in parts)),
        perceptron_to_numpy(network.encoder_head),
        _standardiser(network, "state"),
        action_width=network.action_width,
        steps=network.steps,
        log_var_range=POSTERIOR_LOG_VARIANCE,
        delta_scaler=_standardiser(network, "change") if network.changes else None,
    )
