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
from sept_offline.agent.contexts.latent import LatentContext
from sept_offline.agent.novelty import LOG_TWO_PI, ROUNDING
from sept_offline.agent.probes import LOG_DEVIATION, Probe
from sept_offline.errors import AgentError
from sept_offline.tools.deploy.operators import (
    Graph,
    Segment,
    Tensor,
    concat,
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

F32, F64, I64 = np.float32, np.float64, np.int64


def graphs_of(agent: Agent) -> dict[str, Graph]:
    """The graphs of the agent's parts: "probe", "encoder", "novelty", "control", "fallback".

    If the agent stacks observations, the graphs read stacked rows.
    """
    context, dim, space = agent.context, agent.stacking.width, agent.spaces.actions
    graphs: dict[str, Graph] = {}
    if isinstance(context, SegmentContext | RefinedContext) and context.probe is not None:
        graphs["probe"] = _probe(context.probe, dim, space)
    if not isinstance(context, NoContext):
        graphs["encoder"] = _encoder(agent)
    if isinstance(context, RefinedContext) and context.novelty is not None:
        graphs["novelty"] = graph = Graph("novelty")
        _novelty(*_encoded(graph, context, dim, space), context.novelty)
    graphs["control"] = _control("control", agent.control, dim, context.dim, space)
    if agent.fallback is not None:
        graphs["fallback"] = _control("fallback", agent.fallback, dim, 0, space)
    return graphs


def _control(name: str, control: Control, dim: int, context_dim: int, space: ActionSpace) -> Graph:
    """observation `[n, d]`, context `[n, k]`, and mask `[n, A]` or bounds to the action."""
    graph = Graph(name)
    inputs = standardised(graph.input("observation", F32, "n", dim), control.scaler)
    if context_dim:
        inputs = concat(inputs, graph.input("context", F32, "n", context_dim), axis=1)
    output = network(inputs, control.network)
    if isinstance(space, Box):
        action = (output * space.half + space.centre).cast(F32)
        graph.output("action", _within(action, *_bounds(graph, space)), "n", space.width)
        return graph
    mask = graph.input("mask", bool, "n", space.width)
    allowed = mask.where(output, -np.inf)
    graph.output("values", output, "n", space.width)
    graph.output("action", allowed.op("ArgMax", dtype=I64, axis=1, keepdims=0), "n")
    return graph


def _bounds(graph: Graph, space: Box) -> tuple[Tensor, Tensor]:
    """Inputs low and high `[n, k]`, inside the box."""
    low, high = (graph.input(name, F32, "n", space.width) for name in ("low", "high"))
    return low, high


def _within(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return value.op("Max", low).op("Min", high)


def _box_probe(probe: Probe, dim: int, space: Box) -> Graph:
    """observation `[n, d]`, low and high `[n, k]` and draw `[n, k + 1]` to the action `[n, k]`.

    A draw is uniform in [0, 1); the host of the graph generates it. Its first column is not used:
    a policy that mixes two distributions chooses by it.
    """
    graph, size = Graph("probe"), space.width
    low, high = (bound.cast(F64) for bound in _bounds(graph, space))
    draw = graph.input("draw", F64, "n", space.draws).slice(1, space.draws, 1)
    if isinstance(probe, UniformBoxProbe):
        action = low + draw * (high - low)
    elif isinstance(probe, NormalProbe):
        observation = graph.input("observation", F32, "n", dim)
        output = layers(standardised(observation, probe.scaler), probe.network).cast(F64)
        half = graph.double(space.half)
        mean = output.slice(0, size, 1).op("Tanh") * half + space.centre
        deviation = output.slice(size, 2 * size, 1).op("Clip", *LOG_DEVIATION).exp() * half
        graph.output("mean", mean, "n", size)
        graph.output("deviation", deviation, "n", size)
        action = _truncated(mean, deviation, low, high, draw, size)
    else:
        raise AgentError(
            f"A probe of kind {type(probe).__name__} has no ONNX graph for continuous actions."
        )
    graph.output("action", _within(action, low, high).cast(F32), "n", size)
    return graph


def _truncated(
    mean: Tensor, deviation: Tensor, low: Tensor, high: Tensor, draw: Tensor, size: int
) -> Tensor:
    """The value `[n, size]` of `TruncatedNormal` at `draw`, between `low` and `high`."""
    least, most = ((end - mean) / deviation for end in (low, high))
    mirrored = least.op("Greater", 0.0)
    first = mirrored.where(-most, least)
    last = mirrored.where(-least, most)
    below = normal_mass(concat(first, last, axis=1))
    lower, upper = below.slice(0, size, 1), below.slice(size, 2 * size, 1)
    share = mirrored.where(1.0 - draw, draw)
    away = normal_quantile(lower + share * (upper - lower)) * deviation
    return mean + mirrored.where(-away, away)


def _probe(probe: Probe, dim: int, space: ActionSpace) -> Graph:
    """observation `[n, d]`, time `[n]`, mask `[n, A]` and draw `[n]` to probabilities and action.

    A draw is uniform in [0, 1); the host of the graph generates it.
    """
    if isinstance(space, Box):
        return _box_probe(probe, dim, space)
    graph, actions = Graph("probe"), space.width
    if isinstance(probe, NetworkProbe):
        observation = graph.input("observation", F32, "n", dim)
        logits = layers(standardised(observation, probe.scaler), probe.network)
        chances = logits.cast(F64).op("Softmax", axis=1)
    elif isinstance(probe, TableProbe):
        rows = probe.table.astype(F64)
        table = graph.double(rows / rows.sum(axis=1, keepdims=True))
        last = graph.constant(len(rows) - 1, I64)
        chances = table.op("Gather", graph.input("time", I64, "n").op("Min", last), axis=0)
    elif isinstance(probe, UniformProbe):
        chances = graph.double(np.full((1, actions), 1 / actions))
    else:
        raise AgentError(f"A probe of kind {type(probe).__name__} has no ONNX graph.")
    allowed = graph.input("mask", bool, "n", actions)
    draw = graph.input("draw", F64, "n")
    allowed = allowed.cast(F64)
    left = chances * allowed
    left = left.sum(1, keep=True).op("Greater", 0.0).where(left, allowed)
    shares = left / left.sum(1, keep=True)
    edges = shares.op("CumSum", graph.constant(1, I64))
    mark = draw.unsqueeze(1) * edges.slice(actions - 1, actions, 1)
    place = edges.op("LessOrEqual", mark).cast(I64).sum(1)
    # rounding may carry a draw past the last allowed action
    possible = shares.op("Greater", 0.0).cast(F32)
    end = possible.op("ArgMax", dtype=I64, axis=1, keepdims=0, select_last_index=1)
    graph.output("probabilities", shares, "n", actions)
    graph.output("action", place.op("Min", end), "n")
    return graph


def _encoder(agent: Agent) -> Graph:
    """The graph from past steps to the context that control reads."""
    graph, context = Graph("encoder"), agent.context
    dim, space = agent.stacking.width, agent.spaces.actions
    if isinstance(context, HiddenContext):
        vector = standardised(graph.input("hidden", F32, "n", context.dim), context.scaler)
    elif isinstance(context, HistoryContext):
        vector = _history(graph, context, dim, space)
    elif isinstance(context, SegmentContext | UnprobedContext):
        segment, mean, log_var = _encoded(graph, context, dim, space)
        vector = standardised(mean, context.latent_scaler)
        _report(mean, log_var, context)
        if context.novelty is not None:
            _novelty(segment, mean, log_var, context.novelty)
    elif isinstance(context, RefinedContext):
        vector = _refined(graph, context, dim, space)
    elif isinstance(context, WindowContext):
        vector = _window(graph, context, dim, space)
    else:
        raise AgentError(
            f"An agent of the method {agent.method} learns or infers in its episode and has no "
            "ONNX graph; serve it with sept-offline act."
        )
    graph.output("context", vector, "n", context.dim)
    return graph


def _history(graph: Graph, context: HistoryContext, dim: int, space: ActionSpace) -> Tensor:
    """observations `[n, H, d]`, actions `[n, H]`, seen `[n, H]`, the newest step first."""
    observations = graph.input("observations", F32, "n", context.steps, dim)
    state = standardised(observations, context.scaler)
    taken = taken_actions(graph, context.steps, space)
    seen = graph.input("seen", bool, "n", context.steps).unsqueeze(2)
    columns = concat(state, taken, seen.cast(F32), axis=2)
    return seen.where(columns, 0.0).reshape(0, context.dim)


def _encoded(
    graph: Graph, context: LatentContext, dim: int, space: ActionSpace
) -> tuple[Segment, Tensor, Tensor]:
    """observations `[n, T+1, d]`, actions `[n, T, …]`, the oldest step first."""
    steps = context.encoder.steps
    observations = graph.input("observations", F32, "n", steps + 1, dim)
    segment = Segment(graph, observations, steps, space)
    return segment, *encoded(segment, context.encoder)


def _report(mean: Tensor, log_var: Tensor, context: LatentContext) -> Tensor:
    """Add the outputs latent and uncertainty; returns the deviation `[n, k]`."""
    deviation = (log_var * 0.5).exp()
    mean.graph.output("latent", mean, "n", context.encoder.latent_dim)
    mean.graph.output("uncertainty", deviation.mean(1) * context.uncertainty_scale, "n")
    return deviation


def _refined(graph: Graph, context: RefinedContext, dim: int, space: ActionSpace) -> Tensor:
    """One step, observations `[n, 2, d]` and actions `[n, 1]`, added to the evidence before it."""
    observations = graph.input("observations", F32, "n", 2, dim)
    added = evidence(Segment(graph, observations, 1, space), context.encoder)
    sums = []
    for name, new in zip(("weighted", "precision"), added, strict=True):
        sums.append(graph.input(f"{name}_before", F32, "n", context.dim) + new)
        graph.output(name, sums[-1], "n", context.dim)
    mean, log_var = posterior(*sums)
    _report(mean, log_var, context)
    return standardised(mean, context.latent_scaler)


def _window(graph: Graph, context: WindowContext, dim: int, space: ActionSpace) -> Tensor:
    """As `_encoded`, and largest `[n, k]`, the largest deviation of the episode so far."""
    _, mean, log_var = _encoded(graph, context, dim, space)
    size = context.encoder.latent_dim
    before = graph.input("largest_before", F32, "n", size)
    deviation = _report(mean, log_var, context)
    largest = before.op("Max", deviation)
    graph.output("largest", largest, "n", size)
    doubt = (deviation / largest).mean(1, keep=True)
    return concat(standardised(mean, context.latent_scaler), doubt, axis=1)


def _novelty(segment: Segment, mean: Tensor, log_var: Tensor, novelty: Novelty) -> None:
    """The ELBO's place among those of fresh segments, with the same 2k points as the library."""
    graph, size = segment.graph, novelty.decoder.latent_dim
    mean, wide = mean.cast(F64), log_var.cast(F64)
    half = graph.double(0.5)
    reach = (wide * half).exp() * np.sqrt(size)
    signed = graph.double(np.concatenate([np.eye(size), -np.eye(size)]))
    offsets = reach.unsqueeze(1) * signed
    points = mean.unsqueeze(1) + offsets
    likelihood = log_likelihood(segment, points, novelty.decoder).mean(1)
    if novelty.prior is None:
        terms = wide.exp() + mean * mean - 1.0 - wide
        divergence = terms.sum(1) * half
    else:
        variance = novelty.prior.variance.astype(F64)
        apart = points.unsqueeze(2) - novelty.prior.mean.astype(F64)
        terms = apart * apart / variance + (np.log(variance) + LOG_TWO_PI)
        each = terms.sum(3) * -0.5
        # in steps: not every runtime has ReduceLogSumExp in float64
        top = each.op("ReduceMax", axes=[2], keepdims=1)
        shares = (each - top).exp().mean(2)
        density = shares.op("Log") + top.op("Squeeze", graph.constant([2], I64))
        entropy = (wide + (LOG_TWO_PI + 1)).sum(1) * half
        divergence = -(entropy + density.mean(1))
    elbo = likelihood - divergence
    # the tolerance is subtracted from the constants, which saves an operator
    elbos = graph.double(novelty.elbos - ROUNDING)
    share = elbos.op("LessOrEqual", elbo.unsqueeze(1)).cast(F64).mean(1)
    graph.output("novelty", share, "n")
    graph.output("flagged", share.op("Less", novelty.flagged_below), "n")
