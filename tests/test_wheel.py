"""What is installed is complete: a wheel holds recipes, presets, patients and references."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAMILIES = ("navigation2d", "navigation2d-switch", "acrobot", "hiv")
ASK = """
import json, pathlib, simulators, sept_offline
from sept_offline.collect import load_recipe
from sept_offline.methods.preset import preset_values

here = pathlib.Path.cwd()
for module in (simulators, sept_offline):
    assert pathlib.Path(module.__file__).is_relative_to(here), module.__file__
for name in NAMES:
    family = simulators.family(name)
    assert family.recipe is not None and family.recipe.is_relative_to(here), family.recipe
    assert load_recipe(family).episodes
    assert family.references is not None and json.loads(family.references.read_text())
    assert preset_values(name, "paper")["probe_steps"]
assert len(simulators.family("hiv").instances("test")) == 20
print("complete")
"""


@pytest.mark.long
def test_a_wheel_is_complete(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("sept_offline-*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(unpacked)
    # A package of that name would stand before another well-known one.
    assert not any(name.startswith(("datasets/", "tests/", "benchmarks/")) for name in names)
    for family in FAMILIES:
        assert f"simulators/recipes/{family}.toml" in names
        assert f"simulators/data/references/{family}.json" in names
        assert f"sept_offline/methods/presets/{family}.toml" in names
    assert {"simulators/data/splits.json", "sept_offline/py.typed"} <= names
    asked = subprocess.run(
        [sys.executable, "-c", ASK.replace("NAMES", repr(FAMILIES))],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": str(unpacked), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout == "complete\n"
