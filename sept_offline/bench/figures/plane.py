"""Where training segments lie in latent space, as a plane."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sept_offline.bench.figures.axes import base_value, number, varied
from sept_offline.bench.figures.rows import Row, Study

METHOD = "sept"
BETA = "latent.beta"


@dataclass(frozen=True)
class Plane:
    """Segments of one seed: place `[N, 2]`, instance `[N]`; hidden: parameter → `[N]`, if known."""

    title: str
    seed: int
    axes: tuple[str, str]
    place: NDArray[np.float64]
    instance: NDArray[np.str_]
    hidden: dict[str, NDArray[np.float64]]
    latent: NDArray[np.float64]


def base_plane(study: Study) -> Plane | None:
    """The base's."""
    return _plane(study, study.base, f"β = {base_value(study, BETA)}")


def beta_planes(study: Study) -> list[Plane]:
    """One a value of β, the base's among them, by size."""
    found = {base_value(study, BETA): study.base}
    for value, variant in varied(study).get(BETA, {}).items():
        found.setdefault(value, variant)
    order = sorted(found, key=lambda value: (number(value) is None, number(value) or 0.0))
    planes = [_plane(study, found[value], f"β = {value}") for value in order]
    return [plane for plane in planes if plane is not None]


def explained(plane: Plane) -> dict[tuple[str, ...], float]:
    """R² of each hidden parameter that varies, by a line in all of z, the best first.

    Parameters that always rise and fall together are one, under all their names.
    """
    design = np.column_stack([plane.latent, np.ones(len(plane.latent))])
    shares = {}
    for names, values in _told_apart(plane.hidden).items():
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
        # The values are standardised: their squares sum to their number.
        shares[names] = 1 - float(((values - fitted) ** 2).mean())
    return dict(sorted(shares.items(), key=lambda item: (-round(item[1], 9), item[0])))


def _told_apart(
    hidden: dict[str, NDArray[np.float64]],
) -> dict[tuple[str, ...], NDArray[np.float64]]:
    """Standardised values `[N]` of the parameters that vary, by the names that share them."""
    found: dict[tuple[str, ...], NDArray[np.float64]] = {}
    for name, values in hidden.items():
        spread = float(values.std())
        if spread <= 1e-9:
            continue
        own = (values - values.mean()) / spread
        twins = next((names for names in found if np.allclose(found[names], own)), ())
        found.pop(twins, None)
        found[(*twins, name)] = own
    return found


def principal(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first two principal components `[N, 2]` of `[N, k]`."""
    found: NDArray[np.float64] = (latent - latent.mean(axis=0)) @ directions(latent).T
    return found


def directions(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    """The two `[2, k]` in which `[N, k]` is widest, k > 1; the larger loading is positive."""
    centred = latent - latent.mean(axis=0)
    found: NDArray[np.float64] = np.linalg.svd(centred, full_matrices=True)[2][:2]
    largest = np.abs(found).argmax(axis=1)
    signs = np.sign(found[np.arange(len(found)), largest])
    found *= signs[:, None]
    return found


def _plane(study: Study, variant: str, title: str) -> Plane | None:
    rows = study.at(variant).part(method=METHOD).latents
    if not rows:
        return None
    # A latent is only told up to what its own model makes of it: seeds cannot share a plane.
    seed = min(row["seed"] for row in rows)
    own = [row for row in rows if row["seed"] == seed]
    latent = np.array([row["z"] for row in own], dtype=np.float64)
    instance = np.array([row["instance"] for row in own])
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
    return Plane(title, seed, axes, place, instance, _hidden(own), latent)


def _hidden(rows: Sequence[Row]) -> dict[str, NDArray[np.float64]]:
    if any(row["hidden"] is None for row in rows):
        return {}
    known = [json.loads(row["hidden"]) for row in rows]
    return {
        name: np.array([one[name] for one in known], dtype=np.float64)
        for name in known[0]
        if all(name in one for one in known)
    }
