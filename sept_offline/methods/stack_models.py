"""Models of the next observation, which show whether the current one lacks a part of the state.

They read the current observation or several, and are tested on other episodes. If part of the
state is missing from the observation, the last steps predict the next observation better than the
current one alone. They also do so for a model that has merely learned too little: in most systems
the last change is half of the answer. Hence the model of the current observation learns three times
as long as the model it is compared with; both know the instance. What is still better predicted
from the last steps is missing from the current observation.

A short fit of a model of the last steps may miss what it would find in the end: noise that the last
observations average out, or a system that changes now and then. Errors of a model that has learned
too little depend on state and action alone. So the errors of the first model are looked at as well.
A linear regression of them on the last steps shows the former, if it explains more than one on the
products of state and action. The latter shows if an error resembles that at a recent step of the
same episode more than that at a step of another episode which is at least as similar.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.networks import Standardiser
from sept_offline.data import Dataset
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.world import WorldStage
from sept_offline.seeding import generator, integer
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
MOST_ROWS, MOST_PRODUCTS = 20_000, 14
"""Maximum steps of a regression, and columns of which it reads all products, not the squares
alone."""
MOST_SLOPES = 400
"""Maximum number of columns times instances for which each instance has its own slopes."""
RIDGE, BEYOND = 10.0, 4.0
"""Penalty of the regression, and standard deviations to which its inputs are clipped."""
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


def regressed(
    present: TestedModel, data: Dataset, tested: NDArray[np.bool_], length: int
) -> TestedModel:
    """The model of the current observation after a linear regression of its errors.

    The regression reads products of the current observation and action, the current columns in each
    instance and, if `length` is above 1, the stacked steps before. Without the instances, the steps
    before would explain what the model has not yet learned of each. It is fitted to all but the
    `tested[E]` episodes.
    """

    def rows(view: Dataset) -> tuple[Doubles, Floats, Floats, Integers, Integers]:
        """Errors, current columns and earlier ones of each step, its instance and its episode."""
        steps = view.steps()
        seen = steps.observations[steps.row]
        newest = replace(steps, observations=steps.observations[:, : data.observation_dim])
        change, predicted = present.model.predictions(newest)
        taken = data.action_space.encode(steps.actions)
        now = np.concatenate([seen[:, : data.observation_dim], taken], axis=1)
        limit = np.sqrt(CLIP)
        errors: Doubles = np.clip(change - predicted, -limit, limit).astype(np.float64)
        before = seen[:, data.observation_dim :]
        return errors, now, before, steps.instance, np.cumsum(steps.time == 0) - 1

    view = data.stacked(length)
    errors, now, before, instance, _ = rows(view.select(~tested))
    thinned = slice(None, None, 1 + len(errors) // MOST_ROWS)
    errors, now, before, instance = (
        errors[thinned],
        now[thinned],
        before[thinned],
        instance[thinned],
    )
    scales = Standardiser.fit(now), Standardiser.fit(before)
    instances = np.unique(data.episode_index.instance)
    inputs = _features(scales[0](now), scales[1](before), instance, instances)
    square = inputs.T @ inputs + RIDGE * np.eye(inputs.shape[1])
    weights = np.linalg.solve(square, inputs.T @ errors)
    errors, now, before, instance, episode = rows(view.select(tested))
    left = (
        errors - _features(scales[0](now), scales[1](before), instance, instances) @ weights
    ) ** 2
    lengths = np.bincount(episode)
    each = [np.bincount(episode, weights=column) / lengths for column in left.T]
    return replace(present, errors=np.stack(each, axis=1))


def _features(now: Floats, before: Floats, instance: Integers, instances: Integers) -> Doubles:
    """1, the columns, products of the current ones, and each instance's own current columns.

    Only the squares where there are many columns, only a constant where there are many instances.
    """
    current, earlier = (np.clip(part, -BEYOND, BEYOND).astype(np.float64) for part in (now, before))
    width = current.shape[1]
    products = (
        [current**2]
        if width > MOST_PRODUCTS
        else [current[:, [column]] * current[:, column:] for column in range(width)]
    )
    ones = np.ones((len(current), 1))
    own = (instance[:, None] == instances).astype(np.float64)
    slopes = [own * current[:, [column]] for column in range(width)]
    if width * len(instances) > MOST_SLOPES:
        slopes = []
    return np.concatenate([ones, current, *products, own, *slopes, earlier], axis=1)


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
