"""Where a part of the state is missing, a fit stacks; where nothing is, it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.cli import main
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.outcome import OutcomeModel
from sept_offline.dynamics.world import World, WorldStage, roll_out
from sept_offline.errors import ConfigError
from sept_offline.methods.choices import Choice, choose_stack, observing_plainly
from sept_offline.methods.fitting import METHODS, Fitter
from sept_offline.methods.preset import resolve_config
from sept_offline.methods.run import RunDirectory
from sept_offline.methods.stack_models import Gain
from sept_offline.seeding import torch_generator
from sept_offline.settings import FitConfig, merge
from sept_offline.stacking import Stack
from sept_offline.stage import train_all
from tests.latent.grid import walks

PUSHES = (0.3, 0.6)
"""Of the two instances."""
ENOUGH: dict[str, Any] = {
    "verdict": False,
    "probe_steps": 2,
    "latent": {"updates": 240, "dim": 1, "hidden": 16},
    "control": {"updates": 960, "hidden": [8], "batch_size": 16},
    "probe": {"steps": 5},
}
"""Updates enough to see a velocity; control is not looked at."""


def log_cart(
    path: Path, columns: tuple[str, ...], noise: float = 0.05, *, turns: bool = False
) -> Dataset:
    """A cart that is pushed about: its place, its speed or both are observed.

    turns: whether it is pushed the other way from some step on.
    """
    rng = np.random.default_rng(3)
    with DatasetWriter(
        path,
        num_actions=3,
        probe_steps=2,
        observation_names=columns,
        action_names=("left", "none", "right"),
    ) as writer:
        for number in range(120):
            place, speed = rng.normal(size=2)
            seen, actions = [{"place": place, "speed": speed}], rng.integers(3, size=12)
            last = rng.integers(12) if turns else 12
            for time, action in enumerate(actions):
                push = PUSHES[number % 2] * (action - 1) * (1 if time < last else -1)
                speed = 0.9 * speed + push + noise * rng.normal()
                place += speed
                seen.append({"place": place, "speed": speed})
            writer.append(
                instance=f"cart-{number % 2}",
                observations=np.array([[row[name] for name in columns] for row in seen]),
                actions=actions,
                rewards=-np.abs([row["place"] for row in seen[1:]]),
                terminated=False,
                truncated=True,
            )
    return so.load_dataset(path)


def log_readings(path: Path, error: float) -> Dataset:
    """A level that moves on its own and with the actions, read with an error."""
    rng = np.random.default_rng(4)
    with DatasetWriter(
        path, num_actions=3, probe_steps=2, observation_names=("reading",)
    ) as writer:
        for number in range(300):
            level, actions = [rng.normal()], rng.integers(3, size=20)
            for action in actions:
                push = PUSHES[number % 2] * (action - 1)
                level.append(0.95 * level[-1] + 0.3 * push + 0.1 * rng.normal())
            readings = np.array(level) + error * rng.normal(size=21)
            writer.append(
                instance=f"tank-{number % 2}",
                observations=readings[:, np.newaxis],
                actions=actions,
                rewards=-np.abs(level[1:]),
                terminated=False,
                truncated=True,
            )
    return so.load_dataset(path)


@pytest.fixture(scope="module")
def hidden_speed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return log_cart(tmp_path_factory.mktemp("cart") / "hidden.h5", ("place",))


def choice(data: Dataset, seed: int) -> Choice:
    return train_all(choose_stack(data, resolve_config(data, "default", ENOUGH), seed))


def test_a_hidden_speed_is_found(hidden_speed: Dataset) -> None:
    found = choice(hidden_speed, seed=0)
    assert found.chosen in (2, 4)
    assert "predict more than the current one: the error of the next 'place' falls by" in found.why


def test_a_change_within_episodes_is_found(tmp_path: Path, training_seed: int) -> None:
    data = log_cart(tmp_path / "turns.h5", ("place", "speed"), turns=True)
    found = choice(data, training_seed)
    assert found.chosen == 4, found.why
    assert "Something that is not observed lasts for some steps" in found.why


def test_a_noisy_reading_is_averaged(tmp_path: Path, training_seed: int) -> None:
    found = choice(log_readings(tmp_path / "noisy.h5", error=0.15), training_seed)
    # A short fit of a network seldom finds it; a regression of the errors does.
    assert found.chosen > 1, found.why


def test_an_exact_reading_is_not_stacked(tmp_path: Path, training_seed: int) -> None:
    found = choice(log_readings(tmp_path / "exact.h5", error=0.0), training_seed)
    assert found.chosen == 1, found.why


def test_a_stock_with_random_demand_is_not_stacked(tmp_path: Path, training_seed: int) -> None:
    # The last steps tell the demand of the instance, which a short fit does not learn exactly.
    rng = np.random.default_rng(0)
    with DatasetWriter(tmp_path / "stock.h5", num_actions=6, probe_steps=4) as writer:
        for number in range(240):
            demand = 0.7 + 0.8 * (number % 10)
            actions = rng.integers(6, size=40)
            state, rewards = [np.array([rng.integers(16), 0, 0])], []
            for action in actions:
                stock, next_day, day_after = state[-1]
                asked = rng.poisson(demand)
                left = np.clip(stock + next_day - asked, 0, 50)
                state.append(np.array([left, day_after, 2 * action]))
                rewards.append(-0.25 * left - max(0, asked - stock - next_day))
            writer.append(
                instance=f"shop-{number % 10}",
                observations=np.array(state) / 5,
                actions=actions,
                rewards=rewards,
                terminated=False,
                truncated=True,
            )
    found = choice(so.load_dataset(tmp_path / "stock.h5"), training_seed)
    assert found.chosen == 1, found.why


@pytest.mark.parametrize("columns", [("place", "speed"), ("speed",)])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_what_is_observed_is_not_stacked(
    columns: tuple[str, ...], noise: float, tmp_path: Path
) -> None:
    found = choice(log_cart(tmp_path / "whole.h5", columns, noise), seed=1)
    assert found.chosen == 1, found.why
    assert "not clearly" in found.why or "unexplained" in found.why


def test_cells_of_a_grid_are_not_stacked(tmp_path: Path, training_seed: int) -> None:
    path = tmp_path / "grid.h5"
    _, episodes = walks(per=20, length=30, seed=0)
    with DatasetWriter(path, num_actions=4, probe_steps=8) as writer:
        for row, code in enumerate(episodes.instance):
            writer.append(
                instance=f"grid-{code}",
                observations=episodes.observations[row],
                actions=episodes.actions[row],
                rewards=episodes.rewards[row],
                terminated=False,
                truncated=True,
            )
    found = choice(so.load_dataset(path), training_seed)
    assert found.chosen == 1, found.why


def test_a_few_episodes_decide_nothing(hidden_speed: Dataset) -> None:
    few = hidden_speed.select(np.arange(0, 120, 30))
    assert choice(few, seed=0) == Choice(
        1, "There are too few episodes to test whether the last steps improve predictions."
    )


def test_a_fit_that_chooses_resumes_bit_for_bit(
    hidden_speed: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # every model is trained, though so few updates show nothing
    monkeypatch.setattr(Gain, "clear", True)
    fewer = merge(ENOUGH, {"latent": {"updates": 12}, "control": {"updates": 48}})
    whole = so.fit(hidden_speed, "avg", fewer, seed=2, out=tmp_path / "whole")
    assert whole.stack > 1 and whole.spaces.observation_names == ("place",)
    assert whole.record["choices"]["stack"]["chosen"] == whole.stack
    settled = resolve_config(hidden_speed, "default", fewer)
    stages: set[str] = set()
    while True:
        directory = RunDirectory(tmp_path / "resumed", checkpoint_seconds=0)
        record = {"method": "avg", "config": {}, "seed": 2}
        directory.open(record, resume=(tmp_path / "resumed").exists(), restart=False)
        try:
            for epoch in Fitter(hidden_speed, "avg", settled, seed=2, run=directory):
                if epoch.stage not in stages and epoch.done > epoch.total // 3:
                    stages.add(epoch.stage)
                    break
            else:
                break
        finally:
            directory.close()
    assert {"stack-1", "stack-4", "stack-1-short", "stack-2", "stack-8", "control"} <= stages
    for name in ("agent/weights.safetensors", "metrics.csv"):
        one, other = ((tmp_path / run / name).read_bytes() for run in ("whole", "resumed"))
        assert one == other, name
    assert so.load_agent(tmp_path / "resumed").record["choices"] == whole.record["choices"]


FEW = ENOUGH | {
    "latent": {"updates": 5, "dim": 1, "hidden": 16},
    "control": {"updates": 5, "hidden": [8]},
    "dynamics": {"updates": 5, "outcome_updates": 5},
}


@pytest.mark.parametrize("method", [name for name, one in METHODS.items() if one.stacks])
def test_every_method_that_stacks_acts(hidden_speed: Dataset, method: str, tmp_path: Path) -> None:
    settings: Mapping[str, Any] = FEW | {"stack": 3, "verdict": method == "sept-np"}
    if METHODS[method].privileged:
        with pytest.raises(so.errors.DataError, match="hidden parameters"):
            so.fit(hidden_speed, method, settings)
        return
    run = tmp_path / "run"
    agent = so.fit(hidden_speed, method, settings, seed=0, out=run)
    assert (agent.stack, agent.spaces.observation_dim) == (3, 1)
    assert "stack" not in agent.record
    episode = so.load_agent(run).begin(seed=1)
    rewards = (None, *[0.0] * 5) if "reward" in agent.needs else [None] * 6
    assert all(0 <= episode.act([0.1 * place], rewards[place]) < 3 for place in range(6))


@pytest.mark.parametrize("method", ["history", "bnn", "dpt"])
def test_a_method_that_does_not_stack_says_so(hidden_speed: Dataset, method: str) -> None:
    with pytest.raises(ConfigError, match=f"'{method}' always uses stack = 1, found 2"):
        so.fit(hidden_speed, method, FEW | {"stack": 2})


def test_a_preset_stacks_only_for_methods_that_stack(tmp_path: Path) -> None:
    data = so.collect_dataset(
        "navigation2d-switch",
        tmp_path / "switch.h5",
        overrides={"behaviour": "random", "episodes": 20, "max_steps": 12},
    )
    for method, stack in (("avg", 4), ("history", 1)):
        assert so.fit(data, method, FEW, seed=0).stack == stack
    with pytest.raises(ConfigError, match="always uses stack = 1, found 4"):
        so.fit(data, "history", FEW | {"stack": 4})


def test_without_a_choice_nothing_is_compared(hidden_speed: Dataset) -> None:
    for method, settings in (("avg", {"stack": 1}), ("history", {})):
        work = so.fitter(hidden_speed, method, FEW | settings, seed=0)
        assert {epoch.stage for epoch in work} == {"control"}
        assert work.agent is not None and work.agent.stack == 1
        assert "stack" not in work.agent.record


@pytest.mark.parametrize("bad", [-1, 65, 1.5, "2"])
def test_an_impossible_stack_is_refused(hidden_speed: Dataset, bad: Any) -> None:
    with pytest.raises(ConfigError, match="stack"):
        so.fit(hidden_speed, "avg", FEW | {"stack": bad})


def test_the_command_stacks_and_says_why(
    hidden_speed: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fit", str(hidden_speed.path), "--method", "avg", "--no-verdict", "--quiet"]
    few = ["--set", "control.updates=8", "--set", "control.hidden=[8]"]
    with pytest.raises(SystemExit, match="0"):
        main([*words, *few, "--stack", "2", "-o", str(tmp_path / "set")])
    assert "stack:" not in capsys.readouterr().out
    assert so.load_agent(tmp_path / "set").stack == 2
    with pytest.raises(SystemExit, match="0"):
        main([*words, *few, "-o", str(tmp_path / "chosen")])
    # Two updates teach a model nothing, but its errors show that something is missing.
    assert "\nstack: 4. The last 4 observations with their actions" in capsys.readouterr().out


def test_a_world_predicts_the_newest_and_moves_the_rest(hidden_speed: Dataset) -> None:
    view, stack = hidden_speed.stacked(3), Stack(3, 1, 3)
    steps = view.steps()
    world = World(Columns.fit(steps), Finite.of(3), torch_generator(0, "world"), stack)
    rows, actions = steps.row[:50], torch.from_numpy(Finite.of(3).encode(steps.actions[:50]))
    before = torch.from_numpy(steps.observations[rows])
    with torch.no_grad():
        after = world.step(before, actions, torch.zeros(50, 8), torch.randn(50, 1)).numpy()
    # what was not predicted is what was logged
    np.testing.assert_array_equal(after[:, 1:], steps.observations[rows + 1][:, 1:])
    assert after.shape == before.shape


def test_in_a_world_an_agent_stacks_as_its_rows_are_stacked(hidden_speed: Dataset) -> None:
    stack = Stack(3, 1, 3)
    control = {**FEW["control"], "algorithm": "double_dqn"}
    config: FitConfig = resolve_config(hidden_speed, "default", FEW | {"control": control})
    view = hidden_speed.stacked(3)
    steps = view.steps()
    wide = train_all(METHODS["avg"].stages(view, config, 0))
    columns = Columns.fit(steps)
    world = WorldStage(steps, columns, 5, 0, space=Finite.of(3), num_instances=2, stack=stack)
    world.advance(5)
    outcome = OutcomeModel(world.world.reader, 3, (8,), torch_generator(0, "outcome"))
    starts = steps.observations[steps.row[steps.time == 0]][:20]
    returns = [
        roll_out(world, outcome, agent, starts, np.arange(20) % 2, np.full(20, 12), 0)
        for agent in (wide, observing_plainly(wide, stack))
    ]
    np.testing.assert_array_equal(*returns)
    assert replace(wide, stack=1).spaces.observation_dim == 9
