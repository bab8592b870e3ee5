"""Agents in an episode, in many, and on disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sept_offline.agent import (
    AdaptedContext,
    Agent,
    Control,
    HistoryContext,
    RefinedContext,
    SegmentContext,
    Spaces,
    TableProbe,
    load_agent,
    save_agent,
)
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.agent.rewards import RewardForm
from sept_offline.errors import AgentError
from tests.agent import builders

METHODS = ["sept", "lstm", "changes", "avg", "oracle", "history", "sept-np", "dynasept"]
METHODS += ["refined", "unprobed", "read-once"]
HIDDEN = {"mass": 0.4, "length": 1.2}


def hidden_of(agent: Agent) -> dict[str, float] | None:
    return HIDDEN if "hidden" in agent.needs else None


def run(agent: Agent, states: np.ndarray, seed: int) -> list[int]:
    episode = agent.begin(seed, hidden_of(agent))
    return [episode.act(state) for state in states]


def states(count: int, steps: int = 12, seed: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, steps, 4)).astype(np.float32)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("fallback", "stack"), [(True, 1), (False, 1), (True, 3)])
def test_a_batch_acts_as_its_episodes_would(method: str, fallback: bool, stack: int) -> None:
    agent = builders.make_agent(method, fallback=fallback, stack=stack)
    count = 24
    rows = states(count) * np.linspace(1, 4, count, dtype=np.float32)[:, None, None]
    hidden = None if hidden_of(agent) is None else [HIDDEN] * count
    together = agent.begin_batch(range(count), hidden)
    # episodes end one after another, as they do in an evaluation
    active = np.arange(12)[None] < (3 + np.arange(count) % 10)[:, None]
    found = np.stack([together.act(rows[:, t], active[:, t]) for t in range(12)], axis=1)
    for index in range(count):
        alone = np.array(run(agent, rows[index], index))
        assert (found[index][active[index]] == alone[active[index]]).all()
        assert (found[index][~active[index]] == -1).all()
    if method == "sept" and stack == 1:
        flagged = [episode.flagged for episode in together.episodes]
        assert any(flagged) and not all(flagged)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("together", "stack"), [(range(3), 1), (range(6), 1), (range(9), 3), ((0, 1, 4, 5, 9, 11), 1)]
)
def test_an_episode_goes_on_alone_as_in_its_batch(
    method: str, together: Sequence[int], stack: int
) -> None:
    agent = builders.make_agent(method, stack=stack)
    rows, hidden = states(5), hidden_of(agent)
    batch = agent.begin_batch(range(5), None if hidden is None else [hidden] * 5)
    alone = [agent.begin(seed, hidden) for seed in range(5)]
    for time in range(12):
        actions = [one.act(row) for one, row in zip(alone, rows[:, time], strict=True)]
        if time in together:
            assert batch.act(rows[:, time]).tolist() == actions
        else:
            pairs = zip(batch.episodes, rows[:, time], strict=True)
            assert [one.act(row) for one, row in pairs] == actions
        for mine, its in zip(batch.episodes, alone, strict=True):
            assert (mine.values is None) == (its.values is None)
            for found, expected in ((mine.values, its.values), (mine.latent, its.latent)):
                if expected is not None:
                    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            if its.uncertainty is not None:
                assert mine.uncertainty == pytest.approx(its.uncertainty, rel=1e-5)


def test_nearly_tied_actions_do_not_depend_on_the_batch() -> None:
    rng = np.random.default_rng(0)
    body = builders.mlp(rng, [4, 64, 64], norm=True)
    # two actions with the very same weights but for the last bits
    row = rng.normal(size=64).astype(np.float32)
    last = np.stack([row, np.nextafter(row, np.float32(9))])
    network = MLP([*body.layers, (last, np.zeros(2))], [*body.norms, None])
    control = Control(Standardiser.identity(4), network)
    inputs = rng.normal(size=(300, 4)).astype(np.float32)
    alone = np.array([network.row(x).argmax() for x in inputs])
    assert (control.greedy(inputs) == alone).all()
    assert (control.greedy(inputs[:7]) == alone[:7]).all()


def test_probe_then_control() -> None:
    agent = builders.make_agent("sept")
    rows = states(1)[0]
    episode = agent.begin(seed=3)
    phases = []
    for step, state in enumerate(rows):
        phases.append(episode.phase)
        assert (episode.latent is None) == (step <= agent.probe_steps)
        episode.act(state)
    assert phases == ["probe"] * 3 + ["control"] * 9
    assert episode.latent is not None and episode.latent.shape == (2,)
    assert episode.uncertainty > 0
    assert 0 <= episode.novelty <= 1


def test_the_latent_is_of_the_first_steps_only() -> None:
    agent = builders.make_agent("sept")
    rows = states(1)[0]
    first, second, third = (agent.begin(seed=3) for _ in range(3))
    other, earlier = rows.copy(), rows.copy()
    other[4:] = rows[4:][::-1]
    earlier[3] += 1
    for index in range(12):
        first.act(rows[index])
        second.act(other[index])
        third.act(earlier[index])
    assert (first.latent == second.latent).all()
    assert not (first.latent == third.latent).all()


def test_control_is_greedy_on_state_and_latent() -> None:
    agent = builders.make_agent("sept")
    rows = states(1)[0]
    episode = agent.begin(seed=1)
    actions = [episode.act(state) for state in rows]
    context = agent.context
    mean, _ = context.encoder.encode(rows[None, :4], builders.encode([actions[:3]]))
    np.testing.assert_allclose(episode.latent, mean[0], atol=1e-6)
    for state, action in zip(rows[3:], actions[3:], strict=True):
        inputs = np.concatenate([agent.control.scaler(state), context.latent_scaler(mean[0])])
        assert agent.control.network(inputs[None])[0].argmax() == action


def test_the_probe_samples_its_probabilities() -> None:
    agent = builders.make_agent("sept")
    state = states(1)[0, 0]
    actions = [agent.begin(seed).act(state) for seed in range(2000)]
    share = np.bincount(actions, minlength=3) / 2000
    np.testing.assert_allclose(share, agent.context.probe.policy(state, 0).probabilities, atol=0.03)
    assert agent.begin(7).act(state) == actions[7]


def test_a_table_probe_follows_the_clock() -> None:
    agent = builders.make_agent("sept")
    table = np.eye(3)[[2, 0, 1]]
    context = SegmentContext(TableProbe(table), agent.context.encoder, agent.context.latent_scaler)
    fixed = replace(agent, context=context)
    assert run(fixed, states(1)[0], seed=5)[:3] == [2, 0, 1]


def test_a_flagged_instance_gets_the_fallback() -> None:
    agent = builders.make_agent("sept", fallback=True)
    rows = states(1)[0] * 50
    episode = agent.begin(seed=0)
    actions = [episode.act(state) for state in rows]
    assert episode.flagged and episode.novelty < 0.01
    robust = agent.fallback
    expected = robust.network(robust.scaler(rows[3:])).argmax(axis=1)
    assert actions[3:] == expected.tolist()


def test_needs_are_enforced() -> None:
    sept, oracle = builders.make_agent("sept"), builders.make_agent("oracle")
    assert sept.needs == frozenset() and oracle.needs == {"hidden"}
    with pytest.raises(AgentError, match=r"did not declare.*'hidden'"):
        sept.begin(hidden=HIDDEN)
    with pytest.raises(AgentError, match=r"did not declare.*'hidden'"):
        sept.begin_batch([0, 1], hidden=[HIDDEN] * 2)
    with pytest.raises(AgentError, match="needs 'hidden'"):
        oracle.begin()
    with pytest.raises(AgentError, match="needs 'hidden'"):
        oracle.begin_batch([0])
    with pytest.raises(AgentError, match="mass, length"):
        oracle.begin(hidden={"mass": 1.0})
    for length in (float("nan"), 1e300):
        with pytest.raises(AgentError, match="finite float32"):
            oracle.begin(hidden={"mass": 1.0, "length": length})
    with pytest.raises(AgentError, match="expected a dict of numbers by name"):
        oracle.begin(hidden=5)  # type: ignore[arg-type]
    with pytest.raises(AgentError, match=r"did not declare.*'reward'"):
        sept.begin().act(np.zeros(4), reward=1.0)
    with pytest.raises(AgentError, match=r"did not declare.*'reward'"):
        sept.begin_batch([0]).act(np.zeros((1, 4)), rewards=np.zeros(1))


def test_a_refused_step_of_a_batch_counts_for_nobody() -> None:
    form = RewardForm(False, 1.0, None, 0.9)
    agent = replace(builders.make_agent("avg"), context=AdaptedContext(2, 0.1, form))
    assert agent.needs == {"reward"}
    batch = agent.begin_batch(range(3))
    seen = states(3, steps=4)
    batch.act(seen[:, 0])
    broken = seen[:, 1].copy()
    broken[0, 0] = np.nan
    for observations, rewards, active in (
        (seen[:, 1], np.array([0.0, np.nan, 0.0]), None),
        (seen[:, 1], [0.0, None, 0.0], None),
        (broken, np.zeros(3), [True, True, False]),
    ):
        with pytest.raises(AgentError):
            batch.act(observations, active=active, rewards=rewards)
    batch.act(seen[:, 1], rewards=np.zeros(3))
    assert [episode.steps for episode in batch.episodes] == [2, 2, 2]


def test_the_oracle_acts_by_the_hidden_parameters() -> None:
    agent = builders.make_agent("oracle")
    rows = states(1, steps=60)[0]
    one = agent.begin(hidden={"length": 1.2, "mass": 0.4})
    two = agent.begin(hidden={"length": -3.0, "mass": 4.0})
    first = [one.act(state) for state in rows]
    assert first == run(agent, rows, 0)
    assert first != [two.act(state) for state in rows]


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((1, 4)), np.zeros(0)])
def test_a_wrong_shape_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(AgentError, match="observes 4 columns"):
        builders.make_agent("avg").begin().act(bad)


@pytest.mark.parametrize("bad", ["abc", [0, 0, 0, "x"], [[0], 0, 0, 0], {}])
def test_what_is_no_number_is_refused(bad: object) -> None:
    agent = builders.make_agent("avg")
    with pytest.raises(AgentError, match="must be a 1-D numeric array"):
        agent.begin().act(bad)
    with pytest.raises(AgentError, match="must be a 2-D numeric array"):
        agent.begin_batch(range(1)).act([bad])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    agent = builders.make_agent("sept")
    rows = np.zeros((3, 4))
    rows[1, 2] = value
    with pytest.raises(AgentError, match="step 0 is not finite"):
        agent.begin().act(rows[1])
    with pytest.raises(AgentError, match="episode 1 of the batch"):
        agent.begin_batch(range(3)).act(rows)
    going = np.array([True, False, True])
    agent.begin_batch(range(3)).act(rows, going)
    agent.begin().act(np.full(4, 1e30))


def test_no_action_after_the_end() -> None:
    agent = builders.make_agent("avg")
    episode = agent.begin()
    episode.act(np.zeros(4))
    episode.end()
    with pytest.raises(AgentError, match="has ended"):
        episode.act(np.zeros(4))
    together = agent.begin_batch([0, 1])
    together.act(np.zeros((2, 4)), np.array([True, False]))
    with pytest.raises(AgentError, match=r"Episode 1 .*has ended"):
        together.act(np.zeros((2, 4)))


def test_concurrent_episodes_share_one_agent() -> None:
    agent = builders.make_agent("sept")
    rows = states(60)
    expected = [run(agent, rows[index], index) for index in range(60)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda index: run(agent, rows[index], index), range(60)))
    assert found == expected
    # interleaved, in one thread
    episodes = [agent.begin(seed) for seed in range(60)]
    mixed = [[episode.act(rows[i, t]) for i, episode in enumerate(episodes)] for t in range(12)]
    assert np.array(mixed).T.tolist() == expected


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fallback", [True, False])
def test_a_saved_and_loaded_agent_acts_the_same(
    tmp_path: Path, method: str, fallback: bool
) -> None:
    agent = builders.make_agent(method, fallback=fallback)
    save_agent(agent, tmp_path / "run" / "agent")
    for path in (tmp_path / "run", tmp_path / "run" / "agent"):
        loaded = load_agent(path)
        assert (loaded.method, loaded.needs, loaded.record) == (method, agent.needs, {"seed": 0})
        # the fallback acts where states are far from all that was seen
        for index, rows in enumerate(states(6) * np.linspace(1, 20, 6)[:, None, None]):
            assert run(loaded, rows, index) == run(agent, rows, index)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["agent"]
    other = builders.make_agent(method, seed=5)
    save_agent(other, tmp_path / "run" / "agent")
    assert load_agent(tmp_path / "run").record == {"seed": 5}
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["agent"]


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_agent(builders.make_agent("sept"), tmp_path / name)
    for file in ("agent.json", "weights.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("file", ["agent.json", "weights.safetensors"])
def test_every_damage_is_noticed(tmp_path: Path, file: str) -> None:
    folder = save_agent(builders.make_agent("sept", fallback=True), tmp_path / "agent")
    path = folder / file
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in {0, len(content) - 1, *rng.integers(0, len(content), size=150).tolist()}:
        for bit in rng.integers(0, 8, size=2):
            flipped = bytearray(content)
            flipped[place] ^= 1 << int(bit)
            path.write_bytes(bytes(flipped))
            with pytest.raises(AgentError):
                load_agent(folder)
    for size in (0, 1, 8, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(AgentError):
            load_agent(folder)
    path.unlink()
    with pytest.raises(AgentError):
        load_agent(folder)


FORGERIES: dict[str, tuple[Any, Any]] = {
    "version": (lambda d: d.update(format=3), None),
    "method": (lambda d: d.update(method=3), None),
    "context": (lambda d: d["context"].update(kind="__import__('os')"), None),
    "encoder": (lambda d: d["context"]["encoder"].update(kind="pickle"), None),
    "encoder steps": (lambda d: d["context"]["encoder"].update(steps=10**9), None),
    "encoder range": (lambda d: d["context"]["encoder"].update(log_var_range="ab"), None),
    "probe": (lambda d: d["context"].update(probe=None), None),
    "probe kind": (lambda d: d["context"]["probe"].update(kind=[]), None),
    "uniform": (lambda d: d["context"].update(probe={"kind": "uniform", "num_actions": -1}), None),
    "decoder": (lambda d: d["context"]["novelty"]["decoder"].update(latent_dim=7), None),
    "novelty": (lambda d: d["context"].update(novelty=[1]), None),
    "names": (lambda d: d.update(action_names=["a"]), None),
    "needs": (lambda d: d.update(needs=["reward"]), None),
    "learns": (lambda d: d.update(learns=True), None),
    "fallback": (lambda d: d.update(fallback=True), None),
    "probe_steps": (lambda d: d.update(probe_steps=2), None),
    "stack": (lambda d: d.update(stack=2), None),
    "no stack": (lambda d: d.update(stack=0), None),
    "endless stack": (lambda d: d.update(stack=10**9), None),
    "stack in words": (lambda d: d.update(stack="1"), None),
    "stack as a flag": (lambda d: d.update(stack=True), None),
    "missing": (None, lambda w: w.pop("control.scaler.mean")),
    "dtype": (None, lambda w: w.update({"spaces.low": w["spaces.low"].astype(np.float64)})),
    "not finite": (None, lambda w: w["control.network.member0.0.weight"].fill(np.nan)),
    "shape": (None, lambda w: w.update({"control.scaler.mean": np.zeros(9, np.float32)})),
    "form": (None, lambda w: w["control.network.member0.form"].fill(9)),
    "quantiles": (None, lambda w: w.pop("context.novelty.held_out")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_agent_is_refused(tmp_path: Path, name: str) -> None:
    folder = save_agent(builders.make_agent("sept"), tmp_path / "agent")
    builders.forge(folder)
    load_agent(folder)
    builders.forge(folder, *FORGERIES[name])
    with pytest.raises(AgentError):
        load_agent(folder)


def test_an_agent_that_does_not_say_whether_it_learns_does_not(tmp_path: Path) -> None:
    folder = save_agent(builders.make_agent("sept"), tmp_path / "agent")
    builders.forge(folder, lambda description: description.pop("learns"))
    assert not load_agent(folder).learns


def test_an_agent_that_does_not_say_how_it_stacks_does_not(tmp_path: Path) -> None:
    folder = save_agent(builders.make_agent("sept", stack=3), tmp_path / "agent")
    assert load_agent(folder).stack == 3
    folder = save_agent(builders.make_agent("sept"), tmp_path / "older")
    builders.forge(folder, lambda description: description.pop("stack"))
    assert load_agent(folder).stack == 1


@pytest.mark.parametrize("method", METHODS)
def test_an_episode_stacks_what_it_sees(method: str) -> None:
    agent = builders.make_agent(method, fallback=True, stack=3)
    # the same parts, for someone who stacks the rows and names all columns
    wide = replace(
        agent,
        spaces=Spaces.of(np.zeros((1, agent.stacking.width)), agent.spaces.actions),
        stack=1,
    )
    rows = states(1)[0]
    inner, outer = (one.begin(4, hidden_of(one)) for one in (agent, wide))
    past, taken = [rows[0]] * 3, [np.zeros(3, np.float32)] * 2
    for row in rows:
        past = [row, *past[:2]] if row is not rows[0] else past
        masks = np.array([True, row[0] > 0, True])
        action = inner.act(row, mask=masks)
        assert action == outer.act(np.concatenate([*past, *taken]), mask=masks)
        assert (inner.novelty, inner.flagged) == (outer.novelty, outer.flagged)
        taken = [np.eye(3, dtype=np.float32)[action], taken[0]]
    assert set(inner.out_of_range) <= set(agent.spaces.observation_names)
    assert len(agent.spaces.observation_names) == 4


def test_what_is_refused_leaves_the_stack_as_it_was() -> None:
    agent, rows = builders.make_agent("avg", stack=3), states(1)[0]
    one, other = agent.begin(), agent.begin()
    for row in rows:
        for bad in (row[:2], row * np.nan):
            with pytest.raises(AgentError):
                one.act(bad)
        with pytest.raises(AgentError, match="forbids every action"):
            one.act(row, mask=[False] * 3)
        assert one.act(row) == other.act(row)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"format": 1}', "[" * 100_000, '{"format": 1e999}']
)
def test_what_is_not_an_agent_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "agent.json").write_text(text)
    with pytest.raises(AgentError):
        load_agent(tmp_path)


def test_an_empty_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="There is no agent in"):
        load_agent(tmp_path / "nothing")


def test_acting_needs_neither_torch_nor_d3rlpy(tmp_path: Path) -> None:
    folder = save_agent(builders.make_agent("sept"), tmp_path / "agent")
    program = (
        "import sys, numpy as np\n"
        "from sept_offline.agent import load_agent\n"
        f"episode = load_agent({str(folder)!r}).begin(0)\n"
        "[episode.act(np.zeros(4)) for _ in range(6)]\n"
        "print([name for name in ('torch', 'd3rlpy', 'simulators') if name in sys.modules])\n"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True
    )
    assert result.stdout.strip() == "[]"


def test_without_a_probe_control_acts_at_once_and_the_latent_comes_later() -> None:
    agent = builders.make_agent("sept-np")
    context, control = agent.context, agent.control
    rows = states(1)[0]
    episode = agent.begin(seed=1)
    assert agent.probe_steps == 0
    taken: list[int] = []
    for time, row in enumerate(rows):
        assert episode.phase == "control"
        taken.append(episode.act(row))
        if time < builders.STEPS:
            assert episode.latent is None
            vector = context.start
        else:
            steps = builders.STEPS
            done = builders.encode([taken[:steps]])
            mean, _ = context.encoder.encode(rows[None, : steps + 1], done)
            assert episode.latent is not None and np.array_equal(episode.latent, mean[0])
            vector = context.latent_scaler(mean[0])
        inputs = np.concatenate([control.scaler(row), vector])
        assert taken[-1] == control.network(inputs).argmax()
    assert episode.novelty is not None


def test_a_history_of_other_spaces_is_refused() -> None:
    agent = builders.make_agent("history")
    wrong = HistoryContext(2, agent.spaces.num_actions + 1, agent.context.scaler)
    with pytest.raises(AgentError, match="history"):
        replace(agent, context=wrong)
    with pytest.raises(AgentError, match="at least 1"):
        HistoryContext(0, 3, agent.context.scaler)


@pytest.mark.parametrize("method", ["refined", "unprobed"])
def test_a_refined_latent_is_the_posterior_of_all_steps_until_it_is_fixed(method: str) -> None:
    agent = builders.make_agent(method)
    context = agent.context
    assert isinstance(context, RefinedContext)
    episode = agent.begin(seed=0)
    rows = np.random.default_rng(1).normal(size=(9, builders.DIM)).astype(np.float32)
    taken: list[int] = []
    for time, row in enumerate(rows):
        taken.append(episode.act(row))
        if time == 0:
            assert episode.latent is None
            continue
        seen = min(time, context.refine_steps)
        actions = builders.encode([taken[:seen]])
        mean, log_variance = context.encoder.reading(seen).encode(rows[None, : seen + 1], actions)
        assert episode.latent is not None
        np.testing.assert_allclose(episode.latent, mean[0], rtol=1e-4, atol=1e-5)
        stated = context.uncertainty_scale * np.exp(0.5 * log_variance[0]).mean()
        assert episode.uncertainty == pytest.approx(stated, rel=1e-4)
