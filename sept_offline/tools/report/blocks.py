"""The parts of a page: an answer and sections of blocks, all plain text and numbers.

Nothing here holds HTML. Names from a user's data are escaped in two places only: text by the
template, chart labels by `charts.label`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Note:
    """One line; `kind` is "note", "warning" or "good"."""

    text: str
    kind: str = "note"


@dataclass(frozen=True)
class Facts:
    """Names and values side by side."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """Rows of text; all columns but the first hold numbers, unless `words` is set."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    folded: bool = False
    """Whether it starts closed, as long tables do."""
    words: bool = False


@dataclass(frozen=True)
class Chart:
    """A Plotly figure (`data` and `layout`, JSON-ready) and what it shows."""

    name: str
    title: str
    caption: str
    figure: Mapping[str, Any]


@dataclass(frozen=True)
class Code:
    """Commands, one per line."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Player:
    """The episode viewer; `episodes` as `scenes.episode_data` describes them."""

    title: str
    caption: str
    episodes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Heading:
    """A part of a section, such as one of several runs."""

    text: str


Block = Note | Facts | Table | Chart | Code | Player | Heading


@dataclass(frozen=True)
class Section:
    """A part of the page; one without blocks is left out."""

    name: str
    title: str
    intro: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Tile:
    """A figure of the answer: what it is, and its value for each of `values` (name, value)."""

    label: str
    values: Sequence[tuple[str, str]]
    note: str = ""
    kind: str = ""
    """"note", "warning" or "good"; empty for a plain figure."""


@dataclass(frozen=True)
class Answer:
    """One sentence and four figures, which stand before everything else."""

    sentence: str
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Page:
    """The whole page."""

    title: str
    subtitle: str
    answer: Answer
    sections: Sequence[Section]
    methods: Sequence[tuple[str, str, str]]
    """(method, title, colour) of each switch; empty where there is nothing to switch."""
