"""Random and constant actions in the episodes of an evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import simulators
from sept_offline.evaluation import evaluate, play_references
from sept_offline.family import Family
from tests.evaluation.navigation_agents import EAST, NORTH, constant_agent

FAMILY = simulators.family("navigation2d")


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_constant_action_gets_what_an_agent_that_takes_it_gets(vectorised: bool) -> None:
    family = FAMILY if vectorised else replace(FAMILY, make_vec=None)
    results = evaluate(constant_agent(EAST), family, episodes_per_instance=2, seed=3)
    found = play_references(results, family)
    same = evaluate(constant_agent(found.action), family, episodes_per_instance=2, seed=3)
    for mine, theirs in zip(found.best_constant.episodes, same.episodes, strict=True):
        assert (mine.instance, mine.episode) == (theirs.instance, theirs.episode)
        assert mine.actions == theirs.actions
        assert mine.rewards == pytest.approx(theirs.rewards)
        assert (mine.solved, mine.steps_to_solve) == (theirs.solved, theirs.steps_to_solve)
        assert mine.normalised == pytest.approx(theirs.normalised)


def test_no_constant_action_is_better_than_the_best() -> None:
    results = evaluate(constant_agent(EAST), FAMILY)
    found = play_references(results)
    assert found.score == "steps_to_solve"
    best = found.best_constant.summary()["steps_to_solve"]["mean"]
    for action in (EAST, NORTH):
        other = evaluate(constant_agent(action), FAMILY).summary()["steps_to_solve"]["mean"]
        assert best <= other


def unsolved() -> Family:
    return replace(FAMILY, solved=None)


def test_where_nothing_is_solved_the_return_decides() -> None:
    family = unsolved()
    found = play_references(evaluate(constant_agent(EAST), family), family)
    assert found.score == "return"
    totals = [
        evaluate(constant_agent(action), family).summary()["return"]["mean"] for action in range(4)
    ]
    assert found.action == int(np.argmax(totals))
    assert found.to_json()["best_constant"]["mean"] == pytest.approx(max(totals))


def test_random_actions_are_uniform_and_fixed_by_the_seed() -> None:
    results = evaluate(constant_agent(EAST), FAMILY, episodes_per_instance=20)
    first, again = play_references(results), play_references(results)
    assert first.to_json() == again.to_json()
    actions = np.concatenate([episode.actions for episode in first.random.episodes])
    shares = np.bincount(actions, minlength=4) / len(actions)
    assert np.abs(shares - 1 / 4).max() < 0.02
    other = play_references(evaluate(constant_agent(EAST), FAMILY, seed=1))
    assert other.to_json()["random"] != first.to_json()["random"]
