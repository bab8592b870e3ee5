"""Small agents for 2D navigation whose behaviour is known by hand, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from sept_offline.actions import Finite
from sept_offline.agent import (
    Agent,
    AgentEpisode,
    Control,
    HiddenContext,
    NoContext,
    SegmentContext,
    Spaces,
    TableProbe,
    UniformProbe,
)
from sept_offline.agent.contexts import Context
from sept_offline.agent.encoders import FlatEncoder
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.agent.probes import Probe

WEST, NORTH, EAST, SOUTH = range(4)
SPACES = Spaces(("x", "y"), Finite(("W", "N", "E", "S")), np.full(2, -2.0), np.full(2, 2.0))
LATENT = 2


def build(method: str, context: Context, weights: Any, bias: Any) -> Agent:
    control = Control(Standardiser.identity(2), MLP([(weights, bias)]))
    return Agent(method, "navigation2d", SPACES, context, control)


def constant_agent(action: int) -> Agent:
    return build("avg", NoContext(), np.zeros((4, 2)), np.eye(4)[action])


def mode_one_agent() -> Agent:
    """North until y > 0.1, then east: solves z = 1, whose wall is the goal's lower side."""
    weights = np.zeros((4, 2))
    weights[NORTH, 1] = -1.0
    return build("avg", NoContext(), weights, np.array([-9.0, 0.1, 0.0, -9.0]))


def oracle_agent() -> Agent:
    """As above when z = 1; when z = 2, where all is mirrored, first along x and then along y."""
    weights = np.zeros((4, 3))
    weights[NORTH, 1] = weights[WEST, 0] = -1.0
    weights[[NORTH, EAST], 2], weights[[WEST, SOUTH], 2] = -9.0, 9.0
    bias = np.array([0.1 - 13.5, 0.1 + 13.5, 13.5, -13.5])
    return build("oracle", HiddenContext(("z",), Standardiser.identity(1)), weights, bias)


def probing_agent(steps: int = 2, probe: Probe | None = None) -> Agent:
    """Probes at random, encodes with random weights, then goes as the mode-one agent does."""
    rng = np.random.default_rng(0)
    inputs = steps * (2 * 2 + 4 + 4 * 2)
    network = MLP([(rng.normal(size=(2 * LATENT, inputs)), np.zeros(2 * LATENT))])
    identity = Standardiser.identity(2)
    encoder = FlatEncoder(network, identity, identity, 4, steps)
    context = SegmentContext(probe or UniformProbe(4), encoder, Standardiser.identity(LATENT))
    weights = np.zeros((4, 2 + LATENT))
    weights[NORTH, 1] = -1.0
    return build("sept", context, weights, np.array([-9.0, 0.1, 0.0, -9.0]))


def eastward_probe() -> TableProbe:
    return TableProbe(np.eye(4)[[EAST, EAST]])


class RewardContext(NoContext):
    """The state alone, by an agent that nevertheless asks for rewards."""

    needs = frozenset({"reward"})


class RecordingAgent(Agent):
    """Keeps what each `act` was given, in the record."""

    def begin(self, seed: int = 0, hidden: Any = None) -> AgentEpisode:
        return RecordingEpisode(self, seed, hidden)


class RecordingEpisode(AgentEpisode):
    def act(self, observation: Any, reward: float | None = None) -> int:
        self.agent.record.setdefault("given", []).append(reward)
        return super().act(observation, reward)


def recording_agent(context: Context) -> RecordingAgent:
    plain = mode_one_agent()
    return RecordingAgent(plain.method, plain.family, plain.spaces, context, plain.control)


class StartAt(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Every episode starts in one given state."""

    def __init__(self, env: gymnasium.Env[Any, Any], state: list[float]) -> None:
        super().__init__(env)
        self.state = state

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options={"state": self.state})
