"""States as the networks read them: standardised, angles unwound; and the way back."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.agent.networks import Arrays, Standardiser, take, varying
from sept_offline.data.records import Steps
from sept_offline.training.inputs import Floats, changes

LOG_NOISE = (-9.0, 2.0)
"""Bounds of the noise's log-variance in standardised units: most families here have no noise, and a
density without a floor grows for ever."""


@dataclass(frozen=True)
class Columns:
    """Statistics of each observed column; all `[d]`, float32.

    mean, scale: of states; change_mean, change_scale: of s′ − s; varies: 1 unless s′ − s is
    the same in all steps; angle: 1 where the column is an angle; low, high: the range in the logs.
    """

    mean: Floats
    scale: Floats
    change_mean: Floats
    change_scale: Floats
    varies: Floats
    angle: Floats
    low: Floats
    high: Floats

    @classmethod
    def fit(cls, steps: Steps, angle: NDArray[np.bool_] | None = None) -> Columns:
        """Statistics of all logged transitions; `angle[d]`: which columns are angles, if known."""
        before, after = steps.observations[steps.row], steps.observations[steps.row + 1]
        if angle is None:
            angle = find_angles(before, after)
        change = _unwound(changes(before, after), angle)
        state, moved = Standardiser.fit(before), Standardiser.fit(change)
        return cls(
            state.mean,
            state.scale,
            moved.mean,
            moved.scale,
            varying(change).astype(np.float32),
            angle.astype(np.float32),
            steps.observations.min(axis=0).astype(np.float32),
            steps.observations.max(axis=0).astype(np.float32),
        )

    def first(self, count: int) -> Columns:
        """The statistics of the first `count` columns."""
        return Columns(*(getattr(self, each.name)[:count] for each in fields(self)))

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All columns, each under a name that starts with `prefix`."""
        return {f"{prefix}.{each.name}": getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> Columns:
        """Restore what `to_arrays(prefix)` wrote."""
        return cls(*(take(arrays, f"{prefix}.{each.name}", 1) for each in fields(cls)))


def find_angles(before: Floats, after: Floats) -> NDArray[np.bool_]:
    """Which columns of `before[n, d]`, `after[n, d]` are angles in [−π, π], `[d]`.

    Those that fill this range, never leave it, and jump by more than half of it from one end to the
    other: such a jump is the seam of a circle, and to a Gaussian it would be noise. Taken the short
    way round most of them must be steps of less than a quarter: a standardised column, which has
    much the same range, jumps from anywhere to anywhere. Not all of them, since a fast joint may
    turn by half a circle in one step.
    """
    largest = np.maximum(np.abs(before).max(axis=0), np.abs(after).max(axis=0))
    angles: NDArray[np.bool_] = (largest <= math.pi * 1.001) & (largest > 0.9 * math.pi)
    for column in np.flatnonzero(angles):
        change = np.abs(after[:, column] - before[:, column])
        jumps = change[change > math.pi]
        angles[column] = len(jumps) > 0 and np.median(2 * math.pi - jumps) < math.pi / 2
    return angles


def _unwound(change: Floats, angle: NDArray[np.bool_]) -> Floats:
    wound = (change + math.pi) % (2 * math.pi) - math.pi
    return np.where(angle, wound, change).astype(np.float32)


class Reader:
    """The same in torch: features of states, standardised changes, and the state after a change."""

    def __init__(self, columns: Columns) -> None:
        tensors = {
            each.name: torch.from_numpy(np.array(getattr(columns, each.name)))
            for each in fields(columns)
        }
        self._mean, self._scale = tensors["mean"], tensors["scale"]
        self._change_mean, self._change_scale = tensors["change_mean"], tensors["change_scale"]
        self._low, self._high = tensors["low"], tensors["high"]
        self._angle = tensors["angle"] > 0
        self._round = bool(self._angle.any())
        self.varies = tensors["varies"]
        self.width = len(self._mean)
        self.features_dim = self.width + int(self._angle.sum())

    def features(self, states: Tensor) -> Tensor:
        """[..., d] to [..., d + angles]: standardised, but angles as sines, their cosines last."""
        standard = (states - self._mean) / self._scale
        if not self._round:
            return standard
        sines = torch.where(self._angle, torch.sin(states), standard)
        return torch.cat((sines, torch.cos(states[..., self._angle])), dim=-1)

    def change(self, before: Tensor, after: Tensor) -> Tensor:
        """s′ − s the short way round, standardised, [..., d]."""
        moved = after - before
        if self._round:
            moved = torch.where(self._angle, self._wound(moved), moved)
        return (moved - self._change_mean) / self._change_scale

    def after(self, states: Tensor, change: Tensor) -> Tensor:
        """The states that standardised changes lead to, kept in the range of the logs."""
        # a clock's change is always the same: nothing to predict, but it does move
        moved = self.varies * change * self._change_scale + self._change_mean
        reached = states + moved
        if self._round:
            reached = torch.where(self._angle, self._wound(reached), reached)
        return torch.minimum(torch.maximum(reached, self._low), self._high)

    @staticmethod
    def _wound(angles: Tensor) -> Tensor:
        return torch.remainder(angles + math.pi, 2 * math.pi) - math.pi
