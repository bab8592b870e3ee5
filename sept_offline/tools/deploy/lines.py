"""The JSON Lines protocol: one JSON object per line, many episodes interleaved."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from sept_offline.agent import Agent, AgentEpisode
from sept_offline.errors import AgentError, SeptError
from sept_offline.seeding import integer

KEYS = {"episode", "observation", "mask", "bounds", "reward", "seed", "hidden", "end"}
FIRST_ONLY = ("seed", "hidden")
SHORTEST_LIMIT = 1 << 20
"""Bytes allowed per line; more if the agent observes many columns."""
OPEN_LIMIT = 100_000
"""Maximum number of open episodes, so that a client that ends none cannot fill the memory."""


class Lines:
    """The open episodes of one agent, and the answer to each line.

    An episode's seed is its own `"seed"`, or is derived from `seed` and its name, so that its
    actions do not depend on other episodes. A line answered with an error changes nothing.
    """

    def __init__(self, agent: Agent, seed: int = 0) -> None:
        self.agent, self.seed = agent, seed
        self.episodes: dict[str | int, AgentEpisode] = {}
        sizes = agent.spaces.observation_dim + 2 * agent.spaces.actions.width
        self.limit = max(SHORTEST_LIMIT, 64 * sizes)

    def serve(self, source: IO[bytes]) -> Iterator[str]:
        """The answers to all lines of `source`, as they come."""
        while line := source.readline(self.limit + 1):
            answer = self._overlong(source, line) if len(line) > self.limit else self.answer(line)
            if answer is not None:
                yield json.dumps(answer, allow_nan=False)

    def answer(self, line: bytes | str) -> dict[str, Any] | None:
        """The answer to one line: an action, an error, or None where an episode ends."""
        name: Any = None
        try:
            request, strange = _parse(line)
            name = _name(request)
            if strange:
                raise AgentError(
                    f"{strange[0]} is not a number in JSON; fill in missing values in the same way "
                    "as in the logs."
                )
            return self._answer(name, request)
        except SeptError as error:
            return {"episode": name, "error": str(error)}

    def _answer(self, name: str | int, request: dict[str, Any]) -> dict[str, Any] | None:
        unknown = sorted(set(request) - KEYS)
        if unknown:
            raise AgentError(
                f"A line may have the keys {', '.join(sorted(KEYS))}, found {', '.join(unknown)}."
            )
        if "end" in request:
            self._end(name, request)
            return None
        if "observation" not in request:
            raise AgentError('A line must have "observation" or "end".')
        observation = _numbers(request["observation"], "observation")
        mask, bounds = _mask(request.get("mask")), _bounds(request.get("bounds"))
        reward = _reward(request.get("reward"))
        episode = self.episodes.get(name) or self._begin(name, request)
        if episode.steps and any(key in request for key in FIRST_ONLY):
            raise AgentError(
                "Seed and hidden parameters are allowed only in an episode's first line."
            )
        phase = episode.phase
        action = episode.act(observation, reward, mask, bounds)
        self.episodes[name] = episode
        latent = episode.latent
        return {
            "episode": name,
            **self._action(action),
            "phase": phase,
            "latent": None if latent is None else [_finite(float(value)) for value in latent],
            "uncertainty": _finite(episode.uncertainty),
            "novelty": _finite(episode.novelty),
            "flagged": episode.flagged,
            "out_of_range": list(episode.out_of_range),
        }

    def _action(self, action: Any) -> dict[str, Any]:
        """The action, a number with its name, or a list of numbers in a box."""
        if isinstance(action, int):
            return {"action": action, "action_name": self.agent.spaces.action_names[action]}
        return {"action": action.tolist()}

    def _begin(self, name: str | int, request: dict[str, Any]) -> AgentEpisode:
        if len(self.episodes) >= OPEN_LIMIT:
            raise AgentError(
                f"{OPEN_LIMIT:,} episodes are open, which is the limit; end one first."
            )
        seed = request.get("seed")
        if seed is None:
            seed = integer(self.seed, "act", json.dumps(name))
        elif not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise AgentError("The seed must be a whole number, at least 0.")
        hidden = request.get("hidden")
        if hidden is not None and not isinstance(hidden, dict):
            raise AgentError("Hidden parameters must be an object of names and numbers.")
        if hidden is not None:
            values = _numbers(list(hidden.values()), "hidden parameters")
            hidden = dict(zip(hidden, values.tolist(), strict=True))
        return self.agent.begin(seed, hidden)

    def _end(self, name: str | int, request: dict[str, Any]) -> None:
        if request["end"] is not True or set(request) != {"episode", "end"}:
            raise AgentError(
                'To end an episode, send {"episode": …, "end": true} and no other key.'
            )
        # No answer either if no such episode is open: clients that alternate rely on it.
        self.episodes.pop(name, None)

    def _overlong(self, source: IO[bytes], line: bytes) -> dict[str, Any]:
        """Skip a line that is too long, without keeping it in memory."""
        while line and not line.endswith(b"\n"):
            line = source.readline(self.limit)
        return {"episode": None, "error": f"The line has more than {self.limit:,} bytes."}


def _parse(line: bytes | str) -> tuple[dict[str, Any], list[str]]:
    """The object of a line, and the words in it that are not valid JSON: NaN, Infinity."""
    strange: list[str] = []
    try:
        request = json.loads(line, parse_constant=strange.append)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise AgentError(f"The line is not a JSON object: {reason}.") from error
    if not isinstance(request, dict):
        raise AgentError(f"The line is not a JSON object but {_kind(request)}.")
    return request, strange


def _name(request: dict[str, Any]) -> str | int:
    name = request.get("episode")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise AgentError('A line must name its "episode", a string or a whole number.')
    return name


def _numbers(values: Any, what: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    # a number too large for float32 becomes infinite, and is then refused
    with np.errstate(over="ignore"):
        return _doubles(values, what).astype(np.float32)


def _doubles(values: Any, what: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    if not isinstance(values, list) or not all(_is_number(value) for value in values):
        raise AgentError(f"The {what} must be a list of numbers, found {_kind(values)}.")
    return np.array([_float(value) for value in values], dtype=np.float64)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _mask(mask: Any) -> np.ndarray[Any, Any] | None:
    if mask is None:
        return None
    if not isinstance(mask, list) or not all(
        isinstance(allowed, bool) or allowed in (0, 1) for allowed in mask
    ):
        raise AgentError(f"The mask must be a list of true and false, found {_kind(mask)}.")
    return np.array(mask, dtype=bool)


def _bounds(bounds: Any) -> tuple[Any, ...] | None:
    if bounds is None:
        return None
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise AgentError(f"The bounds must be a list of two lists, found {_kind(bounds)}.")
    return tuple(_doubles(bound, "bounds") for bound in bounds)


def _reward(reward: Any) -> float | None:
    if reward is None:
        return None
    if not _is_number(reward):
        raise AgentError(f"The reward must be a number, found {_kind(reward)}.")
    return _float(reward)


def _finite(value: float | None) -> float | None:
    """None for a number that is not finite, which JSON cannot hold."""
    return value if value is not None and math.isfinite(value) else None


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list of mixed types"
    names = {dict: "an object", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
