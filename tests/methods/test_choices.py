"""What a fit chooses from the logs: conservative control on narrow ones, updates by their size."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.cli import main
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.latent import LatentModel
from sept_offline.latent.identification import Separation
from sept_offline.methods.choices import (
    MOST_UPDATES,
    UPDATES,
    choose_algorithm,
    choose_gamma,
    choose_settings,
    choose_updates,
)
from sept_offline.methods.preset import LEAST_DIM, resolve_config
from sept_offline.methods.verdict import Evidence, Interval, reach
from sept_offline.stage import Stage

FEW = {
    "verdict": False,
    "stack": 1,
    "latent": {"updates": 4, "hidden": 8, "dim": 1},
    "control": {"updates": 4, "hidden": [8], "batch_size": 16, "algorithm": "double_dqn"},
}


def log(path: Path, greedy: float, *, logged: bool = True) -> Dataset:
    """A point on a line whose sign is known to the behaviour, which is greedy so often."""
    rng = np.random.default_rng(0)
    with DatasetWriter(path, num_actions=3, probe_steps=2) as writer:
        for number in range(200):
            place, rows, actions, chances = float(rng.normal()), [], [], []
            for _ in range(10):
                rows.append([place])
                chance = np.full(3, (1 - greedy) / 3)
                chance[0 if place > 0 else 2] += greedy
                action = int(rng.choice(3, p=chance))
                actions.append(action)
                chances.append(chance)
                place += (1 + number % 2) * 0.3 * (action - 1)
            rows.append([place])
            writer.append(
                instance=f"line-{number % 2}",
                observations=np.array(rows),
                actions=np.array(actions),
                rewards=-np.abs(np.array(rows)[1:, 0]),
                propensities=np.array(chances) if logged else None,
                terminated=False,
                truncated=True,
            )
    return so.load_dataset(path)


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize(("greedy", "chosen"), [(0.95, "discrete_cql"), (0.3, "double_dqn")])
def test_narrow_logs_ask_for_conservative_control(
    tmp_path: Path, greedy: float, chosen: str, logged: bool
) -> None:
    found = choose_algorithm(log(tmp_path / "line.h5", greedy, logged=logged), seed=0)
    assert found.chosen == chosen
    assert ("estimated" in found.why) is not logged


def test_more_steps_are_learned_from_for_longer(tmp_path: Path) -> None:
    class Long:
        num_steps = 10**6

    assert choose_updates(log(tmp_path / "line.h5", 0.3)).chosen == UPDATES
    assert choose_updates(Long()).chosen == MOST_UPDATES  # type: ignore[arg-type]


def test_what_is_set_is_not_chosen(tmp_path: Path) -> None:
    data = log(tmp_path / "line.h5", 0.95)
    control = {"algorithm": "nfq", "updates": 7, "gamma": 0.8}
    config = resolve_config(data, "default", {"control": control})
    assert choose_settings(data, config, 0) == (config, {})
    left = resolve_config(data, "default", {})
    settled, choices = choose_settings(data, left, 0, double_dqn=True)
    assert settled.control.algorithm == "double_dqn"
    assert list(choices) == ["control.updates", "control.gamma"]
    assert settled.control.gamma == 0.99


@pytest.mark.parametrize(("length", "chosen"), [(5, 0.9), (60, 0.95), (200, 0.985), (1000, 0.99)])
def test_continuous_actions_are_discounted_by_the_length_of_episodes(
    tmp_path: Path, length: int, chosen: float
) -> None:
    with DatasetWriter(
        tmp_path / "box.h5", action_space=so.Box.of([-1], [1]), observation_dim=1
    ) as writer:
        for steps in (2, length):
            writer.append(
                instance="only",
                observations=np.zeros((steps + 1, 1)),
                actions=np.linspace(-1, 1, steps)[:, None],
                rewards=np.zeros(steps),
                terminated=False,
                truncated=True,
            )
    with so.load_dataset(tmp_path / "box.h5") as data:
        found = choose_gamma(data)
    assert found.chosen == chosen and f"length {length}" in found.why


@pytest.mark.parametrize(
    ("named", "shortest", "chosen"), [(2, 4, None), (9, 4, 4), (None, 4, 4), (None, 6, 5)]
)
def test_a_probe_is_as_long_as_every_episode_at_most(
    tmp_path: Path, named: int | None, shortest: int, chosen: int | None
) -> None:
    path = tmp_path / "short.h5"
    with DatasetWriter(path, num_actions=2, observation_dim=1, probe_steps=named) as writer:
        for number, length in enumerate((shortest, 6, 7, 8)):
            writer.append(
                instance=str(number % 2),
                observations=np.arange(length + 1.0)[:, None],
                actions=np.arange(length) % 2,
                rewards=np.arange(float(length)),
                propensities=np.full((length, 2), 0.5),
                terminated=False,
                truncated=True,
            )
    with so.load_dataset(path) as data:
        agent = so.fit(data, "sept", {**FEW, "probe": {"use": "always", "steps": 2}})
        with pytest.raises(so.SeptError, match="shorter than the probe of 7 steps"):
            so.fit(data, "sept", {"probe_steps": 7})
    assert agent.probe_steps == (named if chosen is None else chosen)
    choices = agent.record.get("choices", {})
    assert choices.get("probe_steps", {}).get("chosen") == chosen


def test_logs_that_name_no_size_get_a_latent_with_room(tmp_path: Path) -> None:
    data = log(tmp_path / "line.h5", 0.95)
    assert "latent_dim" not in data.metadata.extra
    assert resolve_config(data).latent.dim == LEAST_DIM
    assert resolve_config(data, "default", {"latent": {"dim": 2}}).latent.dim == 2


def test_the_command_says_what_was_chosen_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log(tmp_path / "line.h5", 0.95).close()
    words = ["--no-verdict", "--quiet", "--stack", "1", "-o", str(tmp_path / "run")]
    words += ["--set", "latent.updates=4", "--set", "control.updates=4"]
    with pytest.raises(SystemExit):
        main(["fit", str(tmp_path / "line.h5"), *words])
    said = capsys.readouterr().out
    assert "control.algorithm: discrete_cql. The logs are narrow: at" in said
    assert "latent: " in said and " dimensions in use" in said
    record = json.loads((tmp_path / "run" / "agent" / "agent.json").read_text())["record"]
    assert record["choices"]["control.algorithm"]["chosen"] == "discrete_cql"


def test_dimensions_in_use_are_counted() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 5))
    sure, unsure = np.full((30, 5), -8.0), np.full((30, 5), 4.0)
    for doubt, used in ((sure, 2), (unsure, 0)):
        means, variances = plane.astype(np.float32), doubt.astype(np.float32)
        model = LatentModel(None, Finite.of(2), means, variances)  # type: ignore[arg-type]
        assert model.used_dimensions == used


def test_a_full_latent_is_noticed() -> None:
    reasons = " ".join(reach(Evidence(full=5)).reasons)
    assert "All 5 dimensions" in reasons and "latent.dim=10" in reasons


WORSE, LEVEL = Interval(-1.0, -2.0, -0.5), Interval(-0.1, -0.3, 0.1)


@pytest.mark.parametrize(
    ("evidence", "instead", "word"),
    [
        (Evidence(above_avg=WORSE, above_history=LEVEL), "avg", "not usable"),
        (Evidence(above_avg=LEVEL, above_history=WORSE), "history", "doubtful"),
    ],
)
def test_an_agent_that_earns_less_than_another_method_acts_as_it_does(
    evidence: Evidence,
    instead: str,
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def worse(*_: object) -> Generator[Stage, None, Evidence]:
        return evidence
        yield

    apart = Separation(0.9, 0.8, 1.0, 1.0, 0.1, (1.0, 1.0, 1.0))
    monkeypatch.setattr("sept_offline.methods.sept.separation", lambda *_: apart)
    monkeypatch.setattr("sept_offline.methods.fitting.trial", worse)
    data = log(tmp_path / "line.h5", 0.3)
    agent = so.fit(data, "sept", FEW | {"verdict": True}, 0)
    assert agent.method == "sept" and agent.record["verdict"] == word
    assert f"acts as {instead}" in " ".join(agent.record["reasons"])
    episode, plain = agent.begin(seed=0), so.fit(data, instead, FEW, 0).begin(seed=0)
    places = np.linspace(-2, 2, 41)
    taken = [episode.act(np.array([place])) for place in places]
    assert taken == [plain.act(np.array([place])) for place in places]
    assert episode.latent is None and episode.uncertainty == (1 if instead == "avg" else None)
