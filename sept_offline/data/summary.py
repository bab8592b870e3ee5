"""A summary of a dataset, with warnings about properties that may mislead a learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.data.dataset import Dataset, opened
from sept_offline.data.filesystems import Place
from sept_offline.data.records import Bool, Float32, Float64, Int64, Segments
from sept_offline.errors import DataError

DEFAULT_PROBE_STEPS = 5
"""Probe length if neither the caller nor the dataset names one."""
FOLDS = 5
SCORED = 1 << 22
"""Steps of episodes, once for each instance they may be of, that are scored at once."""
BLOCK_STEPS = 1 << 18
"""Steps that are read at once in search of columns that identify the instance."""
LOW_COVERAGE = 0.5
LOW_EFFECTIVE_SHARE = 0.1


@dataclass(frozen=True)
class InstanceSummary:
    """One row of the table."""

    instance: str
    episodes: int
    steps: int
    return_mean: float
    return_min: float
    return_max: float
    length_mean: float
    length_min: int
    length_max: int
    terminated: float
    """Share of episodes that terminated."""
    action_frequencies: tuple[float, ...]
    """[A]; empty for a box"""
    action_means: tuple[float, ...]
    """[k], of a box; empty for discrete actions"""
    action_deviations: tuple[float, ...]
    """[k]"""
    coverage: float
    """Distinct initial action sequences seen, out of |A| ** probe_steps; for a box, the fifths of
    each component's range that were seen at each initial step, out of 5 k probe_steps."""
    effective_sample_size: float | None
    """Effective sample size of a uniform probe, in episodes; None if it is unknown."""


@dataclass(frozen=True)
class InstanceLeak:
    """How well the logged initial actions alone predict the instance, cross-validated."""

    accuracy: float
    """Mean over instances of the share of their episodes predicted correctly."""
    chance: float
    significant: bool
    """Clearly above chance: by 3 standard errors and by a tenth of the possible gain."""


@dataclass(frozen=True)
class Summary:
    """A table of instances, and figures over all of them."""

    path: str
    content_hash: str
    family: str | None
    instances: int
    episodes: int
    steps: int
    num_actions: int | None
    """None for a box."""
    action_space: dict[str, Any]
    """As `ActionSpace.describe` gives it."""
    observation_dim: int
    behaviours: dict[str, int]
    """Episodes of each behaviour."""
    return_mean: float
    length_mean: float
    action_frequencies: tuple[float, ...]
    """[A]; empty for a box"""
    known_propensities: float
    """Share of initial steps whose probabilities, or log-densities, are known."""
    probe_steps: int
    short_episodes: int
    """Episodes with fewer than `probe_steps` steps."""
    coverage_min: float
    """The smallest coverage of any instance."""
    effective_sample_size: float | None
    leak: InstanceLeak | None
    equal_rewards: bool
    """Whether no action can change the return: every reward is 0, or every reward is the same and
    no episode terminated."""
    instance_columns: tuple[str, ...]
    """Observed columns, by name or number, that are constant within each instance and differ
    between instances."""
    table: tuple[InstanceSummary, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


def inspect(data: Dataset | str | Place, probe_steps: int | None = None) -> Summary:
    """Summarise a dataset: returns, actions, coverage of initial segments, warnings.

    `probe_steps` is the segment length (default: the one stored in the dataset, else 5).
    """
    with opened(data) as dataset:
        return _summary(dataset, probe_steps)


def _summary(data: Dataset, probe_steps: int | None) -> Summary:
    probe = probe_steps or data.metadata.probe_steps or DEFAULT_PROBE_STEPS
    _check(data)
    index, names = data.episode_index, data.instances
    columns = data.metadata.observation_names
    # If no episode is that long, there are no segments.
    segments = data.segments(min(probe, int(index.length.max(initial=0)) + 1))
    space = data.action_space
    weights = _uniform_weights(segments, space)
    table = tuple(
        _instance(data, name, code, segments, weights)
        for code, name in enumerate(names)
        if (index.instance == code).any()
    )
    steps = np.asarray([row.steps for row in table], dtype=np.float64)
    episodes = np.asarray([row.episodes for row in table], dtype=np.float64)
    frequencies = np.asarray([row.action_frequencies for row in table])
    known = 0.0
    if segments.propensities is not None and segments.propensities.size:
        known = float(1 - space.unknown(segments.propensities).mean())
    counts = np.bincount(index.behaviour, minlength=len(data.metadata.behaviours))
    summary = Summary(
        path=str(data.path),
        content_hash=data.content_hash,
        family=data.metadata.family,
        instances=len(table),
        episodes=data.num_episodes,
        steps=data.num_steps,
        num_actions=None if space.shape else space.width,
        action_space=space.describe(),
        observation_dim=data.observation_dim,
        behaviours=dict(zip(data.metadata.behaviours, counts.tolist(), strict=True)),
        return_mean=_weighted([row.return_mean for row in table], episodes),
        length_mean=_weighted([row.length_mean for row in table], episodes),
        action_frequencies=tuple((steps @ frequencies / max(steps.sum(), 1)).tolist()),
        known_propensities=known,
        probe_steps=probe,
        short_episodes=segments.skipped,
        coverage_min=min((row.coverage for row in table), default=0.0),
        effective_sample_size=None if weights is None else _effective(weights),
        leak=instance_leak(segments.actions, segments.instance, space),
        equal_rewards=_equal_rewards(data),
        instance_columns=tuple(
            str(column) if columns is None else columns[column]
            for column in instance_columns(data, segments)
        ),
        table=table,
        warnings=(),
    )
    return replace(summary, warnings=tuple(_warnings(summary)))


def _check(data: Dataset) -> None:
    """Raise if there are values that cannot be summarised; `validate` says where."""
    columns, space = data.columns("actions", "rewards"), data.action_space
    for name, bad in (
        ("actions outside the action space", space.outside(columns["actions"])),
        ("rewards that are not finite", ~np.isfinite(columns["rewards"])),
    ):
        if bad.any():
            raise DataError(
                f"{data.path} holds {int(bad.sum())} {name}; "
                "run sept-offline validate to see where."
            )
    if data.has_propensities:
        propensities = data.columns("propensities")["propensities"]
        for fault in space.propensity_faults(propensities, columns["actions"]):
            if fault.bad.any() and fault.kind in ("infinite", "impossible action"):
                raise DataError(
                    f"{data.path} holds {int(fault.bad.sum())} steps where {fault.message}; "
                    "run sept-offline validate to see where."
                )


def shorter(episodes: int) -> str:
    """The start of a sentence about this many short episodes."""
    return "1 episode is shorter" if episodes == 1 else f"{episodes:,} episodes are shorter"


def _equal_rewards(data: Dataset) -> bool:
    columns = data.columns("rewards", "terminations")
    rewards = columns["rewards"]
    if not len(rewards) or (rewards != rewards[0]).any():
        return False
    # the same reward at every step still tells short episodes from long ones
    return bool(rewards[0] == 0 or not columns["terminations"].any())


def never_taken(names: Sequence[str]) -> str:
    """What follows for `fit` if the actions of these names were never taken."""
    shown = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (
        f"Actions that were never taken: {shown}{more}. Their effect is unknown, and fit refuses "
        "the logs; leave the actions out, or log them."
    )


def _weighted(values: list[float], weights: Float64) -> float:
    return float(np.asarray(values) @ weights / max(weights.sum(), 1))


def _instance(
    data: Dataset,
    name: str,
    code: int,
    segments: Segments,
    weights: Float64 | None,
) -> InstanceSummary:
    view = data.select(data.episode_index.instance == code)
    index = view.episode_index
    steps = view.columns("rewards", "actions", "terminations")
    first = np.cumsum(index.length) - index.length
    returns = np.add.reduceat(steps["rewards"], first)
    mine = segments.instance == code
    space, actions = data.action_space, steps["actions"]
    shares: NDArray[Any] = np.zeros(0)
    means = deviations = np.zeros(0)
    if space.shape:
        wide = actions.astype(np.float64)  # squares of large actions exceed float32
        means, deviations = wide.mean(axis=0), wide.std(axis=0)
    else:
        shares = np.bincount(actions, minlength=space.width) / index.length.sum()
    return InstanceSummary(
        instance=name,
        episodes=len(index),
        steps=int(index.length.sum()),
        return_mean=float(returns.mean()),
        return_min=float(returns.min()),
        return_max=float(returns.max()),
        length_mean=float(index.length.mean()),
        length_min=int(index.length.min()),
        length_max=int(index.length.max()),
        terminated=float(steps["terminations"][first + index.length - 1].mean()),
        action_frequencies=tuple(shares.tolist()),
        action_means=tuple(means.tolist()),
        action_deviations=tuple(deviations.tolist()),
        coverage=coverage(segments.actions[mine], space),
        effective_sample_size=None if weights is None else _effective(weights[mine]),
    )


def coverage(actions: NDArray[Any], space: ActionSpace) -> float:
    """The share of possible first actions (sequences, or levels of a box) in [N, n, *shape]."""
    count, steps = actions.shape[:2]
    if not count:
        return 0.0
    levels = space.level(actions)
    if not space.shape:
        # an integer: for long segments it is larger than any float
        possible: int = space.levels**steps
        return len(np.unique(levels[..., 0], axis=0)) / possible
    seen = np.zeros((steps, levels.shape[2], space.levels), dtype=np.bool_)
    for level in range(space.levels):
        seen[..., level] = (levels == level).any(axis=0)
    return float(seen.mean())


def _uniform_weights(segments: Segments, space: ActionSpace) -> Float64 | None:
    """[N], log importance weights of the uniform probe on the segments; NaN where unknown."""
    if segments.propensities is None:
        return None
    logged = space.log_propensity(segments.propensities, segments.actions)
    weights: Float64 = -(logged + space.log_volume).sum(axis=1)
    return None if np.isnan(weights).all() else weights


def _effective(weights: Float64) -> float:
    """(Σw)² / Σw² from the logarithms of w, over the segments whose weight is known."""
    known = weights[~np.isnan(weights)]
    if not len(known):
        return 0.0
    # the size does not depend on the scale, and many components would underflow
    known = np.exp(known - known.max())
    return float(known.sum() ** 2 / (known**2).sum())


def instance_leak(
    first_actions: NDArray[Any], instances: Int64, space: ActionSpace
) -> InstanceLeak | None:
    """Predict instances by a chain P(a_t | a_{t-1}, t) fitted to each, on episodes it has not seen.

    first_actions: [N, n, *shape]; instances: [N]. Each component of a box has its own chain, over
    fifths of its range.
    """
    codes, instance = np.unique(instances, return_inverse=True)
    counts = np.bincount(instance)
    if len(codes) < 2 or counts.min() < FOLDS:
        return None
    actions = space.level(first_actions)
    previous = np.concatenate([np.zeros_like(actions[:, :1]), actions[:, :-1]], axis=1)
    order = np.argsort(instance, kind="stable")
    fold = np.empty(len(instance), dtype=np.int64)
    fold[order] = np.arange(len(instance)) - np.repeat(np.cumsum(counts) - counts, counts)
    fold %= FOLDS
    steps, components = actions.shape[1:]
    chains = np.arange(steps * components).reshape(steps, components)
    chains = np.broadcast_to(chains, actions.shape)
    shape = (len(codes), steps * components, space.levels, space.levels)
    right = np.zeros(len(instance), dtype=np.bool_)
    block = max(1, SCORED // (len(codes) * steps * components))
    for held in range(FOLDS):
        train, test = fold != held, fold == held
        seen = np.ones(shape)
        who = np.broadcast_to(instance[train][:, None, None], actions[train].shape)
        np.add.at(seen, (who, chains[train], previous[train], actions[train]), 1.0)
        chain = np.log(seen / seen.sum(axis=3, keepdims=True))
        asked = np.flatnonzero(test)
        for low in range(0, len(asked), block):
            rows = asked[low : low + block]
            scores = chain[:, chains[rows], previous[rows], actions[rows]].sum(axis=(2, 3))
            # A tie, for example if all episodes start in the same way, counts as a guess.
            best = scores == scores.max(axis=0)
            right[rows] = best[instance[rows], np.arange(len(rows))] & (best.sum(axis=0) == 1)
    accuracy = float(np.mean([right[instance == i].mean() for i in range(len(codes))]))
    chance = 1 / len(codes)
    margin = max(3 * np.sqrt(chance * (1 - chance) / len(instance)), 0.1 * (1 - chance))
    return InstanceLeak(accuracy, chance, bool(accuracy > chance + margin))


def _warnings(summary: Summary) -> list[str]:
    warnings: list[str] = []
    probe = summary.probe_steps
    if summary.known_propensities < 1:
        share = 1 - summary.known_propensities
        logged = "probabilities" if summary.num_actions else "log-densities"
        warnings.append(
            f"The behaviour's {logged} are unknown for {share:.0%} of the initial steps: "
            "the probe's importance weights must be estimated."
        )
    if summary.short_episodes:
        shortest = min(row.length_min for row in summary.table)
        warnings.append(
            f"{shorter(summary.short_episodes)} than the probe's {probe} steps and without a "
            f"segment, so fit uses a probe of {shortest}, the length of the shortest."
        )
    single = [row.instance for row in summary.table if row.episodes < 2]
    if len(single) == 1:
        warnings.append(f"The instance {single[0]!r} has a single episode.")
    elif single:
        warnings.append(f"{len(single)} instances have a single episode, first {single[0]!r}.")
    never = [
        str(name)
        for name, share in zip(
            summary.action_space["names"] if summary.num_actions else (),
            summary.action_frequencies,
            strict=True,
        )
        if share == 0
    ]
    if never:
        warnings.append(never_taken(never))
    if summary.equal_rewards:
        warnings.append(
            "All rewards are equal, so no action is better than another: nothing can be learned "
            "from them."
        )
    if summary.coverage_min < LOW_COVERAGE:
        possible = f"{summary.num_actions}^{probe} initial action sequences"
        if summary.num_actions is None:
            possible = f"range of the actions in its first {probe} steps"
        warnings.append(
            f"An instance contains only {summary.coverage_min:.0%} of the {possible}: probes that "
            "take the others cannot be evaluated."
        )
    size = summary.effective_sample_size
    if size is not None and size < LOW_EFFECTIVE_SHARE * summary.episodes:
        warnings.append(
            f"The effective sample size of a uniform probe is {size:.0f} of {summary.episodes} "
            "episodes: the behaviour rarely acts like a probe."
        )
    if summary.leak is not None and summary.leak.significant:
        warnings.append(
            "The instance is predicted from the initial actions alone in "
            f"{summary.leak.accuracy:.0%} of the episodes (chance: {summary.leak.chance:.0%}): "
            "the behaviour depends on the instance, and a latent may learn to read the actions."
        )
    if summary.instance_columns:
        shown = ", ".join(repr(name) for name in summary.instance_columns[:5])
        more = len(summary.instance_columns) - 5
        warnings.append(
            f"Observed columns that are constant within an instance and differ between instances: "
            f"{shown}{f' and {more} more' if more > 0 else ''}. They identify the instance without "
            "a probe; remove them unless they are also measured at deployment."
        )
    return warnings


def instance_columns(data: Dataset, segments: Segments) -> list[int]:
    """The columns that are constant in every instance and not the same in all of them.

    The segments rule out most columns, so that the rest of the file is seldom read.
    """
    starts = _Values(len(data.instances), data.observation_dim)
    # An episode that is shorter than a segment shows its columns only in the second pass.
    starts.add(
        segments.observations.reshape(-1, data.observation_dim),
        np.repeat(segments.instance, segments.observations.shape[1]),
    )
    if not starts.constant().any() or (not segments.skipped and not starts.identifying().any()):
        return []
    values = _Values(len(data.instances), data.observation_dim)
    length = data.episode_index.length
    block = (np.cumsum(length) - length) // BLOCK_STEPS
    for number in np.unique(block):
        view = data.select(block == number)
        rows = np.repeat(view.episode_index.instance, view.episode_index.length + 1)
        values.add(view.steps().observations, rows)
        if not values.constant().any():
            return []
    return [int(column) for column in np.flatnonzero(values.identifying())]


class _Values:
    """The least and the greatest value of each column in each instance, [I, d]."""

    def __init__(self, instances: int, columns: int) -> None:
        self.least = np.full((instances, columns), np.inf, dtype=np.float32)
        self.greatest = np.full((instances, columns), -np.inf, dtype=np.float32)

    def add(self, observations: Float32, instance: Int64) -> None:
        """Take in observations [N, d] of the instances [N]."""
        np.minimum.at(self.least, instance, observations)
        np.maximum.at(self.greatest, instance, observations)

    def constant(self) -> Bool:
        """[d], whether no instance seen so far shows two values; unseen ones show none."""
        return np.asarray((self.least >= self.greatest).all(axis=0))

    def identifying(self) -> Bool:
        """[d], whether the column is constant and two instances differ in it."""
        seen = np.isfinite(self.least).all(axis=1)
        if not seen.any():
            return np.zeros(self.least.shape[1], dtype=np.bool_)
        values = self.least[seen]
        return np.asarray(self.constant() & (values != values[0]).any(axis=0))
