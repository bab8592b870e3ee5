"""The settings of `fit` as `--set` names them, parsed from the source of their records.

Importing the records would import torch, which is too slow for shell completion.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = "FitConfig"


@cache
def setting_names() -> dict[str, tuple[str, ...]]:
    """Every setting, such as `latent.dim`, with its choices if it has any."""
    records: dict[str, ast.ClassDef] = {}
    choices: dict[str, tuple[str, ...]] = {"bool": ("false", "true")}
    for path in sorted(Path(__file__).parents[1].glob("*/config.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                records[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                choices[node.targets[0].id] = _literals(node.value)
    return _fields(ROOT, "", records, choices)


def _fields(
    record: str, prefix: str, records: dict[str, ast.ClassDef], choices: dict[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for node in records[record].body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, kind = f"{prefix}{node.target.id}", node.annotation
        said = kind.id if isinstance(kind, ast.Name) else ""
        if said in records:
            found |= _fields(said, f"{name}.", records, choices)
        else:
            found[name] = choices.get(said) or _literals(kind)
    return found


def _literals(node: ast.expr) -> tuple[str, ...]:
    """The strings of `Literal["a", "b"]`; empty for other types."""
    if not isinstance(node, ast.Subscript) or getattr(node.value, "id", "") != "Literal":
        return ()
    values = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return tuple(str(value.value) for value in values if isinstance(value, ast.Constant))
