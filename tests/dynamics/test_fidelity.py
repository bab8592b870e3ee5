"""Learned dynamics are compared with the logs they were learned from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sept_offline.data.records import Steps
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.outcome import OutcomeStage
from sept_offline.dynamics.world import WorldStage, replay_error
from sept_offline.methods.verdict import UNFAITHFUL
from sept_offline.settings import DynamicsConfig
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Doubles
from tests.latent.tiny import SPACE, STRENGTH, episodes
from tests.margins import Margins

LENGTH = 6
OUTCOME = DynamicsConfig(
    outcome_hidden=(32, 32), outcome_updates=500, outcome_batch=128, outcome_rate=5e-3
)


@pytest.fixture(scope="module")
def steps() -> Steps:
    return episodes(per=60, length=LENGTH, seed=1)[0]


@pytest.fixture(scope="module")
def world(steps: Steps, training_seed: int) -> WorldStage:
    stage = WorldStage(
        *(steps, Columns.fit(steps), 400, training_seed),
        space=SPACE,
        num_instances=len(STRENGTH),
        hidden=(32, 32),
    )
    stage.advance(stage.total)
    return stage


@pytest.fixture(scope="module")
def error(steps: Steps, world: WorldStage, training_seed: int) -> Callable[[Doubles], float]:
    """The error for given rewards, in standard deviations of the returns they add up to."""

    def measure(rewards: Doubles) -> float:
        stage = OutcomeStage(
            *(steps, rewards, steps.terminations, Columns.fit(steps), OUTCOME, training_seed),
            space=SPACE,
        )
        stage.advance(stage.total)
        length = np.full(len(steps.actions) // LENGTH, LENGTH)
        parts = world, stage.outcome, steps, length, rewards, np.ones(len(STRENGTH))
        with one_thread():
            return replay_error(*parts, seed=0) / rewards.reshape(-1, LENGTH).sum(axis=1).std()

    return measure


def test_dynamics_that_are_learned_reproduce_the_logs(
    steps: Steps, error: Callable[[Doubles], float], margin: Margins
) -> None:
    reached = steps.observations[steps.row + 1][:, 0].astype(np.float64)
    margin("error", error(reached), below=UNFAITHFUL / 2)


def test_rewards_that_nothing_observed_explains_are_noticed(
    steps: Steps, error: Callable[[Doubles], float], margin: Margins
) -> None:
    """Each instance pays another amount, which states and actions do not show."""
    reached = steps.observations[steps.row + 1][:, 0].astype(np.float64)
    hidden = reached + 2 * np.ptp(reached) * (steps.instance % 2)
    margin("error", error(hidden), above=UNFAITHFUL)
