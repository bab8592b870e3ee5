"""Every figure that a bench can have: its rows, its caption, and its description."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sept_offline.tools.bench.figures import captions
from sept_offline.tools.bench.figures.axes import axis_figure, make_axis, score_of, varied
from sept_offline.tools.bench.figures.curves import (
    Curve,
    cumulative_reward,
    curves_figure,
    in_order,
    percent_solved,
    step_curve,
)
from sept_offline.tools.bench.figures.figure import Array, Figure
from sept_offline.tools.bench.figures.paper import draw
from sept_offline.tools.bench.figures.plane import (
    base_plane,
    beta_planes,
    explained,
    hidden_figure,
    instances_figure,
)
from sept_offline.tools.bench.figures.rows import Bench, Row, Study, by_method, studies
from sept_offline.tools.bench.figures.styles import ABLATIONS, BASELINES, style_of
from sept_offline.tools.bench.figures.training import PROBED, probe_rewards, watched_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Sheet

SWITCH = "navigation2d-switch"
SWITCHED = ("dynasept", "sept", "avg", "oracle")
BETA_FAMILY = "acrobot"
STEP = "step of the test episode"
GROUPS = {"baselines": BASELINES, "ablations": ABLATIONS}
AXES = {
    "probe_steps": "Tₚ, steps of the probe",
    "latent.dim": "dim(z)",
    "behaviour": "behaviour that was logged",
    "episodes": "episodes of each instance",
    "instances": "training instances",
    "propensities": "propensities",
}
"""Axes that every bench should vary, and their labels; others are drawn if varied."""
OTHERS = {"latent.beta": "β"}
RETURNS = ("probe_steps", "latent.dim")
"""Axes along which the paper shows the cumulative reward."""
COLUMNS = {"return": "cumulative reward", "normalised": "share of the achievable"}
PANELS = 4
"""Most hidden parameters shown: those that a line in z predicts best."""
HIDDEN_LEAST = 3
"""Fewest values of a hidden parameter for which it gets its own panel."""


@dataclass(frozen=True)
class Picture:
    """A figure that has its data: the name of its files, its caption, and the figure itself."""

    name: str
    caption: str
    figure: Figure

    def draw(self) -> Sheet:
        """On paper; needs matplotlib."""
        return draw(self.figure)


@dataclass(frozen=True)
class Missing:
    """A figure without data in a family, and what it needs."""

    kind: str
    family: str
    wants: str


def catalogue(bench: Bench) -> list[Picture | Missing]:
    """All figures in the order in which the index shows them; nothing is drawn yet."""
    found: list[Picture | Missing] = []
    known = studies(bench)
    for study in known:
        figures = [*_episodes(study), *_learning(study), *_planes(study), *_axes(study)]
        # Other presets rarely run everything, so what they lack is not reported.
        found += [entry for entry in figures if study.first or isinstance(entry, Picture)]
    if SWITCH not in {study.family for study in known}:
        found.append(Missing("switch", SWITCH, f"the family {SWITCH}"))
    if BETA_FAMILY not in {study.family for study in known}:
        found.append(Missing("latent-beta", BETA_FAMILY, f"the family {BETA_FAMILY}"))
    return found


def _episodes(study: Study) -> Iterator[Picture | Missing]:
    for group, methods in GROUPS.items():
        needed = [method for method in methods if method != "sept" or group == "baselines"]
        yield from _steps(study, group, methods, needed)
    if study.family == SWITCH:
        yield from _steps(study, "switch", SWITCHED, ("dynasept",))


def _steps(
    study: Study, group: str, methods: Sequence[str], needed: Sequence[str]
) -> Iterator[Picture | Missing]:
    """Cumulative reward and percent solved against the step, if one of `needed` is there."""
    rows = study.at(study.base)
    limit = max((cell["limit"] for cell in rows.cells), default=0)
    episodes = {m: played for m, played in by_method(rows.results).items() if m in methods}
    if not set(episodes) & set(needed):
        wants = f"cells of {', '.join(needed)}"
        yield Missing(f"reward-{group}", study.family, wants)
        return
    beside = captions.budgets(rows.cells, episodes) + captions.absent(methods, episodes)
    curves = _curves(episodes, limit, cumulative_reward)
    yield Picture(
        f"reward-{group}-{study.name}",
        f"{study.title}: cumulative reward against the step of the test episode; one that has "
        f"ended keeps its last value. At step {limit}: {captions.ends(curves)}. Lines are means, "
        f"{captions.BAND}. {captions.seeds_of(curves)}{beside}",
        curves_figure(study.title, [("cumulative reward", curves)], STEP),
    )
    if not any(row["solved"] is not None for played in episodes.values() for row in played):
        return
    solved = _curves(episodes, limit, percent_solved)
    yield Picture(
        f"solved-{group}-{study.name}",
        f"{study.title}: percent of test episodes solved by each step. At step {limit}: "
        f"{captions.ends(solved, ' %')}. Lines are means, {captions.BAND}. "
        f"{captions.seeds_of(solved)}{beside}",
        curves_figure(study.title, [("solved, %", solved)], STEP),
    )


def _curves(
    episodes: dict[str, list[Row]], limit: int, value: Callable[[Row, int], Array]
) -> list[Curve]:
    curves = [step_curve(method, rows, limit, value) for method, rows in episodes.items()]
    return in_order(curve for curve in curves if curve is not None)


def _learning(study: Study) -> Iterator[Picture | Missing]:
    rows = study.at(study.base).training
    watched = watched_curves(rows)
    if watched:
        labels = "; ".join(f"{metric.label} ({metric.stage} stage)" for metric, _ in watched)
        yield Picture(
            f"training-{study.name}",
            f"{study.title}: training, from top to bottom {labels}. Lines are means over seeds, "
            f"{captions.SPREAD}. {captions.seeds_of([c for _, curves in watched for c in curves])}",
            curves_figure(
                study.title,
                [(metric.label, curves) for metric, curves in watched],
                "update of the stage",
                panel_height=3.2,
            ),
        )
    else:
        yield Missing("training", study.family, "metrics of training")
    rewards = in_order(probe_rewards(rows))
    if rewards:
        yield Picture(
            f"probe-{study.name}",
            f"{study.title}: the probe's reward while it is trained, each in its own unit; "
            f"{_rises(rewards)}. Lines are means over seeds, {captions.SPREAD}. "
            f"{captions.seeds_of(rewards)}{captions.absent(PROBED, [c.method for c in rewards])}",
            curves_figure(
                study.title,
                [(f"{style_of(curve.method).title}'s reward", [curve]) for curve in rewards],
                "update of the probe",
                legend=False,
                panel_height=3.2,
            ),
        )
    else:
        yield Missing("probe", study.family, f"cells of {', '.join(PROBED)}")


def _rises(curves: Sequence[Curve]) -> str:
    words = []
    for curve in curves:
        first, last = captions.value(curve.mean[0]), captions.value(curve.mean[-1])
        words.append(f"{style_of(curve.method).title} from {first} to {last}")
    return ", ".join(words)


def _planes(study: Study) -> Iterator[Picture | Missing]:
    base = base_plane(study)
    if base is None:
        yield Missing("latent", study.family, "cells of sept")
        return
    planes = beta_planes(study)
    count = len(set(base.instance.tolist()))
    how = "its first two principal components" if base.latent.shape[1] > 2 else "as it is"
    values = ", ".join(plane.title for plane in planes)
    several = len(planes) > 1
    name = f"latent-beta-{study.name}" if several else f"latent-{study.name}"
    yield Picture(
        name,
        f"{study.title}: SEPT's latent ({how}) of training segments, coloured by instance "
        f"({count} of them); {values}. Seed {base.seed} only: every seed learns its own plane.",
        instances_figure(study.title, planes),
    )
    if study.family == BETA_FAMILY and not several:
        yield Missing("latent-beta", study.family, "variants latent.beta=…")
    predicted = {
        names: share
        for names, share in explained(base).items()
        if len(np.unique(base.hidden[names[0]])) >= HIDDEN_LEAST
    }
    shown = dict(list(predicted.items())[:PANELS])
    if shown:
        best = ", ".join(f"{' and '.join(names)} {share:.2f}" for names, share in shown.items())
        yield Picture(
            f"latent-hidden-{study.name}",
            f"{study.title}: the same latents coloured by hidden parameters, which training never "
            f"saw; R² of a line in z: {best}, the best of {len(predicted)}. Seed {base.seed} only.",
            hidden_figure(study.title, base, shown),
        )


def _axes(study: Study) -> Iterator[Picture | Missing]:
    variants = varied(study)
    for name in [*AXES, *sorted(set(variants) - set(AXES))]:
        column = "return" if name in RETURNS else score_of(study)
        axis = make_axis(study, name, column) if name in variants else None
        kind = f"against-{name.replace('_', '-').replace('.', '-')}"
        if axis is None:
            yield Missing(kind, study.family, f"variants {name}=…")
            continue
        counts: dict[str, set[int]] = {}
        for point in axis.points:
            counts.setdefault(point.method, set()).add(point.seeds)
        across, label = (AXES | OTHERS).get(name, name), COLUMNS[column]
        yield Picture(
            f"{kind}-{study.name}",
            f"{study.title}: {label} against {across}. Highest: {captions.best(axis)}. The hollow "
            f"points are the base, at {axis.base}; {captions.BARS}. {captions.seeds(counts)}",
            axis_figure(study.title, axis, label, across),
        )
