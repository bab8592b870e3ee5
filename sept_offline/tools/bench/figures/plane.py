"""Figures of the latent plane: the latents of training segments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.elementary import Doubles
from sept_offline.tools.bench.figures.axes import base_value, number, varied
from sept_offline.tools.bench.figures.figure import (
    INSTANCES,
    SYMBOLS,
    Dots,
    Figure,
    Missing,
    Panel,
    Picture,
    Scale,
)
from sept_offline.tools.bench.figures.rows import Row, Study

METHOD = "sept"
BETA = "latent.beta"
BETA_FAMILY = "acrobot"
PANELS = 4
"""Most hidden parameters shown: those that a line in z predicts best."""
HIDDEN_LEAST = 3
"""Fewest values of a hidden parameter for which it gets its own panel."""


@dataclass(frozen=True)
class Plane:
    """Segments of one seed: place `[N, 2]`, instance `[N]`, latent `[N, k]`."""

    title: str
    seed: int
    axes: tuple[str, str]
    place: Doubles
    instance: NDArray[np.str_]
    hidden: dict[str, Doubles]
    """Hidden parameter → `[N]`; empty where they are not known."""
    latent: Doubles


def plane_pictures(study: Study) -> Iterator[Picture | Missing]:
    """Latents by instance, for several β where they were varied, and by hidden parameter."""
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


def base_plane(study: Study) -> Plane | None:
    """The plane of the base variant."""
    return _plane(study, study.base, f"β = {base_value(study, BETA)}")


def beta_planes(study: Study) -> list[Plane]:
    """One per value of β, sorted, the base among them."""
    variants = {base_value(study, BETA): study.base}
    for value, variant in varied(study).get(BETA, {}).items():
        variants.setdefault(value, variant)
    order = sorted(variants, key=lambda value: (number(value) is None, number(value) or 0.0))
    planes = [_plane(study, variants[value], f"β = {value}") for value in order]
    return [plane for plane in planes if plane is not None]


def instances_figure(title: str, planes: Sequence[Plane]) -> Figure:
    """A panel per plane, coloured by instance: one series each while the colours last."""
    names = list(dict.fromkeys(name for plane in planes for name in plane.instance.tolist()))
    few = len(names) <= len(INSTANCES)
    panels = []
    for plane in planes:
        if few:
            marks = [
                _dots(plane, plane.instance == name, name, colour=colour, symbol=symbol)
                for name, colour, symbol in zip(names, INSTANCES, SYMBOLS, strict=False)
            ]
        else:
            codes = np.array([names.index(name) for name in plane.instance.tolist()], np.float64)
            marks = [_dots(plane, slice(None), "instance", values=codes)]
        panels.append(_panel(plane, marks, plane.title))
    return _grid(title, panels, names if few else (), "" if few else "training instance")


def hidden_figure(title: str, plane: Plane, shares: Mapping[tuple[str, ...], float]) -> Figure:
    """A panel per hidden parameter (or several that vary together), coloured by its value."""
    panels = []
    for names, share in shares.items():
        dots = _dots(plane, slice(None), names[0], values=plane.hidden[names[0]])
        panels.append(_panel(plane, [dots], f"{', '.join(names)}: R² {share:.2f}"))
    return _grid(title, panels)


def _dots(plane: Plane, rows: NDArray[np.bool_] | slice, name: str, **look: Any) -> Dots:
    place, notes = plane.place[rows], plane.instance[rows].tolist()
    return Dots(name, place[:, 0], place[:, 1], notes, **look)


def _panel(plane: Plane, marks: Sequence[Dots], title: str) -> Panel:
    return Panel(marks, Scale(plane.axes[0]), Scale(plane.axes[1]), title)


def _grid(
    title: str, panels: Sequence[Panel], legend: Sequence[str] = (), colour_bar: str = ""
) -> Figure:
    columns = min(len(panels), 2)
    height = 4.0 if columns > 1 else 6.0
    return Figure(title, panels, legend, columns, height, colour_bar)


def explained(plane: Plane) -> dict[tuple[str, ...], float]:
    """R² of each hidden parameter that varies, by a line in all of z, the best first.

    Parameters that always rise and fall together are one, under all their names.
    """
    design = np.column_stack([plane.latent, np.ones(len(plane.latent))])
    shares = {}
    for names, values in _distinct(plane.hidden).items():
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
        # The values are standardised: their squares sum to their number.
        shares[names] = 1 - float(((values - fitted) ** 2).mean())
    return dict(sorted(shares.items(), key=lambda item: (-round(item[1], 9), item[0])))


def _distinct(hidden: dict[str, Doubles]) -> dict[tuple[str, ...], Doubles]:
    """Standardised values `[N]` of the parameters that vary, by the names that share them."""
    standardised: dict[tuple[str, ...], Doubles] = {}
    for name, values in hidden.items():
        spread = float(values.std())
        if spread <= 1e-9:
            continue
        column = (values - values.mean()) / spread
        twins = next((t for t, other in standardised.items() if np.allclose(other, column)), ())
        standardised.pop(twins, None)
        standardised[(*twins, name)] = column
    return standardised


def principal(latent: Doubles) -> Doubles:
    """The first two principal components `[N, 2]` of `[N, k]`."""
    projected: Doubles = (latent - latent.mean(axis=0)) @ directions(latent).T
    return projected


def directions(latent: Doubles) -> Doubles:
    """The two `[2, k]` in which `[N, k]` is widest, k > 1; the larger loading is positive."""
    centred = latent - latent.mean(axis=0)
    widest: Doubles = np.linalg.svd(centred, full_matrices=True)[2][:2]
    largest = np.abs(widest).argmax(axis=1)
    widest *= np.sign(widest[np.arange(len(widest)), largest])[:, None]
    return widest


def _plane(study: Study, variant: str, title: str) -> Plane | None:
    rows = study.at(variant).part(method=METHOD).latents
    if not rows:
        return None
    # Every seed learns its own coordinates, so two seeds cannot share a plane.
    seed = min(row["seed"] for row in rows)
    rows = [row for row in rows if row["seed"] == seed]
    latent = np.array([row["z"] for row in rows], dtype=np.float64)
    instance = np.array([row["instance"] for row in rows])
    axes = ("z₁", "z₂")
    if latent.shape[1] == 1:
        order = {name: place for place, name in enumerate(dict.fromkeys(instance.tolist()))}
        axes = ("z", "instance")
        place = np.column_stack([latent[:, 0], [float(order[name]) for name in instance.tolist()]])
    elif latent.shape[1] == 2:
        place = latent
    else:
        axes = ("first PC", "second PC")
        place = principal(latent)
    return Plane(title, seed, axes, place, instance, _hidden(rows), latent)


def _hidden(rows: Sequence[Row]) -> dict[str, Doubles]:
    if any(row["hidden"] is None for row in rows):
        return {}
    known = [json.loads(row["hidden"]) for row in rows]
    return {
        name: np.array([values[name] for values in known], dtype=np.float64)
        for name in known[0]
        if all(name in values for values in known)
    }
