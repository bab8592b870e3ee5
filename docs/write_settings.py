"""Write the settings of `fit`, from the records that hold them, into docs/settings.md."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any, get_type_hints

from sphinx.pycode import ModuleAnalyzer

from sept_offline.settings import FitConfig, to_plain

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
from sections import cell, code, extend

PAGE = Path(__file__).parent / "settings.md"
HEAD = "| setting | default | |"


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
    lines = [HEAD, "|---|---|---|"]
    for field in dataclasses.fields(record):
        if group == "fit" and field.name in groups():
            continue
        value = "" if field.name == "probe_steps" else code(str(defaults[field.name]))
        text = cell(" ".join(said.get((record.__name__, field.name), [])))
        lines.append(f"| {code(prefix + field.name)} | {value} | {text} |")
    return "\n".join(lines)


def fill(page: str) -> str:
    """The page with the present settings below each section that is named after a group."""
    bare = re.sub(rf"^{re.escape(HEAD)}\n(?:\|.*\n)*", "", page, flags=re.MULTILINE)
    return extend(bare, table).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
