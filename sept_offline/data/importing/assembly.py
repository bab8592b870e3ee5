"""Batches of whole episodes, ordered, checked and completed, into the spool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.importing.clock import Clock, spelled_interval
from sept_offline.data.importing.fills import PREVIOUS, Rules, fill, fills_of
from sept_offline.data.importing.reading import Reading
from sept_offline.data.importing.rows import TERMINATED, TRUNCATED, Rows, order_of
from sept_offline.data.importing.spool import EpisodeSpool
from sept_offline.data.records import Bool, Float64, Int64

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

    def first(self) -> Int64:
        """[n], the row in which each row's episode begins."""
        return np.repeat(self.starts, self.counts)


def _holding_nan(matrix: NDArray[np.float32]) -> Bool:
    """[d], columns that may hold NaN: by a product that carries it, faster than a look at each."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(~np.isfinite(np.ones(len(matrix), dtype=np.float32) @ matrix))


class Assembly:
    """Takes batches of whole episodes; keeps counts, ranges and a sample of what it saw."""

    def __init__(self, reading: Reading, spool: EpisodeSpool) -> None:
        self.reading, self.spool = reading, spool
        self.fills = fills_of(reading.mapping)
        self.findings = reading.findings
        d, named = spool.dim, len(reading.mapping.observations)
        widths = reading.widths or ((1,) * d if named == d else (d,))
        self._owner = np.repeat(np.arange(len(widths)), widths).tolist()
        """[d], which column of observations each number is of"""
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)
        self.total, self.known = np.zeros(d), np.zeros(d, dtype=np.int64)
        self.reward_total, self.reward_known = 0.0, 0
        self._clock = Clock()
        self._sample: list[Float64] = []
        self._stride = 1

    def add_all(self, batches: Iterable[Rows]) -> None:
        """Every batch."""
        for batch in batches:
            self.add(batch)

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
        # Filling changes values: not those of the reader's own buffers.
        step = np.ones(len(rows), dtype=np.bool_)
        step[shape.last[shape.ends_in_row | shape.gives_up_step]] = False
        rows = self._filled(rows, shape, step)
        self._write(rows, shape, step)

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
        for name in (
            "instance",
            "observations",
            "following",
            "action",
            "reward",
            "ends",
            "chances",
        ):
            values = getattr(rows, name)
            if values is None:
                continue
            one, other = values[at], values[at + 1]
            same = one == other
            if values.dtype.kind == "f":
                same |= np.isnan(one) & np.isnan(other)
            equal &= same.reshape(len(at), -1).all(axis=1)
        if not equal.all():
            first = at[int(np.argmin(equal))]
            one_place, other_place = (self.findings.place(int(rows.row[first + i])) for i in (0, 1))
            self.findings.refuse(
                "contradiction",
                ~equal,
                f"{{count}} steps are logged twice and differently, first one of the episode "
                f"{self._episode(rows, first)} ({one_place}, and {other_place}); keep one of each.",
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
        ends_in_row = np.isnan(rows.action[last]) & ~stepped
        gives_up = ~ends_in_row
        if rows.following is not None:
            gives_up &= np.isnan(rows.following[last]).all(axis=1)
        if self.reading.mapping.keep_terminal:
            gives_up &= (rows.ends[last] & TERMINATED) == 0
        return Shape(starts, counts, last, ends_in_row, gives_up)

    def _check_last_actions(self, rows: Rows, shape: Shape) -> None:
        """Inner steps without an action are missing values; a last one could be no step at all."""
        lacking = np.isnan(rows.action[shape.last]) & ~shape.ends_in_row
        if self.fills.action or not lacking.any():
            return
        at = int(shape.last[int(np.argmax(lacking))])
        self.findings.refuse(
            "action",
            lacking,
            "{count} episodes end in a row that has a reward or a next observation and no action, "
            f"first the episode {self._episode(rows, at)} "
            f"({self.findings.place(int(rows.row[at]))}); if a step was taken there, say which "
            f"with --fill {self.reading.mapping.action}=…, and if the row only holds "
            "the final observation leave them empty.",
        )

    def _kept(self, rows: Rows, shape: Shape) -> Bool:
        """[e], without episodes that have no steps or, if requested, no reward."""
        counts = self.findings.counts
        stepless = shape.steps < 1
        counts["episodes without a step"] += int(stepless.sum())
        rewarded = ~np.isnan(rows.reward)
        rewarded[shape.last[shape.ends_in_row | shape.gives_up_step]] = False
        bare = ~np.logical_or.reduceat(rewarded, shape.starts) & ~stepless
        if self.fills.reward or not bare.any():
            return ~stepless
        counts["unrewarded episodes"] += int(bare.sum())
        if not self.reading.mapping.drop_unrewarded:
            first = shape.starts[int(np.argmax(bare))]
            self.findings.refuse(
                "reward",
                bare,
                "{count} episodes have no reward at all, first the episode "
                f"{self._episode(rows, first)} ({self.findings.place(int(rows.row[first]))}); "
                f"leave them out with --drop-unrewarded, or say --fill "
                f"{self.reading.mapping.reward}=zero.",
            )
        return ~stepless & ~bare

    def _check_instances(self, rows: Rows, shape: Shape) -> None:
        first = rows.instance[shape.first()]
        other = rows.instance != first
        if not other.any():
            return
        at = int(np.argmax(other))
        names = self.reading.instances.list
        self.findings.refuse(
            "instance",
            np.logical_or.reduceat(other, shape.starts),
            "{count} episodes change their instance, first the episode "
            f"{self._episode(rows, at)} from {names[first[at]]!r} to "
            f"{names[rows.instance[at]]!r} ({self.findings.place(int(rows.row[at]))}); if episodes "
            "are numbered anew in every instance, name both columns: --episode "
            f"{','.join([str(self.reading.mapping.instance), *self.reading.mapping.episode])}.",
        )

    def _filled(self, rows: Rows, shape: Shape, step: Bool) -> Rows:
        """With missing values filled by the rules, and the others counted as missing."""
        findings, mapping = self.findings, self.reading.mapping
        bad = _holding_nan(rows.observations)
        no_reward, no_action = np.isnan(rows.reward) & step, np.isnan(rows.action) & step
        if not (bad.any() or no_reward.any() or no_action.any()):
            return rows
        rows = rows.take(np.arange(len(rows)))
        first = shape.first()
        for position in np.flatnonzero(bad).tolist():
            name = self.observation_name(position)
            values, rules = rows.observations[:, position], self.rules(position)
            findings.filled[name] += fill(values, rules, first)
            self._lack(name, rules, values, rows.row)
        if no_reward.any():
            name = str(mapping.reward)
            rows.reward[~step] = 0.0
            findings.filled[name] += fill(rows.reward, self.fills.reward, first)
            self._lack(name, self.fills.reward, rows.reward, rows.row)
        if no_action.any():
            name = str(mapping.action)
            values = np.where(step, rows.action, 0.0)
            rules = tuple(
                rule if rule == "previous" else self._action_value(rule)
                for rule in self.fills.action
            )
            findings.filled[name] += fill(values, rules, first)
            self._lack(name, rules, values, rows.row)
            rows.action[step] = values[step]
        return rows

    def _lack(self, name: str, rules: Rules, values: NDArray[Any], row: Int64) -> None:
        """Count what the rules have left missing in values[n], of rows with these numbers."""
        missing = np.isnan(values)
        if "mean" in rules or not missing.any():
            return
        kind = "start" if rules == PREVIOUS else "value"
        self.findings.lack(kind, name, int(missing.sum()), int(row[missing].min()))

    def _action_value(self, word: str) -> float:
        if self.reading.mapping.bins is not None:
            return float(word)
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
            at = int(np.argmax(early))
            untimed = self.reading.mapping.time is None
            sort = "name their time with --time if rows are not in order, or " if untimed else ""
            self.findings.refuse(
                "early end",
                early,
                "{count} end flags stand before the last step of their episode, first in the "
                f"episode {self._episode(rows, at)} ({self.findings.place(int(rows.row[at]))}); "
                f"{sort}give what follows an episode id of its own.",
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
        self._measure(observations, rows, shape, step)
        whole = bool(step.all())
        columns = {
            "observations": observations,
            "actions": rows.action if whole else rows.action[step],
            "rewards": rows.reward if whole else rows.reward[step],
            "terminations": flags == TERMINATED,
            "truncations": flags == TRUNCATED,
        }
        if rows.chances is not None:
            columns["chances"] = rows.chances if whole else rows.chances[step]
        about = (rows.episode[shape.starts], rows.instance[shape.starts], steps)
        self.spool.append(np.stack(about, axis=1), columns)

    def _observations(self, rows: Rows, shape: Shape) -> NDArray[np.float32]:
        """[Σ(T+1), d], each episode's final one at its end."""
        added = shape.steps == shape.counts
        if not added.any():
            return rows.observations
        sizes = shape.counts + added
        ends = np.cumsum(sizes)
        source = np.arange(int(ends[-1])) - np.repeat(ends - sizes - shape.starts, sizes)
        final = ends[added] - 1
        source[final] -= 1
        observations: NDArray[np.float32] = rows.observations[source]
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

    def _filled_finals(
        self, finals: NDArray[np.float32], seen: NDArray[np.float32], row: Int64
    ) -> NDArray[np.float32]:
        """[e, d], next observations of last steps, filled by rule; `seen`: those before them."""
        for position in np.flatnonzero(np.isnan(finals).any(axis=0)).tolist():
            rules = self.following_rules(position)
            name = self._name(self.reading.mapping.next_observations, position)
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
        self, observations: NDArray[np.float32], rows: Rows, shape: Shape, step: Bool
    ) -> None:
        """Ranges and sums of what is known, gaps in time, a sample of a continuous action."""
        # Column by column: numpy reduces long rows many times faster than short ones.
        columns = np.ascontiguousarray(observations.T)
        for position, values in enumerate(columns):
            if np.isnan(values.sum()):
                values = values[~np.isnan(values)]
            if len(values):
                self.total[position] += values.sum(dtype=np.float64)
                self.known[position] += len(values)
                self.low[position] = min(self.low[position], values.min())
                self.high[position] = max(self.high[position], values.max())
        rewards = rows.reward[step & ~np.isnan(rows.reward)]
        self.reward_total += float(rewards.sum())
        self.reward_known += len(rewards)
        inner = np.diff(rows.episode) == 0
        if self.reading.mapping.time is not None:
            self._clock.add(np.diff(rows.time)[inner])
        if rows.following is not None:
            differs = (rows.following[:-1] != rows.observations[1:]).any(axis=1) & inner
            self.findings.counts["next observations that differ"] += int(differs.sum())
        if self.reading.mapping.bins is not None:
            self._take_sample(rows.action[step])

    def usual_interval(self) -> str | None:
        """Between steps, None where there is none; counts the gaps, now that all were seen."""
        beat = self._clock.beat()
        if beat is None:
            return None
        self.findings.counts["gaps in time"] = beat.late
        stamps = self.reading.times in ("dates", "instants")
        fine = 1e6 if self.reading.look.microseconds else 1e9
        return spelled_interval(beat.interval, fine if stamps else None)

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
        """The column of an observation, or a column that holds several and a place in it."""
        return self._name(self.reading.mapping.observations, position)

    def rules(self, position: int) -> Rules:
        """The rule for a missing number of an observation."""
        return self.fills.observations.get(self._owner[position], self.fills.otherwise)

    def following_rules(self, position: int) -> Rules:
        """The same for the next observation: by its own rules, or by the observation's."""
        return self.fills.following.get(self._owner[position], self.rules(position))

    def _name(self, names: Sequence[str], position: int) -> str:
        owner = self._owner[position]
        if self._owner.count(owner) == 1:
            return names[owner]
        return f"{names[owner]}[{position - self._owner.index(owner)}]"

    def _episode(self, rows: Rows, at: int) -> str:
        word = self.reading.episode_words()[int(rows.episode[at])]
        return repr("/".join(word) if isinstance(word, tuple) else word)
