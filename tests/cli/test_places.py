"""Places that hold something else than a command reads: said at once, and what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import refused, run, run_code

from sept_offline.data import DatasetWriter


@pytest.fixture(scope="module")
def pumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs that name no family, pumps.h5, and two runs on them."""
    folder = tmp_path_factory.mktemp("pumps")
    rng = np.random.default_rng(0)
    with DatasetWriter(folder / "pumps.h5", num_actions=2, probe_steps=2) as writer:
        for number in range(60):
            writer.append(
                instance=f"pump {number % 12}",
                observations=rng.normal(size=(5, 2)).astype(np.float32),
                actions=rng.integers(2, size=4),
                rewards=rng.normal(size=4),
                terminated=False,
                truncated=True,
                propensities=np.full((4, 2), 0.5),
            )
    (folder / "few.toml").write_text(
        "verdict = false\n[latent]\nupdates = 5\n"
        "[probe]\nsteps = 2\n[control]\nupdates = 5\nhidden = [16]\n"
    )
    return folder


def fit(folder: Path, *more: str) -> str:
    done = run("fit", "pumps.h5", "--config", "few.toml", "--quiet", *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def fitted(pumps: Path) -> str:
    """What the fit of runs/pumps said."""
    return fit(pumps, "--hold-out", "0.2", "-o", "runs/pumps")


def test_a_fit_says_what_it_held_out_and_what_its_figures_are_of(pumps: Path, fitted: str) -> None:
    assert "held out for ope: 2 instances (pump " in fitted and "10 episodes" in fitted
    assert "of the held-out episodes are matched to their instance" in fitted
    assert "(chance: 0.1" in fitted
    many = fit(pumps, "--hold-out", "0.8", "--method", "avg", "-o", "runs/many")
    assert "for ope: 10 instances, 50 episodes" in many


def test_inspect_says_what_it_counts(pumps: Path) -> None:
    assert "; episodes by behaviour: unknown 60\n" in run("inspect", "pumps.h5", cwd=pumps).stdout


@pytest.mark.usefixtures("fitted")
def test_each_place_is_called_what_it_is(pumps: Path) -> None:
    (pumps / "x.csv").write_text("stay,pulse\n1,60\n")
    (pumps / "begun").mkdir(exist_ok=True)
    (pumps / "begun" / "run.json").write_text("{}")
    for command, said in {
        "fit x.csv": "is a CSV file, not a dataset; convert it with sept-offline import",
        "validate x.csv": "is a CSV file",
        "inspect x.csv": "is a CSV file",
        "convert x.csv y.h5": "is a CSV file",
        "inspect runs/pumps": "is a run of fit, not a dataset",
        "validate runs/pumps": "is a run of fit, not a dataset",
        "fit runs/pumps": "is a run of fit, not a dataset",
        "ope pumps.h5 runs/pumps": "the order is RUN DATASET",
        "ope runs/pumps x.csv": "is a CSV file",
        "ope runs/nope pumps.h5": "There is no run at runs/nope",
        "evaluate pumps.h5": "is a file; expected the run directory of a fit",
        "evaluate begun": "has not finished",
        "evaluate runs": "There is no agent in runs",
        "evaluate runs/pumps": "there is no simulator to evaluate it in; run sept-offline ope",
        "export runs/pumps --numpy -o out --verify x.csv": "is a CSV file",
        "act pumps.h5": "is a file",
    }.items():
        assert said in refused(*command.split(), cwd=pumps), command
    export = "export runs/pumps --numpy --observations 20 -o out --quiet"
    done = run(*export.split(), cwd=pumps)
    assert done.returncode == 0, done.stderr
    assert "an exported agent" in refused("act", "out", cwd=pumps)
    assert "an exported agent" in refused("inspect", "out", cwd=pumps)


def test_a_missing_path_is_reported_before_large_libraries_load(tmp_path: Path) -> None:
    asked = [
        "ope runs/nope none.h5",
        "fit none.h5",
        "evaluate runs/nope",
        "export runs/nope -o out",
        "act runs/nope",
        "inspect none.h5",
        "validate none.h5",
    ]
    code = (
        "import sys\n"
        "from sept_offline.cli import main\n"
        f"for command in {asked!r}:\n"
        "    try: main(command.split())\n"
        "    except SystemExit as done: assert done.code == 2, command\n"
        "    heavy = {'torch', 'd3rlpy', 'numba', 'scipy'} & set(sys.modules)\n"
        "    assert not heavy, (command, heavy)\n"
    )
    done = run_code(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Error: There is no ") == len(asked)
