"""Batches of whole episodes, ordered, checked and completed, into columns on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import Bool, Float32, Float64, Int64
from sept_offline.data.source import DTYPES
from sept_offline.data.spool import Spool
from sept_offline.errors import DataError
from sept_offline.tools.importing.mapping import BOUNDS, PREVIOUS, Rules
from sept_offline.tools.importing.measures import Clock, Ranges
from sept_offline.tools.importing.reading import Reading
from sept_offline.tools.importing.rows import TERMINATED, TRUNCATED, Rows, order_of

SAMPLE = 1 << 18
"""Values of a continuous action that its quantiles are taken from."""


@dataclass(frozen=True)
class Shape:
    """The partition of n ordered rows into e episodes."""

    starts: Int64
    """[e]"""
    counts: Int64
    """[e], rows of each"""
    last: Int64
    """[e]"""
    ends_in_row: Bool
    """[e], whether the last row is not a step: it contains only the final observation"""
    gives_up_step: Bool
    """[e], whether the last row's step is given up so that its observation is the final one"""

    @property
    def steps(self) -> Int64:
        """[e], T of each."""
        return self.counts - (self.ends_in_row | self.gives_up_step)

    def is_step(self) -> Bool:
        """[n], whether each row is a step."""
        steps = np.ones(int(self.counts.sum()), dtype=np.bool_)
        steps[self.last[self.ends_in_row | self.gives_up_step]] = False
        return steps

    def first(self) -> Int64:
        """[n], the row in which each row's episode begins."""
        return np.repeat(self.starts, self.counts)


class Assembly:
    """Takes batches of whole episodes; keeps counts, ranges and a sample of the values."""

    def __init__(self, reading: Reading, folder: Path) -> None:
        self.reading = reading
        # Until all rows are known, the actions of a finite set are numbers of labels or values, and
        # probabilities are as they were logged; `settle` turns them into what a dataset holds.
        types = {
            **DTYPES,
            "actions": np.dtype("<f4" if reading.mapping.box else "<f8"),
            "chances": np.dtype("<f8"),
            "row": np.dtype("<i8"),
        }
        self.columns = Spool(folder, types)
        self.fills = reading.mapping.fills
        self.findings = reading.findings
        self.dim, self.width = (
            sum(reading.widths.get(role, (1,))) for role in ("observations", "action")
        )
        self.observations, self.actions = Ranges(self.dim), Ranges(self.width)
        self.rewards = Ranges(1)
        self.clock = Clock()
        self._sample: list[Float64] = []
        self._stride = 1
        self.low, self.high = (self._bounds(name) for name in BOUNDS)

    def _bounds(self, name: str) -> Float32 | None:
        """[k], None if none were named."""
        named = getattr(self.reading.mapping, name)
        if len(named) not in (0, 1, self.width):
            raise DataError(
                f"--{name.replace('_', '-')} names {len(named)} bounds for {self.width} components "
                "of an action; name one for each, or one for all."
            )
        if not named:
            return None
        return np.broadcast_to(np.asarray(named, dtype=np.float32), (self.width,))

    def add(self, rows: Rows) -> None:
        """One batch of whole episodes, their rows in any order."""
        rows = self._without_duplicates(self._ordered(rows))
        shape = self._shape(rows)
        self._check_last_actions(rows, shape)
        keep = self._kept(rows, shape)
        if not keep.all():
            rows = rows.take(np.repeat(keep, shape.counts))
            if not len(rows):
                return
            shape = self._shape(rows)
        self._check_instances(rows, shape)
        step = shape.is_step()
        self._write(self._filled(rows, shape, step), shape, step)

    def _ordered(self, rows: Rows) -> Rows:
        order, back = order_of(rows.episode, rows.time)
        rows = rows if order is None else rows.take(order)
        if self.reading.mapping.time is not None:
            self.findings.counts["unordered rows"] += back
            return rows
        apart = (np.diff(rows.episode) == 0) & (np.diff(rows.row) != 1)
        self.findings.counts["scattered episodes"] += len(np.unique(rows.episode[1:][apart]))
        return rows

    def _without_duplicates(self, rows: Rows) -> Rows:
        again = (np.diff(rows.episode) == 0) & (np.diff(rows.time) == 0)
        if not again.any():
            return rows
        at = np.flatnonzero(again)
        equal = np.ones(len(at), dtype=np.bool_)
        for name, values in vars(rows).items():
            if values is None or name in ("episode", "time", "row"):
                continue
            before, other = values[at], values[at + 1]
            same = before == other
            if values.dtype.kind == "f":
                same |= np.isnan(before) & np.isnan(other)
            equal &= same.reshape(len(at), -1).all(axis=1)
        if not equal.all():
            first = self._first(rows, at[~equal])
            self._refuse(
                "contradiction",
                rows,
                at[~equal],
                "{count} steps are logged twice with different values, first one of the episode "
                f"{{episode}} ({{place}}, and {self.findings.place(int(rows.row[first + 1]))}); "
                "keep one of each.",
            )
        self.findings.counts["duplicated steps"] += int(equal.sum())
        keep = np.ones(len(rows), dtype=np.bool_)
        keep[at + 1] = False
        return rows.take(keep)

    def _shape(self, rows: Rows) -> Shape:
        starts = np.flatnonzero(np.diff(rows.episode, prepend=-1) != 0)
        counts = np.diff(np.append(starts, len(rows)))
        last = starts + counts - 1
        # What earned something, or led somewhere, was a step, whether its action is known or not.
        stepped = np.nan_to_num(rows.reward[last]) != 0
        if self.reading.mapping.reward in self.reading.mapping.observations:
            # Then the value is part of the final observation.
            stepped[:] = False
        if rows.following is not None:
            stepped |= ~np.isnan(rows.following[last]).all(axis=1)
        ends_in_row = np.isnan(rows.action[last]).all(axis=1) & ~stepped
        gives_up = ~ends_in_row
        if rows.following is not None:
            gives_up &= np.isnan(rows.following[last]).all(axis=1)
        if self.reading.mapping.keep_terminal:
            gives_up &= (rows.ends[last] & TERMINATED) == 0
        return Shape(starts, counts, last, ends_in_row, gives_up)

    def _check_last_actions(self, rows: Rows, shape: Shape) -> None:
        """Inner steps without an action are missing values; a last one could be no step at all."""
        lacking = np.isnan(rows.action[shape.last]).all(axis=1) & ~shape.ends_in_row
        if self.fills.action or not lacking.any():
            return
        self._refuse(
            "action",
            rows,
            shape.last[lacking],
            "{count} episodes end in a row that has a reward or a next observation and no action, "
            "first the episode {episode} ({place}); if a step was taken there, name its action "
            f"with --fill {self.reading.mapping.action_columns[0]}=…, and if the row only holds "
            "the final observation, leave them empty.",
        )

    def _kept(self, rows: Rows, shape: Shape) -> Bool:
        """[e], without episodes that have no steps or, if requested, no reward."""
        counts = self.findings.counts
        stepless = shape.steps < 1
        counts["episodes without a step"] += int(stepless.sum())
        rewarded = ~np.isnan(rows.reward) & shape.is_step()
        bare = ~np.logical_or.reduceat(rewarded, shape.starts) & ~stepless
        if self.fills.reward or not bare.any():
            return ~stepless
        counts["unrewarded episodes"] += int(bare.sum())
        if not self.reading.mapping.drop_unrewarded:
            self._refuse(
                "reward",
                rows,
                shape.starts[bare],
                "{count} episodes have no reward at all, first the episode {episode} ({place}); "
                "leave them out with --drop-unrewarded, or add --fill "
                f"{self.reading.mapping.reward}=zero.",
            )
        return ~stepless & ~bare

    def _check_instances(self, rows: Rows, shape: Shape) -> None:
        first = rows.instance[shape.first()]
        other = rows.instance != first
        if not other.any():
            return
        # The first change of each episode.
        changes = np.flatnonzero(other)
        changes = changes[np.diff(rows.episode[changes], prepend=-1) != 0]
        at = self._first(rows, changes)
        names = self.reading.instances.list
        self._refuse(
            "instance",
            rows,
            changes,
            "{count} episodes change their instance, first the episode {episode} from "
            f"{names[first[at]]!r} to {names[rows.instance[at]]!r} ({{place}}); if episodes are "
            "numbered separately in every instance, name both columns: --episode "
            f"{','.join([str(self.reading.mapping.instance), *self.reading.mapping.episode])}.",
        )

    def _filled(self, rows: Rows, shape: Shape, step: Bool) -> Rows:
        """With missing values filled by the rules, and the others counted as missing."""
        bad = _holding_nan(rows.observations)
        no_reward = np.isnan(rows.reward) & step
        no_action = np.isnan(rows.action) & step[:, None]
        if not (bad.any() or no_reward.any() or no_action.any()):
            return rows
        # Filling changes values: not those of the reader's own buffers.
        rows = rows.take(np.arange(len(rows)))
        first = shape.first()
        for position in np.flatnonzero(bad).tolist():
            name, rules = self.observation_name(position), self.rules(position)
            self._fill(name, rows.observations[:, position], rules, first, rows.row)
        if no_reward.any():
            rows.reward[~step] = 0.0
            name = str(self.reading.mapping.reward)
            self._fill(name, rows.reward, self.fills.reward, first, rows.row)
        for position in np.flatnonzero(no_action.any(axis=0)).tolist():
            values = np.where(step, rows.action[:, position], 0.0)
            self._fill(
                self.action_name(position), values, self._action_rules(position), first, rows.row
            )
            rows.action[step, position] = values[step]
        return rows

    def _fill(
        self, name: str, values: NDArray[Any], rules: Rules, first: Int64, row: Int64
    ) -> None:
        self.findings.filled[name] += fill(values, rules, first)
        self._lack(name, rules, values, row)

    def _lack(self, name: str, rules: Rules, values: NDArray[Any], row: Int64) -> None:
        """Count what the rules have left missing in values[n], of rows with these numbers."""
        if "mean" not in rules:
            kind = "start" if rules == PREVIOUS else "value"
            self.findings.lack(kind, name, np.isnan(values), row)

    def _action_rules(self, position: int) -> Rules:
        rules = self.fills.action.get(self.reading.owner("action", position), ())
        return tuple(
            rule if rule == "previous" or isinstance(rule, float) else self._label(rule)
            for rule in rules
        )

    def _label(self, word: str) -> float:
        return float(self.reading.label([word], np.zeros(1, dtype=np.int64))[0])

    def _end_bits(self, rows: Rows, shape: Shape, step: Bool) -> NDArray[np.uint8]:
        """[e], how each episode ended."""
        counts = self.findings.counts
        last_step = shape.starts + shape.steps - 1
        bits = rows.ends[last_step].copy()
        bits[shape.ends_in_row] |= rows.ends[shape.last[shape.ends_in_row]]
        early = (rows.ends > 0) & step
        early[last_step] = False
        if early.any():
            untimed = self.reading.mapping.time is None
            sort = "name their time with --time if rows are not in order, or " if untimed else ""
            self._refuse(
                "early end",
                rows,
                np.flatnonzero(early),
                "{count} end flags are set before the last step of their episode, first in the "
                f"episode {{episode}} ({{place}}); {sort}give the rows after them a new "
                "episode id.",
            )
        given_up = rows.ends[shape.last[shape.gives_up_step]]
        counts["last steps given up"] += int(shape.gives_up_step.sum())
        counts["terminations given up"] += int(((given_up & TERMINATED) > 0).sum())
        both = bits == TERMINATED | TRUNCATED
        counts["both end flags"] += int(both.sum())
        unmarked = (bits == 0) & ~shape.gives_up_step
        unmarked[shape.gives_up_step] = (bits[shape.gives_up_step] | given_up) == 0
        counts["episodes without an end flag"] += int(unmarked.sum())
        return np.where(bits & TERMINATED, TERMINATED, TRUNCATED).astype(np.uint8)

    def _write(self, rows: Rows, shape: Shape, step: Bool) -> None:
        observations = self._observations(rows, shape)
        bits = self._end_bits(rows, shape, step)
        steps = shape.steps
        flags = np.zeros(int(steps.sum()), dtype=np.uint8)
        flags[np.cumsum(steps) - 1] = bits
        at = np.flatnonzero(step)
        rewards, actions = rows.reward[at], rows.action[at]
        self._measure(observations, rewards, actions, rows)
        columns: dict[str, NDArray[Any]] = {
            "observations": observations,
            "rewards": rewards,
            "terminations": flags == TERMINATED,
            "truncations": flags == TRUNCATED,
        }
        if self.reading.mapping.box:
            columns["actions"] = self._inside(rows, at)
            if rows.chances is not None:
                columns["propensities"] = self._log_densities(rows, rows.chances[at], at)
        else:
            columns["actions"] = actions[:, 0]
            if rows.chances is not None:
                columns |= {"chances": rows.chances[at], "row": rows.row[at]}
        about = (steps, rows.episode[shape.starts], rows.instance[shape.starts])
        self.columns.append(np.stack(about, axis=1), columns)

    def _inside(self, rows: Rows, at: Int64) -> Float32:
        """[n, k], actions of a box in the rows at these positions, none outside named bounds."""
        actions: Float32 = rows.action[at].astype(np.float32)
        beyond = np.zeros(actions.shape, dtype=np.bool_)
        with np.errstate(invalid="ignore"):
            if self.low is not None:
                beyond |= actions < self.low
            if self.high is not None:
                beyond |= actions > self.high
        if beyond.any():
            bad = at[beyond.any(axis=1)]
            first = self._first(rows, bad)
            position = int(np.argmax(beyond[np.searchsorted(at, first)]))
            self._refuse(
                "bounds",
                rows,
                bad,
                "{count} actions lie outside --action-low and --action-high, first "
                f"{rows.action[first, position]:g} in {self.action_name(position)!r} of the "
                "episode {episode} ({place}); correct them, or widen the bounds.",
            )
        return actions

    def _log_densities(self, rows: Rows, chances: Float64, at: Int64) -> Float64:
        """[n], NaN where unknown, from chances[n, 1] of the rows at these positions."""
        name = self.reading.mapping.chances[0]
        if chances.shape[1] > 1:
            raise DataError(
                f"{name!r} holds {chances.shape[1]} numbers per step, expected one density."
            )
        densities = chances[:, 0]
        logarithm = self.reading.mapping.log_density is not None
        with np.errstate(invalid="ignore"):
            bad = np.isinf(densities) | ((densities <= 0) & (not logarithm))
        if bad.any():
            wanted = "finite numbers" if logarithm else "finite numbers above 0"
            self._refuse(
                "density",
                rows,
                at[bad],
                f"The densities of {{count}} steps in {name!r} are not {wanted}, first in the "
                "episode {episode} ({place}); correct them, or leave them empty where they are "
                "unknown.",
            )
        self.findings.counts["steps without a density"] += int(np.isnan(densities).sum())
        if logarithm:
            return densities
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.log(densities))

    def _observations(self, rows: Rows, shape: Shape) -> Float32:
        """[Σ(T+1), d], each episode's final one at its end."""
        added = shape.steps == shape.counts
        if not added.any():
            return rows.observations
        sizes = shape.counts + added
        ends = np.cumsum(sizes)
        source = np.arange(int(ends[-1])) - np.repeat(ends - sizes - shape.starts, sizes)
        final = ends[added] - 1
        source[final] -= 1
        observations: Float32 = rows.observations[source]
        if rows.following is not None:
            logged = rows.following[shape.last[added]]
            here = ~np.isnan(logged).all(axis=1)
            last = shape.last[added][here]
            seen, row = rows.observations[last], rows.row[last]
            observations[final[here]] = self._filled_finals(logged[here], seen, row)
            self.findings.counts["terminal steps kept"] += int((~here).sum())
        else:
            self.findings.counts["terminal steps kept"] += int(added.sum())
        return observations

    def _filled_finals(self, finals: Float32, seen: Float32, row: Int64) -> Float32:
        """[e, d], next observations of last steps, filled by rule; `seen`: those before them."""
        for position in np.flatnonzero(np.isnan(finals).any(axis=0)).tolist():
            rules = self.following_rules(position)
            name = self.reading.component(
                "observations", self.reading.mapping.next_observations, position
            )
            # Each is the second of two rows, of which the first was seen.
            pairs = np.stack([seen[:, position], finals[:, position]], axis=1).reshape(-1)
            known = ~np.isnan(finals[:, position])
            begins = np.repeat(np.arange(0, len(pairs), 2), 2)
            fill(pairs, rules, begins)
            finals[:, position] = pairs[1::2]
            left = 0 if "mean" in rules else int(np.isnan(pairs[1::2]).sum())
            self.findings.filled[name] += int((~known).sum()) - left
            self._lack(name, rules, pairs[1::2], row)
        return finals

    def _measure(
        self, observations: Float32, rewards: Float64, actions: Float64, rows: Rows
    ) -> None:
        """Ranges and sums of known values, gaps in time, a sample of a continuous action."""
        self.observations.add(observations)
        self.rewards.add(rewards[:, None])
        inner = np.diff(rows.episode) == 0
        if self.reading.mapping.time is not None:
            self.clock.add(np.diff(rows.time)[inner])
        if rows.following is not None:
            differs = (rows.following[:-1] != rows.observations[1:]).any(axis=1) & inner
            self.findings.counts["next observations that differ"] += int(differs.sum())
        if self.reading.mapping.box:
            self.actions.add(actions.astype(np.float32))
        elif self.reading.mapping.bins is not None:
            self._take_sample(actions[:, 0])

    def _take_sample(self, values: Float64) -> None:
        """Every k-th value, k doubled whenever there are too many."""
        self._sample.append(values[:: self._stride])
        while sum(map(len, self._sample)) > SAMPLE:
            self._sample = [np.concatenate(self._sample)[::2]]
            self._stride *= 2

    def sample(self) -> Float64:
        """Values of a continuous action from all over the table."""
        return np.concatenate(self._sample)

    def observation_name(self, position: int) -> str:
        """The name of one number of an observation."""
        return self.reading.component("observations", self.reading.mapping.observations, position)

    def action_name(self, position: int) -> str:
        """The name of one number of an action."""
        return self.reading.component("action", self.reading.mapping.action_columns, position)

    def rules(self, position: int) -> Rules:
        """The rule for a missing number of an observation."""
        owner = self.reading.owner("observations", position)
        return self.fills.observations.get(owner, self.fills.otherwise)

    def following_rules(self, position: int) -> Rules:
        """The same for the next observation: by its own rules, or by the observation's."""
        owner = self.reading.owner("observations", position)
        return self.fills.following.get(owner, self.rules(position))

    def _refuse(self, kind: str, rows: Rows, at: Int64, message: str) -> None:
        """Refuse the rows at these positions; "{episode}" in the message: that of the first."""
        word = self.reading.episode_words()[int(rows.episode[self._first(rows, at)])]
        named = repr("/".join(word) if isinstance(word, tuple) else word)
        self.findings.refuse(kind, rows.row[at], message.replace("{episode}", named))

    def _first(self, rows: Rows, at: Int64) -> int:
        """The position, among some, of the row that was logged first."""
        return int(at[np.argmin(rows.row[at])])


def fill(values: NDArray[Any], rules: Rules, first: Int64) -> int:
    """Fill NaN of values[n] in place; first[n]: where each row's episode begins. How many were.

    A mean is known when all rows have been seen: its places are counted now and stay NaN.
    """
    count = int(np.isnan(values).sum())
    for rule in rules:
        missing = np.isnan(values)
        if rule == "mean" or not missing.any():
            return count
        if rule == "previous":
            here = np.arange(len(values))
            source = np.maximum.accumulate(np.where(missing, first, here))
            values[missing] = values[source[missing]]
        else:
            values[missing] = rule
    return count - int(np.isnan(values).sum())


def _holding_nan(matrix: Float32) -> Bool:
    """[d], columns that may hold NaN: by a product that carries it, faster than a look at each."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(~np.isfinite(np.ones(len(matrix), dtype=np.float32) @ matrix))
