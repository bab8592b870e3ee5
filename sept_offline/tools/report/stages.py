"""The section on what was learned: the latent, the probe and control of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.agent import Agent
from sept_offline.elementary import Doubles
from sept_offline.settings import merge
from sept_offline.tools.bench.figures.figure import BLACK, INSTANCES, Dash, Dots, Line
from sept_offline.tools.bench.figures.plane import directions
from sept_offline.tools.report.charts import (
    GRID,
    INK,
    MUTED,
    SURFACE,
    Plot,
    Trace,
    bars_plot,
    dots_trace,
    ink,
    label,
    layout,
    line_traces,
    lines_plot,
    numbers,
)
from sept_offline.tools.report.page import (
    Block,
    Chart,
    Facts,
    Heading,
    Note,
    Section,
    count,
    distinct,
    number,
    plural,
    shortened,
)
from sept_offline.tools.report.sources import Metric, Run

STATES = 400
"""Most logged segments on which the probe and the behaviour are compared."""
SEGMENTS = 400
"""Most encoded segments, the same number of each instance."""
HOVER = "%{text}<br>%{x:.3g}, %{y:.3g}<extra></extra>"
BLUE, ORANGE = "#0072B2", "#E69F00"
QUANTITIES = {
    "finite": (
        "probability",
        "mean probability of each action, for the probe and for the behaviour. Where the "
        "behaviour's probabilities were not logged, its action frequencies are shown.",
    ),
    "box": (
        "mean, scaled to −1 … 1",
        "mean of each component of the action, from −1 at its lower bound to 1 at its upper one, "
        "for the probe and for the behaviour.",
    ),
}
"""What is shown of a probe, by the kind of the action space: the axis, and the caption."""


def stages(runs: Sequence[Run]) -> Section:
    """One part per run."""
    blocks: list[Block] = []
    for place, run in enumerate(runs):
        if len(runs) > 1:
            blocks.append(Heading(run.name))
        blocks += _run(run, str(place))
    return Section(
        "learned",
        "What was learned",
        "From the logs alone: a latent for each instance, a probe that reveals it, and a control "
        "policy that uses it.",
        blocks,
    )


def _run(run: Run, place: str) -> list[Block]:
    blocks: list[Block] = []
    if run.agent is None:
        blocks.append(Note(run.missing["agent"], "warning"))
    else:
        blocks.append(_facts(run.method, run.agent))
        if isinstance(run.agent.record.get("probe"), str):
            blocks.append(Note(f"Probe: {run.agent.record['probe']}."))
    charts = (_plane(run, place), _latent(run, place), _probe(run, place))
    blocks += [chart for chart in charts if chart is not None]
    blocks += _training(run, place)
    if "metrics" in run.missing:
        blocks.append(Note(run.missing["metrics"], "warning"))
    elif len(blocks) < 2 and not run.metrics:
        blocks.append(Note("The run has no metrics."))
    return blocks


def _facts(method: str, agent: Agent) -> Facts:
    record = agent.record
    items = [
        ("method", method),
        ("needs besides observations", ", ".join(sorted(agent.needs)) or "nothing"),
        ("learns during the episode", "yes" if agent.learns else "no"),
        ("probe", plural(agent.probe_steps, "step") if agent.probe_steps else "none"),
        ("stacked observations", count(agent.stack)),
    ]
    scores = record.get("identification")
    if isinstance(scores, Mapping) and "neighbours" in scores:
        share, chance = float(scores["neighbours"]), float(scores.get("chance", 0.0))
        items.append(("identification", f"{share:.3g} (chance: {chance:.2g})"))
    if record.get("behaviour_estimated"):
        items.append(("behaviour's probabilities", "estimated"))
    return Facts(items)


def _latent(run: Run, place: str) -> Chart | None:
    curves = {
        "ELBO": run.metrics.get(("latent", "elbo")),
        "log-likelihood": run.metrics.get(("latent", "log_likelihood")),
    }
    identification = run.metrics.get(("latent", "identification"))
    lines = [
        _line(name, metric, colour)
        for (name, metric), colour in zip(curves.items(), (BLUE, ORANGE), strict=True)
        if metric is not None
    ]
    if not lines:
        return None
    chart = lines_plot(lines, "update", "nats")
    caption = "Log-likelihood of the logged transitions."
    if curves["ELBO"] is not None:
        caption = "Lower bound on the log-likelihood of the logged transitions."
    if identification is not None:
        right = _line("identification", identification, BLACK, "dotted")
        chart = _with_right_axis(chart, right, {"range": [0, 1.04]})
        caption += (
            " Right: identification, the share of held-out segments matched to their instance."
        )
    return Chart(f"latent-{place}", "Training of the latent", caption, chart)


def _line(name: str, metric: Metric, colour: str, dash: Dash = "solid") -> Line:
    updates, values = np.array(metric.updates, np.float64), np.array(metric.values, np.float64)
    return Line(name, updates, values, colour=colour, dash=dash)


def _probe(run: Run, place: str) -> Chart | None:
    """What the probe and the behaviour do on the same logged states: probabilities, mean doses."""
    probe = getattr(run.agent.context, "probe", None) if run.agent is not None else None
    if probe is None or run.agent is None or run.data is None:
        return None
    steps = run.agent.probe_steps
    segments = run.data.stacked(run.agent.stack).segments(steps)
    if not len(segments.actions):
        return None
    chosen = np.linspace(0, len(segments.actions) - 1, min(STATES, len(segments.actions)))
    rows = chosen.astype(np.int64)
    space = run.agent.spaces.actions
    actions = [label(name) for name in distinct(space.names)]
    probed, behaved = [], []
    for time in range(steps):
        states = segments.observations[rows, time]
        means = [probe.policy(state, time).encoded_mean for state in states]
        probed.append(np.mean(means, axis=0))
        behaved.append(_behaviour(segments, rows, time, space))
    quantity = QUANTITIES[space.kind]
    names: list[Any] = list(actions)
    if steps > 1:
        names = [
            [f"step {time}" for time in range(steps) for _ in actions],
            [name for _ in range(steps) for name in actions],
        ]
    shown = {
        "probe": np.concatenate(probed).tolist(),
        "behaviour": np.concatenate(behaved).tolist(),
    }
    return Chart(
        f"probe-{place}",
        "The probe beside the behaviour",
        f"In the states of {count(len(rows))} logged initial segments: {quantity[1]}",
        bars_plot(names, shown, "action", quantity[0], [ORANGE, MUTED]),
    )


def _behaviour(
    segments: Any, rows: NDArray[np.int64], time: int, space: ActionSpace
) -> NDArray[np.float64]:
    """Mean of the encoded logged actions at a step; of the probabilities where they are known."""
    known = segments.propensities
    listed = known is not None and known.ndim == 3 and np.isfinite(known[rows, time]).all()
    shown = known[rows, time] if listed else space.encode(segments.actions[rows, time])
    return np.asarray(shown.mean(axis=0), dtype=np.float64)


def _training(run: Run, place: str) -> list[Block]:
    blocks: list[Block] = []
    reward, ess = run.metrics.get(("probe", "reward")), run.metrics.get(("probe", "ess_share"))
    reward = reward or run.metrics.get(("latent", "reward"))
    if reward is not None:
        chart = lines_plot([_line("reward", reward, ORANGE)], "update", "reward")
        caption = "Its importance-weighted reward."
        if ess is not None:
            share = _line("ESS / segments", ess, BLUE, "dotted")
            chart = _with_right_axis(chart, share, {"range": [0, 1.04]})
            caption += (
                " Right: effective sample size of the weights as a share of the segments; "
                f"{number(ess.values[-1])} at the end."
            )
        blocks.append(Chart(f"probe-training-{place}", "Training of the probe", caption, chart))
    q, bound = run.metrics.get(("control", "max_q")), run.metrics.get(("control", "max_q_bound"))
    if q is not None:
        lines = [_line("mean max Q", q, BLUE)]
        caption = "Mean of max Q over logged states."
        if bound is not None:
            lines.append(_line("bound", bound, MUTED, "dashed"))
            caption = "Mean of max Q over logged states, and the largest value rewards allow."
        chart = lines_plot(lines, "update", "mean max Q, scaled")
        loss = run.metrics.get(("control", "loss"))
        if loss is not None:
            chart = _with_right_axis(chart, _line("loss", loss, ORANGE, "dotted"))
            caption += " Right: the loss."
        if bound is not None and q.values[-1] > bound.values[-1]:
            caption += " Q ended above the bound: it is too optimistic."
        blocks.append(Chart(f"control-{place}", "Control", caption, chart))
    return blocks


def _with_right_axis(chart: Plot, line: Line, scale: dict[str, Any] | None = None) -> Plot:
    """The chart with one more line, which has its own scale on the right."""
    more = {
        "yaxis2": {
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
            "title": {"text": label(line.name)},
            "automargin": True,
            "tickmode": "auto",
            "nticks": 6,
            "tickformat": ".3~g",
            **(scale or {}),
        },
        "showlegend": True,
        "margin": {"r": 56},
    }
    return {
        "data": [
            *({**trace, "showlegend": True} for trace in chart["data"]),
            *(trace | {"yaxis": "y2"} for trace in line_traces(line)),
        ],
        "layout": merge(chart["layout"], more),
    }


@dataclass(frozen=True)
class Cloud:
    """Places `[N, 2]` and spread `[N, 2]`, one standard deviation, in the plane; instance `[N]`."""

    axes: tuple[str, str]
    place: Doubles
    spread: Doubles
    instance: NDArray[np.int64]
    names: Sequence[str]
    hidden: dict[str, Doubles]
    """Hidden parameter → `[N]`; empty where they are not known."""
    tested: Doubles
    """Places `[M, 2]` of the test episodes."""
    tested_names: Sequence[str]


def _plane(run: Run, place: str) -> Chart | None:
    """The latent plane; None without an encoder, without logs, or with too short segments."""
    cloud = _cloud(run)
    if cloud is None:
        return None
    how = ", in its two widest directions" if cloud.axes[0] == "first PC" else ""
    tests = "; diamonds are the test episodes" if len(cloud.tested) else ""
    choice = " The menu colours them by a hidden parameter." if cloud.hidden else ""
    return Chart(
        f"plane-{place}",
        "The latent plane",
        f"Latents of {count(len(cloud.place))} logged initial segments{how}, with one standard "
        f"deviation of the posterior{tests}.{choice}",
        _plane_plot(cloud),
    )


def _cloud(run: Run) -> Cloud | None:
    encoder = getattr(run.agent.context, "encoder", None) if run.agent is not None else None
    if encoder is None or run.data is None or run.agent is None:
        return None
    segments = run.data.stacked(run.agent.stack).segments(encoder.steps)
    if not len(segments.actions):
        return None
    rows = _evenly(segments.instance, max(1, SEGMENTS // len(run.data.instances)))
    taken = run.agent.spaces.actions.encode(segments.actions[rows])
    mean, log_var = encoder.encode(segments.observations[rows], taken)
    played = run.results.episodes if run.results is not None else ()
    dim = mean.shape[1]
    latents = [e for e in played if e.latent is not None and len(e.latent) == dim][:SEGMENTS]
    tested = np.array([e.latent for e in latents], dtype=np.float64).reshape(-1, dim)
    axes, place, spread, there = _projected(
        np.asarray(mean, np.float64), np.exp(np.asarray(log_var, np.float64)), tested
    )
    hidden: dict[str, Doubles] = {}
    if run.data.hidden is not None:
        table = run.data.hidden.values[segments.instance[rows]]
        for column, name in enumerate(run.data.hidden.names):
            # An unknown parameter is NaN; a constant one cannot colour anything.
            if np.isfinite(table[:, column]).all() and len(np.unique(table[:, column])) > 1:
                hidden[name] = np.asarray(table[:, column], dtype=np.float64)
    return Cloud(
        axes,
        place,
        spread,
        segments.instance[rows],
        run.data.instances,
        hidden,
        there,
        [f"{shortened(e.instance)}, episode {e.episode}" for e in latents],
    )


def _evenly(instance: NDArray[np.int64], each: int) -> NDArray[np.int64]:
    kept = []
    for code in np.unique(instance):
        rows = np.flatnonzero(instance == code)
        kept.append(rows[np.linspace(0, len(rows) - 1, min(each, len(rows))).astype(np.int64)])
    chosen = np.concatenate(kept)
    return chosen[:: -(-len(chosen) // SEGMENTS)]  # thousands of instances: not even one each


def _projected(
    mean: Doubles, variance: Doubles, tested: Doubles
) -> tuple[tuple[str, str], Doubles, Doubles, Doubles]:
    """Axes' names, places `[N, 2]`, spread `[N, 2]` and test places `[M, 2]`."""
    dim = mean.shape[1]
    if dim == 2:
        return ("z₁", "z₂"), mean, np.sqrt(variance), tested
    if dim == 1:
        flat = [np.column_stack([z[:, 0], np.zeros(len(z))]) for z in (mean, tested)]
        spread = np.column_stack([np.sqrt(variance[:, 0]), np.zeros(len(mean))])
        return ("z", ""), flat[0], spread, flat[1]
    centre, two = mean.mean(axis=0), directions(mean).T
    spread = np.sqrt(variance @ two**2)
    return ("first PC", "second PC"), (mean - centre) @ two, spread, (tested - centre) @ two


def _plane_plot(cloud: Cloud) -> Plot:
    groups = [_by_instance(cloud)]
    groups += [[_by_value(cloud, name, values)] for name, values in cloud.hidden.items()]
    data = [trace for group in groups for trace in group]
    for trace in data[len(groups[0]) :]:
        trace["visible"] = False
    extra: list[Trace] = [_tests(cloud)] if len(cloud.tested) else []
    menu = _menu(cloud, [len(group) for group in groups], len(extra)) if cloud.hidden else []
    more = {
        "updatemenus": menu,
        "margin": {"t": 56 if menu else 16},
        "legend": {"x": 0, "y": -0.16, "yanchor": "top"},
        "showlegend": True,
        "yaxis": {"scaleanchor": "x"} if cloud.axes[1] else {"visible": False},
    }
    return {"data": data + extra, "layout": layout(*cloud.axes, height=460, more=more)}


def _by_instance(cloud: Cloud) -> list[Trace]:
    """A trace per instance while the colours last, else one on a colour scale."""
    codes = np.unique(cloud.instance)
    if len(codes) > len(INSTANCES):
        return [_by_value(cloud, "instance", cloud.instance.astype(np.float64))]
    traces = []
    for code, colour in zip(codes, INSTANCES, strict=False):
        name = shortened(cloud.names[code])
        traces.append(_points(cloud, cloud.instance == code, name, ink(colour), colour=colour))
    return traces


def _by_value(cloud: Cloud, name: str, values: Doubles) -> Trace:
    everything = np.ones(len(cloud.place), dtype=np.bool_)
    trace = _points(cloud, everything, name, GRID, values=values)
    bar = {"title": {"text": label(name)}, "thickness": 12, "outlinewidth": 0}
    trace["marker"] |= {"showscale": True, "colorbar": bar}
    return trace | {"showlegend": False}


def _points(cloud: Cloud, rows: NDArray[np.bool_], name: str, bars: str, **colouring: Any) -> Trace:
    """Logged segments and, in the colour `bars`, one standard deviation of each."""
    notes = [cloud.names[code] for code in cloud.instance[rows]]
    x, y = cloud.place[rows].T
    spread = {
        axis: {
            "type": "data",
            "array": numbers(cloud.spread[rows, column]),
            "color": bars,
            "thickness": 0.6,
            "width": 0,
        }
        for column, axis in enumerate(("error_x", "error_y"))
    }
    return dots_trace(Dots(name, x, y, notes, **colouring)) | {"hovertemplate": HOVER} | spread


def _tests(cloud: Cloud) -> Trace:
    x, y = cloud.tested.T
    trace = dots_trace(Dots("test episodes", x, y, ()))
    marker = {
        "symbol": "diamond-open",
        "size": 9,
        "color": INK,
        "line": {"width": 1.2, "color": INK},
    }
    names = [label(name) for name in cloud.tested_names]
    return trace | {"text": names, "hovertemplate": HOVER, "marker": marker}


def _menu(cloud: Cloud, sizes: list[int], extra: int) -> list[dict[str, Any]]:
    """Which colouring is shown; the test episodes always are."""
    buttons = []
    for place, name in enumerate(["instance", *cloud.hidden]):
        seen = [place == group for group, size in enumerate(sizes) for _ in range(size)]
        buttons.append(
            {
                "label": label(name),
                "method": "restyle",
                "args": [{"visible": seen + [True] * extra}],
            }
        )
    return [
        {
            "buttons": buttons,
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "bgcolor": SURFACE,
            "bordercolor": GRID,
            "font": {"color": INK},
        }
    ]
