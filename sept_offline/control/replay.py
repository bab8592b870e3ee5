"""Logged transitions as contiguous tensors, and minibatches gathered from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sept_offline.errors import TrainingError


@dataclass(frozen=True)
class Batch:
    """Transitions, one per row of every field.

    inputs `[B, d+k]`, actions `[B]` int64 or, encoded, `[B, width]`, rewards `[B]`, next_inputs
    `[B, d+k]`, terminals `[B]` (1 where the episode ended for good, else 0), next_actions
    `[B, width]`: the logged ones, NaN where an episode ends; None for a finite set of actions.
    float32 but for the integers.
    """

    inputs: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_inputs: torch.Tensor
    terminals: torch.Tensor
    next_actions: torch.Tensor | None = None

    def split(self, parts: int) -> Iterator[Batch]:
        """Equal shares of the rows, in order."""
        shares = (
            column.view(parts, -1, *column.shape[1:]).unbind(0)
            for column in vars(self).values()
            if column is not None
        )
        return (Batch(*row) for row in zip(*shares, strict=True))


class Replay:
    """Transitions, and the contexts a transition may be seen in.

    observations `[N+E, d]`: all episodes' T+1 observations, one after another, as the control
    network reads them (standardised); row `[N]`: where a step's own observation stands, its next
    one stands at row + 1; actions `[N]`, or encoded `[N, width]`; rewards `[N]`, prepared;
    terminals `[N]`; instance `[N]`.

    contexts `[S, k]` is what is appended to both states of a transition. A sampled transition
    draws one of its instance's contexts (context_instance `[S]`) with probability in proportion to
    context_weights `[S]`. Without contexts the input is the observation alone.
    """

    def __init__(
        self,
        observations: NDArray[Any],
        row: NDArray[Any],
        actions: NDArray[Any],
        rewards: NDArray[Any],
        terminals: NDArray[Any],
        instance: NDArray[Any],
        contexts: NDArray[Any] | None = None,
        context_instance: NDArray[Any] | None = None,
        context_weights: NDArray[Any] | None = None,
    ) -> None:
        self.size = len(row)
        if self.size == 0:
            raise TrainingError("There are no transitions to train control on.")
        self._observations = _tensor(observations)
        self._row = torch.as_tensor(np.array(row, dtype=np.int64))
        self._actions = (
            torch.as_tensor(np.array(actions, dtype=np.int64))
            if np.ndim(actions) == 1
            else _tensor(actions)
        )
        last = self._row.diff(append=self._row[:1]) != 1
        self._next_actions = None
        if np.ndim(actions) == 2:
            self._next_actions = self._actions.roll(-1, dims=0)
            self._next_actions[last] = torch.nan
        self._rewards = _tensor(rewards)
        self._terminals = _tensor(terminals)
        self._instance = np.asarray(instance, dtype=np.int64)
        self._contexts: torch.Tensor | None = None
        if contexts is not None and np.shape(contexts)[1] > 0:
            self._tabulate(contexts, context_instance, context_weights)
        self.input_dim = self._observations.shape[1] + (
            0 if self._contexts is None else self._contexts.shape[1]
        )
        for name in ("_observations", "_actions", "_rewards", "_contexts"):
            values = getattr(self, name)
            if values is not None and not bool(torch.isfinite(values).all()):
                raise TrainingError(
                    f"The {name[1:]} passed to control are not all finite; validate the dataset."
                )
        ended = self._terminals > 0
        self.largest_size = float(self._rewards.abs().max())
        """Of the rewards."""
        self.going = _range(self._rewards[~ended])
        """Smallest and largest reward of a step after which the episode goes on, if any does."""
        self.ending = _range(self._rewards[ended])
        """Smallest and largest reward of a step that ends an episode, if any does."""
        self.longest = longest_run(np.asarray(row, dtype=np.int64))
        """Steps of the longest episode."""
        self.truncated = bool((last & ~ended).any())
        """Whether a limit cut any episode: values then reach beyond it."""

    def _tabulate(
        self,
        contexts: NDArray[Any],
        context_instance: NDArray[Any] | None,
        context_weights: NDArray[Any] | None,
    ) -> None:
        """Sort contexts by instance and lay their cumulative weights end to end.

        Instance i's weights rise from i to i + 1, so that one search in one array draws for every
        transition of a minibatch.
        """
        if context_instance is None:
            raise TrainingError("Each context needs the index of its instance.")
        owner = np.asarray(context_instance, dtype=np.int64)
        weights = np.ones(len(owner)) if context_weights is None else np.asarray(context_weights)
        weights = weights.astype(np.float64)
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise TrainingError("The weights of contexts must be finite and non-negative.")
        order = np.argsort(owner, kind="stable")
        # contexts of instances without transitions are never drawn
        order = order[np.isin(owner[order], self._instance)]
        owner, weights = owner[order], weights[order]
        count = int(self._instance.max()) + 1
        totals = np.bincount(owner, weights=weights, minlength=count)
        missing = np.flatnonzero(totals[np.unique(self._instance)] == 0)
        if len(missing):
            index = int(np.unique(self._instance)[missing[0]])
            raise TrainingError(
                f"Instance number {index} has transitions but no context with a positive weight; "
                "its episodes may all be shorter than the probe."
            )
        self._edges = np.empty(len(owner))
        self._last = np.zeros(count, dtype=np.int64)
        for index in np.unique(self._instance):
            rows = np.flatnonzero(owner == index)
            rising = np.cumsum(weights[rows])
            self._edges[rows] = index + rising / rising[-1]
            self._last[index] = rows[np.flatnonzero(weights[rows])[-1]]
        self._contexts = _tensor(np.asarray(contexts)[order])

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Indices of `count` transitions and of the context each is seen in."""
        index = rng.integers(0, self.size, size=count)
        context: NDArray[np.int64] | None = None
        if self._contexts is not None:
            places = self._instance[index] + rng.random(count)
            edge = np.searchsorted(self._edges, places, side="right")
            # a draw just below 1 may round up into the next instance
            context = np.minimum(edge, self._last[self._instance[index]])
        return torch.from_numpy(index), None if context is None else torch.from_numpy(context)

    def gather(self, index: torch.Tensor, context: torch.Tensor | None) -> Batch:
        """The transitions that `draw` chose."""
        row = self._row.index_select(0, index)
        inputs = self._observations.index_select(0, row)
        next_inputs = self._observations.index_select(0, row + 1)
        if context is not None and self._contexts is not None:
            seen = self._contexts.index_select(0, context)
            inputs = torch.cat([inputs, seen], dim=1)
            next_inputs = torch.cat([next_inputs, seen], dim=1)
        return Batch(
            inputs,
            self._actions.index_select(0, index),
            self._rewards.index_select(0, index),
            next_inputs,
            self._terminals.index_select(0, index),
            None if self._next_actions is None else self._next_actions.index_select(0, index),
        )

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """`batch_size` transitions, drawn with replacement."""
        return self.gather(*self.draw(batch_size, rng))

    def minibatches(
        self, first: int, count: int, batch_size: int, rng: np.random.Generator
    ) -> list[Batch]:
        """Those of the updates `first` … `first + count − 1`, gathered at once.

        Nothing but `rng` and `first` may decide them, so that a fit resumed anywhere repeats them.
        """
        return list(self.sample(count * batch_size, rng).split(count))


def _range(values: torch.Tensor) -> tuple[float, float] | None:
    return (float(values.min()), float(values.max())) if len(values) else None


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    return torch.as_tensor(np.array(values, dtype=np.float32, order="C"))


def longest_run(row: NDArray[np.int64]) -> int:
    """The most steps in a row: between episodes `row[N]` skips the last observation."""
    ends = np.flatnonzero(np.diff(row) != 1)
    edges = np.concatenate([[-1], ends, [len(row) - 1]])
    return int(np.diff(edges).max())
