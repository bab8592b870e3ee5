"""Markdown made from the code, at the end of the sections of a page that are named after it."""

from __future__ import annotations

import re
from collections.abc import Callable

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def cell(text: str) -> str:
    """Text as it may stand in a cell of a Markdown table: no mark of it means anything but `."""
    parts = re.split(r"`([^`]*)`", " ".join(text.split()))
    plain = [re.sub(r"([\\`*_<>|\[\]{}$~])", r"\\\1", part) for part in parts[::2]]
    named = [*map(code, parts[1::2]), ""]
    return "".join(word for pair in zip(plain, named, strict=True) for word in pair)


def code(text: str) -> str:
    """Text as code in such a cell."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def extend(page: str, made: Callable[[str], str]) -> str:
    """The page, each section followed by what is `made` of its heading, which may be nothing."""
    before, *sections = SECTION.split(page)
    for heading, body in zip(sections[::2], sections[1::2], strict=True):
        before += f"## {heading}{body.rstrip()}\n\n{made(heading)}\n\n"
    return before
