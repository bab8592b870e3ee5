"""What a page is made of: sections of blocks, all plain text and numbers until the page is drawn.

Nothing here holds HTML. Names that come from a user's data travel as they are and are escaped in
one place each: text by the template, chart labels by `charts.label`.
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
    """Names and values side by side, for what fits at a glance."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """Rows of ready text; columns but the first are numbers unless `words` says otherwise."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    folded: bool = False
    """Whether it starts closed, as long ones do."""
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
    """Commands, one a line."""

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
class Page:
    """All of it."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    methods: Sequence[tuple[str, str, str]]
    """(method, its name, its colour) that the page's switches show and hide; few or none."""
