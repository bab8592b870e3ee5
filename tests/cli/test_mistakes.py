"""Whatever is mistaken is one sentence; whatever is mistyped, the nearest name is suggested."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import refused

MISTYPED = {
    "command": ("colect navigation2d -o a.h5", "collect"),
    "option": ("fit {nav} --metod sept", "--method"),
    "family of collect": ("collect navigtion2d -o a.h5", "navigation2d"),
    "family of evaluate": ("evaluate {run} --family navigtion2d", "navigation2d"),
    "family of bench": ("bench --families hiv,acrobt", "acrobot"),
    "method of fit": ("fit {nav} --method spet -o r", "sept"),
    "method of bench": ("bench --families hiv --methods avg,spet", "sept"),
    "preset of fit": ("fit {nav} --preset papr -o r", "paper"),
    "preset of bench": ("bench --families hiv --preset papr", "paper"),
    "setting": ("fit {nav} --set latent.dmi=2 -o r", "dim"),
    "group of settings": ("fit {nav} --set laten.dim=2 -o r", "latent"),
    "choice of a setting": ("fit {nav} --set latent.objective=segmnt -o r", "segment"),
    "setting of bench": ("bench --families hiv --set control.gama=0.9", "gamma"),
    "setting in a file": ("fit {nav} --config {bad}/settings.toml -o r", "updates"),
    "key of a recipe": ("collect navigation2d --recipe {bad}/recipe.toml -o a.h5", "episodes"),
    "key of a mapping": ("import {bad}/a.csv --mapping {bad}/mapping.toml -o a.h5", "reward"),
    "column": ("import {bad}/a.csv --episode stya --observations observations -o a.h5", "stay"),
    "split of collect": ("collect navigation2d --instances tran -o a.h5", "train"),
    "split of evaluate": ("evaluate {run} --instances tets", "test"),
    "split of bench": ("bench --families hiv --split validaton", "validation"),
    "engine of collect": ("collect navigation2d --engine lcal -o a.h5", "local"),
    "engine of bench": ("bench --families hiv --engine rya", "ray"),
    "behaviour": ("collect navigation2d --behaviour random:0.5,exprt:0.5 -o a.h5", "expert"),
    "algorithm": ("fit {nav} --control discrete_cpl -o r", "discrete_cql"),
    "fallback": ("fit {nav} --fallback agv -o r", "avg"),
    "fate of unsure episodes": ("demarcate {nav} --unsure nearst", "nearest"),
    "shell": ("completion bsh", "bash"),
    "axis of the data": ("bench --families hiv --vary behavior=random", "behaviour"),
    "another axis": ("bench --families hiv --vary propensity=estimated", "propensities"),
    "axis of a setting": ("bench --families hiv --vary latent.dmi=1,2", "dim"),
    "value of an axis": ("bench --families hiv --vary behaviour=replya", "replay"),
    "choice of an axis": ("bench --families hiv --vary propensities=estimate", "estimated"),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files with a mistyped name each."""
    folder = tmp_path_factory.mktemp("mistyped")
    (folder / "settings.toml").write_text("[control]\nupdats = 3\n")
    (folder / "recipe.toml").write_text("episods = 3\n")
    (folder / "mapping.toml").write_text('rewrd = "score"\n')
    (folder / "a.csv").write_text("stay,observations,action,reward\n1,0.5,x,1\n1,0.6,y,0\n")
    return folder


@pytest.mark.parametrize("what", MISTYPED)
def test_the_nearest_is_suggested(what: str, made: Path, bad: Path, tmp_path: Path) -> None:
    command, nearest = MISTYPED[what]
    words = command.format(nav=made / "nav.h5", run=made / "runs" / "nav", bad=bad).split()
    said = refused(*words, cwd=tmp_path).lower()
    assert "did you mean" in said
    # click may name some more of its options
    assert f"'{nearest}'" in said.split("did you mean")[1].split(")")[0]
    assert list(tmp_path.iterdir()) == []


MISTAKES = {
    "collect navigation2d --episodes 1 -o a.h5": "at least one per instance",
    "collect navigation2d --episodes 0 -o a.h5": "--episodes",
    "collect navigation2d -o a.csv": "a.csv must end in .h5 or .parquet",
    "collect navigation2d": "--out",
    "collect navigation2d --recipe none.toml -o a.h5": "none.toml",
    "collect navigation2d --policy no.module:here --episodes 4 -o a.h5": "no.module:here",
    "collect no.module:family -o a.h5": "no.module:family",
    "fit {nav} --set control.updates -o r": "name=value",
    "fit {nav} --set control.updates=many -o r": "control.updates",
    "fit {nav} --config none.toml -o r": "none.toml",
    "fit {nav} --set latent=3 -o r": "latent is 3; expected a group of settings",
    "fit {nav} --resume --restart -o r": "pass only one of them",
    "collect navigation2d --resume --restart -o a.h5": "pass only one of them",
    "bench --families hiv --vary probe_steps=abc": "expected a whole number or none",
    "evaluate {run} --family acrobot": "fitted for",
    "evaluate {run} -o results.csv": "results.csv",
}


def test_an_empty_path_is_not_the_current_folder(tmp_path: Path) -> None:
    for words in (["inspect", ""], ["fit", "", "-o", "r"], ["fit", "nav.h5", "-o", ""]):
        assert "path is empty" in refused(*words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_sentence(command: str, made: Path, tmp_path: Path) -> None:
    words = command.format(nav=made / "nav.h5", run=made / "runs" / "nav").split()
    assert MISTAKES[command] in refused(*words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
