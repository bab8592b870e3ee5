"""MAML: its step, its meta-gradient, its tasks, its rewards."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sept_offline as so
from sept_offline.agent import AdaptedContext, Agent
from sept_offline.agent.contexts.adapted import td_step
from sept_offline.agent.networks import MLP
from sept_offline.agent.rewards import RewardForm
from sept_offline.control import Batch
from sept_offline.errors import AgentError, ConfigError, DataError
from sept_offline.methods import maml
from sept_offline.methods.maml import MetaLearner, MetaMember, TaskReplay, Tasks, divide
from sept_offline.settings import ControlConfig, merge
from tests.margins import Margins
from tests.methods.check_method import SMALL
from tests.methods.two_step import log_two_step, two_step

DIM, ACTIONS, STEPS, TASKS, QUERIES = 3, 2, 2, 3, 4
RATE, GAMMA = 0.5, 0.9
CONFIG = ControlConfig(hidden=(7, 5), gamma=GAMMA)


def random_batch(rows: int, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(rows, DIM, generator=rng),
        torch.randint(ACTIONS, (rows,), generator=rng),
        3 * torch.randn(rows, generator=rng),
        torch.randn(rows, DIM, generator=rng),
        torch.zeros(rows),
    )


def rows_of(batch: Batch, rows: slice) -> Batch:
    columns = (batch.inputs, batch.actions, batch.rewards, batch.next_inputs, batch.terminals)
    return Batch(*(column[rows] for column in columns))


def sequential(critic: Any) -> nn.Sequential:
    """A copy of d3rlpy's network, to be differentiated by torch alone."""
    whole = copy.deepcopy(critic)
    return nn.Sequential(*whole._encoder._layers, whole._fc)


def td_loss(network: nn.Sequential, batch: Batch, next_values: torch.Tensor) -> torch.Tensor:
    value = network(batch.inputs).gather(1, batch.actions.view(-1, 1))[:, 0]
    target = batch.rewards + GAMMA * (1 - batch.terminals) * next_values
    return nn.functional.smooth_l1_loss(value, target.detach())


def step_by_autograd(network: nn.Sequential, support: Batch) -> nn.Sequential:
    stepped = copy.deepcopy(network)
    loss = td_loss(stepped, support, stepped(support.next_inputs).max(dim=1).values)
    gradients = torch.autograd.grad(loss, list(stepped.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(stepped.parameters(), gradients, strict=True):
            parameter -= RATE * gradient
    return stepped


def meta_learner() -> tuple[MetaLearner, MetaMember]:
    learner = MetaLearner(CONFIG, DIM, ACTIONS, 0, tasks=Tasks(TASKS, STEPS, RATE))
    member = learner.members[0]
    assert isinstance(member, MetaMember)
    return learner, member


def test_the_step_in_numpy_is_torchs() -> None:
    learner, member = meta_learner()
    network = learner.current()
    assert isinstance(network, MLP)
    for seed in range(5):
        support, probe = random_batch(STEPS, seed), random_batch(9, 100 + seed).inputs
        expected = step_by_autograd(sequential(member.networks.impl.modules.q_funcs[0]), support)
        stepped = td_step(
            network,
            support.inputs.numpy(),
            support.actions.numpy(),
            support.rewards.numpy(),
            support.next_inputs.numpy(),
            GAMMA,
            RATE,
        )
        wanted = expected(probe).detach().numpy()
        assert np.allclose(stepped(probe.numpy()), wanted, atol=1e-5)
        assert not np.allclose(network(probe.numpy()), wanted, atol=1e-2)


def test_the_meta_gradient_is_autograds_at_the_stepped_parameters() -> None:
    """Double DQN with network and target both stepped, task by task, by torch alone."""
    _, member = meta_learner()
    with torch.no_grad():
        for parameter in member.networks.impl.modules.targ_q_funcs.parameters():
            parameter += 0.1
    online = sequential(member.networks.impl.modules.q_funcs[0])
    behind = sequential(member.networks.impl.modules.targ_q_funcs[0])
    batch = random_batch(TASKS * (STEPS + QUERIES), 3)
    batch.terminals[::4] = 1
    total = [torch.zeros_like(parameter) for parameter in online.parameters()]
    losses = []
    for task in range(TASKS):
        share = rows_of(batch, slice(task * (STEPS + QUERIES), (task + 1) * (STEPS + QUERIES)))
        support, query = rows_of(share, slice(0, STEPS)), rows_of(share, slice(STEPS, None))
        one, other = step_by_autograd(online, support), step_by_autograd(behind, support)
        best = one(query.next_inputs).argmax(dim=1, keepdim=True)
        loss = td_loss(one, query, other(query.next_inputs).gather(1, best)[:, 0])
        losses.append(loss.item())
        for sum_, part in zip(
            total, torch.autograd.grad(loss, list(one.parameters())), strict=True
        ):
            sum_ += part / TASKS
    found = member.update(batch)
    assert found == pytest.approx(np.mean(losses), rel=1e-5)
    own = member.networks.impl.modules.q_funcs[0]
    layers = [part for part in (*own._encoder._layers, own._fc) if isinstance(part, nn.Linear)]
    gradients = [parameter.grad for layer in layers for parameter in layer.parameters()]
    assert len(gradients) == len(total)
    for gradient, expected in zip(gradients, total, strict=True):
        assert gradient is not None and torch.allclose(gradient, expected, atol=1e-5)
    # the step belongs to the update: what is watched and deployed is not stepped
    watched = random_batch(4, 9).inputs
    assert torch.allclose(member.networks.q_values(watched), sequential(own)(watched))


def test_a_batch_is_divided_task_by_task() -> None:
    batch = random_batch(TASKS * (STEPS + QUERIES))
    support, query = divide(batch, TASKS, STEPS)
    rows = torch.arange(TASKS * (STEPS + QUERIES)).view(TASKS, -1)
    assert torch.equal(support.inputs, batch.inputs[rows[:, :STEPS].flatten()])
    assert torch.equal(query.actions, batch.actions[rows[:, STEPS:].flatten()])


def task_replay(lengths: list[int], instance: list[int], steps: int) -> TaskReplay:
    """Episodes of these lengths and instances; a transition's number is its reward."""
    count = sum(lengths)
    time = np.concatenate([np.arange(length) for length in lengths])
    owner = np.repeat(instance, lengths)
    row = np.arange(count) + np.repeat(np.arange(len(lengths)), lengths)
    return TaskReplay(
        np.zeros((count + len(lengths), 1)),
        row,
        np.zeros(count),
        np.arange(count),
        np.zeros(count),
        owner,
        time=time,
        steps=steps,
        tasks=2,
    )


def test_tasks_are_first_steps_and_other_transitions_of_one_instance() -> None:
    lengths, instance = [3, 4, 2, 5], [1, 0, 1, 0]
    replay = task_replay(lengths, instance, steps=2)
    drawn = replay.draw_tasks(4000, 3, np.random.default_rng(0))
    owner = np.repeat(instance, lengths)
    firsts = {(0, 1): 1, (3, 4): 0, (7, 8): 1, (9, 10): 0}
    seen: dict[tuple[int, ...], set[int]] = {}
    for task in drawn.tolist():
        support, query = tuple(task[:2]), task[2:]
        assert firsts[support] in owner[query] and len(set(owner[query])) == 1
        assert not set(query) & set(support)
        seen.setdefault(support, set()).update(query)
    assert set(seen) == set(firsts)
    for support, queries in seen.items():
        assert queries == set(np.flatnonzero(owner == firsts[support]).tolist()) - set(support)
    batches = replay.minibatches(0, 5, 8, np.random.default_rng(1))
    assert len(batches) == 5 and all(len(batch.actions) == 2 * (2 + 4) for batch in batches)


def test_an_instance_with_nothing_else_to_judge_by_is_refused() -> None:
    with pytest.raises(DataError, match="Instance number 1 has 2 transitions"):
        task_replay([3, 2], [0, 1], steps=2)


@pytest.mark.parametrize(
    "config",
    [
        ControlConfig(reward_scale=0.1, goal_shift=1.0),
        ControlConfig(reward_form="log", gamma=0.5),
        ControlConfig(reward_form="instance", reward_scale=2.0, centred=False),
        ControlConfig(centred=True),
    ],
)
def test_test_rewards_take_the_form_of_training(
    tmp_path: Path, config: ControlConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[Any] = []

    class Watched(TaskReplay):
        def __init__(self, *columns: Any, **others: Any) -> None:
            learned.append(columns[3])
            super().__init__(*columns, **others)

    monkeypatch.setattr(maml, "TaskReplay", Watched)
    path = log_two_step(tmp_path / "x.h5", episodes=8, telling=True)
    with so.load_dataset(path) as data:
        steps = data.steps()
        agent = so.fit(data, "maml", {"control": {**plain(config), "updates": 1}})
    assert isinstance(agent.context, AdaptedContext)
    [trained] = learned
    assert np.array_equal(agent.context.form(steps.rewards, steps.terminations), trained)
    if config.reward_form == "instance":
        size = np.sqrt(np.mean(steps.rewards**2))
        assert np.allclose(trained, 2 * steps.rewards / size)


def plain(config: ControlConfig) -> dict[str, Any]:
    names = ("reward_form", "reward_scale", "goal_shift", "gamma", "centred")
    return {name: getattr(config, name) for name in names if getattr(config, name) is not None}


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory, training_seed: int) -> Agent:
    """Fitted where the first step pays."""
    path = log_two_step(tmp_path_factory.mktemp("maml") / "x.h5", telling=True)
    return so.fit(path, "maml", SMALL, seed=training_seed)


def test_rewards_that_say_nothing_do_not_help(
    paid: Agent, tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    """Unpaid, the first step leaves the guess at chance; paid, the second guess is always right."""
    returns = {}
    unpaid = so.fit(log_two_step(tmp_path / "x.h5"), "maml", SMALL, seed=training_seed)
    for telling, agent in ((False, unpaid), (True, paid)):
        results = so.evaluate(agent, two_step(telling=telling), episodes_per_instance=4)
        assert results.learns and results.needs == ("reward",)
        returns[telling] = np.mean([episode.rewards[-1] for episode in results.episodes])
    margin("unpaid", returns[False], above=0.3, below=0.7)
    margin("paid", returns[True], at_least=1.0)


def test_without_its_step_it_guesses(paid: Agent, margin: Margins) -> None:
    results = so.evaluate(unadapted(paid), two_step(telling=True), episodes_per_instance=4)
    guesses = [episode.rewards[-1] for episode in results.episodes]
    margin("right", float(np.mean(guesses)), below=0.8)


def unadapted(agent: Agent) -> Agent:
    assert isinstance(agent.context, AdaptedContext)
    tiny = AdaptedContext(agent.context.steps, 1e-12, agent.context.form)
    return Agent("maml", agent.family, agent.spaces, tiny, agent.control)


def test_what_it_cannot_adapt_is_refused(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "x.h5", episodes=8)
    for change in ({"layer_norm": True}, {"members": 2}, {"critics": 2}, {"algorithm": "nfq"}):
        with pytest.raises(ConfigError, match="adapts a single plain network"):
            so.fit(path, "maml", merge(SMALL, {"control": change}))
    for change in ({"inner_rate": 0.0}, {"tasks": 0}):
        with pytest.raises(ConfigError, match=r"maml\."):
            so.fit(path, "maml", merge(SMALL, {"maml": change}))
    with pytest.raises(AgentError, match="rate above 0"):
        AdaptedContext(1, float("nan"), RewardForm(False, 1.0, None, 0.9))
    with pytest.raises(AgentError, match="transformation of rewards is invalid"):
        RewardForm(False, 0.0, None, 0.9)


def test_a_reward_before_any_action_is_refused(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "x.h5", episodes=8, telling=True)
    agent = so.fit(path, "maml", {"control": {"updates": 1, "hidden": [4]}})
    seen = np.array([1.0, 0.0])
    with pytest.raises(AgentError, match="with the first observation"):
        agent.begin(seed=0).act(seen, 0.0)
    batch = agent.begin_batch([0, 1])
    with pytest.raises(AgentError, match="with the first observation"):
        batch.act(np.stack([seen, seen]), rewards=np.zeros(2))
    batch = agent.begin_batch([0, 1])
    batch.act(np.stack([seen, seen]))
    for wrong in (np.zeros(3), np.zeros((2, 1)), np.zeros(())):
        with pytest.raises(AgentError, match="one reward per episode"):
            batch.act(np.stack([seen, seen]), rewards=wrong)
    assert batch.act(np.stack([seen, seen]), rewards=np.zeros(2)).shape == (2,)
