"""A page: an answer and sections of blocks, written as one self-contained HTML file.

The page needs no network and no other file. Blocks hold plain text and numbers, never HTML: names
from a user's data are escaped in two places only, text by the template, chart labels by
`charts.label`. Numbers, names and paths are written here as a person reads them.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sept_offline.errors import ConfigError, DataError
from sept_offline.files import behind_links, write_text

INSTALL = 'A report needs Plotly and Jinja: pip install "sept-offline[report]".'
LIMIT = 5_000_000
"""Most bytes of a page: a larger one is slow to open and too large for mail."""
OPEN = 12
"""Rows up to which a table starts open."""


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
    """A Plotly figure (`data` and `layout`, JSON-ready) with title and caption."""

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
    """The episode viewer; `episodes` as `episodes.episode_data` describes them."""

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
    """A figure of the answer: its label, and its value for each of `values` (name, value)."""

    label: str
    values: Sequence[tuple[str, str]]
    note: str = ""
    kind: str = ""
    """"note", "warning" or "good"; empty for a plain figure."""


@dataclass(frozen=True)
class Answer:
    """One sentence and four figures at the top of the page."""

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


def check_installed() -> None:
    """Raise if the extra is not installed."""
    if find_spec("plotly") is None or find_spec("jinja2") is None:
        raise ConfigError(INSTALL)


def render(page: Page) -> str:
    """The HTML; the same page gives the same text."""
    check_installed()
    from jinja2 import Environment, StrictUndefined

    assets = files("sept_offline.tools.report") / "assets"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.tests["block"] = lambda block, kind: type(block).__name__ == kind
    template = environment.from_string((assets / "page.html").read_text(encoding="utf-8"))
    charts = {block.name: block.figure for block in _blocks(page) if isinstance(block, Chart)}
    scripts = [(assets / name).read_text(encoding="utf-8") for name in ("viewer.js", "page.js")]
    return template.render(
        page=page,
        style=(assets / "page.css").read_text(encoding="utf-8"),
        script="\n".join(scripts),
        charts=_embedded(charts),
        players=_embedded(_players(page)),
        plotly=_plotly() if charts else "",
    )


def write(page: Page, out: Path) -> int:
    """Write the file atomically; returns its size in bytes. Too large, it loses its viewer."""
    text = render(page)
    if len(text.encode()) > LIMIT and _players(page):
        text = render(_without_players(page))
    size = len(text.encode())
    if size > LIMIT:
        raise DataError(
            f"The page would have {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}; report fewer "
            "runs or benches at a time."
        )
    write_text(behind_links(out), text)
    return size


def _without_players(page: Page) -> Page:
    line = Note("The episodes would make the page too large: report fewer runs to play them.")
    sections = [
        replace(s, blocks=[line if isinstance(block, Player) else block for block in s.blocks])
        for s in page.sections
    ]
    return replace(page, sections=sections)


def _players(page: Page) -> list[Any]:
    return [list(block.episodes) for block in _blocks(page) if isinstance(block, Player)]


def _blocks(page: Page) -> list[Block]:
    return [block for section in page.sections for block in section.blocks]


def _embedded(value: Any) -> str:
    """JSON that cannot close its script element: every `<` is escaped."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@functools.cache
def _plotly() -> str:
    """Plotly's script from its package, compressed to a third; the browser unpacks it.

    It has no time stamp, so that the bytes repeat.
    """
    content = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


LONGEST = 28
"""Most characters of a name in a chart; tables show all of it."""


def count(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def number(value: float | None) -> str:
    """At least four digits and a true minus; a dash where there is no number."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:,.4g}"
    return text.replace("-", "−")


def percent(share: float | None) -> str:
    """97.5 %."""
    if share is None or not math.isfinite(share):
        return "–"
    text = f"{100 * share:.2f}".rstrip("0").rstrip(".")
    return f"{text} %"


def with_error(statistics: Mapping[str, Any] | None) -> str:
    """13.4 ± 0.06, from a `mean` and its standard error `se`."""
    if statistics is None:
        return "–"
    error = statistics["se"]
    return number(statistics["mean"]) + ("" if error is None else f" ± {_two(error)}")


def interval(mean: float, low: float | None, high: float | None) -> str:
    """−26.6 [−31.1, −22.7]."""
    between = "–" if low is None or high is None else f"{number(low)}, {number(high)}"
    return f"{number(mean)} [{between}]"


def plural(size: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count(size)} {noun}{'' if size == 1 else 's'}"


def shortened(name: str) -> str:
    """A name that leaves room for the chart."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def distinct(names: Sequence[str]) -> list[str]:
    """The names, short enough for a chart; equal ones are numbered."""
    short = [shortened(name) for name in names]
    seen: dict[str, int] = {}
    numbered = []
    for name in short:
        seen[name] = seen.get(name, 0) + 1
        numbered.append(f"{name} ({seen[name]})" if short.count(name) > 1 else name)
    return numbered


def shown_path(path: Path | str) -> str:
    """A path that can be shown to others: home is ~, and every byte is a character."""
    text = os.fsencode(str(path)).decode("utf-8", "replace")
    home = str(Path.home())
    return f"~{text[len(home) :]}" if text == home or text.startswith(f"{home}{os.sep}") else text


def _two(value: float) -> str:
    """Two digits, or the whole number."""
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.2g}"
