"""The roles of columns and the rules for irregular rows, from flags or from TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sept_offline.errors import DataError
from sept_offline.family import suggest
from sept_offline.settings import build, check_range, read_toml

FILE = "@file"
"""Instead of a column: the stem of the file, with as many of its folders as make it unique."""
LISTS = ("episode", "observations", "next_observations", "probabilities", "actions")
DEFAULTS = ("instance", "episode", "time", "action", "reward", "terminated", "truncated")
"""Roles that, where nothing is said, take the column of the same name if there is one."""


@dataclass(frozen=True)
class ImportMapping:
    """The role of each column in a table of steps, and rules for irregular logs."""

    instance: str | None = None
    """A column, or "@file"; without one all episodes are of one instance, "unknown"."""
    episode: tuple[str, ...] = ()
    """Columns that together identify an episode, or "@file"."""
    time: str | None = None
    """Numbers or timestamps; without one the rows of an episode are in order."""
    observations: tuple[str, ...] = ()
    """Columns of the observation before the action, or one Parquet column of lists."""
    next_observations: tuple[str, ...] = ()
    """Columns of the observation after the action, if rows contain both."""
    action: str | None = None
    """Column of the action: words or integers."""
    reward: str | None = None
    """Column of the reward."""
    terminated: str | None = None
    """Whether the task ended here."""
    truncated: str | None = None
    """Whether only the watching ended here."""
    probability: str | None = None
    """The behaviour's probability of the action it took."""
    probabilities: tuple[str, ...] = ()
    """Its probability of every action, in the order of `actions`."""
    actions: tuple[str, ...] = ()
    """The labels of all actions in order; found in the data where not said."""
    bins: int | None = None
    """Number of bins for a continuous action, at its quantiles."""
    fill: dict[str, str] = field(default_factory=dict)
    """For a column, or for "observations": previous, zero, mean, or a value; previous,mean (or
    zero, a value) where an episode may begin without one."""
    keep_terminal: bool = False
    """Keep the last step of a terminated episode without a logged final observation."""
    drop_unrewarded: bool = False
    """Leave out episodes without a single reward."""
    delimiter: str = ","
    """Between the cells of a CSV file."""
    quoted_newlines: bool = False
    """Whether quoted text in a CSV file may run over lines; slower."""
    probe_steps: int | None = None
    """T_p, which the dataset is to name."""

    def __post_init__(self) -> None:
        if self.bins is not None and self.bins < 2:
            raise ValueError(f"bins must be at least 2, found {self.bins}.")
        if self.bins is not None and self.actions:
            raise ValueError("bins and actions are mutually exclusive.")
        if self.probability is not None and self.probabilities:
            raise ValueError("probability and probabilities are mutually exclusive.")
        if self.next_observations and len(self.next_observations) != len(self.observations):
            raise ValueError(
                f"next_observations names {len(self.next_observations)} columns and observations "
                f"{len(self.observations)}; name one for each, in the same order."
            )
        if len(self.delimiter) != 1:
            raise ValueError(f"delimiter must be one character, found {self.delimiter!r}.")
        for name in ("observations", "next_observations", "probabilities", "actions"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise ValueError(f"{name} names {twice!r} twice.")

    def completed(self, names: list[str], path: Path) -> ImportMapping:
        """With the roles that were left out found by name, or an error for a column not there."""
        found = {
            role: (role,) if role == "episode" else role
            for role in DEFAULTS
            if not getattr(self, role) and role in names
        }
        whole = ImportMapping(**{**vars(self), **found})
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

    def roles(self) -> list[tuple[str, str]]:
        """(role, column) for every column that is read."""
        found = []
        for role in (*DEFAULTS, "observations", "next_observations", "probability"):
            value = getattr(self, role)
            columns = value if isinstance(value, tuple) else () if value is None else (value,)
            found += [(role, column) for column in columns if column != FILE]
        return found + [("probabilities", column) for column in self.probabilities]

    def said(self) -> dict[str, Any]:
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
            if name in LISTS and isinstance(value, str):
                value = [part.strip() for part in value.split(",") if part.strip()]
            if name == "actions" and isinstance(value, list | tuple):
                value = [str(label) for label in value]
            if name == "fill" and isinstance(value, Mapping):
                rules = {column: _in_turn(rule) for column, rule in value.items()}
                value = {**layered.get("fill", {}), **rules}
            layered[name] = value
    mapping = build(ImportMapping, layered)
    check_range(mapping, ("probe_steps",), least=1)
    check_range(mapping, ("bins",), least=2)
    return mapping


def _in_turn(value: Any) -> str:
    """Rules as the command line spells them."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
