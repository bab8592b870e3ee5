"""Data flows one way, and so do imports; what is deployed stays light."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = [
    "errors",
    "elementary",
    "actions",
    "family",
    "environments",
    "seeding",
    "stage",
    "progress",
    "versions",
    "limits",
    "stacking",
    "settings",
    "files",
    "seals",
    "threads",
    "data",
    "agent",
    "training",
    "latent",
    "probe",
    "control",
    "dynamics",
    "engines",
    "collect",
    "methods",
    "evaluation",
    "tools",
    "cli",
]
TOGETHER = {"report": {"bench", "ope"}}
"""Tools that show what others made; no other tool imports another."""
MODULES = [
    path
    for path in sorted((ROOT / "sept_offline").rglob("*.py"))
    if path != ROOT / "sept_offline" / "__init__.py"
]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path: Path) -> set[str]:
    """The names that a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = path.relative_to(ROOT).parts[: -node.level]
                module = ".".join((*package, *filter(None, [node.module])))
            names.add(module)
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def test_relative_imports_are_seen() -> None:
    found = imported(ROOT / "sept_offline" / "agent" / "contexts" / "latent.py")
    assert {"sept_offline.limits", "sept_offline.agent.encoders"} <= found
    assert "sept_offline.agent.contexts.base.Tracker" in found


def test_a_module_imports_only_from_its_left() -> None:
    wrong = []
    for path in MODULES:
        relative = path.relative_to(ROOT / "sept_offline")
        own = relative.parts[0].removesuffix(".py")
        assert own in ORDER, f"{own} has no place in the data flow: add it to ORDER"
        for name in imported(path):
            other = name.split(".")[1] if name.startswith("sept_offline.") else own
            if other in ORDER and ORDER.index(other) > ORDER.index(own):
                wrong.append(f"{relative} imports {name}")
    assert len(MODULES) > 100 and not wrong, wrong


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sept_offline" / "tools").rglob("*.py")), ids=lambda p: str(p.name)
)
def test_a_tool_imports_the_core_and_no_other_tool(path: Path) -> None:
    own = path.relative_to(ROOT / "sept_offline" / "tools").parts[0]
    for name in imported(path):
        if name.startswith("sept_offline.tools."):
            assert name.split(".")[2] in {own, *TOGETHER.get(own, ())}, f"{path} imports {name}"


def test_the_library_does_not_know_the_simulators() -> None:
    knowing = [
        path
        for path in MODULES
        if any(name.split(".")[0] == "simulators" for name in imported(path))
    ]
    assert not knowing, knowing


def test_simulators_take_only_the_family_record() -> None:
    for path in (ROOT / "simulators").rglob("*.py"):
        for name in imported(path):
            if name.split(".")[0] == "sept_offline":
                assert name.startswith("sept_offline.family"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "sept_offline" / "agent").rglob("*.py")), ids=str)
def test_the_agent_runtime_needs_neither_torch_nor_d3rlpy(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path)} & {"torch", "d3rlpy", "gymnasium"}


LIGHT = (
    "import sept_offline",
    "import sept_offline.settings",
    "from sept_offline import DemarcateConfig, FitConfig, OpeConfig",
    "from sept_offline.cli.main import cli",
    "from sept_offline.cli.parameters import setting_names; setting_names()",
    "from sept_offline import Family, DatasetWriter, load_dataset",
)


def test_light_imports_load_nothing_heavy() -> None:
    """All in one interpreter: none of them may load what is heavy, so none hides another's."""
    check = (
        "import sys\n"
        "for code in sys.argv[1:]:\n"
        "    exec(code)\n"
        "    heavy = {'torch', 'd3rlpy', 'gym', 'numba'} & set(sys.modules)\n"
        "    assert not heavy, (code, heavy)\n"
    )
    command = [sys.executable, "-c", check, *LIGHT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_every_module_says_what_it_is_for() -> None:
    for path in [*MODULES, *(ROOT / "simulators").rglob("*.py")]:
        assert ast.get_docstring(parsed(path)), path
