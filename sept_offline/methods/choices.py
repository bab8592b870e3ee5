"""Settings that a fit chooses from the logs, each with its reason in one sentence.

They are the algorithm of control, its updates, the length of the probe, and how many observations
to stack.

The stack is chosen by models of the next observation, which show whether the current one lacks a
part of the state. They read the current observation or several, and are tested on other episodes.
If part of the state is missing from the observation, the last steps predict the next observation
better than the current one alone. They also do so for a model that has merely learned too little:
in most systems the last change is half of the answer. Hence the model of the current observation
learns three times as long as the model it is compared with; both know the instance. What is still
better predicted from the last steps is missing from the current observation.

A short fit of a model of the last steps may miss a system that changes now and then. So the errors
of the first model are compared as well: if something hidden lasts for some steps, its error at a
step resembles that at a recent step of the same episode more than that at a step of another episode
which is at least as similar. Errors of a model that has learned too little depend on state and
action alone.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Box, Finite
from sept_offline.agent import Agent, Spaces
from sept_offline.agent.networks import Standardiser
from sept_offline.data import Dataset
from sept_offline.data.records import Segments, Steps
from sept_offline.data.summary import DEFAULT_PROBE_STEPS
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.world import WorldStage
from sept_offline.errors import ConfigError
from sept_offline.methods.hold_out import unfitted_episodes
from sept_offline.methods.method import Method
from sept_offline.probe.behaviour import estimate_behaviour
from sept_offline.seeding import generator, integer
from sept_offline.settings import AUTO, BOX_ALGORITHMS, FINITE_ALGORITHMS, FitConfig
from sept_offline.stacking import Stack
from sept_offline.stage import Stage
from sept_offline.training.inputs import Doubles, Floats, Integers

MODEL_HIDDEN, MODEL_BATCH = (64, 64), 256
MOST_STEPS = 60_000
"""Maximum logged steps to fit and test on."""
CLIP = 100.0
"""Largest squared error that counts, in variances of the change: a single reset would otherwise
decide everything. A column that seldom changes, such as a cell of a grid, changes by ten standard
deviations at once: those are what a model must predict."""
LITTLE = 0.1
"""A column of which less is unexplained counts as explained."""
GAIN = 0.02
"""Minimum gain, as a share of what is unexplained: of a noisy column little can be gained."""
RECENT = 8
"""Steps back that count as recent."""
SIMILAR = 4.0
"""Squared distance of two steps, in variances of state and action, up to which they are similar."""
ASKED, FEW_PAIRS = 3000, 300
"""Steps whose errors are compared, and the fewest that show anything."""
WIDE = 3.0
"""Standard errors on both sides of a mean: there are several columns, and one may decide."""


@dataclass(frozen=True)
class TestedModel:
    """A model of the next observation, tested on other episodes.

    errors `[E, d]`: mean squared error of each episode, clipped, in variances of the change;
    unexplained `[d]`: share of what the change varies; 0 in a column that never changes.
    """

    errors: Doubles
    unexplained: Doubles
    model: WorldStage

    @property
    def open(self) -> NDArray[np.bool_]:
        """The columns `[d]` of which more than a little is unexplained."""
        unexplained: NDArray[np.bool_] = self.unexplained > LITTLE
        return unexplained


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


def sample_episodes(data: Dataset, seed: int) -> Dataset:
    """A random subset of the episodes with about `MOST_STEPS` steps."""
    if data.num_steps <= MOST_STEPS:
        return data
    order = generator(seed, "episodes").permutation(data.num_episodes)
    count = int(np.searchsorted(np.cumsum(data.episode_index.length[order]), MOST_STEPS)) + 1
    return data.select(np.sort(order[:count]))


def fit_and_test(
    data: Dataset, tested: NDArray[np.bool_], seed: int, length: int, updates: int, name: str
) -> Generator[Stage, None, TestedModel]:
    """Fit a model of `length` observations to all but the `tested[E]` episodes, and test it."""
    view = data.stacked(length)
    kept, steps = view.select(~tested).steps(), view.select(tested).steps()
    stage = WorldStage(
        kept,
        Columns.fit(kept),
        updates,
        integer(seed, name),
        space=data.action_space,
        num_instances=len(data.instances),
        stack=Stack(length, data.observation_dim, data.action_space.width) if length > 1 else None,
        hidden=MODEL_HIDDEN,
        batch=MODEL_BATCH,
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
    return TestedModel(np.stack(each, axis=1), np.where(varies, unexplained, 0.0), stage)


def lasting_gain(tested: TestedModel, data: Dataset, rng: np.random.Generator) -> Gain | None:
    """How much more errors resemble recent ones than those of other episodes, in their variances.

    A step is compared with the most similar of its last steps, and with the most similar step of
    the same instance in other episodes if that is no less similar. None without enough such steps.
    """
    steps = data.steps()
    change, predicted = tested.model.predictions(steps)
    errors = np.clip(change - predicted, -WIDE, WIDE).astype(np.float64)
    seen = steps.observations[steps.row]
    features = np.concatenate([seen, data.action_space.encode(steps.actions)], axis=1)
    features = Standardiser.fit(features)(features)
    episode = np.cumsum(steps.time == 0) - 1
    members = {code: np.flatnonzero(steps.instance == code) for code in np.unique(steps.instance)}
    trios: list[tuple[int, int, int]] = []
    for row in rng.permutation(len(episode))[: 2 * ASKED].tolist():
        past = np.arange(row - min(RECENT, int(steps.time[row])), row)
        if not len(past) or len(trios) == ASKED:
            continue
        recent, near = _nearest(features, row, past)
        if near > SIMILAR:
            continue
        others = members[steps.instance[row]]
        other, away = _nearest(features, row, others[episode[others] != episode[row]])
        if away <= near:
            trios.append((row, recent, other))
    if len(trios) < FEW_PAIRS:
        return None
    rows, recent_rows, other_rows = np.array(trios).T
    size = np.maximum((errors[rows] ** 2).mean(axis=0), 1e-12)
    resembles = (errors[rows] - errors[other_rows]) ** 2 - (errors[rows] - errors[recent_rows]) ** 2
    gains = resembles / size
    mean = gains.mean(axis=0)
    # Steps of one episode are not independent.
    place = np.unique(episode[rows], return_inverse=True)[1]
    sums = np.stack([np.bincount(place, weights=column) for column in (gains - mean).T], axis=1)
    return _surest(mean, WIDE * np.sqrt((sums**2).sum(axis=0)) / len(rows), tested.open)


def _nearest(features: Floats, row: int, among: Integers) -> tuple[int, float]:
    """The row in `among` that is most similar to `row`, and the squared distance."""
    if not len(among):
        return row, np.inf
    away = ((features[among] - features[row]) ** 2).sum(axis=1)
    best = int(away.argmin())
    return int(among[best]), float(away[best])


def gain_of(worse: TestedModel, better: TestedModel, columns: NDArray[np.bool_]) -> Gain:
    """The gain of the column, among `columns[d]`, with the highest lower bound."""
    error = worse.errors.mean(axis=0)
    gains = (worse.errors - better.errors) / np.where(error > 0, error, 1.0)
    mean = gains.mean(axis=0)
    return _surest(mean, WIDE * gains.std(axis=0, ddof=1) / np.sqrt(len(gains)), columns)


def _surest(mean: Doubles, room: Doubles, columns: NDArray[np.bool_]) -> Gain:
    """The gain `mean[d] ± room[d]` of the column, among `columns[d]`, with the highest low end."""
    column = int(np.argmax(np.where(columns, mean - room, -np.inf)))
    low, high = mean[column] - room[column], mean[column] + room[column]
    return Gain(column, float(mean[column]), float(low), float(high))


FEW_ACTIONS = 1.5
"""Effective number of actions below which a logged step has hardly any alternative."""
NARROW = 0.7
"""Share of such steps above which logs are narrow: experts' logs have 0.9, replayed ones 0.4."""
BEHAVIOUR_STEPS = 4000
"""Number of steps to estimate the behaviour from if its probabilities were not logged."""
UPDATES, MOST_UPDATES = 8000, 24_000
"""Updates of control: for up to `ENOUGH_STEPS` logged steps, and at most."""
ENOUGH_STEPS = 50_000

TRIED = 4
"""Number of stacked observations to compare with the current one alone."""
SHORTER, LONGER = 2, 8
"""Other lengths to try if that one is better."""
MODEL_UPDATES = 1200
"""Maximum updates of the model of the current observation; the others get a third."""
TEST_SHARE = 0.2
"""Share of the episodes on which the models of the next observation are tested."""
FEWEST = 5
"""Test episodes without which nothing is concluded."""
LASTING = 0.1
"""Minimum by which a step's error must resemble a recent one more than one of another episode."""


@dataclass(frozen=True)
class Choice:
    """A choice and its reason in one sentence."""

    chosen: int | str
    why: str

    def summary(self) -> dict[str, Any]:
        """The form stored in the record of an agent."""
        return asdict(self)


def choose_algorithm(data: Dataset, seed: int) -> Choice:
    """By the space; conservative if the behaviour takes a single action at most logged steps."""
    if isinstance(data.action_space, Box):
        return Choice("rebrac", "The actions are continuous.")
    steps = data.steps()
    chances, source = _chances(steps, data.num_actions, seed)
    entropy = -(chances * np.log(np.maximum(chances, 1e-12))).sum(axis=1)
    narrow = float((np.exp(entropy) < FEW_ACTIONS).mean())
    shown = f"at {narrow:.0%} of the steps the behaviour{source} nearly always takes one action"
    if narrow >= NARROW:
        return Choice("discrete_cql", f"The logs are narrow: {shown}.")
    return Choice("double_dqn", f"The logs show alternatives: {shown}.")


def _chances(steps: Steps, num_actions: int, seed: int) -> tuple[np.ndarray[Any, Any], str]:
    """Probabilities of all actions at logged steps `[n, A]`; estimated where most are unknown."""
    logged = steps.propensities
    if logged is not None:
        known = np.isfinite(logged).all(axis=1)
        if known.mean() >= 0.5:
            return logged[known].astype(np.float64), ""
    rng = generator(seed, "algorithm", "steps")
    rows = np.sort(rng.permutation(len(steps.actions))[:BEHAVIOUR_STEPS])
    single = Segments(
        observations=np.stack(
            [steps.observations[steps.row[rows]], steps.observations[steps.row[rows] + 1]], axis=1
        ),
        actions=steps.actions[rows][:, None],
        rewards=steps.rewards[rows][:, None],
        propensities=None,
        instance=steps.instance[rows],
        episode=steps.episode[rows],
        skipped=0,
    )
    behaviour = estimate_behaviour(single, Finite.of(num_actions), integer(seed, "algorithm"))
    return behaviour.propensities[:, 0], " (estimated)"


def choose_updates(data: Dataset) -> Choice:
    """More updates for more steps: with few steps, values drift upwards in long training."""
    updates = UPDATES * max(1.0, data.num_steps / ENOUGH_STEPS) ** 0.5
    chosen = int(round(min(updates, MOST_UPDATES), -3))
    return Choice(chosen, f"The logs have {data.num_steps:,} steps.")


def choose_probe_steps(data: Dataset) -> Choice:
    """The dataset's probe length, or the default one; at most the length of every episode."""
    named = data.metadata.probe_steps
    wanted = named or DEFAULT_PROBE_STEPS
    shortest = int(data.episode_index.length.min(initial=wanted))
    if shortest < wanted:
        return Choice(shortest, f"The shortest episode has length {shortest}.")
    return Choice(wanted, "The dataset names it." if named else "The dataset names no other.")


def check_algorithm(data: Dataset, algorithm: str) -> None:
    """Refuse an algorithm for the other kind of actions."""
    box = isinstance(data.action_space, Box)
    fitting = BOX_ALGORITHMS if box else FINITE_ALGORITHMS
    if algorithm not in (AUTO, *fitting):
        kind = "continuous" if box else "a finite set"
        raise ConfigError(
            f"control.algorithm is {algorithm!r}, but the actions of {data.path} are {kind}; "
            f"expected one of {', '.join((AUTO, *fitting))}."
        )


def choose_settings(
    data: Dataset, config: FitConfig, seed: int, *, double_dqn: bool = False
) -> tuple[FitConfig, dict[str, Choice]]:
    """The settings with every open one chosen, and the choices by the setting's name.

    double_dqn: the method supports no other algorithm.
    """
    control, choices = config.control, {}
    check_algorithm(data, control.algorithm)
    if control.algorithm == AUTO and double_dqn:
        control = replace(control, algorithm="double_dqn")
    elif control.algorithm == AUTO:
        choices["control.algorithm"] = choice = choose_algorithm(data, seed)
        control = replace(control, algorithm=str(choice.chosen))
    if control.updates == 0:
        choices["control.updates"] = choice = choose_updates(data)
        control = replace(control, updates=int(choice.chosen))
    config = replace(config, control=control)
    if config.probe_steps == 0:
        choices["probe_steps"] = choice = choose_probe_steps(data)
        config = replace(config, probe_steps=int(choice.chosen))
    return config, choices


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
    """Stack if the last steps clearly improve the prediction of test episodes."""
    seed = integer(seed, "stack")
    some = sample_episodes(data, seed)
    tested = unfitted_episodes(some, TEST_SHARE, seed)
    if tested.sum() < FEWEST:
        return Choice(
            1, "There are too few episodes to test whether the last steps improve predictions."
        )
    # At most as long as the fit itself.
    long = max(1, min(MODEL_UPDATES, config.latent.updates, config.control.updates // 4))
    short = max(1, long // 3)
    fitted = partial(fit_and_test, some, tested, seed)

    present = yield from fitted(1, long, "stack-1")
    if not present.open.any():
        most = present.unexplained.max(initial=0.0)
        return Choice(
            1, f"The current observation leaves at most {most:.1%} of the next change unexplained."
        )
    names = data.metadata.observation_names or [f"column {i}" for i in range(data.observation_dim)]
    stacked = yield from fitted(TRIED, short, f"stack-{TRIED}")
    gain = gain_of(present, stacked, present.open)
    if gain.clear:
        # The longer one may have overfit; then the shorter one is better.
        early = yield from fitted(1, short, "stack-1-short")
        gain = min(gain, gain_of(early, stacked, present.open), key=lambda each: each.low)
    if not gain.clear:
        lasting = lasting_gain(present, some, generator(seed, "lasting"))
        if lasting is not None and lasting.low > LASTING:
            return Choice(
                TRIED,
                "Something that is not observed lasts for some steps: the error of the next "
                f"{names[lasting.column]!r} resembles that at the last such step of the episode by "
                f"{lasting} more than that in other episodes.",
            )
        return Choice(
            1,
            f"The last {TRIED} observations with their actions do not clearly predict more than "
            f"the current one: the error of the next {names[gain.column]!r} falls by {gain}.",
        )
    chosen, best = TRIED, stacked
    shorter = yield from fitted(SHORTER, short, f"stack-{SHORTER}")
    if not gain_of(shorter, stacked, present.open).clear:
        chosen, best = SHORTER, shorter
    else:
        longer = yield from fitted(LONGER, short, f"stack-{LONGER}")
        if gain_of(stacked, longer, present.open).clear:
            chosen, best = LONGER, longer
    gain = gain_of(present, best, present.open)
    return Choice(
        chosen,
        f"The last {chosen} observations with their actions predict more than the current one: the "
        f"error of the next {names[gain.column]!r} falls by {gain}.",
    )
