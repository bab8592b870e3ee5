"""Verification of an export: its actions must equal the agent's on the same observations.

Actions in a box equal each other up to rounding, relative to half of their range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent import Agent, AgentEpisode, HiddenContext
from sept_offline.agent.control import NEARLY_TIED
from sept_offline.data import Dataset
from sept_offline.errors import AgentError
from sept_offline.family import Hidden
from sept_offline.seeding import generator, integer
from sept_offline.threads import one_thread

ROUNDING = 1e-6
"""Largest difference of two actions in a box that counts as rounding, in halves of the range."""
AFTER = 20
"""Steps of a drawn episode after those that the agent's context needs."""
MASKED = 4
"""Every n-th episode is compared with action masks, or with bounds in a box."""


@dataclass(frozen=True)
class Recording:
    """One episode to compare on: observations `[t, d]`, and the other arguments of `act`.

    `masks[t, A]` for a finite set, `bounds[t, 2, k]` for a box, or None.
    """

    observations: NDArray[np.float32]
    masks: NDArray[np.bool_] | None
    hidden: Hidden | None
    seed: int
    bounds: NDArray[np.float32] | None = None

    def options(self, time: int) -> dict[str, Any]:
        """The options of `act` at step `time`."""
        given = {"mask": self.masks, "bounds": self.bounds}
        return {name: rows[time] for name, rows in given.items() if rows is not None}


@dataclass(frozen=True)
class Verified:
    """The numbers of observations compared and of ties between two actions.

    `apart`: the largest difference of two actions in a box, in halves of the range; else None.
    """

    observations: int
    episodes: int
    ties: int
    apart: float | None = None


def recorded(agent: Agent, data: Dataset, count: int, seed: int = 0) -> Iterator[Recording]:
    """Logged episodes in random order, up to `count` observations."""
    spaces = agent.spaces
    logged = data.observation_dim, data.action_space.expected
    if logged != (spaces.observation_dim, spaces.actions.expected):
        raise AgentError(
            f"The agent observes {spaces.observation_dim} columns and takes actions "
            f"{spaces.actions.expected}, but {data.path} holds {logged[0]} and {logged[1]}; verify "
            "it on logs of the same family."
        )
    if agent.needs and data.hidden is None:
        raise AgentError(
            f"The agent ({agent.method}) needs the hidden parameters, which {data.path} lacks; "
            "omit --verify."
        )
    episodes = data.episodes()
    order = generator(seed, "verify", "order").permutation(len(episodes))
    names = {name: index for index, name in enumerate(data.instances)}
    for number, position in enumerate(order):
        if count <= 0:
            return
        episode = episodes[int(position)]
        rows = np.asarray(episode.observations[:count], dtype=np.float32)
        count -= len(rows)
        hidden = None
        if agent.needs and data.hidden is not None:
            hidden = data.hidden[names[episode.instance]]
        yield _recording(agent, rows, hidden, number, seed)


def made_up(agent: Agent, count: int, seed: int = 0) -> Iterator[Recording]:
    """Episodes drawn from the range of the training data, for when no logs are given."""
    spaces, context = agent.spaces, agent.context
    watched = max(agent.probe_steps, getattr(getattr(context, "encoder", None), "steps", 0))
    number = 0
    while count > 0:
        rng = generator(seed, "verify", "observations", number)
        size = (min(count, watched + AFTER), spaces.observation_dim)
        rows = rng.uniform(spaces.low, spaces.high, size).astype(np.float32)
        hidden = None
        if isinstance(context, HiddenContext):
            drawn = context.scaler.mean + context.scaler.scale * rng.normal(size=context.dim)
            hidden = dict(zip(context.names, drawn.tolist(), strict=True))
        count -= len(rows)
        yield _recording(agent, rows, hidden, number, seed)
        number += 1


def _recording(
    agent: Agent, rows: NDArray[np.float32], hidden: Hidden | None, number: int, seed: int
) -> Recording:
    masks = bounds = None
    space = agent.spaces.actions
    if number % MASKED == MASKED - 1:
        rng = generator(seed, "verify", "masks", number)
        if isinstance(space, Box):
            ends = rng.uniform(space.low, space.high, (len(rows), 2, space.width))
            bounds = np.sort(ends, axis=1).astype(np.float32)
        else:
            masks = rng.random((len(rows), space.width)) < 0.5
            masks[~masks.any(axis=1)] = True
    return Recording(rows, masks, hidden, integer(seed, "verify", "episode", number), bounds)


def verify(agent: Agent, exported: Any, recordings: Iterable[Recording]) -> Verified:
    """Compare both on all recordings; raise at the first action that differs beyond rounding.

    `exported` has `begin(seed, hidden)`, whose episodes have `act(observation, mask, bounds)`, as
    in the library. After a tie the histories may differ, so the comparison of that episode stops
    there.
    """
    observations = episodes = ties = 0
    boxed = isinstance(agent.spaces.actions, Box)
    apart, tolerance = 0.0, ROUNDING if boxed else 0.0
    with one_thread():
        for recording in recordings:
            ours = agent.begin(recording.seed, recording.hidden)
            theirs = exported.begin(recording.seed, recording.hidden)
            episodes += 1
            for time, row in enumerate(recording.observations):
                options = recording.options(time)
                action, other = ours.act(row, **options), theirs.act(row, **options)
                observations += 1
                difference = _difference(agent.spaces.actions, action, other)
                apart = max(apart, difference)
                if difference <= tolerance:
                    continue
                if not _tied(ours, theirs, action, other):
                    raise AgentError(
                        f"The export would take action {other} where the agent takes {action}, at "
                        f"step {time} of episode {episodes - 1}; nothing is written."
                    )
                ties += 1
                break
            else:
                _compare(ours, theirs, episodes - 1)
    return Verified(observations, episodes, ties, apart if boxed else None)


def _difference(space: ActionSpace, action: Any, other: Any) -> float:
    """How far apart two actions are: in halves of the range in a box, else 0 or 1."""
    if isinstance(space, Box):
        return float((np.abs(action.astype(np.float64) - other) / space.half).max())
    return float(action != other)


def _tied(ours: AgentEpisode, theirs: Any, action: Any, other: Any) -> bool:
    """Whether the two actions are a tie, ordered by rounding alone."""
    if ours.flagged != theirs.flagged:
        return abs((ours.novelty or 0) - (theirs.novelty or 0)) < 0.01
    values = ours.values
    if values is None:  # a probe, or an actor
        return False
    size = np.abs(values).max() + np.float32(1)
    return bool(abs(values[action] - values[other]) <= NEARLY_TIED * size)


def _compare(ours: AgentEpisode, theirs: Any, episode: int) -> None:
    """Raise unless latent and novelty agree too."""
    if ours.latent is None and theirs.latent is None:
        return
    mine, other = (np.nan if each is None else each for each in (ours.latent, theirs.latent))
    apart = abs((ours.novelty or 0) - (theirs.novelty or 0))
    if not np.allclose(mine, other, rtol=1e-3, atol=1e-3) or apart > 0.05:
        raise AgentError(
            f"In episode {episode} the export infers a different latent or novelty; "
            "nothing is written."
        )
