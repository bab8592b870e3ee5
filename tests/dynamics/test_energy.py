"""The α energy against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sept_offline.dynamics.bayesian import alpha_energy, log_ratio
from sept_offline.training.layers import Gaussian, kl_between, log_normal

NOISE = 0.3
X = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
Y = torch.tensor([0.7, -0.6, 1.1], dtype=torch.float64)


def one(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


Q: Gaussian = (one(0.4), torch.log(one(0.2)))
PRIOR: Gaussian = (one(0.0), torch.log(one(1.0)))


def estimate(q: Gaussian, weights: Tensor, alpha: float, x: Tensor = X, y: Tensor = Y) -> float:
    """The energy of y = W·x + noise, a line through the origin, from draws `weights[K, 1]`."""
    variance = torch.log(one(NOISE))
    likelihood = log_normal(y.view(1, -1, 1), weights.unsqueeze(1) * x.view(1, -1, 1), variance)
    site = log_ratio(weights, q, PRIOR).unsqueeze(1) / len(x)
    return len(x) * float(alpha_energy(likelihood, site.expand_as(likelihood), alpha))


def draws(q: Gaussian, count: int) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    noise = torch.randn((count, 1), generator=rng, dtype=torch.float64)
    return q[0] + torch.exp(0.5 * q[1]) * noise


def exact(alpha: float) -> float:
    """The same with every expectation as the Gaussian integral it is."""
    mean, variance, rows = 0.4, 0.2, len(X)
    total = 0.0
    for x, y in zip(X.tolist(), Y.tolist(), strict=True):
        # exponent −A/2·W² + B·W + C of q(W)·(p(y|W)·(p₀(W)/q(W))^(1/N))^α
        own = 1 - alpha / rows
        a = alpha * x * x / NOISE + own / variance + alpha / rows
        b = alpha * x * y / NOISE + own * mean / variance
        c = -alpha * y * y / (2 * NOISE) - 0.5 * alpha * math.log(2 * math.pi * NOISE)
        c -= own * (mean**2 / (2 * variance) + 0.5 * math.log(2 * math.pi * variance))
        c -= alpha / rows * 0.5 * math.log(2 * math.pi)
        total -= (c + b * b / (2 * a) + 0.5 * math.log(2 * math.pi / a)) / alpha
    return total


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_a_line_with_gaussian_noise_has_the_energy_of_its_integrals(alpha: float) -> None:
    assert estimate(Q, draws(Q, 200_000), alpha) == pytest.approx(exact(alpha), abs=0.02)


def test_two_draws_by_hand() -> None:
    likelihood = torch.tensor([[-1.0], [-3.0]])
    site = torch.tensor([[0.5], [-0.5]])
    # log p − site: −1.5 and −2.5; their half powers e^−0.75 and e^−1.25; −2·log of the mean
    expected = -2 * math.log((math.exp(-0.75) + math.exp(-1.25)) / 2)
    assert float(alpha_energy(likelihood, site, 0.5)) == pytest.approx(expected)


def test_towards_alpha_0_it_is_the_negative_elbo() -> None:
    many = draws(Q, 200_000)
    likelihood = sum(
        -0.5 * math.log(2 * math.pi * NOISE) - ((y - 0.4 * x) ** 2 + 0.2 * x * x) / (2 * NOISE)
        for x, y in zip(X.tolist(), Y.tolist(), strict=True)
    )
    elbo = likelihood - float(kl_between(Q, PRIOR))
    assert estimate(Q, many, 1e-6) == pytest.approx(-elbo, abs=0.02)
    assert exact(1e-6) == pytest.approx(-elbo, abs=1e-4)
    # and another divergence is another energy
    assert abs(exact(0.5) + elbo) > 0.05


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0])
def test_at_the_exact_posterior_one_draw_gives_the_evidence(alpha: float) -> None:
    """For equal rows the site is the likelihood, up to a constant, for every draw of W."""
    rows, x, y = 4, 0.8, 1.3
    xs, ys = (torch.full((rows,), value, dtype=torch.float64) for value in (x, y))
    precision = 1 + rows * x * x / NOISE
    posterior = (one(rows * x * y / NOISE / precision), torch.log(one(1 / precision)))
    covariance = NOISE * torch.eye(rows).double() + torch.outer(xs, xs)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(rows).double(), covariance)
    for weight in draws(posterior, 3):
        energy = estimate(posterior, weight.view(1, 1), alpha, xs, ys)
        assert energy == pytest.approx(-float(evidence.log_prob(ys)), abs=1e-9)
