"""BNN and DPT: a Bayesian model of the dynamics, whose latent w is inferred while the agent acts.

BNN trains a policy on the model while the episode lasts. DPT is direct policy transfer,
π(a | s, w).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import Control
from sept_offline.agent.networks import Standardiser
from sept_offline.control import Learner, prepare_rewards
from sept_offline.control.rewards import common_form
from sept_offline.data import Dataset
from sept_offline.dynamics.bayesian import DynamicsStage
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.contexts import InferredContext, PlanningContext
from sept_offline.dynamics.model import Fiction, Model
from sept_offline.dynamics.outcome import OutcomeStage
from sept_offline.errors import ConfigError
from sept_offline.family import suggest
from sept_offline.methods.method import (
    Method,
    Stages,
    agent_of,
    centre_rewards,
    control_stage,
    spaces_of,
)
from sept_offline.seeding import generator, integer
from sept_offline.settings import ControlConfig, DptConfig, FitConfig
from sept_offline.stage import Stage
from sept_offline.training.inputs import Floats

STORED = 1024
"""Logged states stored with an agent: this many first states and this many of any step."""


def model_stage(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Model]:
    """Fit the network and each training instance's w."""
    steps = data.steps()
    columns = Columns.fit(steps, named_angles(data, config.dynamics.angles))
    stage = DynamicsStage(
        steps,
        columns,
        config.dynamics,
        integer(seed, "dynamics"),
        space=data.action_space,
        num_instances=len(data.instances),
    )
    yield stage
    stage.dynamics.requires_grad_(False)
    # an instance without a single episode still has the w it began with, which says nothing
    present = np.unique(steps.instance)
    return Model(
        columns,
        stage.dynamics,
        stage.posteriors.mean.detach().numpy()[present].copy(),
        stage.posteriors.log_variance.detach().numpy()[present].copy(),
        config.dynamics.alpha,
    )


def named_angles(data: Dataset, names: Sequence[str] | None) -> NDArray[np.bool_] | None:
    """Which columns `[d]` the settings call angles; None if they leave it open."""
    if names is None:
        return None
    known = spaces_of(data).observation_names
    for name in names:
        if name not in known:
            raise ConfigError(
                f"dynamics.angles names {name!r}{suggest(name, known)}; the observed columns are "
                f"{', '.join(known)}."
            )
    return np.isin(known, list(names))


def angles_read(data: Dataset, model: Model) -> list[str]:
    """The columns that `model` reads as angles, for the record."""
    names = spaces_of(data).observation_names
    return [name for name, angle in zip(names, model.columns.angle, strict=True) if angle]


def fiction_stage(
    data: Dataset, config: FitConfig, control: ControlConfig, columns: Columns, seed: int
) -> Generator[Stage, None, Fiction]:
    """Fit rewards and ends, as control learns from them, and keep states to begin in."""
    steps = data.steps()
    unshifted = replace(control, goal_shift=None)
    rewards = prepare_rewards(steps.rewards, steps.terminations, steps.instance, unshifted)
    stage = OutcomeStage(
        steps,
        rewards,
        steps.terminations,
        columns,
        config.dynamics,
        integer(seed, "outcome"),
        space=data.action_space,
    )
    yield stage
    stage.outcome.requires_grad_(False)
    rng = generator(seed, "fiction", "states")
    first = steps.observations[steps.row[steps.time == 0]]
    return Fiction(
        stage.outcome,
        states_of(first, STORED, rng),
        states_of(steps.observations[steps.row], STORED, rng),
    )


def states_of(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    """At most `count` of `rows[n, d]`, without repetition."""
    if len(rows) <= count:
        return rows.copy()
    return rows[np.sort(rng.choice(len(rows), size=count, replace=False))]


def _bnn(data: Dataset, config: FitConfig, seed: int) -> Stages:
    settings = planning_settings(data, config)
    model = yield from model_stage(data, config, seed)
    fiction = yield from fiction_stage(data, config, settings, model.columns, seed)
    if config.bnn.start == "logs":
        control = yield from control_stage(data, settings, seed)
    else:
        control = untrained(data, settings, seed)
    acting = replace(settings, average_decay=config.bnn.average_decay, average_every=1)
    context = PlanningContext(model, fiction, config.bnn, acting)
    record = {"budget": config.bnn.budget, "angles": angles_read(data, model)}
    return agent_of("bnn", data, context, control, record=record)


def planning_settings(data: Dataset, config: FitConfig) -> ControlConfig:
    """How the policy learns, from logs and from fictional episodes: DoubleDQN, one network."""
    plain = replace(config.control, algorithm="double_dqn", members=1, critics=1, layer_norm=False)
    return centre_rewards(data, common_form(data.steps().rewards, plain))


def untrained(data: Dataset, settings: ControlConfig, seed: int) -> Control:
    """An untrained policy."""
    scaler = Standardiser.fit(data.steps().observations)
    learner = Learner(settings, scaler.dim, data.num_actions, integer(seed, "control"))
    return Control(scaler, learner.current())


def _dpt(data: Dataset, config: FitConfig, seed: int) -> Stages:
    model = yield from model_stage(data, config, seed)
    contexts, instance, weights = latents(model, data, config.dpt, seed)
    scaler = Standardiser.fit(contexts, unit=1.0)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=scaler(contexts),
        context_instance=instance,
        context_weights=weights,
    )
    record = {"budget": config.dpt.budget, "angles": angles_read(data, model)}
    context = InferredContext(model, scaler, config.dpt)
    return agent_of("dpt", data, context, control, record=record)


def latents(
    model: Model, data: Dataset, config: DptConfig, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """The w to learn with, `[S, k]`, their instances `[S]` and weights `[S]`.

    Draws from each instance's posterior, and the mean w of all, which an episode begins with: the
    policy for it is the best one without any information.
    """
    rng = generator(seed, "dpt", "latents")
    present = np.unique(data.episode_index.instance)
    shape = (config.copies, *model.w_mean.shape)
    drawn = model.w_mean + np.exp(0.5 * model.w_log_variance) * rng.standard_normal(shape)
    mean = np.repeat(model.prior()[0][None], len(present), axis=0)
    contexts = np.concatenate([drawn.reshape(-1, model.dim), mean])
    instance = np.concatenate([np.tile(present, config.copies), present])
    weights = np.concatenate(
        [
            np.full(config.copies * len(present), (1 - config.unknown) / config.copies),
            np.full(len(present), config.unknown),
        ]
    )
    return contexts, instance, weights


BNN = Method(
    "bnn",
    _bnn,
    "A Bayesian model; the policy learns in fictional episodes during the test.",
    judged=False,
    finite=True,
    stacks=False,
    title="BNN",
    moving_latent=True,
    sections=("dynamics",),
)
DPT = replace(
    BNN,
    name="dpt",
    stages=_dpt,
    summary="A Bayesian model's latent, inferred as it acts, given to the policy.",
    title="DPT",
)
