"""Rollouts of agents in dynamics, rewards and ends that are learned from the logs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from sept_offline.agent import Agent
from sept_offline.control.rewards import one_form
from sept_offline.data import Dataset
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.outcome import NEARLY_EQUAL, OutcomeStage
from sept_offline.dynamics.world import WorldStage, replay_error, roll_out
from sept_offline.errors import TrainingError
from sept_offline.family import Hidden
from sept_offline.methods.verdict import Interval
from sept_offline.seeding import generator, integer
from sept_offline.settings import FitConfig
from sept_offline.stacking import Stack
from sept_offline.stage import Stage
from sept_offline.training.inputs import Doubles, Integers

WORLD_UPDATES = 2000
"""Updates of each model of the learned dynamics, at most."""
ROLLOUTS = 160
"""Episodes in learned dynamics, spread evenly over the instances that are tried."""
CONFIDENCE = 0.95
DRAWS = 1000
MANY = 10
"""From this number of held-out instances on, the bootstrap draws instances; below, episodes."""


@dataclass(frozen=True)
class Rehearsal:
    """Episodes of agents in learned dynamics, beside the episodes logged in the same instances.

    Returns are in standard deviations of the logged ones.
    """

    roll: Callable[[Agent, Sequence[Hidden] | None], Doubles]
    """From an agent, and the hidden parameters of its rollouts, to their unscaled returns."""
    instance: Integers
    """The instance of each rollout, `[n]`."""
    logged: Doubles
    """Returns of the logged episodes, `[E]`."""
    logged_instance: Integers
    """`[E]`"""
    unit: float
    """Standard deviation of the logged returns, unscaled."""
    off: float
    """Error of the dynamics in what logged actions earn: see `replay_error`."""
    unseen: bool
    """Whether the instances stand for others, because the fit that is tried has not seen them."""
    rng: Callable[[], np.random.Generator]

    def returns(self, agent: Agent, hidden: Sequence[Hidden] | None = None) -> Doubles:
        """The agent's return in each rollout, `[n]`."""
        return self.roll(agent, hidden) / self.unit

    def difference(
        self, first: Doubles, second: Doubles | None, *, across: bool = False
    ) -> Interval:
        """Mean of `first[n]` less `second[n]`, pairwise; or less the logged returns.

        across: the interval holds for other instances, too.
        """
        if second is not None:
            return bootstrap(first - second, self.instance, self.rng(), across)
        means = {
            code: self.logged[self.logged_instance == code].mean()
            for code in np.unique(self.logged_instance)
        }
        against = np.array([means[code] for code in self.instance])
        return bootstrap(first - against, self.instance, self.rng())


def rehearse_in(
    data: Dataset, unseen: Dataset, config: FitConfig, seed: int, stack: Stack | None
) -> Generator[Stage, None, Rehearsal]:
    """Learn the dynamics of all instances, and choose where rollouts begin."""
    steps = data.steps()
    rewards, factor = one_form(steps.rewards, steps.terminations, steps.instance, config.control)
    returns = np.bincount(np.cumsum(steps.time == 0) - 1, weights=rewards * factor[steps.instance])
    unit = float(returns.std())
    if not unit > NEARLY_EQUAL * np.abs(returns).max():
        raise TrainingError("all logged episodes have the same return.")
    columns = Columns.fit(steps)
    # A short fit is not worth a long trial.
    updates = max(1, min(WORLD_UPDATES, config.control.updates // 3))
    world = WorldStage(
        steps,
        columns,
        updates,
        integer(seed, "world"),
        space=data.action_space,
        num_instances=len(data.instances),
        stack=stack,
    )
    world.name = "trial-world"
    yield world
    outcome = OutcomeStage(
        steps,
        rewards,
        steps.terminations,
        columns,
        replace(config.dynamics, outcome_updates=updates),
        integer(seed, "outcome"),
        space=data.action_space,
    )
    outcome.name = "trial-outcome"
    yield outcome

    length = data.episode_index.length
    error = replay_error(world, outcome.outcome, steps, length, rewards, factor, seed)

    chosen = np.isin(data.episode_index.number, unseen.episode_index.number)
    first = steps.observations[steps.row[steps.time == 0]][chosen]
    owner = data.episode_index.instance[chosen]
    rows = _spread(owner, generator(seed, "starts"))
    terminated = steps.terminations[np.cumsum(length) - 1]
    # As long as the logged episode, if a limit cut that: returns are compared with its own.
    horizon = np.where(terminated, length.max(), length)[chosen][rows]

    def roll(agent: Agent, hidden: Sequence[Hidden] | None) -> Doubles:
        starts, whose = first[rows], owner[rows]
        noise = integer(seed, "roll")
        earned = roll_out(world, outcome.outcome, agent, starts, whose, horizon, noise, hidden)
        return earned * factor[whose]

    return Rehearsal(
        roll,
        owner[rows],
        returns[chosen] / unit,
        owner,
        unit,
        error / unit,
        unseen is not data,
        lambda: generator(seed, "bootstrap"),
    )


def _spread(owner: Integers, rng: np.random.Generator) -> Integers:
    """`ROLLOUTS` positions in `owner[E]` or a few more, as many of each instance."""
    present = np.unique(owner)
    each = -(-ROLLOUTS // len(present))
    picked = [np.resize(rng.permutation(np.flatnonzero(owner == code)), each) for code in present]
    return np.concatenate(picked)


def bootstrap(
    values: Doubles, instance: Integers, rng: np.random.Generator, across: bool = False
) -> Interval:
    """Bootstrap interval of the mean of `values[n]`: over instances if there are many, else over
    rollouts.

    across: the interval must hold for other instances. With a few it is as wide as Student's t
    interval over them, at least.
    """
    present, place = np.unique(instance, return_inverse=True)
    groups = place if len(present) >= MANY else np.arange(len(values))
    counts = np.bincount(groups)
    means = np.bincount(groups, weights=values) / counts
    drawn = rng.integers(len(means), size=(DRAWS, len(means)))
    ends = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    low, high = np.quantile(means[drawn].mean(axis=1), ends)
    if across and 1 < len(present) < MANY:
        by_instance = np.bincount(place, weights=values) / np.bincount(place)
        error = by_instance.std(ddof=1) / np.sqrt(len(by_instance))
        room = stdtrit(len(by_instance) - 1, ends[1]) * error
        low, high = min(low, by_instance.mean() - room), max(high, by_instance.mean() + room)
    return Interval(float(means.mean()), float(low), float(high))
