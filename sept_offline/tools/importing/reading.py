"""Batches of columns as rows: the state and the findings of one pass over the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
from numpy.typing import NDArray

from sept_offline.data.records import Bool, Float64, Int64
from sept_offline.errors import DataError
from sept_offline.tools.importing.mapping import FILE, ImportMapping
from sept_offline.tools.importing.rows import (
    TERMINATED,
    TRUNCATED,
    Mistaken,
    Rows,
    Words,
    dictionary,
)

MOST_LABELS = 1000
"""Maximum number of distinct action labels."""
MOST_REPORTED = 4
"""Maximum number of kinds of problems to report at once."""
EPISODE = "@episode"
"""The column of the episode in batches of a source that numbers them itself."""
TRUE = ("true", "t", "yes", "y", "1", "1.0")
FALSE = ("false", "f", "no", "n", "0", "0.0")
UNKNOWN = "unknown"
NOTHING = frozenset(pc.ConvertOptions().null_values) - {""}
"""NA, null, nan and the like."""
TIMES = {
    "whole": "whole numbers",
    "real": "real numbers",
    "dates": "timestamps without a time zone",
    "instants": "timestamps with a time zone",
}
UNFIT = {
    "whole": "whole numbers beyond 2⁶³",
    "real": "integers beyond 2⁵³ mixed with floats, which cannot represent them exactly",
    **dict.fromkeys(("dates", "instants"), "timestamps that 64 bits cannot hold"),
}
"""Times of each kind that cannot be compared as numbers."""


@dataclass
class Findings:
    """What one pass over the rows counted; errors are raised at its end, with their places."""

    counts: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    """Values filled, by column."""
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    """Values missing, by kind ("key", "value" or "start") and column."""
    refusals: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """How many rows of a kind cannot be imported, the first of them, and the message about it."""
    files: list[tuple[int, Path]] = field(default_factory=list)
    """(its first row, the file), ascending"""

    def place(self, row: int) -> str:
        """The file and row number of a row."""
        starts = [first for first, _ in self.files]
        first, path = self.files[int(np.searchsorted(starts, row, side="right")) - 1]
        return f"{path}, row {row - first + 1}"

    def lack(self, kind: str, column: str, missing: Bool, row: Int64) -> None:
        """Values of a column are missing where `missing[n]`; row[n]: the numbers of the rows."""
        if missing.any():
            self.missing.setdefault(kind, Counter())[column] += int(missing.sum())
            self.refuse(kind, row[missing], "")

    def refuse(self, kind: str, row: Int64, message: str) -> None:
        """Count bad rows, given by their numbers; the message about the first of all is kept.

        In the message "{count}" and "{place}" stand for how many there are and where the first is.
        """
        if len(row):
            count, first, text = self.refusals.get(kind, (0, int(row.min()), message))
            if int(row.min()) < first:
                first, text = int(row.min()), message
            self.refusals[kind] = count + len(row), first, text

    def raise_if_bad(self) -> None:
        """A DataError with the first refusals if there are any."""
        for kind, lacking in self.missing.items():
            problem, hint = _LACKING[kind]
            columns = ", ".join(f"{count:,} in {name!r}" for name, count in lacking.items())
            message = f"{problem} ({columns}; first {{place}}); {hint}."
            self.refusals[kind] = (*self.refusals[kind][:2], message)
        problems = [self.refusals[kind] for kind in _ORDER if kind in self.refusals]
        if not problems:
            return
        lines = [
            message.replace("{count}", f"{count:,}").replace("{place}", self.place(row))
            for count, row, message in problems[:MOST_REPORTED]
        ]
        if len(problems) > MOST_REPORTED:
            lines.append(f"{len(problems) - MOST_REPORTED} more kinds of problem.")
        # Rows without a key are dropped, which can make contiguous episodes look scattered.
        if self.counts["scattered episodes"] and "key" not in self.missing:
            lines.append(
                f"The rows of {self.counts['scattered episodes']:,} episodes are interleaved with "
                "those of others, and their order is unknown without --time: name it first."
            )
        raise DataError(" Also: ".join(lines))


_ORDER = (
    *("contradiction", "instance", "early end", "action", "flag", "key", "reward"),
    *("value", "start", "bounds", "density"),
    *("probabilities' sum", "probabilities' range", "probability taken"),
)
"""Kinds of errors, in the order in which they are reported."""
_LACKING = {
    "key": (
        "Values are missing or not finite",
        "every row needs them: complete the rows or remove them",
    ),
    "value": (
        "Values are missing or not finite as float32",
        "choose how to fill them, as in --fill COLUMN=previous (or zero, mean, a value)",
    ),
    "start": (
        "Episodes start with missing values, so there is no previous value to repeat",
        "choose what to use instead, as in --fill COLUMN=previous,mean (or zero, a value)",
    ),
}
"""The problem and the hint for each kind of missing value."""


@dataclass(frozen=True)
class Look:
    """Assumptions about the columns; if one proves wrong, the rows are read again."""

    whole_times: bool = True
    """Whether numeric times are integers."""
    microseconds: bool = True
    """Whether timestamps have at most microsecond resolution."""
    nothing_is_missing: bool = False
    """Whether NA and the like are missing values; they are labels if the others are words."""
    together: bool = True
    """Whether the rows of each episode lie together."""


@dataclass
class Reading:
    """State of one pass over the files: the words behind the codes."""

    mapping: ImportMapping
    kind: str
    """Kind of the files: csv, parquet, d4rl or d3rlpy."""
    look: Look
    file_words: Mapping[Path, str]
    """The name of each file if files are instances or episodes."""
    report: Callable[[float, int], None]
    """Called with the bytes and the rows that have been read."""
    findings: Findings = field(default_factory=Findings)
    instances: Words = field(default_factory=Words)
    episodes: Words = field(default_factory=Words)
    parts: list[Words] = field(default_factory=list)
    """For each column, if several identify an episode."""
    labels: Words = field(default_factory=Words)
    worded: bool = False
    """Whether labels come from a column of strings, and not of numbers or of any text."""
    widths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """How many numbers each column of "observations", "action" and "chances" holds."""
    rows: int = 0
    times: str | None = None
    """The kind of times."""
    _before: int = 0
    _size: int = 0
    """Bytes of the files before the one that is open, and of that one."""

    def open(self, path: Path) -> None:
        """The rows that follow are of this file."""
        self.findings.files.append((self.rows, path))
        self._before += self._size
        self._size = path.stat().st_size

    def reached(self, share: float) -> None:
        """This share of the open file has been read."""
        self.report(self._before + share * self._size, self.rows)

    def number(self, count: int) -> Int64:
        """[count], the numbers of the next `count` rows."""
        self.rows += count
        return np.arange(self.rows - count, self.rows, dtype=np.int64)

    def label(self, words: Sequence[str], places: Int64) -> Float64:
        """[n], the numbers of actions, NaN where there is none."""
        codes = self.labels.code(words, places)
        if len(self.labels) > MOST_LABELS:
            raise DataError(
                f"The action {self.mapping.action!r} has more than {MOST_LABELS:,} distinct "
                "values, so it is not discrete; keep its numbers with --continuous, or bin it, "
                "for example with --bins 5."
            )
        return np.where(codes < 0, np.nan, codes)

    def episode_words(self) -> list[Any]:
        """The id of every episode: a word, or a tuple of them."""
        if not self.parts:
            return self.episodes.list
        words = [part.list for part in self.parts]
        return [tuple(words[i][code] for i, code in enumerate(pair)) for pair in self.episodes.list]

    def component(self, role: str, names: Sequence[str], position: int) -> str:
        """The column of a number in a vector, or a column that holds several and a place in it."""
        owner = self.owner(role, position)
        if self.widths[role][owner] == 1:
            return names[owner]
        return f"{names[owner]}[{position - sum(self.widths[role][:owner])}]"

    def owner(self, role: str, position: int) -> int:
        """Which column a number of a vector is of."""
        return int(np.searchsorted(np.cumsum(self.widths[role]), position, side="right"))


def rows_of(reading: Reading, columns: Mapping[str, pa.Array], path: Path, count: int) -> Rows:
    """The rows of a batch: `columns` by the names of the mapping."""
    try:
        return _Batch(reading, columns, path, reading.number(count)).rows()
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


@dataclass(frozen=True)
class _Batch:
    """Columns of n successive rows of one file."""

    reading: Reading
    columns: Mapping[str, pa.Array]
    path: Path
    row: Int64
    """[n], their numbers"""

    def rows(self) -> Rows:
        mapping = self.reading.mapping
        instance, episode, (time, timeless) = self._instances(), self._episodes(), self._times()
        for name, absent in (
            (mapping.instance, instance < 0),
            (", ".join(mapping.episode), episode < 0),
            (mapping.time, timeless),
        ):
            if name is not None:
                self.reading.findings.lack("key", name, absent, self.row)
        following = chances = None
        observations = _finite(self._matrix("observations", mapping.observations, np.float32))
        if mapping.next_observations:
            after = self._matrix("observations", mapping.next_observations, np.float32)
            following = _finite(after)
        if mapping.chances:
            chances = self._matrix("chances", mapping.chances, np.float64)
        if mapping.box or mapping.bins is not None:
            action = _finite(self._matrix("action", mapping.action_columns, np.float64))
        else:
            action = self._labels()[:, None]
        reward = _finite(self._floats(self.columns[str(mapping.reward)], str(mapping.reward)))
        rows = Rows(
            episode=episode,
            instance=instance,
            time=time,
            row=self.row,
            observations=observations,
            following=following,
            action=action,
            reward=reward,
            ends=self._ends(),
            chances=chances,
        )
        keyed = (instance >= 0) & (episode >= 0) & ~timeless
        return rows if keyed.all() else rows.take(keyed)

    def _coded(self, words: Words, name: str) -> Int64:
        """[n], the numbers of the words in a column, or of the file's own word."""
        if name == FILE:
            return self._constant(words, self.reading.file_words[self.path])
        return words.code(*dictionary(self.columns[name]))

    def _constant(self, words: Words, word: str) -> Int64:
        return words.code([word], np.zeros(len(self.row), dtype=np.int64))

    def _instances(self) -> Int64:
        name, words = self.reading.mapping.instance, self.reading.instances
        if name is None and self.reading.kind in ("d4rl", "d3rlpy"):
            name = FILE
        if name == FILE or name in self.columns:
            return self._coded(words, str(name))
        # Without such an array in an HDF5 file, the name is the instance's own.
        return self._constant(words, name or UNKNOWN)

    def _episodes(self) -> Int64:
        reading = self.reading
        names = reading.mapping.episode or (EPISODE,)
        if len(names) == 1:
            return self._coded(reading.episodes, names[0])
        if not reading.parts:
            reading.parts = [Words() for _ in names]
        parts = [self._coded(words, name) for words, name in zip(reading.parts, names, strict=True)]
        return reading.episodes.code_pairs(parts)

    def _times(self) -> tuple[NDArray[Any], Bool]:
        """[n], numbers that order the rows of an episode, and where there is none."""
        reading, name = self.reading, self.reading.mapping.time
        if name is None:
            return self.row, np.zeros(len(self.row), dtype=np.bool_)
        column = self.columns[name]
        absent = column.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_null(column.type):
            return np.zeros(len(self.row), dtype=np.int64), absent
        kind = self._time_kind(column.type, name)
        if reading.times not in (None, kind):
            raise DataError(
                f"The time {name!r} holds {TIMES[reading.times]} in one file and {TIMES[kind]} in "
                f"{self.path}; use one format in all files."
            )
        reading.times = kind
        try:
            if kind == "real":
                times = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
                return times, ~np.isfinite(times)
            if kind != "whole":
                column = _stamps(column, reading.look)
            return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), absent
        except pa.ArrowInvalid as error:
            raise DataError(
                f"The time {name!r} of {self.path} holds {UNFIT[kind]}; use another format."
            ) from error

    def _time_kind(self, kind: pa.DataType, name: str) -> str:
        """One of `TIMES`; Mistaken if numbers turn out not to be whole."""
        if pa.types.is_integer(kind):
            return "whole" if self.reading.look.whole_times else "real"
        if pa.types.is_floating(kind):
            if self.reading.look.whole_times and self.reading.times in ("whole", None):
                raise Mistaken(whole_times=False)
            return "real"
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            # Times without a zone cannot be compared with times that have one.
            return "instants" if getattr(kind, "tz", None) else "dates"
        raise DataError(
            f"The time {name!r} of {self.path} holds {kind}, expected numbers or timestamps; "
            "omit --time if the rows are in order."
        )

    def _matrix(self, role: str, names: Sequence[str], kind: Any) -> NDArray[Any]:
        """[n, d], the numbers of some columns side by side; a column of lists gives several."""
        known = self.reading.widths.get(role, (1,) * len(names))
        lists = {
            name: self._lists(name, width)
            for name, width in zip(names, known, strict=True)
            if is_list(self.columns[name].type)
        }
        widths = tuple(lists[name].shape[1] if name in lists else 1 for name in names)
        if self.reading.widths.setdefault(role, widths) != widths:
            what = "Observations" if role == "observations" else f"Columns of {role}"
            raise DataError(
                f"{what} have {sum(known)} numbers in one row and {sum(widths)} in another "
                f"({self.path}); every row needs the same number."
            )
        out = np.empty((len(self.row), sum(widths)), dtype=kind)
        end = 0
        for name, width in zip(names, widths, strict=True):
            end, column = end + width, self.columns[name]
            with np.errstate(over="ignore"):
                if name in lists:
                    out[:, end - width : end] = lists[name]
                elif column.type == pa.from_numpy_dtype(kind):
                    out[:, end - 1] = column.to_numpy(zero_copy_only=False)
                else:
                    out[:, end - 1] = self._floats(column, name)
        return out

    def _lists(self, name: str, width: int) -> Float64:
        """[n, width], the lists of a column; `width` counts where no row has one."""
        column = self.columns[name]
        lists = column.drop_null()
        flat = self._floats(lists.flatten(), name)
        if len(lists):
            width, rest = divmod(len(flat), len(lists))
            if not width or rest or (np.asarray(compute.list_value_length(lists)) != width).any():
                raise DataError(
                    f"The lists of {name!r} in {self.path} are empty or do not all have the same "
                    "length."
                )
        out = np.full((len(column), width), np.nan)
        out[column.is_valid().to_numpy(zero_copy_only=False)] = flat.reshape(-1, width)
        return out

    def _floats(self, column: pa.Array, name: str) -> Float64:
        """[n]; whole numbers that float64 does not hold are rounded."""
        try:
            floats = column.cast(pa.float64(), safe=False)
        except pa.ArrowException as error:
            raise DataError(
                f"The column {name!r} of {self.path} holds {column.type}, expected numbers."
            ) from error
        return np.array(floats.to_numpy(zero_copy_only=False))

    def _labels(self) -> Float64:
        """[n], the numbers of the words in the column of the action."""
        reading = self.reading
        (name,) = reading.mapping.action_columns
        reading.widths["action"] = (1,)
        kind = self.columns[name].type
        if pa.types.is_nested(kind):
            raise DataError(
                f"The action {name!r} of {self.path} holds {kind}, expected one label or number "
                "per row."
            )
        strings = kind.value_type if pa.types.is_dictionary(kind) else kind
        if reading.kind == "parquet":
            reading.worded |= pa.types.is_string(strings) or pa.types.is_large_string(strings)
        nothing = NOTHING if reading.look.nothing_is_missing else frozenset[str]()
        return reading.label(*dictionary(self.columns[name], nothing))

    def _ends(self) -> NDArray[np.uint8]:
        ends = np.zeros(len(self.row), dtype=np.uint8)
        mapping, findings = self.reading.mapping, self.reading.findings
        for name, bit in ((mapping.terminated, TERMINATED), (mapping.truncated, TRUNCATED)):
            if name is None:
                continue
            words, places = dictionary(self.columns[name], NOTHING)
            known = [word.lower() for word in words]
            odd = np.asarray([word not in (*TRUE, *FALSE) for word in known] + [False])
            if odd.any():
                bad = odd[places]
                word = words[int(places[np.argmax(bad)])]
                findings.refuse(
                    "flag",
                    self.row[bad],
                    f"{{count}} end flags are neither true nor false, first {word!r} in {name!r} "
                    "({place}); write true, false, 1 or 0.",
                )
            findings.counts["empty flags"] += int((places < 0).sum())
            bits = np.asarray([bit * (word in TRUE) for word in known] + [0], dtype=np.uint8)
            ends |= bits[places]
        return ends


def _stamps(column: pa.Array, look: Look) -> pa.Array:
    """In microseconds or, once some have turned out finer, in nanoseconds."""
    kind = column.type
    unit = "us" if look.microseconds else "ns"
    try:
        return column.cast(pa.timestamp(unit, tz=getattr(kind, "tz", None)))
    except pa.ArrowInvalid:
        if look.microseconds and getattr(kind, "unit", "") == "ns":
            raise Mistaken(microseconds=False) from None
        raise


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds several values per row."""
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """The same array with NaN in place of infinite values."""
    infinite = np.isinf(values)
    if infinite.any():
        values[infinite] = np.nan
    return values
