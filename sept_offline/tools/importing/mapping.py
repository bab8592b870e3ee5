"""The roles of columns and the rules for missing values, from flags, Python or TOML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from sept_offline.errors import ConfigError, DataError
from sept_offline.family import suggest
from sept_offline.settings import Count, Range, Settings, build, read_toml

FILE = "@file"
"""Instead of a column: the file's stem, with the folders that make it unique."""
LISTS = ("episode", "observations", "next_observations", "probabilities", "actions")
BOUNDS = ("action_low", "action_high")
MANY = "an action of many columns"
DEFAULTS = ("instance", "episode", "time", "action", "reward", "terminated", "truncated")
"""Roles that use the column of the same name by default, if there is one."""
ROLES = (
    *DEFAULTS,
    *("observations", "next_observations", "probability", "probabilities"),
    *("density", "log_density"),
)

Rule = str | float
Rules = tuple[Rule, ...]
"""Rules to try in turn: "previous", "mean" or a value; empty if there is nothing to fill."""
PREVIOUS: Rules = ("previous",)


@dataclass(frozen=True)
class Fills:
    """Rules for the missing values of some columns."""

    observations: Mapping[int, Rules]
    """By the position of the column."""
    otherwise: Rules
    """For every other observation."""
    following: Mapping[int, Rules]
    """For columns of next observations that have their own rule, by position."""
    reward: Rules
    action: Mapping[int, Rules]
    """By the position of the column: "previous", a label or, of a continuous action, a number."""


@dataclass(frozen=True)
class ImportMapping(Settings):
    """The role of each column in a table of steps, and rules for irregular logs."""

    instance: str | None = None
    """A column, or "@file"; by default all episodes belong to one instance, "unknown"."""
    episode: tuple[str, ...] = ()
    """Columns that together identify an episode, or "@file"."""
    time: str | None = None
    """Column of numbers or timestamps; by default rows are in the order of the file."""
    observations: tuple[str, ...] = ()
    """Columns of the observation before the action, or columns of lists."""
    next_observations: tuple[str, ...] = ()
    """Columns of the observation after the action, if rows contain both."""
    action: str | tuple[str, ...] | None = None
    """Column of the action: labels or integers. Several columns, or lists, are continuous."""
    reward: str | None = None
    """Column of the reward."""
    terminated: str | None = None
    """Column of a flag: the task ended at this step."""
    truncated: str | None = None
    """Column of a flag: only the recording ended at this step."""
    probability: str | None = None
    """Column of the behaviour's probability of the logged action."""
    probabilities: tuple[str, ...] = ()
    """Columns of its probabilities of all actions, in the order of `actions`."""
    density: str | None = None
    """Column of the behaviour's density of a continuous action."""
    log_density: str | None = None
    """Column of the logarithm of that density, instead of `density`."""
    actions: tuple[str, ...] = ()
    """All action labels, in order (default: those in the data)."""
    bins: Annotated[int, Range(least=2)] | None = None
    """Number of bins for a continuous action, at its quantiles."""
    continuous: bool = False
    """Whether a single action column is a number instead of a label."""
    action_low: tuple[float, ...] = ()
    """Lower bounds, one or one per component (default: from the data, rounded down)."""
    action_high: tuple[float, ...] = ()
    """Upper bounds, one or one per component (default: from the data, rounded up)."""
    fill: dict[str, str] = field(default_factory=dict)
    """Rules for missing values, by column or for "observations": previous, zero, mean, or a value;
    "previous,mean" (or zero, a value) if an episode may start with a missing value."""
    keep_terminal: bool = False
    """Keep the last step of a terminated episode without a logged final observation."""
    drop_unrewarded: bool = False
    """Drop episodes without any reward."""
    delimiter: str = ","
    """Delimiter of CSV files."""
    quoted_newlines: bool = False
    """Whether quoted text in CSV files may contain line breaks; slower."""
    probe_steps: Count | None = None
    """T_p, the probe length to store in the dataset."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_exclusive()
        if self.next_observations and len(self.next_observations) != len(self.observations):
            raise ValueError(
                f"--next-observations names {len(self.next_observations)} columns and "
                f"--observations {len(self.observations)}; name one for each, in the same order."
            )
        if len(self.delimiter) != 1:
            raise ValueError(f"--delimiter must be one character, found {self.delimiter!r}.")
        for name, values in (
            *((name, getattr(self, name)) for name in LISTS if name != "episode"),
            ("action", self.action_columns),
        ):
            if len(set(values)) != len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise ValueError(f"{_option(name)} names {twice!r} twice; name it once.")
        for name in BOUNDS:
            if not all(map(math.isfinite, getattr(self, name))):
                raise ValueError(f"{_option(name)} must be finite numbers.")

    def _check_exclusive(self) -> None:
        """Raise for options of which one excludes the other."""
        pairs = [("bins", "actions"), ("probability", "probabilities"), ("density", "log_density")]
        if self.box:
            names = ("continuous", *BOUNDS, "density", "log_density")
            why = next((name for name in names if getattr(self, name)), MANY)
            discrete = ("bins", "actions", "probability", "probabilities")
            pairs += [(name, why) for name in discrete]
        for option, other in pairs:
            if getattr(self, option) and getattr(self, other, True):
                hint = " (use a density)" if self.box and "probab" in option else ""
                raise ValueError(
                    f"{_option(option)} and {_option(other)} are mutually exclusive{hint}."
                )

    @property
    def action_columns(self) -> tuple[str, ...]:
        """The columns of the action."""
        return _several(self.action)

    @property
    def box(self) -> bool:
        """Whether actions are vectors, and not one of a finite set."""
        bounded = bool(self.action_low or self.action_high)
        dense = bool(self.density or self.log_density)
        return self.continuous or bounded or dense or len(self.action_columns) > 1

    @property
    def chances(self) -> tuple[str, ...]:
        """The columns of the behaviour's probabilities or density."""
        alone = self.probability or self.density or self.log_density
        return self.probabilities or _several(alone)

    @cached_property
    def fills(self) -> Fills:
        """The rules for missing values, or a DataError for a column that has no role."""
        names, after = list(self.observations), list(self.next_observations)
        taken, numeric = list(self.action_columns), self.bins is not None or self.box
        known = ["observations", *names, *after, str(self.reward), *taken]
        otherwise: Rules = ()
        reward: Rules = ()
        rules: dict[str, dict[int, Rules]] = {"observations": {}, "following": {}, "action": {}}
        for column, text in self.fill.items():
            if column == "observations" and column not in names:
                otherwise = _rules(column, text)
            elif column in names:
                rules["observations"][names.index(column)] = _rules(column, text)
            elif column in after:
                rules["following"][after.index(column)] = _rules(column, text)
            elif column == self.reward:
                reward = _rules(column, text)
            elif column in taken:
                rules["action"][taken.index(column)] = _action_rules(column, text, numeric)
            else:
                raise DataError(
                    f"--fill {column}={text}: there is no such column among observations, reward "
                    f"and action{suggest(column, known)}."
                )
        return Fills(otherwise=otherwise, reward=reward, **rules)

    def completed(self, names: list[str], path: Path) -> ImportMapping:
        """The mapping with default columns filled in; an error names a missing column."""
        defaults: dict[str, Any] = {
            role: (role,) if role == "episode" else role
            for role in DEFAULTS
            if not getattr(self, role) and role in names
        }
        whole = replace(self, **defaults)
        for role in ("episode", "observations", "action", "reward"):
            if not getattr(whole, role):
                raise DataError(
                    f"The {role} column of {path} is not specified; name it with --{role} "
                    f"(its columns are {_listed(names)})."
                )
        for role, column in whole.roles():
            if names.count(column) > 1:
                raise DataError(f"{path} has {names.count(column)} columns named {column!r}.")
            if column not in names:
                raise DataError(
                    f"{path} has no column {column!r}{suggest(column, names)}, which "
                    f"--{role.replace('_', '-')} names; its columns are {_listed(names)}."
                )
        return whole

    def as_box(self, reason: str) -> ImportMapping:
        """The same for continuous actions; `reason`: how the file shows that they are."""
        try:
            return self if self.box else replace(self, continuous=True)
        except ValueError as error:
            raise DataError(f"{reason}, so the action is continuous: {error}") from error

    def roles(self) -> list[tuple[str, str]]:
        """(role, column) for every column that is read."""
        named = [(role, column) for role in ROLES for column in _several(getattr(self, role))]
        return [(role, column) for role, column in named if column != FILE]

    def named(self) -> dict[str, Any]:
        """The fields that differ from their defaults, for the card."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
            if value not in (None, (), {}, False) and (name, value) != ("delimiter", ",")
        }


def mapping_from(values: Mapping[str, Any], file: Path | None = None) -> ImportMapping:
    """A mapping from a TOML file, if one is named, with `values` laid over it."""
    layered: dict[str, Any] = {}
    for layer in ({} if file is None else read_toml(file), values):
        for key, value in layer.items():
            name = key.replace("-", "_")
            if value is None or value == ():
                continue
            layered[name] = _parsed(name, value, layered.get(name, {}))
    return build(ImportMapping, layered)


def _parsed(name: str, value: Any, before: Any) -> Any:
    """A field's value from its text; rules for missing values are laid over those `before`."""
    if name in (*LISTS, *BOUNDS, "action") and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if name == "action" and isinstance(value, list) and len(value) == 1:
        return value[0]
    if name == "actions" and isinstance(value, list | tuple):
        return [str(label) for label in value]
    if name in BOUNDS:
        value = list(value) if isinstance(value, list | tuple) else [value]
        try:
            return [float(number) for number in value]
        except (TypeError, ValueError):
            raise ConfigError(f"{_option(name)} is {value!r:.120}; expected numbers.") from None
    if name == "fill" and isinstance(value, Mapping):
        return {**before, **{column: _in_turn(rule) for column, rule in value.items()}}
    return value


_TEXT = {"delimiter", "quoted_newlines"}
_ROWS = {"episode", "time", *_TEXT}
_COLUMNS = {"observations", "next_observations", "action", "reward", "terminated", "truncated"}
_CHANCES = {"probability", "probabilities", "density", "log_density"}
_RULES = {"instance", "actions", "bins", "continuous", *BOUNDS, "fill"}
_RULES |= {"keep_terminal", "drop_unrewarded"}
_MEANINGLESS = {
    "csv": set[str](),
    "parquet": _TEXT,
    "d4rl": _ROWS,
    "d3rlpy": _ROWS | _COLUMNS | _CHANCES,
    "minari": _ROWS | _COLUMNS | _CHANCES | _RULES,
}
_WHY = {
    "parquet": "Parquet files are not text",
    "d4rl": "the rows of a D4RL-style file are in order, and end flags separate its episodes",
    "d3rlpy": "a replay buffer of d3rlpy defines its own arrays",
    "minari": "a Minari dataset defines its own arrays",
}


def refuse_meaningless(kind: str, mapping: ImportMapping, known: Mapping[str, Any]) -> None:
    """Raise a DataError for options that do not apply; `known`: the names that a file has."""
    named = [
        f"--{role.replace('_', '-')}"
        for role in mapping.named()
        if role in _MEANINGLESS[kind] and getattr(mapping, role) != known.get(role)
    ]
    if named:
        raise DataError(
            f"{', '.join(named)} {'does' if len(named) == 1 else 'do'} not apply here: "
            f"{_WHY[kind]}; remove {'it' if len(named) == 1 else 'them'}."
        )


def _action_rules(column: str, text: str, numeric: bool) -> Rules:
    # A label may hold a comma: only the first can part two rules.
    first, comma, rest = (part.strip() for part in text.partition(","))
    rules = (first, rest) if comma and first == "previous" else (text,)
    label = rules[-1]
    if not numeric and label in ("mean", "zero", ""):
        raise DataError(f"--fill {column}={text}: fill an action by previous or a label.")
    if not numeric or label == "previous":
        return rules
    value = 0.0 if label == "zero" else _float(label)
    if not math.isfinite(value):
        raise DataError(f"--fill {column}={text}: expected previous, zero or a number.")
    return (*rules[:-1], value)


def _rules(column: str, text: str) -> Rules:
    rules = tuple(_rule(column, part.strip()) for part in text.split(","))
    if any(rule != "previous" for rule in rules[:-1]) or rules[1:] == PREVIOUS:
        raise DataError(
            f"--fill {column}={text}: only previous leaves values missing that another rule can "
            "fill, as in previous,mean."
        )
    return rules


def _rule(column: str, text: str) -> Rule:
    if text in ("previous", "mean"):
        return text
    value = 0.0 if text == "zero" else _float(text)
    if not math.isfinite(value):
        raise DataError(f"--fill {column}={text}: expected previous, zero, mean or a number.")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _in_turn(value: Any) -> str:
    """Rules as the command line spells them."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _option(name: str) -> str:
    """A field as the command line spells it."""
    return name if name == MANY else f"--{name.replace('_', '-')}"


def _several(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
