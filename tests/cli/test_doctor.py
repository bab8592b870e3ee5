"""The doctor: what it says of a sound installation, and of broken ones."""

from __future__ import annotations

import getpass
import json
import tomllib
from pathlib import Path

import pytest
from commands import ROOT, run, run_code, run_json, run_on_terminal

import sept_offline as so
from sept_offline.tools.doctor import checks as doctor_checks
from sept_offline.tools.doctor.checks import Requirement, Requirements

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHON = Requirement("Python", ">=3.11")
METADATA = """Metadata-Version: 2.4
Name: sept-offline
Version: 9.9
Requires-Python: >=3.11
Requires-Dist: click>=8.1
Requires-Dist: numpy (>=2.0)
Provides-Extra: ray
Requires-Dist: ray>=2.40; extra == 'ray'
Provides-Extra: dev
Requires-Dist: sept-offline[ray]; extra == "dev"
Requires-Dist: moto[s3,server]>=5; extra == "dev"
"""


def test_a_sound_installation(tmp_path: Path) -> None:
    found = run_json("doctor", cwd=tmp_path)
    assert found["ok"] is True, found["verdict"]
    checks = {check["name"]: check for check in found["checks"]}
    for line in PROJECT["dependencies"]:
        name = line.split(">")[0].split("=")[0]
        assert checks[name]["status"] == "fine" and checks[name]["found"][0].isdigit()
    for family in PROJECT["entry-points"]["sept_offline.families"]:
        said = checks[f"family {family}"]["found"]
        lacking = family.endswith("-params") and said == "needs sept-offline[mujoco]"
        assert "steps" in said or lacking
    for extra in PROJECT["optional-dependencies"]:
        assert checks[f"extra [{extra}]"]["status"] in ("fine", "absent")
    kinds = ("Python", "torch learns", "agent's kernel", "temporary files", "entry points")
    for name in (*kinds, "HDF5 datasets", "Parquet datasets", "browser"):
        assert checks[name]["status"] == "fine"
    assert list(tmp_path.iterdir()) == []

    result = run("doctor", cwd=tmp_path)
    assert result.returncode == 0 and result.stderr == ""
    assert "sept-offline works here" in result.stdout
    *_, report = result.stdout.partition("For a bug report:\n")
    keys = [line.strip().partition(": ")[0] for line in report.splitlines()]
    assert keys == list(found["report"])
    assert {"sept-offline", "packages", "platform", "cores", "memory", "python", "locale"} <= {
        *keys
    }
    assert found["report"]["sept-offline"] == so.__version__
    for text in (result.stdout, json.dumps(found)):
        assert str(Path.home()) + "/" not in text


def test_broken_libraries_are_reported(tmp_path: Path) -> None:
    """What draws its table may be broken too, and where it lies is nobody's business."""
    shadow = tmp_path / "shadow"
    for name, line in {
        "torch": f"raise OSError('{tmp_path}/lib/libtorch.so: cannot open')",
        "rich": "raise ImportError('half installed')",
        "scipy": "print('noise'); raise SystemExit(3)",
    }.items():
        (shadow / name).mkdir(parents=True)
        (shadow / name / "__init__.py").write_text(line)
    home = {"HOME": str(tmp_path), "PYTHONPATH": f"{shadow}:{ROOT}"}
    done = run_on_terminal("doctor", cwd=tmp_path, fresh=True, **home)
    said = done.stdout.replace("\r\n", "\n")
    assert done.returncode == 1, said
    assert "Traceback" not in said + done.stderr and "noise" not in said
    verdict = next(line for line in said.splitlines() if line.startswith("Broken: "))
    for name in ("torch", "rich", "scipy", "torch learns"):
        assert name in verdict
    for name in ("numpy", "temporary files", "HDF5 datasets"):
        assert name not in verdict
    assert "OSError: ~/lib/libtorch.so: cannot open" in said and str(tmp_path) not in said
    assert "\ntorch: pip install --force-reinstall 'torch>=" in said
    assert "For a bug report:\n  sept-offline: " in said


def test_versions_are_compared() -> None:
    asked = Requirements(
        PYTHON,
        (Requirement("numpy", ">=99"), Requirement("not-there"), Requirement("click", ">=8.1")),
        {"more": (Requirement("not-there"), Requirement("numpy", ">=99")), "none": ()},
    )
    old, missing, fine = doctor_checks.check_needed(asked)
    assert (old.status, missing.status, fine.status) == ("broken", "broken", "fine")
    assert "needs >=99" in old.found and "'numpy>=99'" in old.advice
    more, none = doctor_checks.check_extras(asked)
    assert more.status == "absent" and none.status == "fine"
    assert more.found.startswith("no not-there, numpy is ")
    assert more.advice == "to use it: pip install 'sept-offline[more]'"
    assert doctor_checks.check_python(PYTHON).status == "fine"
    assert doctor_checks.check_python(Requirement("Python", ">=4")).status == "broken"


def test_an_installation_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sept_offline-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor_checks, "checkout", lambda: None)
    ray = Requirement("ray", ">=2.40")
    assert doctor_checks.requirements() == Requirements(
        PYTHON,
        (Requirement("click", ">=8.1"), Requirement("numpy", ">=2.0")),
        {"ray": (ray,), "dev": (ray, Requirement("moto", ">=5"))},
    )


def test_a_family_that_cannot_step_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "their_pumps-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: their-pumps\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[sept_offline.families]\npumps = pumps:family\n")
    (tmp_path / "pumps.py").write_text("raise ValueError('no pressure')\n")
    monkeypatch.syspath_prepend(tmp_path)
    (broken,) = [one for one in doctor_checks.check_families() if one.status == "broken"]
    assert broken.name == "family pumps"
    assert broken.found == "ValueError: no pressure"
    assert broken.advice == "fix or update their-pumps"


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    found = {finding.name: finding for finding in doctor_checks.check_parts()}
    broken = [name for name, finding in found.items() if finding.status == "broken"]
    assert broken == ["temporary files", "HDF5 datasets", "Parquet datasets"]
    assert "TMPDIR" in found["temporary files"].advice


def test_names_and_homes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jane")
    monkeypatch.setattr(getpass, "getuser", lambda: "jane")
    text = "/home/jane/x, /scratch/jane/y, /home/janet and /scratch/janet"
    assert doctor_checks.private(text) == "~/x, /scratch/user/y, /home/janet and /scratch/janet"


def test_extras_are_looked_at_and_not_loaded(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from sept_offline.tools.doctor.checks import check_extras\n"
        "from sept_offline.tools.doctor.checks import requirements\n"
        "print(len(list(check_extras(requirements()))))\n"
        "print(*{'ray', 'matplotlib', 'onnx', 'minari', 'torch', 'numpy'} & set(sys.modules))\n"
    )
    done = run_code(code, cwd=tmp_path)
    assert done.stdout == f"{len(PROJECT['optional-dependencies'])}\n\n"
