"""The settings of `fit`, from the records that hold them, below the sections of settings.md."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from sections import cell, code, extend
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from sept_offline.config import to_plain
from sept_offline.methods import FitConfig


def groups() -> dict[str, Any]:
    """The record of each group of settings, by the word before the point; "fit" has none."""
    hints = get_type_hints(FitConfig)
    found = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    return {"fit": FitConfig} | found


def table(group: str) -> str:
    """The settings of a group with their defaults, in Markdown."""
    record = groups().get(group)
    if record is None:
        return ""
    said = ModuleAnalyzer.for_module(record.__module__).find_attr_docs()
    defaults = to_plain(FitConfig(probe_steps=1))
    defaults = defaults if group == "fit" else defaults[group]
    prefix = "" if group == "fit" else f"{group}."
    lines = ["| setting | default | |", "|---|---|---|"]
    for field in dataclasses.fields(record):
        if group == "fit" and field.name in groups():
            continue
        value = "" if field.name == "probe_steps" else code(str(defaults[field.name]))
        text = cell(" ".join(said.get((record.__name__, field.name), [])))
        lines.append(f"| {code(prefix + field.name)} | {value} | {text} |")
    return "\n".join(lines)


def add_settings(app: Sphinx, docname: str, source: list[str]) -> None:
    """Every section that is named after a group ends with its settings."""
    if docname == "settings":
        source[0] = extend(source[0], table)


def setup(app: Sphinx) -> dict[str, bool]:
    """See the first line."""
    app.connect("source-read", add_settings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
