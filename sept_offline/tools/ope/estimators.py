"""The estimators, as functions of rectangles: each is a sum over steps of weighted means.

Every function takes `shares[B, E]`, how much each episode counts, a row a replicate, and returns
`[B]`. With γ = 1 and a horizon of H steps they estimate what `evaluate` reports: the plain sum of
rewards of an episode of at most H steps, instances counting alike. An episode that was cut before
the horizon counts at the steps it has and in no mean after them; those that were not cut stand for
it, which is right where cuts have nothing to do with what happens.
"""

from __future__ import annotations

import numpy as np

from sept_offline.tools.ope.table import Doubles, Table


def per_decision(table: Table, shares: Doubles) -> Doubles:
    """Σ_t E[ρ_{0:t} r_t]: without bias, and with as much variance as its weights have."""
    return _mean(table.ratio * table.rewards, table.seen, shares)


def self_normalised(table: Table, shares: Doubles) -> Doubles:
    """The same with the weights of each step divided by their sum: consistent, seldom wild."""
    return _mean(table.rewards, table.ratio * table.seen, shares)


def doubly_robust(table: Table, q: Doubles, v: Doubles, shares: Doubles) -> Doubles:
    """Σ_t E[ρ_{0:t−1} V(s_t) + ρ_{0:t}(r_t − Q(s_t, a_t))], for `q[E, H]` and `v[E, H]`.

    Without bias for any Q that these episodes had no part in, as good as Q where weights are gone.
    """
    return _mean(table.before * v + table.ratio * (table.rewards - q), table.seen, shares)


def weighted_doubly_robust(table: Table, q: Doubles, v: Doubles, shares: Doubles) -> Doubles:
    """The same with self-normalised weights."""
    expected = _mean(v, table.before * table.seen, shares)
    return expected + _mean(table.rewards - q, table.ratio * table.seen, shares)


def direct(v: Doubles, shares: Doubles) -> Doubles:
    """E[V(s_0)]: the values alone, `v[E, H]`."""
    result: Doubles = shares @ v[:, 0] / shares.sum(axis=1)
    return result


def effective_size(table: Table, shares: Doubles) -> Doubles:
    """`[H]`: (Σw)²/Σw² of the weights of each step under `shares[E]`; 0 where none is left."""
    weights = shares[:, None] * table.ratio * table.seen
    # by the largest first: ratios may be too large to square
    weights = weights / np.maximum(weights.max(axis=0), np.finfo(float).tiny)
    total = weights.sum(axis=0)
    squares = (weights**2).sum(axis=0)
    size: Doubles = np.where(squares > 0, total**2 / np.maximum(squares, 1e-300), 0.0)
    return size


def _mean(values: Doubles, weights: Doubles, shares: Doubles) -> Doubles:
    """Σ_t of the means of `values[E, H]` with `weights[E, H]`, for each row of `shares`.

    A step without any weight adds nothing.
    """
    above = shares @ (values * weights)
    below = shares @ weights
    result: Doubles = np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0).sum(axis=1)
    return result
