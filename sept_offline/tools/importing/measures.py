"""Measures of an import: ranges of values, the interval between steps, coverage and entropy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.data.dataset import Dataset
from sept_offline.data.records import Float64, Int64
from sept_offline.data.source import BLOCK_ROWS
from sept_offline.data.summary import DEFAULT_PROBE_STEPS, coverage, instance_leak

LARGEST = 690.0
"""The logarithm of the largest number of sequences that is printed."""
FINE = 256
"""Bins for every doubling of an interval: each is 0.3 % wide."""
OCTAVES = 64
"""Intervals from 2⁻⁶⁴ to 2⁶⁴ are distinguished."""
NEAR = 0.1
"""Tolerance for multiples of the usual interval, as a share of it."""
COMMON = 0.25
"""Minimum share of intervals that equal the usual one."""
REGULAR = 0.8
"""Minimum share of intervals that are whole multiples of it."""
LONGEST = 10.0
"""Usual intervals beyond which multiples are not checked: a break may have any length."""
LATE = 1.5
"""Usual intervals after which a step is late."""
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


class Ranges:
    """Minimum, maximum and mean of each column of vectors [n, d], without missing values."""

    def __init__(self, dim: int) -> None:
        self.low, self.high = np.full(dim, np.inf), np.full(dim, -np.inf)
        self.total, self.known = np.zeros(dim), np.zeros(dim, dtype=np.int64)

    def add(self, vectors: NDArray[Any]) -> None:
        """Some more."""
        # Column by column: numpy reduces long rows many times faster than short ones.
        for position, values in enumerate(np.ascontiguousarray(vectors.T)):
            if np.isnan(values.sum()):
                values = values[~np.isnan(values)]
            if len(values):
                self.total[position] += values.sum(dtype=np.float64)
                self.known[position] += len(values)
                self.low[position] = min(self.low[position], values.min())
                self.high[position] = max(self.high[position], values.max())

    @property
    def mean(self) -> Float64:
        """[d]"""
        return np.asarray(self.total / np.maximum(self.known, 1))

    def rows(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Name, least, mean and largest value of each column."""
        columns = (self.low.tolist(), self.mean.tolist(), self.high.tolist())
        return [
            {"name": name, "min": low, "mean": mean, "max": high}
            for name, low, mean, high in zip(names, *columns, strict=True)
        ]


@dataclass(frozen=True)
class Beat:
    """A usual interval, and how many are longer than they should be."""

    interval: float
    late: int

    def spelled(self, per_second: float | None) -> str:
        """The interval for people; `per_second`: units of a timestamp, None for numbers."""
        if per_second is None:
            return f"{self.interval:.4g}"
        seconds = self.interval / per_second
        for size, unit in _UNITS:
            if seconds >= size:
                return f"{seconds / size:.4g} {unit}"
        return f"{seconds:.4g} s"


class Clock:
    """Takes the intervals between steps; keeps how many there were, and their sum, by length.

    Memory does not grow with the steps, and no order of theirs shows.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(2 * OCTAVES * FINE + 1, dtype=np.int64)
        self._sums = np.zeros(len(self._counts))

    def add(self, intervals: NDArray[Any]) -> None:
        """Add intervals; those that are not positive are ignored."""
        lengths = intervals[intervals > 0].astype(np.float64)
        if not len(lengths):
            return
        bins = np.rint(np.log2(lengths) * FINE) + OCTAVES * FINE
        places = np.clip(bins, 0, len(self._counts) - 1).astype(np.int64)
        low = int(places.min())
        counts = np.bincount(places - low)
        self._counts[low : low + len(counts)] += counts
        self._sums[low : low + len(counts)] += np.bincount(places - low, weights=lengths)

    def beat(self) -> Beat | None:
        """The usual interval; None if there is none, and then no step is late."""
        counts = self._counts
        total = int(counts.sum())
        if not total:
            return None
        lengths = self._sums / np.maximum(counts, 1)
        usual = _commonest(counts, lengths)
        multiple = np.maximum(np.rint(lengths / usual), 1)
        near = np.abs(lengths / usual - multiple) <= NEAR
        asked = (counts > 0) & (lengths <= LONGEST * usual)
        common = counts[near & asked & (multiple == 1)].sum() / total
        regular = counts[near & asked].sum() / counts[asked].sum()
        if common < COMMON or regular < REGULAR:
            return None
        return Beat(usual, int(counts[lengths >= LATE * usual].sum()))


def _commonest(counts: Int64, lengths: Float64) -> float:
    """The median of the fullest window of a tenth to either side, the shortest where several are.

    Not the median of all: where half of the rows are missing, that is a multiple of what is usual.
    """
    reach = int(np.log2(1 + NEAR) * FINE)
    before = np.concatenate([np.zeros(reach + 1, dtype=np.int64), np.cumsum(counts)])
    after = np.append(before[reach + 1 :], np.full(reach, before[-1]))[reach:]
    within = after - before[: len(counts)]
    middle = int(np.argmax(within))
    window = slice(max(middle - reach, 0), middle + reach + 1)
    inside = np.cumsum(counts[window])
    place = window.start + int(np.searchsorted(inside, (inside[-1] + 1) // 2))
    return float(lengths[place])


def measure(
    data: Dataset, ranges: Sequence[dict[str, Any]], probe_steps: int | None
) -> dict[str, Any]:
    """Counts, ranges, coverage, entropy and confounding, reading `data` in bounded memory."""
    probe = probe_steps or DEFAULT_PROBE_STEPS
    index, space = data.episode_index, data.action_space
    counts = np.zeros((len(data.instances), space.width), dtype=np.int64)
    vectors = Ranges(space.width)
    episode_of = np.cumsum(index.length)
    returns = np.zeros(len(index))
    least, most, surprise, known, alone = np.inf, -np.inf, 0.0, 0, 0
    source = data._source
    for low in range(0, data.num_steps, BLOCK_ROWS):
        rows = np.arange(low, min(low + BLOCK_ROWS, data.num_steps), dtype=np.int64)
        taken, rewards = source.take("actions", rows), source.take("rewards", rows)
        first = int(np.searchsorted(episode_of, low, side="right"))
        last = int(np.searchsorted(episode_of, rows[-1], side="right")) + 1
        ends = np.minimum(episode_of[first:last], rows[-1] + 1)
        starts = np.maximum(episode_of[first:last] - index.length[first:last], low) - low
        returns[first:last] += np.add.reduceat(rewards, starts)
        if space.shape:
            vectors.add(taken)
        else:
            cells = np.repeat(index.instance[first:last], ends - low - starts) * space.width + taken
            counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
        least, most = min(least, float(rewards.min())), max(most, float(rewards.max()))
        if data.has_propensities:
            total, whole, single = _surprise(space, source.take("propensities", rows), taken)
            surprise, known, alone = surprise + total, known + whole + single, alone + single
    # Where no episode is that long there are no segments, however long they would be.
    steps = min(probe, int(index.length.max(initial=0)) + 1)
    # Not `data.segments`: the states of short episodes are as much as all rows.
    long = index.take(np.flatnonzero(index.length >= steps))
    initial = source.take("actions", (long.offset[:, None] + np.arange(steps)).reshape(-1))
    initial = initial.reshape(-1, steps, *initial.shape[1:])
    codes = range(len(data.instances))
    shown = [coverage(initial[long.instance == code], space) for code in codes]
    leak = instance_leak(initial, long.instance, space)
    return {
        "instances": len(data.instances),
        "episodes": data.num_episodes,
        "steps": data.num_steps,
        "episodes_per_instance": _spread(np.bincount(index.instance)),
        "length": _spread(index.length),
        "terminated": _terminated(data),
        "return": _spread(returns),
        "reward": {"min": least, "max": most},
        "observations": list(ranges),
        "actions": _vector_table(space, vectors) if space.shape else _shares(data, counts),
        "probe_steps": probe,
        "coverage": {
            "possible": None if space.shape else _sequences(space.width, probe),
            "min": float(np.min(shown)),
            "mean": float(np.mean(shown)),
            "short_episodes": len(index) - len(long),
        },
        "entropy": {
            "of_frequencies": None if space.shape else _frequency_entropy(counts),
            "of_behaviour": surprise / known if known else None,
            "largest": space.log_volume,
            "known_steps": known / data.num_steps,
            "steps_with_the_taken_alone": alone / data.num_steps,
        },
        "confounding": None if leak is None else asdict(leak),
    }


def _shares(data: Dataset, counts: Int64) -> dict[str, float]:
    """The share of each action."""
    names = data.metadata.action_names or tuple(map(str, range(data.num_actions)))
    shares = counts.sum(axis=0) / counts.sum()
    return dict(zip(names, shares.tolist(), strict=True))


def _frequency_entropy(counts: Int64) -> float:
    """Mean entropy of the frequencies within an instance, of counts [I, A]."""
    steps = counts.sum(axis=1, keepdims=True)
    entropies = _entropy(counts / np.maximum(steps, 1))
    return float(steps[:, 0] / steps.sum() @ entropies)


def _sequences(count: int, probe: int) -> float | None:
    """Number of action sequences; None if it is larger than any float."""
    return float(count) ** probe if probe * np.log(float(count)) < LARGEST else None


def _vector_table(space: ActionSpace, seen: Ranges) -> dict[str, dict[str, float]]:
    """Bounds and values of each component of a box."""
    bounds = space.describe()
    return {
        row.pop("name"): {"low": low, "high": high, **row}
        for low, high, row in zip(
            bounds["low"], bounds["high"], seen.rows(space.names), strict=True
        )
    }


def _surprise(
    space: ActionSpace, propensities: NDArray[Any], taken: NDArray[Any]
) -> tuple[float, int, int]:
    """The behaviour's entropy, summed over steps that know all probabilities or the taken one's.

    And how many know all, or the density, and how many the taken one's probability alone. −log of
    one probability or density is an unbiased estimate.
    """
    alone = space.partly_known(propensities, taken)
    whole = ~space.unknown(propensities) & ~alone
    entropies = _entropy(propensities[whole]) if space.propensity_shape else -propensities[whole]
    logged = space.log_propensity(propensities[alone], taken[alone])
    return float(entropies.sum() - logged.sum()), int(whole.sum()), int(alone.sum())


def _entropy(shares: Any) -> Any:
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=-1)


def _terminated(data: Dataset) -> float:
    last = data.episode_index.offset + data.episode_index.length - 1
    return float(data._source.take("terminations", last.astype(np.int64)).mean())


def _spread(values: Any) -> dict[str, float]:
    return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}
