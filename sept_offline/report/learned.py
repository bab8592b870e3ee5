"""What was learned: the latent plane, the probe beside the behaviour, control against its bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import Agent
from sept_offline.report.blocks import Block, Chart, Facts, Heading, Note, Section
from sept_offline.report.charts import (
    INK,
    MUTED,
    Line,
    bars_chart,
    label,
    line_traces,
    lines_chart,
    merged,
)
from sept_offline.report.plane import plane_chart
from sept_offline.report.sources import Metric, Run
from sept_offline.report.text import count, distinct, figure, plural

STATES = 400
"""Logged first states on which the probe is asked for its probabilities."""
BLUE, ORANGE = "#0072B2", "#E69F00"


def learned(runs: Sequence[Run]) -> Section:
    """A part a run."""
    blocks: list[Block] = []
    for place, run in enumerate(runs):
        if len(runs) > 1:
            blocks.append(Heading(run.name))
        blocks += _run(run, str(place))
    return Section(
        "learned",
        "What was learned",
        "From the logs alone: a latent for each instance, a probe that makes it tell, and a "
        "control that listens to it.",
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
        blocks.append(Note("The run has kept no metrics."))
    return blocks


def _facts(method: str, agent: Agent) -> Facts:
    record = agent.record
    items = [
        ("method", method),
        ("needs beside observations", ", ".join(sorted(agent.needs)) or "nothing"),
        ("learns in its episode", "yes" if agent.learns else "no"),
        ("probe", plural(agent.probe_steps, "step") if agent.probe_steps else "none"),
        ("observations read side by side", count(agent.stack)),
    ]
    found = record.get("identification")
    if isinstance(found, Mapping) and "neighbours" in found:
        share, chance = float(found["neighbours"]), float(found.get("chance", 0.0))
        items.append(("identification", f"{share:.3g} (chance: {chance:.2g})"))
    if record.get("behaviour_estimated"):
        items.append(("behaviour's probabilities", "estimated"))
    return Facts(items)


def _latent(run: Run, place: str) -> Chart | None:
    curves = {
        "ELBO": run.metrics.get(("latent", "elbo")),
        "log-likelihood": run.metrics.get(("latent", "log_likelihood")),
    }
    told = run.metrics.get(("latent", "identification"))
    lines = [
        Line(name, own.updates, own.values, colour=colour)
        for (name, own), colour in zip(curves.items(), (BLUE, ORANGE), strict=True)
        if own is not None
    ]
    if not lines:
        return None
    chart = lines_chart(lines, "update", "nats")
    if told is not None:
        right = Line("identification", told.updates, told.values, colour=INK, dash="dot")
        chart = _on_the_right(chart, right, {"range": [0, 1.04]})
    said = "The log-likelihood of what was logged"
    if curves["ELBO"] is not None:
        said = "The bound on the log-likelihood of what was logged"
    if told is not None:
        said += (
            "; identification, on the right: share of held-out segments matched to their instance"
        )
    return Chart(f"latent-{place}", "The latent while it is learned", f"{said}.", chart)


def _probe(run: Run, place: str) -> Chart | None:
    """The probe's probabilities and the behaviour's on the same logged states."""
    probe = getattr(run.agent.context, "probe", None) if run.agent is not None else None
    if probe is None or run.agent is None or run.data is None:
        return None
    steps = run.agent.probe_steps
    segments = run.data.stacked(run.agent.stack).segments(steps)
    if not len(segments.actions):
        return None
    chosen = np.linspace(0, len(segments.actions) - 1, min(STATES, len(segments.actions)))
    rows = chosen.astype(np.int64)
    actions = [label(name) for name in distinct(run.agent.spaces.action_names)]
    probed, behaved = [], []
    for time in range(steps):
        states = segments.observations[rows, time]
        probed.append(np.mean([probe.probabilities(state, time) for state in states], axis=0))
        behaved.append(_behaviour(segments, rows, time, len(actions)))
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
        f"Mean probability of each action in the states of {count(len(rows))} logged initial "
        "segments: the probe's, and the behaviour's, by its frequencies where its probabilities "
        "are not known.",
        bars_chart(names, shown, "action", "probability", [ORANGE, MUTED]),
    )


def _behaviour(
    segments: Any, rows: NDArray[np.int64], time: int, actions: int
) -> NDArray[np.float64]:
    """The behaviour's mean probabilities at a step, or its frequencies where they are not known."""
    known = segments.propensities
    if known is not None and np.isfinite(known[rows, time]).all():
        return np.asarray(known[rows, time].mean(axis=0), dtype=np.float64)
    taken = np.bincount(segments.actions[rows, time], minlength=actions)
    return np.asarray(taken / taken.sum(), dtype=np.float64)


def _training(run: Run, place: str) -> list[Block]:
    blocks: list[Block] = []
    reward, ess = run.metrics.get(("probe", "reward")), run.metrics.get(("probe", "ess_share"))
    reward = reward or run.metrics.get(("latent", "reward"))
    if reward is not None:
        chart = lines_chart(
            [Line("reward", reward.updates, reward.values, colour=ORANGE)], "update", "reward"
        )
        if ess is not None:
            share = Line("ESS / segments", ess.updates, ess.values, colour=BLUE, dash="dot")
            chart = _on_the_right(chart, share, {"range": [0, 1.04]})
        blocks.append(
            Chart(
                f"probe-training-{place}",
                "The probe while it is learned",
                "Its importance-weighted reward, and on the right the effective sample size of the "
                "weights as a share of the segments"
                + (f"; at the end {figure(ess.values[-1])}." if ess else "."),
                chart,
            )
        )
    q, bound = run.metrics.get(("control", "max_q")), run.metrics.get(("control", "max_q_bound"))
    if q is not None:
        lines = [Line("mean max Q", q.updates, q.values, colour=BLUE)]
        if bound is not None:
            lines.append(_level("bound", bound))
        above = bound is not None and q.values[-1] > bound.values[-1]
        chart = lines_chart(lines, "update", "mean max Q, scaled")
        loss = run.metrics.get(("control", "loss"))
        if loss is not None:
            right = Line("loss", loss.updates, loss.values, colour=ORANGE, dash="dot")
            chart = _on_the_right(chart, right)
        blocks.append(
            Chart(
                f"control-{place}",
                "Control",
                "The mean of max Q over logged states against the greatest value that rewards "
                "allow; the loss on the right."
                + (" It ended above the bound: Q is too optimistic." if above else ""),
                chart,
            )
        )
    return blocks


def _level(name: str, metric: Metric) -> Line:
    return Line(name, metric.updates, metric.values, colour=MUTED, dash="dash")


def _on_the_right(
    chart: dict[str, Any], line: Line, scale: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One more line with a scale of its own."""
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
        "data": [*chart["data"], *line_traces(line, {"yaxis": "y2"})],
        "layout": merged(chart["layout"], more),
    }
