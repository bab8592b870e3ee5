"""The section on what was learned: the latent, the probe and control of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.agent import Agent
from sept_offline.tools.bench.figures.figure import BLACK, Dash, Line
from sept_offline.tools.report.blocks import Block, Chart, Facts, Heading, Note, Section
from sept_offline.tools.report.charts import (
    MUTED,
    Plot,
    bars_plot,
    label,
    line_traces,
    lines_plot,
    merged,
)
from sept_offline.tools.report.plane import plane_chart
from sept_offline.tools.report.sources import Metric, Run
from sept_offline.tools.report.text import count, distinct, number, plural

STATES = 400
"""Most logged segments on which the probe and the behaviour are compared."""
BLUE, ORANGE = "#0072B2", "#E69F00"


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
    plane = plane_chart(run, f"plane-{place}")
    if plane is not None:
        blocks.append(plane)
    blocks += [block for block in (_latent(run, place), _probe(run, place)) if block is not None]
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
        ("needs beside observations", ", ".join(sorted(agent.needs)) or "nothing"),
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
        blocks.append(
            Chart(
                f"probe-training-{place}",
                "Training of the probe",
                caption,
                chart,
            )
        )
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
        blocks.append(
            Chart(
                f"control-{place}",
                "Control",
                caption,
                chart,
            )
        )
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
        "layout": merged(chart["layout"], more),
    }
