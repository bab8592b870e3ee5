"""From a table of logged steps to an agent that acts, in a world without simulators.

The table is what the HIV simulator's patients leave behind: rows in any order, treatments as words,
ids with gaps. Every command after it runs in a process of its own in which simulators cannot be
imported.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from tests import processes

COLUMNS = ["T1", "T2", "T1s", "T2s", "V", "E"]
TREATMENTS = ["both", "none", "pi", "rti"]
PATIENTS, STAYS, DAYS = 12, 4, 15
MAKE = """
import csv, sys
import numpy as np
from simulators import family

columns, names = ["T1", "T2", "T1s", "T2s", "V", "E"], ["none", "rti", "pi", "both"]
patients, stays, days = map(int, sys.argv[1:])
hiv, rng, rows = family("hiv"), np.random.default_rng(0), []
for patient in range(patients):
    for stay in range(stays):
        env = hiv.make(hiv.instances("train")[patient])
        seen, _ = env.reset(seed=stay)
        for day in range(days + 1):
            row = dict(zip(columns, seen.tolist()))
            # ids with gaps, as when other patients were left out
            row |= {"patient": f"P{7 * patient + 100}", "stay": 13 * stay + patient, "day": 5 * day}
            if day < days:
                action = int(rng.integers(4))
                seen, reward, *_ = env.step(action)
                row |= {"drug": names[action], "chance": 0.25, "gain": float(reward)}
            rows.append(row)
rng.shuffle(rows)
with open("hiv.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, ["patient", "stay", "day", *columns, "drug", "chance", "gain"])
    writer.writeheader()
    writer.writerows(rows)
"""
COMMAND = """
import sys
sys.modules["simulators"] = None  # any import of it now fails
from sept_offline.cli import main
try:
    main()
finally:
    assert not any(name.startswith("simulators.") for name in sys.modules)
"""


def run(folder: Path, code: str, *arguments: object, given: str | None = None) -> str:
    done = processes.run(*arguments, code=code, cwd=folder, given=given)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def command(folder: Path, line: str, given: str | None = None) -> str:
    return run(folder, COMMAND, *line.split(), given=given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder after all commands, and what each said as JSON."""
    folder = tmp_path_factory.mktemp("hospital")
    run(folder, MAKE, PATIENTS, STAYS, DAYS)
    said = {}
    for name, line in {
        "import": "import hiv.csv -o hiv.h5 --instance patient --episode patient,stay --time day "
        f"--observations {','.join(COLUMNS)} --action drug --reward gain --probability chance "
        "--probe-steps 4 --json --quiet",
        "validate": "validate hiv.h5 --json",
        "fit": "fit hiv.h5 --hold-out 0.25 --fallback avg --set latent.updates=40 "
        "--set probe.steps=10 --set control.updates=60 --set control.hidden=[32] "
        "--set control.reward_form=log -o runs/hiv --json --quiet",
        "ope": "ope runs/hiv hiv.h5 --updates 60 --json --quiet",
        "onnx": "export runs/hiv -o agent.onnx --verify hiv.h5 --json",
        "numpy": "export runs/hiv --numpy -o agent --verify hiv.h5 --json",
    }.items():
        said[name] = json.loads(command(folder, line))
    return folder, said


def test_the_world_has_no_simulators(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="simulators"):
        command(tmp_path, "collect hiv --episodes 40 -o hiv.h5")


def table(folder: Path) -> dict[tuple[str, int], list[dict[str, str]]]:
    """The rows of each stay, in order, as the CSV has them."""
    stays: dict[tuple[str, int], list[dict[str, str]]] = {}
    with (folder / "hiv.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            stays.setdefault((row["patient"], int(row["stay"])), []).append(row)
    return {
        name: sorted(rows, key=lambda row: int(row["day"])) for name, rows in sorted(stays.items())
    }


def test_the_dataset_holds_what_the_table_held(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, said = whole
    assert said["import"]["steps"] == PATIENTS * STAYS * DAYS
    assert said["validate"]["ok"]
    data, stays = so.load_dataset(folder / "hiv.h5"), table(folder)
    assert list(data.metadata.action_names or ()) == TREATMENTS
    assert data.num_episodes == len(stays) == PATIENTS * STAYS
    found = {
        (episode.instance, tuple(episode.rewards.tolist())): episode for episode in data.episodes()
    }
    for (patient, _), rows in stays.items():
        rewards = tuple(float(row["gain"]) for row in rows[:-1])
        episode = found[patient, rewards]
        expected = np.array([[float(row[name]) for name in COLUMNS] for row in rows])
        np.testing.assert_array_equal(episode.observations, expected.astype(np.float32))
        drugs = [TREATMENTS[action] for action in episode.actions]
        assert drugs == [row["drug"] for row in rows[:-1]]


def test_the_agent_was_fitted_and_judged_on_the_table_alone(
    whole: tuple[Path, dict[str, Any]],
) -> None:
    _, said = whole
    record = said["fit"]["record"]
    assert record["held_out"]["by"] == "instances"
    judged = said["ope"]
    assert judged["instances"] == 3 and judged["episodes"] == 3 * STAYS
    assert judged["verdict"] in ("trust", "caution", "uncovered")
    for one in judged["estimators"].values():
        assert one["low"] <= one["mean"] <= one["high"]


def test_the_exports_take_its_actions_on_the_recorded_observations(
    whole: tuple[Path, dict[str, Any]],
) -> None:
    folder, said = whole
    count = PATIENTS * STAYS * (DAYS + 1)
    for name in ("onnx", "numpy"):
        assert said[name]["verified"]["observations"] == count
        assert said[name]["verified"]["ties"] == 0
    assert {"encoder.onnx", "novelty.onnx", "control.onnx", "fallback.onnx"} == set(
        said["onnx"]["files"]
    )
    assert (folder / "agent" / "runtime.py").is_file()


def test_every_form_of_the_agent_acts_the_same(
    whole: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = whole
    agent = so.load_agent(folder / "runs" / "hiv")
    forms = [agent, so.load_export(folder / "agent.onnx"), so.load_export(folder / "agent")]
    stays = list(table(folder).values())[:3]
    states = [[[float(row[name]) for name in COLUMNS] for row in rows] for rows in stays]
    lines = []
    for day in range(DAYS):
        for stay, rows in enumerate(states):
            request: dict[str, Any] = {"episode": f"stay {stay}", "observation": rows[day]}
            if day == 0:
                request["seed"] = stay
            lines.append(json.dumps(request))
        lines.append('{"episode": "stay 0", "observation": [1, 2, "three"]}')
    lines += [json.dumps({"episode": f"stay {stay}", "end": True}) for stay in range(3)]
    out = command(folder, "act runs/hiv", "\n".join(lines) + "\n")
    answers = [json.loads(line) for line in out.splitlines()]
    assert sum("error" in answer for answer in answers) == DAYS
    for stay, rows in enumerate(states):
        own = [a for a in answers if a["episode"] == f"stay {stay}" and "action" in a]
        assert {a["phase"] for a in own} == {"control"}  # no probe was shown to pay
        assert all(a["action_name"] == TREATMENTS[a["action"]] for a in own)
        latents = [a["latent"] for a in own]
        assert latents[0] is None
        assert None not in latents[1:] and latents[1] != latents[-1]  # refined with every step
        assert all(a["out_of_range"] == [] for a in own)
        for form in forms:
            episode = form.begin(stay)
            assert [a["action"] for a in own] == [episode.act(np.array(row)) for row in rows[:DAYS]]
