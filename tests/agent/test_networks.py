"""NumPy and compiled forward passes against torch's."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
import torch
from torch import nn

import sept_offline.agent
from sept_offline.agent.encoders import encoder_from_arrays, step_features
from sept_offline.agent.networks import (
    MLP,
    Constrained,
    Ensemble,
    Standardiser,
    network_from_arrays,
    plain_networks,
    varying,
)
from sept_offline.agent.novelty import Novelty, posterior_elbo, segment_elbo
from sept_offline.errors import AgentError
from tests.agent import builders


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("sizes", [[5, 64, 33, 3], [2, 1], [9, 6, 40]])
def test_mlp_equals_torch(norm: bool, norm_first: bool, activation: str, sizes: list[int]) -> None:
    draws = torch.Generator().manual_seed(1)
    modules: list[nn.Module] = []
    layers, norms = [], []
    for index, (before, after) in enumerate(itertools.pairwise(sizes)):
        linear = nn.Linear(before, after)
        linear.weight.data.normal_(generator=draws)
        linear.bias.data.normal_(generator=draws)
        modules.append(linear)
        layers.append((linear.weight.detach().numpy(), linear.bias.detach().numpy()))
        if index == len(sizes) - 2:
            break
        act = nn.ReLU() if activation == "relu" else nn.Tanh()
        layer_norm = nn.LayerNorm(after)
        layer_norm.weight.data.normal_(generator=draws)
        layer_norm.bias.data.normal_(generator=draws)
        ordered = [layer_norm, act] if norm_first else [act, layer_norm]
        modules += ordered if norm else [act]
        pair = (layer_norm.weight.detach().numpy(), layer_norm.bias.detach().numpy())
        norms.append(pair if norm else None)
    network = MLP(layers, norms, activation, norm_first)
    with plain_networks():
        plain = MLP(layers, norms, activation, norm_first)
    rows = torch.randn(20, sizes[0], generator=draws)
    expected = nn.Sequential(*modules)(rows).detach().numpy()
    np.testing.assert_allclose(network(rows.numpy()), expected, atol=2e-4, rtol=1e-4)
    for row, value in zip(rows.numpy(), expected, strict=True):
        np.testing.assert_allclose(network.row(row), value, atol=2e-4, rtol=1e-4)
        np.testing.assert_array_equal(network(row), network.row(row))
        np.testing.assert_allclose(plain.row(row), value, atol=2e-4, rtol=1e-4)
        np.testing.assert_array_equal(plain(row), plain.row(row))
    again = network_from_arrays(network.to_arrays("a.b"), "a.b")
    np.testing.assert_array_equal(again(rows.numpy()), network(rows.numpy()))


@pytest.mark.parametrize("method", ["sept", "refined", "pooled", "avg"])
def test_agents_act_without_numba(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(8).normal(size=(30, builders.DIM)).astype(np.float32)
    compiled = builders.make_agent(method).begin(seed=3)
    expected = [compiled.act(row) for row in rows]
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "sept_offline.agent.kernels")
    monkeypatch.delattr(sept_offline.agent, "kernels", raising=False)
    plain = builders.make_agent(method).begin(seed=3)
    assert [plain.act(row) for row in rows] == expected
    assert "sept_offline.agent.kernels" not in sys.modules
    if compiled.latent is not None:
        np.testing.assert_allclose(plain.latent, compiled.latent, atol=1e-5)


def test_inputs_are_left_as_they_were() -> None:
    network = builders.mlp(np.random.default_rng(0), [4, 8, 2], norm=True)
    rows = np.ones((3, 4), dtype=np.float32)
    network(rows)
    network.row(rows[0])
    assert (rows == 1).all()


@pytest.mark.parametrize("changes", [False, True])
def test_lstm_encoder_equals_torch(changes: bool) -> None:
    rng = np.random.default_rng(2)
    encoder = builders.lstm_encoder(rng, changes=changes)
    lstm = nn.LSTM(11 if changes else 7, encoder.hidden_dim, batch_first=True, bidirectional=True)
    for suffix, weights in zip(("", "_reverse"), encoder.directions, strict=True):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for name, value in zip(names, weights, strict=True):
            getattr(lstm, f"{name}_l0{suffix}").data = torch.from_numpy(value)
    observations, taken = builders.segments(rng, 6)
    state = torch.from_numpy(encoder.observation_scaler(observations[:, :-1]))
    parts = [state, torch.from_numpy(taken)]
    if changes:
        change = observations[:, 1:] - observations[:, :-1]
        parts.append(torch.from_numpy(encoder.delta_scaler(change)))
    pooled = lstm(torch.cat(parts, dim=2))[0].mean(dim=1).detach().numpy()
    mean, log_var = encoder.encode(observations, taken)
    expected = encoder.head(pooled)
    np.testing.assert_allclose(np.concatenate([mean, log_var], axis=1), expected, atol=1e-5)
    # the paper's segment has no final state; with changes it is read
    observations[:, -1] += 1
    same = np.abs(encoder.encode(observations, taken)[0] - mean).max(axis=1) == 0
    assert not same.any() if changes else same.all()


def test_an_lstm_encoder_of_an_earlier_version_reads_pairs() -> None:
    encoder = builders.lstm_encoder(np.random.default_rng(2))
    description = encoder.describe()
    assert description.pop("changes") is False
    again = encoder_from_arrays(encoder.to_arrays("e"), description, "e")
    segments = builders.segments(np.random.default_rng(3), 4)
    np.testing.assert_array_equal(again.encode(*segments)[0], encoder.encode(*segments)[0])
    # changes that are promised and not there are refused, not left out
    with pytest.raises(AgentError):
        encoder_from_arrays(encoder.to_arrays("e"), description | {"changes": True}, "e")
    with pytest.raises(AgentError):
        encoder_from_arrays(encoder.to_arrays("e"), description | {"changes": "yes"}, "e")


def test_step_features_by_hand() -> None:
    observations = np.array([[[1.0, 2.0], [2.0, 4.0], [2.0, 1.0]]])
    features = step_features(
        observations,
        np.array([[[0, 1], [1, 0]]]),
        Standardiser([1, 1], [1, 2]),
        Standardiser([0, 0], [1, 2]),
    )
    first = [0, 0.5, 0, 1, 1, 1, 0, 0, 1, 1]
    second = [1, 1.5, 1, 0, 0, -1.5, 0, -1.5, 0, 0]
    np.testing.assert_allclose(features[0], [first, second])


def test_decoder_log_prob_equals_torch() -> None:
    rng = np.random.default_rng(3)
    decoder = builders.decoder(rng)
    observations, actions = builders.segments(rng, 5)
    z = rng.normal(size=(5, 2)).astype(np.float32)
    found = decoder.log_prob(observations, actions, z)
    for row in range(5):
        total = 0.0
        for step in range(3):
            one = actions[row, step]
            state = decoder.observation_scaler(observations[row, step])
            inputs = np.concatenate([state, one, z[row], np.outer(one, z[row]).ravel()])
            output = torch.from_numpy(decoder.network(inputs.astype(np.float32)[None])[0])
            delta = decoder.delta_scaler(observations[row, step + 1] - observations[row, step])
            normal = torch.distributions.Normal(output[:4], torch.exp(0.5 * output[4:]))
            total += float(normal.log_prob(torch.from_numpy(delta)).sum())
        assert found[row] == pytest.approx(total, rel=1e-4)


def test_elbo_is_the_expectation_over_the_posterior() -> None:
    rng = np.random.default_rng(4)
    encoder, decoder = builders.flat_encoder(rng), builders.decoder(rng)
    observations, actions = builders.segments(rng, 3)
    mean, _ = encoder.encode(observations, actions)
    log_var = np.full_like(mean, -3.0)
    found = posterior_elbo(decoder, observations, actions, mean, log_var)
    draws = mean[:, None] + np.exp(-1.5) * rng.normal(size=(3, 4000, 2))
    sampled = [
        decoder.log_prob(
            np.repeat(observations[i : i + 1], 4000, axis=0),
            np.repeat(actions[i : i + 1], 4000, axis=0),
            draws[i],
        )
        for i in range(3)
    ]
    divergence = 0.5 * (np.exp(-3.0) + mean**2 - 1 + 3.0).sum(axis=1)
    expected = np.mean(sampled, axis=1) - divergence
    spread = np.std(sampled, axis=1)
    assert (np.abs(found - expected) < 0.2 * spread + 0.05).all()


def test_novelty_is_a_quantile_of_held_out_segments() -> None:
    rng = np.random.default_rng(5)
    encoder, decoder = builders.flat_encoder(rng), builders.decoder(rng)
    observations, actions = builders.segments(rng, 600)
    elbo = segment_elbo(encoder, decoder, observations, actions)
    novelty = Novelty(decoder, elbo[:300])
    fresh = slice(300, 600)
    share = novelty.quantile(
        observations[fresh], actions[fresh], *encoder.encode(observations[fresh], actions[fresh])
    )
    assert abs(share.mean() - 0.5) < 0.06
    np.testing.assert_allclose(share[0], (elbo[:300] <= elbo[300]).mean(), atol=0.01)


def test_constrained_forbids_unlikely_actions() -> None:
    def constant(values: list[float]) -> MLP:
        return MLP([(np.zeros((3, 2)), np.array(values))])

    network = Constrained(constant([1, 5, 2]), constant([0, -9, 0]), 0.3)
    for found in (network(np.zeros((4, 2), dtype=np.float32))[1], network.row(np.zeros(2))):
        assert found.argmax() == 2
        assert found[1] == 0


def test_a_standardiser_keeps_results_within_the_range_of_known_rows() -> None:
    known = np.array([[0.0, 4.0], [2.0, 6.0]])
    limited = Standardiser([1.0, 5.0], [2.0, 1.0]).within(known)
    rows = np.array([[1.0, 5.5], [100.0, -100.0]])
    np.testing.assert_array_equal(limited(rows), [[0.0, 0.5], [0.5, -1.0]])
    again = Standardiser.from_arrays(limited.to_arrays("s"), "s")
    np.testing.assert_array_equal(again(rows), limited(rows))


def test_only_rounding_counts_as_constant() -> None:
    """Sensors may report small units, such as amperes for picoamperes."""
    rows = np.random.default_rng(0).normal(size=(1000, 1))
    for scale in (1e-14, 1.0, 1e20):
        standard = Standardiser.fit((scale * rows).astype(np.float32))(scale * rows)
        assert standard.std() == pytest.approx(1.0, rel=1e-3)
    for noise in (1e-17 * rows, (1.0 + 1e-7 * rows).astype(np.float32)):
        assert not varying(noise).any()


def test_networks_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(AgentError, match="takes 3 inputs"):
        MLP([(np.ones((2, 2)), np.ones(2)), (np.ones((1, 3)), np.ones(1))])
    with pytest.raises(AgentError, match="differ"):
        Ensemble([builders.mlp(rng, [2, 1]), builders.mlp(rng, [3, 1])])
    with pytest.raises(AgentError, match="above 0"):
        Standardiser([0.0], [0.0])
    for limits in ([[1.0], [0.0]], [[0.0, 1.0]]):
        with pytest.raises(AgentError, match="limits must be two increasing rows"):
            Standardiser([0.0], [1.0], limits)
    with pytest.raises(AgentError, match="lack the network"):
        MLP.from_arrays({}, "x")
