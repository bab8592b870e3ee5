"""Particulars of bnn and dpt: budgets, rewards, the w they learn with, w as an episode goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent import Agent, save_agent
from sept_offline.control import prepare_rewards
from sept_offline.control.rewards import common_form
from sept_offline.dynamics.contexts import InferredContext, PlanningContext
from sept_offline.errors import ConfigError
from sept_offline.methods import Fitter, resolve_config
from sept_offline.methods.bayes import (
    angles_read,
    latents,
    model_stage,
    named_angles,
    planning_settings,
)
from sept_offline.methods.preset import preset_values
from sept_offline.settings import BnnConfig, ControlConfig, DptConfig, merge
from tests.methods.check_method import SMALL
from tests.methods.two_step import log_two_step, two_step

BRIEF = merge(
    SMALL,
    {
        "dynamics": {"dim": 2, "hidden": [8], "updates": 20, "outcome_updates": 20},
        "control": {"updates": 20},
        "bnn": {"infer_steps": 2, "tune_steps": 1, "episodes": 4, "horizon": 3, "updates": 2},
    },
)
BRIEF_DPT = merge(
    SMALL,
    {
        "dynamics": {"dim": 2, "hidden": [8], "updates": 60},
        "control": {"updates": 20},
        "dpt": {"every": 3, "infer_steps": 3},
    },
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    path = log_two_step(tmp_path_factory.mktemp("bnn") / "t.h5", episodes=40)
    return so.fit(path, "bnn", BRIEF)


def test_every_family_has_the_papers_budget_and_a_reduced_one() -> None:
    for family in ("navigation2d", "navigation2d-switch", "acrobot", "hiv", None):
        reduced, paper = (preset_values(family, p).get("bnn", {}) for p in ("default", "paper"))
        less, more = BnnConfig(**reduced), BnnConfig(**paper)
        assert (less.budget, more.budget) == ("reduced", "paper")
        assert less.every == more.every == 10 and more.start == "scratch"
        # 5 updates every 10 fictional steps, as published
        assert more.updates == more.episodes * more.horizon // 2
        assert more.updates > 5 * less.updates


@pytest.mark.parametrize(
    ("family", "published"),
    [("navigation2d", 1000), ("navigation2d-switch", 1000), ("acrobot", 500), ("hiv", 500)],
)
def test_the_papers_budget_is_that_of_all_blocks_of_a_test_episode(
    family: str, published: int
) -> None:
    plan = BnnConfig(**preset_values(family, "paper")["bnn"])
    # after its last step an episode plans no more
    blocks = (so.load_family(family).test_steps - 1) // plan.every
    assert published <= plan.episodes * blocks < published + blocks


def test_the_budget_stands_in_the_record(agent: Agent, tmp_path: Path) -> None:
    save_agent(agent, tmp_path / "agent")
    loaded = so.load_agent(tmp_path / "agent")
    assert loaded.record["budget"] == "reduced"
    assert loaded.record["angles"] == []
    assert loaded.learns and not loaded.needs


def test_an_untrained_policy_is_not_trained_on_the_logs(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "t.h5", episodes=40)
    settings = merge(BRIEF, {"bnn": {"start": "scratch"}})
    with so.load_dataset(path) as data:
        work = Fitter(data, "bnn", resolve_config(data, "default", settings))
        assert {epoch.stage for epoch in work} == {"dynamics", "outcome"}


def test_nothing_is_planned_before_the_first_block_is_over(agent: Agent) -> None:
    assert isinstance(agent.context, PlanningContext) and agent.context.plan.every == 10
    episode = agent.begin(seed=0)
    rng = np.random.default_rng(0)
    beliefs = []
    for _ in range(21):
        episode.act(rng.normal(size=2).astype(np.float32))
        assert episode.latent is not None
        beliefs.append(episode.latent.tobytes())
    changed = [t for t in range(1, 21) if beliefs[t] != beliefs[t - 1]]
    assert changed == [10, 20]


def test_episodes_do_not_carry_over(agent: Agent) -> None:
    first, second = (so.evaluate(agent, two_step(probing=11), seed=4) for _ in range(2))
    assert [e.actions for e in first.episodes] == [e.actions for e in second.episodes]
    assert [e.latent for e in first.episodes] == [e.latent for e in second.episodes]


def test_rewards_have_one_scale_in_all_instances(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "t.h5", episodes=40)
    with so.load_dataset(path) as data:
        steps = data.steps()
        one = common_form(steps.rewards, ControlConfig(reward_form="instance"))
        prepared = prepare_rewards(steps.rewards, steps.terminations, steps.instance, one)
        assert np.sqrt((prepared**2).mean()) == pytest.approx(1.0)
        ratio = prepared[steps.rewards > 0] / steps.rewards[steps.rewards > 0]
        assert np.ptp(ratio) == 0
        log = ControlConfig(reward_form="log")
        assert common_form(steps.rewards, log) == log


def test_angles_may_be_named(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "t.h5", episodes=40)
    with so.load_dataset(path) as data:
        config = resolve_config(data, "default", merge(BRIEF, {"dynamics": {"angles": ["time"]}}))
        stages = model_stage(data, config, seed=0)
        next(stages)
        with pytest.raises(StopIteration) as ended:
            next(stages)
        assert angles_read(data, ended.value.value) == ["time"]
        assert named_angles(data, None) is None
        with pytest.raises(ConfigError, match=r"dynamics\.angles names 'tme' .did you mean"):
            named_angles(data, ("tme",))


def test_a_policy_that_is_planned_with_is_a_single_network(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "t.h5", episodes=40)
    with so.load_dataset(path) as data:
        config = resolve_config(data, "default", BRIEF)
        many = replace(config.control, members=3, critics=2, algorithm="discrete_bcq")
        settings = planning_settings(data, replace(config, control=many))
    assert (settings.members, settings.critics) == (1, 1)
    assert settings.algorithm == "double_dqn"


def test_the_policy_learns_with_each_instances_own_w_and_with_the_mean(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "t.h5", episodes=40)
    agent = so.fit(path, "dpt", BRIEF_DPT)
    assert isinstance(agent.context, InferredContext)
    model, config = agent.context.model, DptConfig(copies=400, unknown=0.25)
    with so.load_dataset(path) as data:
        contexts, instance, weights = latents(model, data, config, seed=0)
    assert contexts.shape == (2 * 401, 2)
    for code in (0, 1):
        own = instance == code
        assert weights[own].sum() == pytest.approx(1.0)
        unknown = own & (contexts == model.w_mean.mean(axis=0)).all(axis=1)
        assert weights[unknown].sum() == pytest.approx(0.25)
        drawn = contexts[own & ~unknown]
        spread = np.exp(0.5 * model.w_log_variance[code])
        assert np.allclose(drawn.mean(axis=0), model.w_mean[code], atol=0.2 * spread.max())
        assert np.allclose(drawn.std(axis=0), spread, rtol=0.15)


def test_w_is_inferred_every_few_steps_and_control_reads_it(tmp_path: Path) -> None:
    agent = so.fit(log_two_step(tmp_path / "t.h5", episodes=40), "dpt", BRIEF_DPT)
    context = agent.context
    assert isinstance(context, InferredContext)
    assert agent.learns and not agent.needs and agent.record["budget"] == "reduced"
    tracker = context.begin(0, None, agent.control)
    faces = np.random.default_rng(0).choice((-1.0, 1.0), size=10)
    vectors = []
    for time, face in enumerate(faces):
        assert tracker.step(np.array([face, time], dtype=np.float32)) is None
        assert tracker.latent is not None and tracker.control is None
        assert np.array_equal(tracker.vector, context.scaler(tracker.latent))
        vectors.append(tracker.vector.tobytes())
        tracker.took(agent.spaces.actions.encode(1))
    assert [t for t in range(1, 10) if vectors[t] != vectors[t - 1]] == [3, 6, 9]
    start = context.scaler(context.model.prior()[0])
    assert vectors[0] == start.tobytes()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (BnnConfig, {"every": 0}),
        (BnnConfig, {"explore": 1.5}),
        (BnnConfig, {"tune_rate": 0.0}),
        (DptConfig, {"every": 0}),
        (DptConfig, {"unknown": 1.0}),
        (DptConfig, {"copies": 0}),
    ],
)
def test_settings_that_cannot_work_are_refused(kind: Any, wrong: dict[str, float]) -> None:
    section = {BnnConfig: "bnn", DptConfig: "dpt"}[kind]
    with pytest.raises(ConfigError, match=f"{section}.{next(iter(wrong))}"):
        kind(**wrong)
