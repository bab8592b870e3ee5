"""From torch networks to the NumPy classes an agent acts with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from sept_offline.agent.decoder import TransitionDecoder
from sept_offline.agent.encoder import FlatEncoder, LstmEncoder, LstmWeights
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.latent.networks import (
    LOG_VARIANCE,
    POSTERIOR_LOG_VARIANCE,
    InstanceNetwork,
    SegmentNetwork,
)
from sept_offline.latent.training import layers_of

Doubles = NDArray[np.float64]


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


def flat_encoder(network: InstanceNetwork) -> FlatEncoder:
    """The encoder of the instance objective.

    It was trained with a scaling for each time; the agent's has one for all times, so what is left
    of them is folded into the first layer.
    """
    steps, width, actions = network.steps, network.width, network.num_actions
    common: dict[str, tuple[Doubles, Doubles]] = {}
    per_time: dict[str, tuple[Doubles, Doubles]] = {}
    for name in ("segment_state", "segment_change"):
        mean = array(getattr(network, f"{name}_mean")).astype(np.float64).reshape(steps, width)
        scale = array(getattr(network, f"{name}_scale")).astype(np.float64).reshape(steps, width)
        common[name] = _float32_exact(mean.mean(axis=0)), _float32_exact(scale.mean(axis=0))
        centre, unit = common[name]
        # (x − m_t) / c_t = ((x − M) / C) · (C / c_t) + (M − m_t) / c_t
        per_time[name] = unit / scale, (centre - mean) / scale
    (first, bias), *rest = [
        (array(w).astype(np.float64), array(b).astype(np.float64))
        for w, b in layers_of(network.encoder)
    ]
    hidden = len(bias)
    blocks = first.reshape(hidden, steps, -1).copy()
    state, chosen, change, crossed = np.split(blocks, np.cumsum([width, actions, width]), axis=2)
    crossed = crossed.reshape(hidden, steps, actions, width)
    gain, shift = per_time["segment_state"]
    bias = bias + (state * shift).sum((1, 2))
    state = state * gain
    gain, shift = per_time["segment_change"]
    bias = bias + (change * shift).sum((1, 2))
    change = change * gain
    chosen = chosen + (crossed * shift[:, None, :]).sum(3)
    crossed = (crossed * gain[:, None, :]).reshape(hidden, steps, -1)
    folded = np.concatenate((state, chosen, change, crossed), axis=2).reshape(hidden, -1)
    return FlatEncoder(
        MLP([(folded, bias), *rest]),
        Standardiser(*common["segment_state"]),
        Standardiser(*common["segment_change"]),
        num_actions=actions,
        steps=steps,
        log_var_range=POSTERIOR_LOG_VARIANCE,
    )


def _float32_exact(values: Doubles) -> Doubles:
    """Rounded to what the agent will store, so that folding undoes exactly that."""
    return values.astype(np.float32).astype(np.float64)


def transition_decoder(network: InstanceNetwork) -> TransitionDecoder:
    """The decoder of the instance objective."""
    return TransitionDecoder(
        perceptron_to_numpy(network.decoder),
        _standardiser(network, "state"),
        _standardiser(network, "change"),
        num_actions=network.num_actions,
        latent_dim=network.dim,
        log_var_range=LOG_VARIANCE,
    )


def lstm_encoder(network: SegmentNetwork) -> LstmEncoder:
    """The paper's encoder."""
    weights: list[LstmWeights] = []
    for suffix in ("", "_reverse"):
        w_ih, w_hh, b_ih, b_hh = (
            array(getattr(network.encoder_lstm, f"{part}_l0{suffix}"))
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weights.append((w_ih, w_hh, b_ih, b_hh))
    return LstmEncoder(
        weights[0],
        weights[1],
        perceptron_to_numpy(network.encoder_head),
        _standardiser(network, "state"),
        num_actions=network.num_actions,
        steps=network.steps,
        log_var_range=POSTERIOR_LOG_VARIANCE,
    )
