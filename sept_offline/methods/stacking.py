"""How many observations a fit stacks, and the agent that comes of it.

Where a part of the state is missing from the observation, the last steps predict the next
observation better than the present one alone. So do they where a model has merely learned too
little: the last change is half of the answer in most systems. Hence the model of the present
observation learns three times as long as the model that it is compared with; both know the
instance. What is still better predicted from the last steps is then missing from the present.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import Agent, Spaces
from sept_offline.data import Dataset
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.world import WorldStage
from sept_offline.errors import ConfigError
from sept_offline.methods.choices import Choice
from sept_offline.methods.method import Method
from sept_offline.methods.sept import held_out_episodes
from sept_offline.seeding import generator, integer
from sept_offline.settings import FitConfig
from sept_offline.stacking import Stack
from sept_offline.stage import Stage
from sept_offline.training.inputs import Doubles

TRIED = 4
"""Number of stacked observations to compare with the current one alone."""
SHORTER, LONGER = 2, 8
"""Other lengths to try if that one is better."""
UPDATES = 1200
"""Maximum updates of the model of the current observation; the others get a third."""
HIDDEN, BATCH = (64, 64), 256
STEPS = 60_000
"""Logged steps that are looked at, at most."""
HELD_OUT = 0.2
FEWEST = 5
"""Held-out episodes without which nothing is concluded."""
CLIP = 1.0
"""Largest squared error that counts, in variances of the change: a wall or a reset is rare, and
would otherwise decide everything."""
LITTLE = 0.1
"""A column of which less is unexplained counts as explained."""
GAIN = 0.02
"""Share of what is unexplained that must be gained at least: of a noisy column little can be."""
WIDE = 3.0
"""Standard errors on both sides of a mean: there are several columns, and one may decide."""


@dataclass(frozen=True)
class Tried:
    """A model of the next observation, tested on held-out episodes.

    errors `[E, d]`: mean squared error of each episode, clipped, in variances of the change;
    unexplained `[d]`: share of what the change varies; 0 in a column that never changes.
    """

    errors: Doubles
    unexplained: Doubles

    @property
    def open(self) -> NDArray[np.bool_]:
        """The columns `[d]` of which more than a little is unexplained."""
        found: NDArray[np.bool_] = self.unexplained > LITTLE
        return found


@dataclass(frozen=True)
class Gain:
    """The relative error reduction of one model over another in one column."""

    column: int
    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether it is more than a little, beyond doubt."""
        return self.low > GAIN

    def __str__(self) -> str:
        return f"{self.mean:.0%} [{self.low:.0%}, {self.high:.0%}]"


def check_stack(method: Method, config: FitConfig) -> None:
    """Refuse a stack for a method that does not read one."""
    if config.stack > 1 and not method.stacks:
        raise ConfigError(
            f"The method {method.name!r} always uses stack = 1, found {config.stack}; omit "
            "--stack, or fit another method."
        )


def observing_plainly(agent: Agent, stack: Stack | None) -> Agent:
    """The agent for stacked rows as one that takes the current observation and stacks it."""
    if stack is None:
        return agent
    spaces, dim = agent.spaces, stack.dim
    plain = Spaces(
        spaces.observation_names[:dim], spaces.actions, spaces.low[:dim], spaces.high[:dim]
    )
    return replace(agent, spaces=plain, stack=stack.length)


def choose_stack(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Choice]:
    """Stack if the last steps clearly improve the prediction of held-out episodes."""
    seed = integer(seed, "stack")
    some = _some_of(data, seed)
    held = held_out_episodes(some, HELD_OUT, seed)
    if held.sum() < FEWEST:
        return Choice(
            1, "There are too few episodes to test whether the last steps improve predictions."
        )
    # At most as long as the fit itself.
    long = max(1, min(UPDATES, config.latent.updates, config.control.updates // 4))
    short = max(1, long // 3)
    tried = partial(_tried, some, held, seed)

    present = yield from tried(1, long, "stack-1")
    if not present.open.any():
        most = present.unexplained.max(initial=0.0)
        return Choice(
            1, f"The current observation leaves at most {most:.1%} of the next change unexplained."
        )
    names = data.metadata.observation_names or [f"column {i}" for i in range(data.observation_dim)]
    stacked = yield from tried(TRIED, short, f"stack-{TRIED}")
    found = _gain(present, stacked, present.open)
    if found.clear:
        # The longer one may have overfit; then the shorter one is better.
        early = yield from tried(1, short, "stack-1-short")
        found = min(found, _gain(early, stacked, present.open), key=lambda gain: gain.low)
    if not found.clear:
        return Choice(
            1,
            f"The last {TRIED} observations with their actions do not clearly predict more than "
            f"the current one: the error of the next {names[found.column]!r} falls by {found}.",
        )
    chosen, best = TRIED, stacked
    shorter = yield from tried(SHORTER, short, f"stack-{SHORTER}")
    if not _gain(shorter, stacked, present.open).clear:
        chosen, best = SHORTER, shorter
    else:
        longer = yield from tried(LONGER, short, f"stack-{LONGER}")
        if _gain(stacked, longer, present.open).clear:
            chosen, best = LONGER, longer
    found = _gain(present, best, present.open)
    return Choice(
        chosen,
        f"The last {chosen} observations with their actions predict more than the current one: the "
        f"error of the next {names[found.column]!r} falls by {found}.",
    )


def _some_of(data: Dataset, seed: int) -> Dataset:
    """A random subset of the episodes with about `STEPS` steps."""
    if data.num_steps <= STEPS:
        return data
    order = generator(seed, "episodes").permutation(data.num_episodes)
    count = int(np.searchsorted(np.cumsum(data.episode_index.length[order]), STEPS)) + 1
    return data.select(np.sort(order[:count]))


def _tried(
    data: Dataset, held: NDArray[np.bool_], seed: int, length: int, updates: int, name: str
) -> Generator[Stage, None, Tried]:
    """Fit a model of `length` observations without the `held[E]` episodes, and test it on them."""
    view = data.stacked(length)
    kept, steps = view.select(~held).steps(), view.select(held).steps()
    stage = WorldStage(
        kept,
        Columns.fit(kept),
        updates,
        integer(seed, name),
        space=data.action_space,
        num_instances=len(data.instances),
        stack=Stack(length, data.observation_dim, data.action_space.width) if length > 1 else None,
        hidden=HIDDEN,
        batch=BATCH,
    )
    stage.name = name
    yield stage
    change, predicted = stage.predictions(steps)
    squared = np.minimum((change - predicted).astype(np.float64) ** 2, CLIP)
    variation = np.minimum(change.astype(np.float64) ** 2, CLIP).mean(axis=0)
    varies = (stage.world.newest.varies.numpy() > 0) & (variation > 0)
    unexplained = squared.mean(axis=0) / np.where(varies, variation, 1.0)
    episode = np.cumsum(steps.time == 0) - 1
    lengths = np.bincount(episode)
    each = [np.bincount(episode, weights=column) / lengths for column in squared.T]
    return Tried(np.stack(each, axis=1), np.where(varies, unexplained, 0.0))


def _gain(worse: Tried, better: Tried, columns: NDArray[np.bool_]) -> Gain:
    """The gain of the column, among `columns[d]`, with the highest lower bound."""
    error = worse.errors.mean(axis=0)
    gains = (worse.errors - better.errors) / np.where(error > 0, error, 1.0)
    mean = gains.mean(axis=0)
    room = WIDE * gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    column = int(np.argmax(np.where(columns, mean - room, -np.inf)))
    low, high = mean[column] - room[column], mean[column] + room[column]
    return Gain(column, float(mean[column]), float(low), float(high))
