"""Small agents of every kind with random weights, and agents on disk that were tampered with."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.agent import (
    Actor,
    Agent,
    Control,
    HiddenContext,
    HistoryContext,
    NetworkProbe,
    NoContext,
    NormalProbe,
    Novelty,
    RefinedContext,
    SegmentContext,
    Spaces,
    UnprobedContext,
    WindowContext,
    segment_elbo,
)
from sept_offline.agent.contexts import Context
from sept_offline.agent.encoders import (
    AnyEncoder,
    FlatEncoder,
    LstmEncoder,
    LstmWeights,
    PooledEncoder,
    TransitionEncoder,
)
from sept_offline.agent.networks import MLP, Ensemble, Standardiser
from sept_offline.agent.novelty import TransitionDecoder
from sept_offline.stacking import Stack

DIM, ACTIONS, LATENT, STEPS = 4, 3, 2, 3
FINITE = Finite.of(ACTIONS)
BOX = Box.of([-2.0, 0.0], [2.0, 0.5])
encode = FINITE.encode


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


def squashed(network: MLP) -> MLP:
    """The same network, with outputs that go through tanh."""
    form = network.activation, network.norm_first
    return MLP(network.layers, network.norms, *form, squashed=True)


def control(scale: Standardiser, network: MLP | Ensemble, space: ActionSpace) -> Control:
    return Actor(scale, network, space) if isinstance(space, Box) else Control(scale, network)


def scaler(rng: np.random.Generator, dim: int) -> Standardiser:
    return Standardiser(rng.normal(size=dim), 0.5 + rng.random(dim))


def flat_encoder(
    rng: np.random.Generator, steps: int = STEPS, dim: int = DIM, width: int = ACTIONS
) -> FlatEncoder:
    inputs = steps * (2 * dim + width + width * dim)
    network = mlp(rng, [inputs, 16, 2 * LATENT])
    return FlatEncoder(network, scaler(rng, dim), scaler(rng, dim), width, steps)


def pooled_encoder(
    rng: np.random.Generator, steps: int = STEPS, dim: int = DIM, width: int = ACTIONS
) -> PooledEncoder:
    each = mlp(rng, [2 * dim + width + width * dim, 16, 12])
    head = mlp(rng, [12, 16, 2 * LATENT])
    return PooledEncoder(each, head, scaler(rng, dim), scaler(rng, dim), width, steps)


def transition_encoder(
    rng: np.random.Generator, dim: int = DIM, width: int = ACTIONS
) -> TransitionEncoder:
    average = mlp(rng, [dim + width, 8, dim])
    network = mlp(rng, [2 * dim + width + width * dim, 16, 2 * LATENT])
    return TransitionEncoder(average, network, scaler(rng, dim), scaler(rng, dim), width, STEPS)


def lstm_encoder(
    rng: np.random.Generator,
    size: int = 7,
    dim: int = DIM,
    changes: bool = False,
    width: int = ACTIONS,
) -> LstmEncoder:
    inputs = dim + width + dim * changes

    def weights() -> LstmWeights:
        shapes = ((4 * size, inputs), (4 * size, size), (4 * size,), (4 * size,))
        return LstmWeights(*(rng.normal(size=s).astype(np.float32) * 0.4 for s in shapes))

    head = mlp(rng, [2 * size, 2 * LATENT])
    parts = weights(), weights(), head, scaler(rng, dim)
    delta = scaler(rng, dim) if changes else None
    return LstmEncoder(*parts, width, STEPS, delta_scaler=delta)


def decoder(
    rng: np.random.Generator, dim: int = DIM, residual: bool = False, width: int = ACTIONS
) -> TransitionDecoder:
    inputs = dim + width + LATENT + width * LATENT
    network = mlp(rng, [inputs, 16, 2 * dim])
    average = mlp(rng, [dim + width, 8, dim]) if residual else None
    scalers = scaler(rng, dim), scaler(rng, dim)
    return TransitionDecoder(network, *scalers, width, LATENT, average=average)


def segments(
    rng: np.random.Generator, count: int, dim: int = DIM, space: ActionSpace = FINITE
) -> tuple[np.ndarray, np.ndarray]:
    observations = rng.normal(size=(count, STEPS + 1, dim)).astype(np.float32)
    actions = space.uniform(count, STEPS).draw(rng.random((count, STEPS, space.draws)))
    return observations, space.encode(actions)


REFINED = ("refined", "unprobed", "read-once")
"""Agents with a transition encoder: with a probe, without one, and one that reads it once."""


def make_agent(
    method: str = "sept",
    seed: int = 0,
    fallback: bool = False,
    stack: int = 1,
    space: ActionSpace = FINITE,
) -> Agent:
    """An agent that observes `DIM` columns, whose parts read rows of `stack` observations."""
    rng, width = np.random.default_rng(seed), space.width
    dim = Stack(stack, DIM, width).width
    context: Context
    if method == "avg":
        context = NoContext()
    elif method == "oracle":
        context = HiddenContext(("mass", "length"), scaler(rng, 2))
    elif method == "history":
        context = HistoryContext(2, width, scaler(rng, dim))
    else:
        encoder: AnyEncoder
        if method in REFINED:
            encoder = transition_encoder(rng, dim, width)
        elif method == "sept":
            encoder = flat_encoder(rng, dim=dim, width=width)
        elif method in ("pooled", "dynasept"):
            encoder = pooled_encoder(rng, dim=dim, width=width)
        else:
            encoder = lstm_encoder(rng, dim=dim, changes=method == "changes", width=width)
        dynamics = decoder(rng, dim, method in REFINED, width)
        held_out = segment_elbo(encoder, dynamics, *segments(rng, 400, dim, space))
        probe = NetworkProbe(scaler(rng, dim), mlp(rng, [dim, 8, ACTIONS]))
        if isinstance(space, Box):
            probe = NormalProbe(scaler(rng, dim), mlp(rng, [dim, 8, 2 * width]))
        novelty = Novelty(dynamics, held_out)
        context = SegmentContext(probe, encoder, scaler(rng, LATENT), novelty)
        if isinstance(encoder, TransitionEncoder) and method != "read-once":
            own = None if method == "unprobed" else probe
            limited = context.latent_scaler.within(rng.normal(size=(3, LATENT)))
            parts = own, encoder, limited, novelty
            context = RefinedContext(*parts, uncertainty_scale=0.7, refine_steps=5)
        if method == "dynasept":
            context = WindowContext(encoder, context.latent_scaler)
        if method == "sept-np":
            start = rng.normal(size=LATENT)
            context = UnprobedContext(start, encoder, context.latent_scaler, novelty)
    networks = [
        mlp(rng, [dim + context.dim, 48, 40, width], norm=True, norm_first=False) for _ in range(2)
    ]
    robust = mlp(rng, [dim, 16, width])
    if isinstance(space, Box):
        networks, robust = [squashed(network) for network in networks], squashed(robust)
    whole = Ensemble(networks) if method == "sept" else networks[0]
    return Agent(
        method=method,
        family="test",
        spaces=Spaces.of(rng.normal(size=(50, DIM)), space),
        context=context,
        control=control(scaler(rng, dim), whole, space),
        fallback=control(scaler(rng, dim), robust, space) if fallback else None,
        record={"seed": seed},
        stack=stack,
    )


def forge(folder: Path, change: Any = None, arrays: Any = None) -> None:
    """Alter an agent and sign it anew, as someone who knows the format could."""
    if arrays is not None:
        weights = safetensors.numpy.load((folder / "weights.safetensors").read_bytes())
        arrays(weights)
        (folder / "weights.safetensors").write_bytes(safetensors.numpy.save(weights))
    description = json.loads((folder / "agent.json").read_text())
    del description["checksum"]
    digest = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    description["weights_sha256"] = digest
    if change is not None:
        change(description)
    body = json.dumps(description, indent=2, sort_keys=True)
    description["checksum"] = hashlib.sha256(body.encode()).hexdigest()
    (folder / "agent.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
