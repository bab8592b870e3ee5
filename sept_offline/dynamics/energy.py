"""The black-box α energy of a Gaussian posterior over weights (Hernández-Lobato et al. 2016).

Data D = {(x_n, y_n)}, n = 1 … N, a likelihood p(y_n | x_n, W), a prior p₀(W), a Gaussian q(W).
Power expectation propagation with all sites tied takes q(W) ∝ f(W)^N p₀(W), so that one site is

    f(W) = (q(W) / p₀(W))^(1/N)      up to a constant

and minimises

    E_α(q) = log Z_{p₀} − log Z_q − (1/α) Σ_n log E_{W~q} [ (p(y_n | x_n, W) / f(W))^α ]

With f as the quotient of the *normalised* densities the constant of every site gathers into exactly
log Z_q − log Z_{p₀}, the normalisers cancel, and what is left is one sum:

    E_α(q) = −(1/α) Σ_n log E_{W~q} exp α·[ log p(y_n | x_n, W) − (log q(W) − log p₀(W)) / N ]

The expectation is a mean over K draws: a log-sum-exp over them, less log K. A latent w that only
the N_i rows of its own instance i share is one more Gaussian with a site of its own,
(q_i(w)/p₀(w))^(1/N_i), for each of those rows.

As α → 0, (1/α) log E exp(α·g) → E g, and E_α becomes −Σ_n E_q log p(y_n | x_n, W) + KL(q ‖ p₀): the
negative ELBO. At α = 1 it is an energy of expectation propagation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sept_offline.training.gaussians import Gaussian, log_normal


def log_ratio(values: Tensor, q: Gaussian, prior: Gaussian) -> Tensor:
    """log q(v) − log p₀(v) of `values[..., k]`, summed over k."""
    return log_normal(values, *q) - log_normal(values, *prior)


def alpha_energy(log_likelihood: Tensor, log_site: Tensor, alpha: float) -> Tensor:
    """E_α(q) / N, estimated from K draws and B rows: `log_likelihood[K, B]`, `log_site[K, B]`.

    `log_site` is the sum, over all Gaussians a row depends on, of log q − log p₀ divided by the
    number of rows that share it.
    """
    draws = log_likelihood.shape[0]
    powered = torch.logsumexp(alpha * (log_likelihood - log_site), dim=0) - math.log(draws)
    return -powered.mean() / alpha
