"""The handle on the one test episode gives observations, once, and nothing that leads further."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import simulators
from sept_offline.errors import HarnessError
from sept_offline.evaluation import SingleEpisode
from sept_offline.evaluation.handle import ledger_of


def make(limit: int = 5) -> tuple[gymnasium.Env[Any, Any], SingleEpisode]:
    env = TimeLimit(simulators.family("navigation2d").make({"z": 2.0}), limit)
    return env, SingleEpisode(env, seed=3)


def test_it_gives_the_observations_of_the_environment_and_no_more() -> None:
    _, handle = make()
    twin, _ = make()
    expected, _ = twin.reset(seed=3)
    np.testing.assert_array_equal(handle.reset(), expected)
    for step in range(5):
        outcome = handle.step(step % 4)
        observation, reward, terminated, truncated, _ = twin.step(step % 4)
        assert len(outcome) == 3
        np.testing.assert_array_equal(outcome[0], observation)
        assert outcome[1:] == (terminated, truncated)
        assert ledger_of(handle).rewards[-1] == reward
    assert outcome[2]


def test_there_is_one_reset() -> None:
    _, handle = make()
    handle.reset()
    with pytest.raises(HarnessError, match="cannot be reset again"):
        handle.reset()
    handle.step(0)
    with pytest.raises(HarnessError, match="cannot be reset again"):
        handle.reset()


def test_the_seed_and_the_start_are_not_the_agents_to_choose() -> None:
    _, handle = make()
    with pytest.raises(TypeError):
        handle.reset(seed=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        handle.reset({"state": [0.0, 1.0]})  # type: ignore[call-arg]


def test_a_step_needs_a_running_episode() -> None:
    _, handle = make(limit=2)
    with pytest.raises(HarnessError, match="has not started"):
        handle.step(0)
    handle.reset()
    handle.step(0)
    handle.step(0)
    with pytest.raises(HarnessError, match="ended after 2 steps"):
        handle.step(0)


ATTRIBUTES = [
    "reward",
    "rewards",
    "hidden",
    "unwrapped",
    "env",
    "np_random",
    "info",
    "spec",
    "_env",
    "_hidden",
    "action_space",
    "observation_space",
    "get_wrapper_attr",
    "close",
    "__dict__",
    "__class__",
    "__slots__",
    "__weakref__",
    "__init__",
    "__getattribute__",
    "__module__",
    "__reduce__",
]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_no_attribute_leads_further(name: str) -> None:
    _, handle = make()
    handle.reset()
    handle.step(1)
    for target in (handle, handle.reset, handle.step):
        with pytest.raises(HarnessError, match="declare"):
            getattr(target, name)


@pytest.mark.parametrize("name", ["__self__", "__func__", "__closure__", "__globals__", "__code__"])
def test_the_methods_lead_nowhere(name: str) -> None:
    _, handle = make()
    for call in (handle.reset, handle.step):
        with pytest.raises(HarnessError):
            getattr(call, name)


@pytest.mark.parametrize("name", ["_SingleEpisode__env", "_env", "env", "ledger", "__dict__"])
def test_nor_does_going_round_the_guard(name: str) -> None:
    _, handle = make()
    with pytest.raises(AttributeError):
        object.__getattribute__(handle, name)


def test_the_handle_holds_no_reference_to_the_environment() -> None:
    env, handle = make()
    seen: list[Any] = [handle, handle.step]
    for one in list(seen):
        seen += [found for found in gc.get_referents(one) if not issubclass(type(found), type)]
    assert not any(found is env or found is env.unwrapped for found in seen)


@pytest.mark.parametrize(
    "change",
    [
        lambda handle: setattr(handle, "begun", False),
        lambda handle: setattr(handle, "step", None),
        lambda handle: setattr(handle.step, "_handle", None),
    ],
)
def test_it_cannot_be_changed(change: Callable[[Any], None]) -> None:
    _, handle = make()
    with pytest.raises(HarnessError):
        change(handle)


def test_a_copy_has_no_episode() -> None:
    _, handle = make()
    handle.reset()
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises((HarnessError, TypeError)):
            duplicate(handle).reset()


def test_an_observation_is_not_the_environments_own_array() -> None:
    class Leaky(gymnasium.Env[Any, Any]):
        def __init__(self) -> None:
            self.state = np.zeros(1)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.state, {}

        def step(self, action: Any) -> Any:
            return self.state, 0.0, False, False, {}

    env = Leaky()
    handle = SingleEpisode(env)
    handle.reset()[0] = 7.0
    handle.step(0)[0][0] = 7.0
    assert env.state[0] == 0.0
