"""Options that do not apply to a kind of source; using one is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sept_offline.data.importing.mapping import ImportMapping
from sept_offline.errors import DataError

_TEXT = {"delimiter", "quoted_newlines"}
_ROWS = {"episode", "time", *_TEXT}
_COLUMNS = {"observations", "next_observations", "action", "reward", "terminated", "truncated"}
_CHANCES = {"probability", "probabilities"}
_RULES = {"instance", "actions", "bins", "fill", "keep_terminal", "drop_unrewarded"}
MEANINGLESS = {
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


def refuse_meaningless(kind: str, mapping: ImportMapping, own: Mapping[str, Any]) -> None:
    """Raise a DataError for options that do not apply; `own`: the names that a file has."""
    said = [
        f"--{role.replace('_', '-')}"
        for role in mapping.said()
        if role in MEANINGLESS[kind] and getattr(mapping, role) != own.get(role)
    ]
    if said:
        raise DataError(
            f"{', '.join(said)} {'does' if len(said) == 1 else 'do'} not apply here: "
            f"{_WHY[kind]}; remove {'it' if len(said) == 1 else 'them'}."
        )
