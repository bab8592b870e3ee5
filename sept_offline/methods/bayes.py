"""Shared parts of `bnn` and `dpt`: a Bayesian network of the dynamics, rewards of one scale."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sept_offline.control import prepare_rewards
from sept_offline.data import Dataset
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.model import Fiction, Model
from sept_offline.dynamics.outcome import OutcomeStage
from sept_offline.dynamics.planner import states_of
from sept_offline.dynamics.stage import DynamicsStage
from sept_offline.errors import ConfigError
from sept_offline.family import suggest
from sept_offline.methods.shared import spaces_of
from sept_offline.seeding import generator, integer
from sept_offline.settings import ControlConfig, FitConfig
from sept_offline.stage import Stage

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
    return [name for name, one in zip(names, model.columns.angle, strict=True) if one]


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
