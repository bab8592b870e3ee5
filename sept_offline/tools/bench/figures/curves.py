"""Figures of curves: reward and percent solved over the steps of test episodes, and training.

Bands of test episodes resample seeds and instances; those of training show how far seeds spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sept_offline.elementary import Doubles
from sept_offline.methods import METHODS
from sept_offline.tools.bench.figures.figure import (
    ABLATIONS,
    BASELINES,
    RESAMPLED,
    STYLES,
    Figure,
    Line,
    Missing,
    Panel,
    Picture,
    Scale,
    ordered,
    seeds_caption,
    short,
    style_of,
)
from sept_offline.tools.bench.figures.rows import Row, Study, by_method
from sept_offline.tools.bench.statistics import crossed_band

SWITCH = "navigation2d-switch"
SWITCHED = ("dynasept", "sept", "avg", "oracle")
STEP = "step of the test episode"
SPREAD = "Lines are means over seeds, bands go from the lowest seed to the highest."


@dataclass(frozen=True)
class Metric:
    """A metric of a stage and its label on an axis."""

    stage: str
    name: str
    label: str


WATCHED = (
    Metric("latent", "elbo", "ELBO"),
    Metric("latent", "log_likelihood", "log-likelihood"),
    Metric("latent", "identification", "identified"),
    Metric("probe", "ess_share", "ESS / segments"),
    Metric("dynamics", "unexplained", "unexplained"),
    Metric("control", "max_q", "mean max Q"),
)
"""Metrics that show whether a stage has learned; log-likelihood if there is no ELBO."""
PROBED = tuple(name for name in STYLES if METHODS[name].probe_reward)


def metric_curves(
    rows: Iterable[Row], stages: Sequence[str], metric: str, methods: Sequence[str] | None = None
) -> list[Line]:
    """A curve per method at the updates that all seeds have; the band is their range."""
    logged = [row for row in rows if row["metric"] == metric and row["stage"] in stages]
    curves = []
    for method, points in by_method(logged).items():
        if methods is not None and method not in methods:
            continue
        seeds = sorted({row["seed"] for row in points})
        values = {(row["seed"], row["update"]): float(row["value"]) for row in points}
        updates = sorted({update for _, update in values})
        shared = [update for update in updates if all((seed, update) in values for seed in seeds)]
        if not shared:
            continue
        table = np.array([[values[seed, update] for update in shared] for seed in seeds])
        x = np.array(shared, dtype=np.float64)
        least, most = table.min(axis=0), table.max(axis=0)
        curves.append(_line(method, x, table.mean(axis=0), least, most, len(seeds)))
    return curves


def watched_curves(rows: Sequence[Row]) -> list[tuple[Metric, list[Line]]]:
    """The watched metrics that were recorded."""
    watched = [(metric, metric_curves(rows, [metric.stage], metric.name)) for metric in WATCHED]
    bounded = {c.method for metric, curves in watched if metric.name == "elbo" for c in curves}
    shown = []
    for metric, curves in watched:
        if metric.name == "log_likelihood":
            curves = [curve for curve in curves if curve.method not in bounded]
        if curves:
            shown.append((metric, curves))
    return shown


def episode_pictures(study: Study) -> Iterator[Picture | Missing]:
    """Baselines, ablations, and the methods of the switch in its family."""
    yield from _step_pictures(study, "baselines", BASELINES, BASELINES)
    ablations = [method for method in ABLATIONS if method != "sept"]
    yield from _step_pictures(study, "ablations", ABLATIONS, ablations)
    if study.family == SWITCH:
        yield from _step_pictures(study, "switch", SWITCHED, ("dynasept",))


def _step_pictures(
    study: Study, group: str, methods: Sequence[str], needed: Sequence[str]
) -> Iterator[Picture | Missing]:
    """Cumulative reward and percent solved against the step, if one of `needed` is there."""
    rows = study.at(study.base)
    limit = max((cell["limit"] for cell in rows.cells), default=0)
    episodes = {m: played for m, played in by_method(rows.results).items() if m in methods}
    if not set(episodes) & set(needed):
        yield Missing(f"reward-{group}", study.family, f"cells of {', '.join(needed)}")
        return
    budgets = {cell["method"]: cell["budget"] for cell in rows.cells if cell["budget"]}
    words = [f"{style_of(m).title} {budgets[m]}" for m in ordered(set(budgets) & set(episodes))]
    beside = f" Budgets: {', '.join(words)}." if words else ""
    beside += _absent(methods, episodes)
    kinds: list[tuple[str, Callable[[Row, int], Doubles], str, str, str]] = [
        (
            *("reward", cumulative_reward, "cumulative reward", ""),
            "cumulative reward by step of the test episode; an ended episode keeps its last value",
        )
    ]
    if any(row["solved"] is not None for played in episodes.values() for row in played):
        about = "percent of test episodes solved by each step"
        kinds.append(("solved", percent_solved, "solved, %", " %", about))
    for kind, value, label, unit, about in kinds:
        lines = [step_curve(method, played, limit, value) for method, played in episodes.items()]
        curves = in_order(line for line in lines if line is not None)
        last = sorted(curves, key=lambda curve: -curve.y[-1])
        ends = [f"{c.name} {short(c.y[-1])}{unit}" for c in last]
        yield Picture(
            f"{kind}-{group}-{study.name}",
            f"{study.title}: {about}. At step {limit}: {', '.join(ends)}. Lines are means, bands "
            f"are {RESAMPLED}. {_seeds(curves)}{beside}",
            curves_figure(study.title, [(label, curves)], STEP),
        )


def training_pictures(study: Study) -> Iterator[Picture | Missing]:
    """The metrics that show whether stages have learned, and the reward of each probe."""
    rows = study.at(study.base).training
    watched = watched_curves(rows)
    if watched:
        labels = "; ".join(f"{metric.label} ({metric.stage} stage)" for metric, _ in watched)
        yield Picture(
            f"training-{study.name}",
            f"{study.title}: training, from top to bottom {labels}. {SPREAD} "
            f"{_seeds(curve for _, curves in watched for curve in curves)}",
            curves_figure(
                study.title,
                [(metric.label, curves) for metric, curves in watched],
                "update of the stage",
                panel_height=3.2,
            ),
        )
    else:
        yield Missing("training", study.family, "metrics of training")
    # The paper's loop trains the probe in the stage of its latent.
    rewards = in_order(metric_curves(rows, ["probe", "latent"], "reward", PROBED))
    if not rewards:
        yield Missing("probe", study.family, f"cells of {', '.join(PROBED)}")
        return
    rises = ", ".join(
        f"{curve.name} from {short(curve.y[0])} to {short(curve.y[-1])}" for curve in rewards
    )
    yield Picture(
        f"probe-{study.name}",
        f"{study.title}: the probe's reward while it is trained, each in its own unit; {rises}. "
        f"{SPREAD} {_seeds(rewards)}{_absent(PROBED, [curve.method for curve in rewards])}",
        curves_figure(
            study.title,
            [(f"{curve.name}'s reward", [curve]) for curve in rewards],
            "update of the probe",
            legend=False,
            panel_height=3.2,
        ),
    )


def _seeds(curves: Iterable[Line]) -> str:
    return seeds_caption((curve.method, curve.seeds) for curve in curves)


def _absent(wanted: Iterable[str], shown: Iterable[str]) -> str:
    """Methods that belong in the figure and have no cells."""
    missing = [style_of(method).title for method in ordered(set(wanted) - set(shown))]
    return f" Without {', '.join(missing)}: no cells." if missing else ""


def in_order(curves: Iterable[Line]) -> list[Line]:
    """The curves in the order in which all figures name the methods."""
    by_method = {curve.method: curve for curve in curves}
    return [by_method[method] for method in ordered(by_method)]


def curves_figure(
    title: str,
    panels: Sequence[tuple[str, Sequence[Line]]],
    across: str,
    *,
    legend: bool = True,
    panel_height: float = 5.0,
) -> Figure:
    """One panel below another, each a label and its curves; `across` is under the last."""
    shown = ordered(curve.method for _, curves in panels for curve in curves)
    last = len(panels) - 1
    return Figure(
        title,
        [
            Panel(
                in_order(curves),
                Scale(across if place == last else ""),
                Scale(label),
            )
            for place, (label, curves) in enumerate(panels)
        ],
        legend=[style_of(method).title for method in shown] if legend else (),
        panel_height=panel_height,
    )


def _line(
    method: str, x: Doubles, mean: Doubles, low: Doubles | None, high: Doubles | None, seeds: int
) -> Line:
    """Mean and band of a method, `[T]` each, in its style; a single seed may have no band."""
    style = style_of(method)
    return Line(
        *(style.title, x, mean, low, high, style.colour, style.dash, method),
        strong=method == "sept",
        seeds=seeds,
    )


def cumulative_reward(row: Row, limit: int) -> Doubles:
    """`[limit + 1]`: the reward after each step; an ended episode keeps its last value."""
    sums = np.cumsum([0.0, *row["reward"]], dtype=np.float64)[: limit + 1]
    return np.pad(sums, (0, limit + 1 - len(sums)), mode="edge")


def percent_solved(row: Row, limit: int) -> Doubles:
    """`[limit + 1]`: 100 from the step on that solves the episode, 0 before."""
    solved = np.zeros(limit + 1)
    if row["solved"]:
        solved[row["steps_to_solve"] :] = 100.0
    return solved


def step_curve(
    method: str, rows: Sequence[Row], limit: int, value: Callable[[Row, int], Doubles]
) -> Line | None:
    """The mean of `value` over seeds and instances at each step; None where they share none."""
    paths = step_paths(rows, limit, value)
    if not paths.size:
        return None
    low, high = crossed_band(paths) or (None, None)
    mean = paths.mean(axis=(0, 1))
    return _line(method, np.arange(limit + 1, dtype=np.float64), mean, low, high, len(paths))


def step_paths(rows: Sequence[Row], limit: int, value: Callable[[Row, int], Doubles]) -> Doubles:
    """`[S, I, limit + 1]` of the instances that every seed has, episodes of one averaged first."""
    paths: dict[tuple[int, str], list[Doubles]] = {}
    for row in rows:
        paths.setdefault((row["seed"], row["instance"]), []).append(value(row, limit))
    seeds = sorted({seed for seed, _ in paths})
    instances = sorted({instance for _, instance in paths})
    shared = [name for name in instances if all((seed, name) in paths for seed in seeds)]
    if not shared:
        return np.empty((len(seeds), 0, limit + 1))
    return np.array(
        [[np.mean(paths[seed, name], axis=0) for name in shared] for seed in seeds],
        dtype=np.float64,
    )
