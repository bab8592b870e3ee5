"""Control sees what a step will reveal: the belief moves within the backup."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from sept_offline.agent.networks import Standardiser
from sept_offline.control import ControlStage, Replay
from sept_offline.control.refined_replay import RefinedReplay
from sept_offline.errors import TrainingError
from sept_offline.settings import ControlConfig

LEFT, RIGHT, LOOK = range(3)
COST, SURE = 0.1, 99.0
SCALER = Standardiser.identity(1)


class Doors:
    """Two steps in two instances: look, or do not, then open the left or the right door.

    Looking costs a little and tells the instance; the right door pays 1, the other costs 1.
    """

    def __init__(self) -> None:
        choices = [(i, a, b) for i in range(2) for a in range(3) for b in range(3)]
        self.row = np.array([3 * n + t for n in range(len(choices)) for t in range(2)])
        self.observations = np.tile([[-1.0], [0.0], [1.0]], (len(choices), 1))
        self.instance = np.repeat([i for i, _, _ in choices], 2)
        self.actions = np.array([[a, b] for _, a, b in choices]).ravel()
        self.rewards = np.array([self.paid(*choice) for choice in choices]).ravel()
        self.terminals = np.tile([0, 1], len(choices))
        self.evidence = np.zeros((len(self.row), 2))
        looked = (self.actions == LOOK) & (self.terminals == 0)
        self.evidence[looked] = np.stack(
            [SURE * (2.0 * self.instance[looked] - 1), np.full(looked.sum(), SURE)], axis=1
        )

    @staticmethod
    def paid(instance: int, first: int, second: int) -> tuple[float, float]:
        return -COST * (first == LOOK), 0.0 if second == LOOK else 1.0 - 2 * (second != instance)

    def replay(self, kind: Callable[..., Replay], width: int) -> Replay:
        steps = (self.observations, self.row, self.actions, self.rewards, self.terminals)
        nothing = np.zeros((2, width))
        return kind(*steps, self.instance, contexts=nothing, context_instance=np.arange(2))


def first_action(replay: Replay, seed: int) -> int:
    """The best action of a control trained on it, in the first step and with nothing known."""
    config = ControlConfig(hidden=(32,), updates=600, learning_rate=3e-3, average_decay=0.9)
    stage = ControlStage(replay, config, seed, 3)
    stage.advance(config.updates)
    return int(stage.result()(np.array([[-1.0, 0.0]], dtype=np.float32)).argmax())


def test_only_a_belief_that_moves_pays_for_a_look(training_seed: int) -> None:
    doors = Doors()
    refined = partial(RefinedReplay, evidence=doors.evidence, scaler=SCALER)
    assert first_action(doors.replay(refined, 2), training_seed) == LOOK
    assert first_action(doors.replay(Replay, 1), training_seed) != LOOK


def test_the_next_state_is_seen_with_the_evidence_of_the_step() -> None:
    doors = Doors()
    scaler = Standardiser([0.5], [2.0])
    replay = doors.replay(partial(RefinedReplay, evidence=doors.evidence, scaler=scaler), 2)
    assert replay.input_dim == 2
    batch = replay.sample(64, np.random.default_rng(0))
    known = (np.array([-0.99, 0.0, 0.99]) - 0.5) / 2
    assert batch.inputs[:, 1].numpy() == pytest.approx(known[1])
    looked = (batch.actions == LOOK) & (batch.terminals == 0)
    assert sorted(set(batch.next_inputs[looked, 1].tolist())) == pytest.approx(known[[0, 2]])
    assert batch.next_inputs[~looked, 1].numpy() == pytest.approx(known[1])


def test_a_belief_needs_contexts() -> None:
    doors = Doors()
    steps = (doors.observations, doors.row, doors.actions, doors.rewards, doors.terminals)
    replay = RefinedReplay(*steps, doors.instance, evidence=doors.evidence, scaler=SCALER)
    with pytest.raises(TrainingError, match="contexts"):
        replay.sample(4, np.random.default_rng(0))
