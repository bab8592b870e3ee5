"""Training metrics as curves over updates: the mean of the seeds, and how far they spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sept_offline.methods import METHODS
from sept_offline.tools.bench.figures.curves import Curve
from sept_offline.tools.bench.figures.rows import Row, by_method
from sept_offline.tools.bench.figures.styles import STYLES


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
) -> list[Curve]:
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
        curves.append(Curve(method, x, table.mean(axis=0), least, most, len(seeds)))
    return curves


def watched_curves(rows: Sequence[Row]) -> list[tuple[Metric, list[Curve]]]:
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


def probe_rewards(rows: Sequence[Row]) -> list[Curve]:
    """The probe's own reward; the paper's loop trains the probe in the stage of its latent."""
    return metric_curves(rows, ["probe", "latent"], "reward", PROBED)
