"""The handle on the one test episode: observations come out of it, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import gymnasium
import numpy as np
from numpy.typing import NDArray

from sept_offline.errors import HarnessError
from sept_offline.seeding import integer

Observation = NDArray[Any]


def environment_seed(seed: int, instance: str, number: int) -> int:
    """The reset seed of a test episode's environment."""
    return integer(seed, "evaluate", instance, number, "environment")


@dataclass
class Ledger:
    """The harness's side of a handle: the environment and its rewards.

    rewards `[T]`, one per step so far.
    """

    env: gymnasium.Env[Any, Any]
    seed: int
    rewards: list[float] = field(default_factory=list)
    begun: bool = False
    terminated: bool = False
    truncated: bool = False

    @property
    def ended(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


class _Call:
    """`reset` or `step` of a handle: it can be called, and leads nowhere else.

    A bound method would lead to its function, and from there to all this module holds.
    """

    __slots__ = ("_handle", "_name")

    def __init__(self, handle: SingleEpisode, name: str) -> None:
        object.__setattr__(self, "_handle", handle)
        object.__setattr__(self, "_name", name)

    def __call__(self, *arguments: Any) -> Any:
        handle = object.__getattribute__(self, "_handle")
        if object.__getattribute__(self, "_name") == "reset":
            return _reset(handle, *arguments)
        return _step(handle, *arguments)

    def __getattribute__(self, name: str) -> NoReturn:
        _refuse(name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        _refuse(name)


class SingleEpisode:
    """One episode of an environment, for the code that drives an agent.

    `reset()` gives the first observation, once; `step(action)` gives (observation, terminated,
    truncated) until the episode has ended. Reward, info, the hidden parameters, the random stream
    and the environment itself cannot be had from it: every other attribute raises a HarnessError.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int = 0) -> None:
        _LEDGERS[self] = Ledger(env, seed)

    def __getattribute__(self, name: str) -> Any:
        if name in ("reset", "step"):
            return _Call(self, name)
        _refuse(name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        _refuse(name)

    def __dir__(self) -> list[str]:
        return ["reset", "step"]

    def __repr__(self) -> str:
        return "<SingleEpisode: reset() once, then step(action)>"

    def reset(self) -> Observation:
        """The first observation `[d]`; a second call raises."""
        return _reset(self)

    def step(self, action: Any) -> tuple[Observation, bool, bool]:
        """(observation `[d]`, terminated, truncated); after the end it raises."""
        return _step(self, action)


# Kept apart from the handles, so that no attribute of one leads to its environment.
_LEDGERS: WeakKeyDictionary[SingleEpisode, Ledger] = WeakKeyDictionary()


def ledger_of(handle: SingleEpisode) -> Ledger:
    """The harness's side of `handle`; a copy or a handle not made by the harness has none."""
    ledger = _LEDGERS.get(handle)
    if ledger is None:
        raise HarnessError("This handle has no episode; a test episode cannot be copied.")
    return ledger


def _reset(handle: SingleEpisode) -> Observation:
    ledger = ledger_of(handle)
    if ledger.begun:
        raise HarnessError("The test episode has already started; it cannot be reset again.")
    ledger.begun = True
    observation, _ = ledger.env.reset(seed=ledger.seed)
    # A copy: an environment may return its internal array.
    return np.array(observation)


def _step(handle: SingleEpisode, action: Any) -> tuple[Observation, bool, bool]:
    ledger = ledger_of(handle)
    if not ledger.begun:
        raise HarnessError("The test episode has not started; reset it once before the first step.")
    if ledger.ended:
        raise HarnessError(
            f"The test episode ended after {len(ledger.rewards)} steps; it cannot be stepped again."
        )
    observation, reward, terminated, truncated, _ = ledger.env.step(action)
    ledger.rewards.append(float(reward))
    ledger.terminated = bool(terminated)
    ledger.truncated = bool(truncated) and not ledger.terminated
    return np.array(observation), ledger.terminated, ledger.truncated


def _refuse(name: str) -> NoReturn:
    raise HarnessError(
        f"The test episode does not provide {name!r}: an agent may reset it once and step it, "
        "and sees only observations; it must declare anything else it needs."
    )
