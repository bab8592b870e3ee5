"""Markdown made from the code, at the end of the sections of a page that are named after it."""

from __future__ import annotations

import re
from collections.abc import Callable

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def cell(text: str) -> str:
    """Text as it may stand in a cell of a Markdown table: no mark of it means anything."""
    return re.sub(r"([\\`*_<>|\[\]{}$~])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """The same as code."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def extend(page: str, made: Callable[[str], str]) -> str:
    """The page, each section followed by what is `made` of its heading, which may be nothing."""
    before, *sections = SECTION.split(page)
    for heading, body in zip(sections[::2], sections[1::2], strict=True):
        before += f"## {heading}{body.rstrip()}\n\n{made(heading)}\n\n"
    return before
