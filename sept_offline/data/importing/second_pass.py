"""The second pass, when all rows are known: actions, their probabilities, means."""

from __future__ import annotations

import itertools

import numpy as np

from sept_offline.actions import SUM_TOLERANCE
from sept_offline.data.importing.actions import Actions, labelled, look_at_labels
from sept_offline.data.importing.assembly import Assembly
from sept_offline.data.importing.reading import Reading
from sept_offline.data.importing.spool import EpisodeSpool
from sept_offline.data.source import DTYPES
from sept_offline.errors import DataError

ROUNDED = 0.01
"""Maximum deviation of a sum of probabilities from 1 that counts as rounding."""


def settle(assembly: Assembly, reading: Reading, spool: EpisodeSpool) -> Actions:
    """Finish the spooled columns; refuse what has turned out not to be possible."""
    if reading.mapping.bins is None:
        look_at_labels(reading)
    reading.findings.raise_if_bad()
    if not spool.steps:
        raise DataError("No episode has any steps; nothing was imported.")
    actions = _binned(assembly) if reading.mapping.bins is not None else labelled(reading)
    spool.settle_actions(actions.table, actions.edges)
    _settle_means(assembly, spool)
    if spool.chances:
        _settle_chances(reading, spool, actions.count)
        reading.findings.raise_if_bad()
    return actions


def _binned(assembly: Assembly) -> Actions:
    bins = assembly.reading.mapping.bins or 0
    values = assembly.sample()
    edges = np.quantile(values, np.arange(1, bins) / bins)
    edges = np.unique(edges[(edges > values.min()) & (edges <= values.max())])
    bounds = ["", *(f"{edge:.4g}" for edge in edges), ""]
    names = [
        f"{low} ≤ x < {high}" if low and high else f"x < {high}" if high else f"x ≥ {low}"
        for low, high in itertools.pairwise(bounds)
    ]
    if len(edges) < 1:
        raise DataError(
            f"The action {assembly.reading.mapping.action!r} takes a single value and cannot be "
            "binned; an agent needs at least two actions."
        )
    assembly.findings.counts["bins"] = len(names)
    return Actions(len(names), tuple(names), edges=edges)


def _settle_means(assembly: Assembly, spool: EpisodeSpool) -> None:
    fills = assembly.fills
    for position in range(spool.dim):
        if "mean" in (*assembly.rules(position), *assembly.following_rules(position)):
            known = int(assembly.known[position])
            if not known:
                name = assembly.observation_name(position)
                raise DataError(f"The column {name!r} has no values and therefore no mean.")
            spool.settle_mean("observations", position, float(assembly.total[position]) / known)
    if "mean" in fills.reward:
        if not assembly.reward_known:
            raise DataError("No step has a reward, so rewards have no mean.")
        spool.settle_mean("rewards", 0, assembly.reward_total / assembly.reward_known)


def _settle_chances(reading: Reading, spool: EpisodeSpool, count: int) -> None:
    """[N, A] from the probability of the action taken, or of all actions."""
    findings, width = reading.findings, spool.chances
    if width > 1 and width != count:
        raise DataError(
            f"--probabilities names {width} columns for {count} actions; name one for each."
        )
    logged = spool.column("chances", "<f8", width)
    taken = spool.column("actions", "<i8")
    settled = spool.column("propensities", DTYPES["propensities"], count)
    for low, high in spool.blocks():
        chances, actions = np.array(logged.array[low:high]), taken.array[low:high]
        rows = np.arange(high - low)
        if width == 1 and count > 1:
            alone = np.full((high - low, count), np.nan)
            alone[rows, actions] = chances[:, 0]
            if count == 2:
                alone[rows, 1 - actions] = 1 - chances[:, 0]
            chances = alone
            partly = np.zeros(high - low, dtype=np.bool_)
            missed = partly
        else:
            partly = np.isnan(chances).any(axis=1)
            chances[partly] = np.nan
            total = chances.sum(axis=1)
            missed = np.abs(total - 1) > ROUNDED
            rounded = (np.abs(total - 1) > SUM_TOLERANCE) & ~missed
            chances[rounded] /= total[rounded, None]
            findings.counts["probabilities made to sum to 1"] += int(rounded.sum())
        own = chances[rows, actions]
        findings.counts["steps without probabilities"] += int(np.isnan(own).sum())
        outside = ((chances < 0) | (chances > 1)).any(axis=1)
        for kind, bad, said in (
            ("probabilities' sum", missed, "do not sum to 1"),
            ("probabilities' range", outside, "are not within 0 … 1"),
            ("probability taken", own <= 0, "are 0 for the very action that was taken"),
        ):
            findings.refuse(
                kind,
                np.asarray(bad),
                f"The probabilities of {{count}} steps {said}; correct them, or leave them out "
                "and the behaviour will be estimated.",
            )
        settled.array[low:high] = chances
        for column in (logged, taken, settled):
            column.used(chances.nbytes)
