"""The adapter holds for these versions: our updates are those of d3rlpy's own implementations."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import replace
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
import torch
from d3rlpy.models.builders import create_discrete_q_function
from d3rlpy.models.q_functions import MeanQFunctionFactory
from d3rlpy.optimizers import AdamFactory
from d3rlpy.torch_utility import TorchMiniBatch
from packaging.version import Version
from torch import nn

import sept_offline
from sept_offline.control import Batch
from sept_offline.control.d3rlpy import (
    ALGORITHMS,
    ActorCritic,
    Critic,
    QNetworks,
    drawing_from,
    encoder_factory,
    layers_of,
    minibatch,
    seeded,
)
from sept_offline.settings import BOX_ALGORITHMS, FINITE_ALGORITHMS, ControlConfig
from sept_offline.training.adam import Adam, FlatAdam

SMALL = ControlConfig(hidden=(16, 24), batch_size=8, learning_rate=1e-2, target_rate=0.25)
INTERNALS = {"control/d3rlpy.py", "training/adam.py"}
"""The files that may touch what d3rlpy and torch keep private."""
PUBLIC = {"data/exchange.py", "data/dataset.py"}
"""Hand over a dataset, by d3rlpy's public names."""


def batch(seed: int = 0, size: int = 8, dim: int = 5, actions: int = 3) -> Batch:
    draws = torch.Generator().manual_seed(seed)
    return Batch(
        inputs=torch.randn(size, dim, generator=draws),
        actions=torch.randint(actions, (size,), generator=draws),
        rewards=torch.randn(size, generator=draws),
        next_inputs=torch.randn(size, dim, generator=draws),
        terminals=(torch.rand(size, generator=draws) < 0.3).float(),
    )


def test_versions_that_the_adapter_holds_for() -> None:
    pinned = [line for line in requires("sept-offline") or [] if line.startswith("d3rlpy")]
    assert version("d3rlpy") == "2.8.1" and pinned == ["d3rlpy==2.8.1"]
    assert Version("2.4") <= Version(torch.__version__) < Version("3")


def test_nothing_else_touches_their_internals() -> None:
    root = Path(sept_offline.__file__).parent
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        if name in INTERNALS or not any(part in text for part in ("d3rlpy", "torch._")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or node.names[0].name
                d3rlpy = module.split(".")[0] == "d3rlpy"
                assert not d3rlpy or name in PUBLIC, name
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                whose = getattr(node.value, "id", None)
                assert whose != "torch", f"{name}: torch.{node.attr}"


def box_batch(seed: int = 0, size: int = 8, dim: int = 5, width: int = 2) -> Batch:
    """Some episodes end: terminal, or with an unknown next action."""
    draws = torch.Generator().manual_seed(seed)
    rows = batch(seed, size, dim)
    actions = torch.rand(size, width, generator=draws) * 2 - 1
    return replace(rows, actions=actions, next_actions=actions.roll(-1, dims=0))


def stock(config: ControlConfig, width: int) -> Any:
    """d3rlpy's own algorithm, with nothing replaced."""
    kind, own = ALGORITHMS[config.algorithm]
    settings = {theirs: getattr(config, ours) for theirs, ours in own.items()}
    for field in dataclasses.fields(kind):
        if field.name.endswith("encoder_factory"):
            norm = config.layer_norm or field.name.startswith("critic")
            settings[field.name] = encoder_factory(config.hidden, norm)
        elif field.name.endswith("optim_factory"):
            settings[field.name] = AdamFactory(clip_grad_norm=config.grad_clip)
        elif field.name in ("learning_rate", "actor_learning_rate", "critic_learning_rate"):
            settings[field.name] = config.learning_rate
        elif field.name == "target_update_interval":
            settings[field.name] = 1
        elif field.name == "tau":
            settings[field.name] = config.target_rate
    if config.algorithm == "cql":
        settings["alpha_learning_rate"] = 0.0
    settings |= {"gamma": config.gamma, "n_critics": config.num_critics}
    algorithm = kind(**settings).create(device=False)
    algorithm.create_impl((5,), width)
    algorithm.impl.modules.set_train()
    return algorithm.impl


def networks_of(modules: Any) -> dict[str, nn.Module]:
    fields = (field.name for field in dataclasses.fields(modules))
    parts = {name: getattr(modules, name) for name in fields}
    return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}


def assert_same_networks(ours: Any, theirs: Any) -> None:
    copies = networks_of(theirs)
    assert len(copies) >= 2
    for name, network in networks_of(ours).items():
        for weight, copy in zip(network.parameters(), copies[name].parameters(), strict=True):
            torch.testing.assert_close(weight, copy, atol=1e-5, rtol=1e-4)


def test_every_algorithm_has_its_place() -> None:
    assert {*ALGORITHMS} == {*FINITE_ALGORITHMS, *BOX_ALGORITHMS} - {"discrete_iql"}


@pytest.mark.parametrize("change", [{}, {"critics": 2}, {"layer_norm": True, "grad_clip": 0.5}])
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name in FINITE_ALGORITHMS])
def test_an_update_is_d3rlpys(algorithm: str, change: dict[str, Any]) -> None:
    # with a rate of 1 the target is a copy after every update, as d3rlpy's is
    config = replace(SMALL, algorithm=algorithm, target_rate=1.0, **change)
    ours = QNetworks(config, 5, 3, seed=1)
    with seeded(0):
        theirs = stock(config, 3)
    for name, network in networks_of(theirs.modules).items():
        network.load_state_dict(getattr(ours.impl.modules, name).state_dict())
    for step in range(12):
        loss = ours.update(batch(step))
        assert loss == pytest.approx(theirs.inner_update(minibatch(batch(step)), step)["loss"])
    assert_same_networks(ours.impl.modules, theirs.modules)


@pytest.mark.parametrize("change", [{"critics": 2}, {"critics": 1, "grad_clip": 0.5}])
@pytest.mark.parametrize("algorithm", BOX_ALGORITHMS)
def test_an_update_of_an_actor_is_d3rlpys(algorithm: str, change: dict[str, Any]) -> None:
    config = replace(SMALL, algorithm=algorithm, learning_rate=1e-3, **change)
    ours = ActorCritic(config, 5, 2, seed=1)
    with seeded(0):
        theirs = stock(config, 2)
    for name, network in networks_of(theirs.modules).items():
        network.load_state_dict(getattr(ours.impl.modules, name).state_dict())
    noise = ours.tensors()["noise"].clone()
    for step in range(9):
        loss = ours.update(box_batch(step))
        with drawing_from(noise):
            expected = theirs.inner_update(minibatch(box_batch(step)), step)
        assert loss == pytest.approx(expected["critic_loss"], rel=1e-4)
    assert_same_networks(ours.impl.modules, theirs.modules)


def test_rebrac_begins_near_the_logged_actions() -> None:
    config = replace(SMALL, algorithm="rebrac", updates=40, rebrac_warmup=0.5)
    networks = ActorCritic(config, 5, 2, seed=1)
    weights = []
    for step in range(40):
        networks.update(box_batch(step))
        weights.append(networks.impl._actor_beta)
    assert weights == sorted(weights, reverse=True)
    assert 0.5 < weights[0] < 1 and weights[20] == weights[-1] == config.rebrac_actor_beta


def test_an_unknown_next_action_costs_nothing() -> None:
    config = replace(SMALL, algorithm="rebrac", rebrac_critic_beta=1e3)
    losses = []
    for unknown in (torch.nan, 1.0):
        networks = ActorCritic(config, 5, 2, seed=1)
        rows = replace(box_batch(), terminals=torch.zeros(8))
        losses.append(networks.update(replace(rows, next_actions=torch.full((8, 2), unknown))))
    assert losses[0] < losses[1] / 1e3


def test_targets_of_an_actor_stay_within_limits() -> None:
    networks = ActorCritic(replace(SMALL, algorithm="rebrac", gamma=0.5), 5, 2, seed=1)
    networks.limit_targets(3.0, 4.0)
    rows = replace(box_batch(), terminals=torch.zeros(8), rewards=torch.zeros(8))
    target = networks.impl.compute_target(minibatch(rows))
    # the next actions are at most 2 apart in each of two components
    penalty = 8 * SMALL.rebrac_critic_beta
    assert (target <= 4.0).all() and (target >= 3.0 - penalty).all()


@pytest.mark.parametrize("algorithm", ["double_dqn", "discrete_cql", "discrete_bcq"])
def test_the_target_follows_by_polyaks_rate(algorithm: str) -> None:
    networks = QNetworks(replace(SMALL, algorithm=algorithm), 5, 3, seed=4)
    modules = networks.impl.modules
    before = [p.detach().clone() for p in modules.targ_q_funcs.parameters()]
    networks.update(batch())
    for old, online, target in zip(
        before, modules.q_funcs.parameters(), modules.targ_q_funcs.parameters(), strict=True
    ):
        torch.testing.assert_close(target, old + 0.25 * (online - old))


def test_a_critic_is_d3rlpys_forwarder() -> None:
    with torch.random.fork_rng(devices=[]):
        modules, theirs = create_discrete_q_function(
            (5,), 3, encoder_factory(SMALL.hidden), MeanQFunctionFactory(), "cpu:0", False, 1
        )
    ours, rows = Critic(layers_of(modules[0])), batch(4, size=40)
    columns = {
        "observations": rows.inputs,
        "actions": rows.actions.view(-1, 1),
        "rewards": 3 * rows.rewards.view(-1, 1),
        "target": torch.ones(40, 1),
        "terminals": rows.terminals.view(-1, 1),
    }
    torch.testing.assert_close(
        ours.compute_error(**columns, gamma=0.9), theirs.compute_error(**columns, gamma=0.9)
    )
    torch.testing.assert_close(
        ours.compute_target(rows.inputs, rows.actions),
        theirs.compute_target(rows.inputs, rows.actions),
    )
    torch.testing.assert_close(
        ours.compute_expected_q(rows.inputs), theirs.compute_expected_q(rows.inputs)
    )


def test_fused_adam_takes_the_steps_of_the_formula() -> None:
    layers = nn.Sequential(nn.Linear(5, 17), nn.ReLU(), nn.Linear(17, 3))
    formulas = [Formula(parameter) for parameter in layers.parameters()]
    ours = FlatAdam(list(layers.parameters()), 1e-2)
    for step in range(6):
        ours.zero_grad()
        layers(batch(step).inputs).square().mean().backward()
        for formula, parameter in zip(formulas, layers.parameters(), strict=True):
            formula.step(parameter, 1e-2)
        ours.step()
    for formula, parameter in zip(formulas, layers.parameters(), strict=True):
        torch.testing.assert_close(formula.weights, parameter.double(), atol=1e-6, rtol=1e-5)


def test_adam_of_the_other_stages_takes_them_too() -> None:
    """Each group at its own rate, which changes; what has no gradient stays; all is restored."""
    first, second, unused = nn.Linear(5, 17), nn.Linear(17, 3), nn.Linear(2, 2)
    modules = (unused, first, second)
    factors = (1.0, 1.0, 3.0)
    formulas = {p: Formula(p) for module in modules for p in module.parameters()}

    def optimiser() -> Adam:
        groups = [(m.parameters(), f) for m, f in zip(modules, factors, strict=True)]
        return Adam.of_groups(groups, 1e-2)

    ours = optimiser()
    for step in range(6):
        rate = 1e-2 / (step + 1)
        ours.set_rate(rate)
        ours.zero_grad()
        second(first(batch(step).inputs).relu()).square().mean().backward()
        for module, factor in zip(modules, factors, strict=True):
            for parameter in module.parameters():
                if module is not unused:
                    formulas[parameter].step(parameter, factor * rate)
        ours.step()
        state = ours.state()
        assert {int(name.split(".")[0]) for name in state} == {2, 3, 4, 5}
        ours = optimiser()
        ours.restore(state)
    for parameter, formula in formulas.items():
        torch.testing.assert_close(formula.weights, parameter.double(), atol=1e-6, rtol=1e-5)


class Formula:
    """Adam of one parameter as Kingma and Ba write it, in float64."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.weights = parameter.detach().double()
        self.first, self.second = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.steps = 0

    def step(self, parameter: torch.Tensor, rate: float) -> None:
        assert parameter.grad is not None
        gradient = parameter.grad.double()
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean, spread = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        self.weights = self.weights - rate * mean / (spread.sqrt() + 1e-8)


def test_a_missing_gradient_is_never_skipped() -> None:
    used, unused = nn.Linear(3, 2), nn.Linear(3, 2)
    adam = FlatAdam([*unused.parameters(), *used.parameters()], 1e-2)
    used(torch.ones(1, 3)).sum().backward()
    before = adam.online.clone()
    with pytest.raises(RuntimeError, match="no gradient"):
        adam.step()
    assert torch.equal(adam.online, before)


def test_a_minibatch_has_the_columns_that_d3rlpy_reads() -> None:
    columns = minibatch(batch())
    assert isinstance(columns, TorchMiniBatch)
    known = {"observations", "actions", "rewards", "next_observations", "next_actions"}
    known |= {"returns_to_go", "terminals", "intervals", "device", "numpy_batch"}
    assert {field.name for field in dataclasses.fields(TorchMiniBatch)} <= known | {"transitions"}
    assert columns.actions.shape == columns.rewards.shape == columns.terminals.shape == (8, 1)
