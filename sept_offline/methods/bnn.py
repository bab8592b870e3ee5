"""BNN: a Bayesian model of the dynamics, and a policy trained on it while the episode lasts."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from sept_offline.agent import Agent, Control
from sept_offline.agent.networks import Standardiser
from sept_offline.control import Learner
from sept_offline.control.rewards import common_form
from sept_offline.data import Dataset
from sept_offline.dynamics.contexts import PlanningContext
from sept_offline.methods.bayes import angles_read, fiction_stage, model_stage
from sept_offline.methods.method import Method
from sept_offline.methods.shared import centre_rewards, control_stage, spaces_of
from sept_offline.seeding import integer
from sept_offline.settings import ControlConfig, FitConfig
from sept_offline.stage import Stage


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    settings = planning_settings(data, config)
    model = yield from model_stage(data, config, seed)
    fiction = yield from fiction_stage(data, config, settings, model.columns, seed)
    if config.bnn.start == "logs":
        control = yield from control_stage(data, settings, seed)
    else:
        control = untrained(data, settings, seed)
    acting = replace(settings, average_decay=config.bnn.average_decay, average_every=1)
    return Agent(
        "bnn",
        data.metadata.family or "",
        spaces_of(data),
        PlanningContext(model, fiction, config.bnn, acting),
        control,
        record={"budget": config.bnn.budget, "angles": angles_read(data, model)},
    )


def planning_settings(data: Dataset, config: FitConfig) -> ControlConfig:
    """How the policy learns, from logs and from fictional episodes: DoubleDQN, one network."""
    plain = replace(config.control, algorithm="double_dqn", members=1, critics=1, layer_norm=False)
    return centre_rewards(data, common_form(data.steps().rewards, plain))


def untrained(data: Dataset, settings: ControlConfig, seed: int) -> Control:
    """A policy that knows nothing yet."""
    scaler = Standardiser.fit(data.steps().observations)
    learner = Learner(settings, scaler.dim, data.num_actions, integer(seed, "control"))
    return Control(scaler, learner.current())


BNN = Method(
    "bnn",
    _stages,
    "A Bayesian model; the policy learns in fictional episodes during the test.",
    judged=False,
    finite=True,
    stacks=False,
    title="BNN",
    moving_latent=True,
    sections=("dynamics",),
)
