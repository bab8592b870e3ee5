"""Small agents of every kind with random weights, for the tests of this folder."""

from __future__ import annotations

import itertools

import numpy as np

from sept_offline.agent import (
    Agent,
    Control,
    HiddenContext,
    HistoryContext,
    NetworkProbe,
    NoContext,
    Novelty,
    SegmentContext,
    Spaces,
    UnprobedContext,
    WindowContext,
    segment_elbo,
)
from sept_offline.agent.contexts import Context
from sept_offline.agent.decoder import TransitionDecoder
from sept_offline.agent.encoder import FlatEncoder, LstmEncoder, LstmWeights
from sept_offline.agent.networks import MLP, Ensemble, Standardiser

DIM, ACTIONS, LATENT, STEPS = 4, 3, 2, 3


def mlp(
    rng: np.random.Generator, sizes: list[int], norm: bool = False, norm_first: bool = True
) -> MLP:
    layers = [
        (rng.normal(size=(after, before)) / np.sqrt(before), rng.normal(size=after) * 0.1)
        for before, after in itertools.pairwise(sizes)
    ]
    norms = [
        (1 + 0.1 * rng.normal(size=size), 0.1 * rng.normal(size=size)) if norm else None
        for size in sizes[1:-1]
    ]
    return MLP(layers, norms, norm_first=norm_first)


def scaler(rng: np.random.Generator, dim: int) -> Standardiser:
    return Standardiser(rng.normal(size=dim), 0.5 + rng.random(dim))


def flat_encoder(rng: np.random.Generator, steps: int = STEPS) -> FlatEncoder:
    inputs = steps * (2 * DIM + ACTIONS + ACTIONS * DIM)
    network = mlp(rng, [inputs, 16, 2 * LATENT])
    return FlatEncoder(network, scaler(rng, DIM), scaler(rng, DIM), ACTIONS, steps)


def lstm_encoder(rng: np.random.Generator, size: int = 7) -> LstmEncoder:
    def weights() -> LstmWeights:
        shapes = ((4 * size, DIM + ACTIONS), (4 * size, size), (4 * size,), (4 * size,))
        a, b, c, d = (rng.normal(size=shape).astype(np.float32) * 0.4 for shape in shapes)
        return a, b, c, d

    head = mlp(rng, [2 * size, 2 * LATENT])
    return LstmEncoder(weights(), weights(), head, scaler(rng, DIM), ACTIONS, STEPS)


def decoder(rng: np.random.Generator) -> TransitionDecoder:
    inputs = DIM + ACTIONS + LATENT + ACTIONS * LATENT
    network = mlp(rng, [inputs, 16, 2 * DIM])
    return TransitionDecoder(network, scaler(rng, DIM), scaler(rng, DIM), ACTIONS, LATENT)


def segments(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    observations = rng.normal(size=(count, STEPS + 1, DIM)).astype(np.float32)
    return observations, rng.integers(0, ACTIONS, size=(count, STEPS))


def make_agent(method: str = "sept", seed: int = 0, fallback: bool = False) -> Agent:
    rng = np.random.default_rng(seed)
    context: Context
    if method == "avg":
        context = NoContext()
    elif method == "oracle":
        context = HiddenContext(("mass", "length"), scaler(rng, 2))
    elif method == "history":
        context = HistoryContext(2, ACTIONS, scaler(rng, DIM))
    else:
        encoder = flat_encoder(rng) if method == "sept" else lstm_encoder(rng)
        dynamics = decoder(rng)
        held_out = segment_elbo(encoder, dynamics, *segments(rng, 400))
        probe = NetworkProbe(scaler(rng, DIM), mlp(rng, [DIM, 8, ACTIONS]))
        novelty = Novelty(dynamics, held_out)
        context = SegmentContext(probe, encoder, scaler(rng, LATENT), novelty)
        if method == "dynasept":
            context = WindowContext(encoder, context.latent_scaler)
        if method == "sept-np":
            start = rng.normal(size=LATENT)
            context = UnprobedContext(start, encoder, context.latent_scaler, novelty)
    networks = [
        mlp(rng, [DIM + context.dim, 48, 40, ACTIONS], norm=True, norm_first=False)
        for _ in range(2)
    ]
    robust = Control(scaler(rng, DIM), mlp(rng, [DIM, 16, ACTIONS]))
    return Agent(
        method=method,
        family="test",
        spaces=Spaces.of(rng.normal(size=(50, DIM)), ACTIONS),
        context=context,
        control=Control(scaler(rng, DIM), Ensemble(networks) if method == "sept" else networks[0]),
        fallback=robust if fallback else None,
        record={"seed": seed},
    )
