"""Probe, encoder and control of an agent, each as an ONNX graph."""

from __future__ import annotations

import numpy as np

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent import (
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
    TableProbe,
    UniformBoxProbe,
    UniformProbe,
    UnprobedContext,
    WindowContext,
)
from sept_offline.agent.novelty import ROUNDING
from sept_offline.agent.probes import LOG_DEVIATION, Probe
from sept_offline.deploy.graph import Graph
from sept_offline.deploy.operators import (
    Segment,
    encoded,
    evidence,
    layers,
    log_likelihood,
    network,
    normal_mass,
    normal_quantile,
    posterior,
    standardised,
    taken_actions,
)
from sept_offline.errors import AgentError

F32, F64, I64 = np.float32, np.float64, np.int64
LOG_TWO_PI = float(np.log(2 * np.pi))


def graphs_of(agent: Agent) -> dict[str, Graph]:
    """The graphs of the agent's parts: "probe", "encoder", "novelty", "control", "fallback".

    If the agent stacks observations, the graphs read stacked rows.
    """
    context, dim, space = agent.context, agent.stacking.width, agent.spaces.actions
    found: dict[str, Graph] = {}
    if isinstance(context, SegmentContext | RefinedContext) and context.probe is not None:
        found["probe"] = _probe(context.probe, dim, space)
    if not isinstance(context, NoContext):
        found["encoder"] = _encoder(agent)
    if isinstance(context, RefinedContext) and context.novelty is not None:
        found["novelty"] = graph = Graph("novelty")
        _novelty(graph, *_encoded(graph, context, dim, space), context.novelty)
    found["control"] = _control("control", agent.control, dim, context.dim, space)
    if agent.fallback is not None:
        found["fallback"] = _control("fallback", agent.fallback, dim, 0, space)
    return found


def _control(name: str, control: Control, dim: int, context_dim: int, space: ActionSpace) -> Graph:
    """observation `[n, d]`, context `[n, k]`, and mask `[n, A]` or bounds to the action."""
    graph = Graph(name)
    inputs = standardised(graph, graph.input("observation", F32, "n", dim), control.scaler)
    if context_dim:
        context = graph.input("context", F32, "n", context_dim)
        inputs = graph.op("Concat", inputs, context, axis=1)
    output = network(graph, inputs, control.network)
    if isinstance(space, Box):
        scaled = graph.op("Mul", output, graph.double(space.half))
        action = graph.cast(graph.op("Add", scaled, graph.double(space.centre)), F32)
        graph.output(
            "action", _within(graph, action, *_bounds(graph, space)), F32, "n", space.width
        )
        return graph
    actions, values = space.width, output
    mask = graph.input("mask", bool, "n", actions)
    allowed = graph.op("Where", mask, values, graph.constant(-np.inf))
    graph.output("values", values, F32, "n", actions)
    graph.output("action", graph.op("ArgMax", allowed, axis=1, keepdims=0), I64, "n")
    return graph


def _bounds(graph: Graph, space: Box) -> tuple[str, str]:
    """Inputs low and high `[n, k]`, which lie inside the box."""
    low, high = (graph.input(name, F32, "n", space.width) for name in ("low", "high"))
    return low, high


def _within(graph: Graph, value: str, low: str, high: str) -> str:
    return graph.op("Min", graph.op("Max", value, low), high)


def _box_probe(probe: Probe, dim: int, space: Box) -> Graph:
    """observation `[n, d]`, low and high `[n, k]` and draw `[n, k + 1]` to the action `[n, k]`.

    A draw is uniform in [0, 1); the host of the graph generates it. Its first column is not used:
    a policy that mixes two distributions chooses by it.
    """
    graph, size = Graph("probe"), space.width
    low, high = (graph.cast(bound, F64) for bound in _bounds(graph, space))
    draw = graph.slice(graph.input("draw", F64, "n", space.draws), 1, space.draws, 1)
    if isinstance(probe, UniformBoxProbe):
        action = graph.op("Add", low, graph.op("Mul", draw, graph.op("Sub", high, low)))
    elif isinstance(probe, NormalProbe):
        observation = graph.input("observation", F32, "n", dim)
        output = layers(graph, standardised(graph, observation, probe.scaler), probe.network)
        output = graph.cast(output, F64)
        half = graph.double(space.half)
        mean = graph.op("Mul", graph.op("Tanh", graph.slice(output, 0, size, 1)), half)
        mean = graph.op("Add", mean, graph.double(space.centre))
        ends = (graph.double(bound) for bound in LOG_DEVIATION)
        spread = graph.op("Clip", graph.slice(output, size, 2 * size, 1), *ends)
        deviation = graph.op("Mul", graph.op("Exp", spread), half)
        graph.output("mean", mean, F64, "n", size)
        graph.output("deviation", deviation, F64, "n", size)
        action = _truncated(graph, mean, deviation, low, high, draw, size)
    else:
        raise AgentError(f"A probe of kind {type(probe).__name__} has no ONNX graph for a box.")
    graph.output("action", graph.cast(_within(graph, action, low, high), F32), F32, "n", size)
    return graph


def _truncated(
    graph: Graph, mean: str, deviation: str, low: str, high: str, draw: str, size: int
) -> str:
    """The value `[n, size]` of `TruncatedNormal` at `draw`, between `low` and `high`."""
    least, most = (graph.op("Div", graph.op("Sub", end, mean), deviation) for end in (low, high))
    mirrored = graph.op("Greater", least, graph.double(0.0))
    first = graph.op("Where", mirrored, graph.op("Neg", most), least)
    last = graph.op("Where", mirrored, graph.op("Neg", least), most)
    below = normal_mass(graph, graph.op("Concat", first, last, axis=1))
    lower, upper = graph.slice(below, 0, size, 1), graph.slice(below, size, 2 * size, 1)
    share = graph.op("Where", mirrored, graph.op("Sub", graph.double(1.0), draw), draw)
    places = graph.op("Add", lower, graph.op("Mul", share, graph.op("Sub", upper, lower)))
    away = graph.op("Mul", normal_quantile(graph, places), deviation)
    return graph.op("Add", mean, graph.op("Where", mirrored, graph.op("Neg", away), away))


def _probe(probe: Probe, dim: int, space: ActionSpace) -> Graph:
    """observation `[n, d]`, time `[n]`, mask `[n, A]` and draw `[n]` to probabilities and action.

    A draw is uniform in [0, 1); the host of the graph generates it.
    """
    if isinstance(space, Box):
        return _box_probe(probe, dim, space)
    graph, actions = Graph("probe"), space.width
    if isinstance(probe, NetworkProbe):
        observation = graph.input("observation", F32, "n", dim)
        logits = layers(graph, standardised(graph, observation, probe.scaler), probe.network)
        chances = graph.op("Softmax", graph.cast(logits, F64), axis=1)
    elif isinstance(probe, TableProbe):
        rows = probe.table.astype(F64)
        table = graph.double(rows / rows.sum(axis=1, keepdims=True))
        last = graph.constant(len(rows) - 1, I64)
        time = graph.op("Min", graph.input("time", I64, "n"), last)
        chances = graph.op("Gather", table, time, axis=0)
    elif isinstance(probe, UniformProbe):
        chances = graph.double(np.full((1, actions), 1 / actions))
    else:
        raise AgentError(f"A probe of kind {type(probe).__name__} has no ONNX graph.")
    mask = graph.input("mask", bool, "n", actions)
    draw = graph.input("draw", F64, "n")
    allowed = graph.cast(mask, F64)
    left = graph.op("Mul", chances, allowed)
    some = graph.op("Greater", graph.sum(left, 1, keep=True), graph.double(0.0))
    left = graph.op("Where", some, left, allowed)
    shares = graph.op("Div", left, graph.sum(left, 1, keep=True))
    edges = graph.op("CumSum", shares, graph.constant(1, I64))
    mark = graph.op("Mul", graph.unsqueeze(draw, 1), graph.slice(edges, actions - 1, actions, 1))
    place = graph.sum(graph.cast(graph.op("LessOrEqual", edges, mark), I64), 1)
    # rounding may carry a draw past the last allowed action
    possible = graph.cast(graph.op("Greater", shares, graph.double(0.0)), F32)
    end = graph.op("ArgMax", possible, axis=1, keepdims=0, select_last_index=1)
    graph.output("probabilities", shares, F64, "n", actions)
    graph.output("action", graph.op("Min", place, end), I64, "n")
    return graph


def _encoder(agent: Agent) -> Graph:
    """The graph from past steps to the context that control reads."""
    graph, context = Graph("encoder"), agent.context
    dim, space = agent.stacking.width, agent.spaces.actions
    if isinstance(context, HiddenContext):
        hidden = graph.input("hidden", F32, "n", context.dim)
        vector = standardised(graph, hidden, context.scaler)
    elif isinstance(context, HistoryContext):
        vector = _history(graph, context, dim, space)
    elif isinstance(context, SegmentContext | UnprobedContext):
        segment, mean, log_var = _encoded(graph, context, dim, space)
        vector = standardised(graph, mean, context.latent_scaler)
        _tell(graph, mean, log_var, context.dim, context.uncertainty_scale)
        if context.novelty is not None:
            _novelty(graph, segment, mean, log_var, context.novelty)
    elif isinstance(context, RefinedContext):
        vector = _refined(graph, context, dim, space)
    elif isinstance(context, WindowContext):
        vector = _window(graph, context, dim, space)
    else:
        raise AgentError(
            f"An agent of the method {agent.method} learns or infers in its episode and has no "
            "ONNX graph; only sept-offline itself can run it."
        )
    graph.output("context", vector, F32, "n", context.dim)
    return graph


def _history(graph: Graph, context: HistoryContext, dim: int, space: ActionSpace) -> str:
    """observations `[n, H, d]`, actions `[n, H]`, seen `[n, H]`, the newest step first."""
    state = standardised(
        graph, graph.input("observations", F32, "n", context.steps, dim), context.scaler
    )
    taken = taken_actions(graph, context.steps, space)
    seen = graph.unsqueeze(graph.input("seen", bool, "n", context.steps), 2)
    columns = graph.op("Concat", state, taken, graph.cast(seen, F32), axis=2)
    whole = graph.op("Where", seen, columns, graph.constant(0.0))
    return graph.reshape(whole, 0, context.dim)


def _encoded(
    graph: Graph,
    context: SegmentContext | RefinedContext | UnprobedContext | WindowContext,
    dim: int,
    space: ActionSpace,
) -> tuple[Segment, str, str]:
    """observations `[n, T+1, d]`, actions `[n, T, …]`, the oldest step first."""
    steps = context.encoder.steps
    observations = graph.input("observations", F32, "n", steps + 1, dim)
    segment = Segment(graph, observations, steps, space)
    return segment, *encoded(graph, segment, context.encoder)


def _tell(graph: Graph, mean: str, log_var: str, size: int, scale: float = 1.0) -> str:
    """Add the outputs latent and uncertainty; returns the deviation `[n, k]`."""
    deviation = graph.op("Exp", graph.op("Mul", log_var, graph.constant(0.5)))
    graph.output("latent", mean, F32, "n", size)
    uncertainty = graph.op("Mul", graph.mean(deviation, 1), graph.constant(scale))
    graph.output("uncertainty", uncertainty, F32, "n")
    return deviation


def _refined(graph: Graph, context: RefinedContext, dim: int, space: ActionSpace) -> str:
    """One step, observations `[n, 2, d]` and actions `[n, 1]`, added to the evidence before it."""
    size = context.dim
    observations = graph.input("observations", F32, "n", 2, dim)
    found = evidence(graph, Segment(graph, observations, 1, space), context.encoder)
    sums = []
    for name, new in zip(("weighted", "precision"), found, strict=True):
        before = graph.input(f"{name}_before", F32, "n", size)
        sums.append(graph.op("Add", before, new))
        graph.output(name, sums[-1], F32, "n", size)
    mean, log_var = posterior(graph, *sums)
    _tell(graph, mean, log_var, size, context.uncertainty_scale)
    return standardised(graph, mean, context.latent_scaler)


def _window(graph: Graph, context: WindowContext, dim: int, space: ActionSpace) -> str:
    """As `_encoded`, and largest `[n, k]`, the largest deviation of the episode so far."""
    _, mean, log_var = _encoded(graph, context, dim, space)
    size = context.encoder.latent_dim
    before = graph.input("largest_before", F32, "n", size)
    deviation = _tell(graph, mean, log_var, size)
    largest = graph.op("Max", before, deviation)
    graph.output("largest", largest, F32, "n", size)
    doubt = graph.op("ReduceMean", graph.op("Div", deviation, largest), axes=[1], keepdims=1)
    return graph.op("Concat", standardised(graph, mean, context.latent_scaler), doubt, axis=1)


def _novelty(graph: Graph, segment: Segment, mean: str, log_var: str, novelty: Novelty) -> None:
    """The ELBO's place among those of held-out segments, with the same 2k points as the library."""
    size = novelty.decoder.latent_dim
    mean, wide = graph.cast(mean, F64), graph.cast(log_var, F64)
    half = graph.double(0.5)
    deviation = graph.op("Exp", graph.op("Mul", wide, half))
    reach = graph.op("Mul", deviation, graph.double(np.sqrt(size)))
    signed = graph.double(np.concatenate([np.eye(size), -np.eye(size)]))
    offsets = graph.op("Mul", graph.unsqueeze(reach, 1), signed)
    points = graph.op("Add", graph.unsqueeze(mean, 1), offsets)
    likelihood = graph.mean(log_likelihood(graph, segment, points, novelty.decoder), 1)
    if novelty.prior is None:
        squares = graph.op("Add", graph.op("Exp", wide), graph.op("Mul", mean, mean))
        terms = graph.op("Sub", graph.op("Sub", squares, graph.double(1.0)), wide)
        divergence = graph.op("Mul", graph.sum(terms, 1), half)
    else:
        centre = novelty.prior.mean.astype(F64)
        variance = novelty.prior.variance.astype(F64)
        apart = graph.op("Sub", graph.unsqueeze(points, 2), graph.double(centre))
        terms = graph.op("Div", graph.op("Mul", apart, apart), graph.double(variance))
        terms = graph.op("Add", terms, graph.double(np.log(variance) + LOG_TWO_PI))
        each = graph.op("Mul", graph.sum(terms, 3), graph.double(-0.5))
        # in steps: not every runtime has ReduceLogSumExp in float64
        top = graph.op("ReduceMax", each, axes=[2], keepdims=1)
        shares = graph.mean(graph.op("Exp", graph.op("Sub", each, top)), 2)
        density = graph.op(
            "Add", graph.op("Log", shares), graph.op("Squeeze", top, graph.constant([2], I64))
        )
        entropy = graph.op("Add", wide, graph.double(LOG_TWO_PI + 1))
        entropy = graph.op("Mul", graph.sum(entropy, 1), half)
        divergence = graph.op("Neg", graph.op("Add", entropy, graph.mean(density, 1)))
    elbo = graph.op("Sub", likelihood, divergence)
    # the tolerance is subtracted from the constants, which saves an operator
    held_out = graph.double(novelty.held_out - ROUNDING)
    below = graph.op("LessOrEqual", held_out, graph.unsqueeze(elbo, 1))
    share = graph.mean(graph.cast(below, F64), 1)
    graph.output("novelty", share, F64, "n")
    limit = graph.double(novelty.flagged_below)
    graph.output("flagged", graph.op("Less", share, limit), bool, "n")
