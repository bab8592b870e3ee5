"""Behaviours: rules that act with a known distribution of actions, so that it can be logged.

The networks of an expert act with the same bits on every processor. Matrix products of a BLAS sum
in an order that depends on the processor; here every sum has one order, and nothing is fused or
reordered: slower than a BLAS, and the same everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Policy
from sept_offline.agent.networks import MLP, NORM_EPSILON, Array, Ensemble, Network
from sept_offline.elementary import Doubles
from sept_offline.environments import called, plain
from sept_offline.errors import ConfigError

Function = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., object])


class Behaviour(Protocol):
    """Distributions of actions for a batch of rows."""

    def policy(self, observations: NDArray[Any], hidden: Doubles, progress: Doubles) -> Policy:
        """[n] distributions from observations [n, d], hidden rows [n, h] and, for rules that change
        over the collection, each row's place in it [n], from 0 to 1."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Uniform over all actions."""

    space: ActionSpace

    def policy(self, observations: NDArray[Any], hidden: Doubles, progress: Doubles) -> Policy:
        """See Behaviour."""
        return self.space.uniform(len(observations))


@dataclass(frozen=True)
class Constant:
    """The same action at every step."""

    space: ActionSpace
    action: NDArray[Any]

    def policy(self, observations: NDArray[Any], hidden: Doubles, progress: Doubles) -> Policy:
        """See Behaviour."""
        rows = (len(observations), *self.space.shape)
        return self.space.certain(np.broadcast_to(self.action, rows))


@dataclass(frozen=True)
class Snapshot:
    """A network frozen during training, and the exploration it had then.

    `network` maps scaled [observation, hidden] to what `ActionSpace.explore` takes.
    """

    network: Network
    epsilon: float
    """The share of uniform actions."""

    @cached_property
    def outputs(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """The network as a function whose bits do not depend on the processor."""
        return portable(self.network)


@dataclass(frozen=True)
class Exploring:
    """The action that a snapshot prefers, mixed with the exploration it had.

    With several snapshots a row uses the one at its place in the collection.
    """

    space: ActionSpace
    snapshots: tuple[Snapshot, ...]
    features: Callable[[NDArray[Any], Doubles], NDArray[np.float32]]
    noise: float
    """See `ActionSpace.explore`."""

    def policy(self, observations: NDArray[Any], hidden: Doubles, progress: Doubles) -> Policy:
        """See Behaviour."""
        last = len(self.snapshots) - 1
        chosen = np.minimum((progress * len(self.snapshots)).astype(int), last)
        inputs = self.features(observations, hidden)
        outputs = np.empty((len(observations), self.space.width), dtype=np.float32)
        for index in np.unique(chosen):
            rows = np.flatnonzero(chosen == index)
            outputs[rows] = self.snapshots[index].outputs(inputs[rows])
        epsilon = np.array([snapshot.epsilon for snapshot in self.snapshots])[chosen]
        return self.space.explore(outputs, epsilon, self.noise)


@dataclass(frozen=True)
class UserPolicy:
    """A user's own function from observations [n, d] to what `ActionSpace.policy` takes."""

    function: Function
    name: str
    space: ActionSpace

    def policy(self, observations: NDArray[Any], hidden: Doubles, progress: Doubles) -> Policy:
        """See Behaviour; an invalid distribution is an error."""
        seen = observations.astype(np.float32)
        answer = called(f"Policy {self.name}", lambda: self.function(seen), ConfigError)
        return _checked(self, answer, len(observations))


@dataclass(frozen=True)
class RememberingPolicy:
    """A user's own class, of which every episode gets a new object.

    The object is called at every step of its episode, the probe's too, with the observation [d],
    the last action and the last reward (both None at the first step), and returns what a function
    does, without the n. In the probe this is ignored: its actions are uniform.
    """

    kind: Callable[[], Function]
    name: str
    space: ActionSpace

    def begin(self) -> Function:
        """The object of one episode."""
        episode: Function = called(f"Policy {self.name}", self.kind, ConfigError)
        if not callable(episode):
            raise ConfigError(
                f"Policy {self.name} is a class without __call__; define "
                "__call__(self, observation, last_action, last_reward)."
            )
        return episode

    def act(
        self,
        episodes: Sequence[Function],
        observations: NDArray[Any],
        actions: NDArray[Any] | None,
        rewards: Doubles | None,
    ) -> Policy:
        """[n] distributions from observations [n, d], last actions [n, …] and last rewards [n]."""
        answers = []
        for row, episode in enumerate(episodes):
            seen = observations[row].astype(np.float32)
            action = None if actions is None else plain(actions[row])
            reward = None if rewards is None else float(rewards[row])
            act = functools.partial(episode, seen, action, reward)
            answers.append(called(f"Policy {self.name}", act, ConfigError))
            _checked(self, answers[-1])
        return self.space.policy(_stacked(answers, self.space), len(answers))


def _checked(user: UserPolicy | RememberingPolicy, answer: Any, *rows: int) -> Policy:
    try:
        return user.space.policy(answer, *rows)
    except ConfigError as error:
        raise ConfigError(f"Policy {user.name} {error}") from None


def _stacked(answers: Sequence[Any], space: ActionSpace) -> Any:
    """The answers for single observations, as one for all."""
    if not space.shape:
        return np.stack([np.asarray(answer, dtype=np.float64) for answer in answers])
    # A mean and a deviation; one deviation may stand for all components.
    rows = [np.broadcast_arrays(*answer) for answer in answers]
    return tuple(np.stack(parts) for parts in zip(*rows, strict=True))


def user_policy(policy: Any, name: str, space: ActionSpace) -> UserPolicy | RememberingPolicy:
    """A function has no memory; a class is instantiated for every episode and may have one."""
    if isinstance(policy, type):
        return RememberingPolicy(policy, name, space)
    return UserPolicy(policy, name, space)


# Networks with the same bits on every processor


def portable(network: Network) -> Callable[[Array], Array]:
    """The function `[n, input_dim]` to `[n, output_dim]` of `network`, in a fixed order.

    Of a squashed network these are the outputs before tanh: `ActionSpace.explore` applies it. A
    network that is neither an MLP with ReLU nor a mean of such is called as it is.
    """
    if isinstance(network, MLP) and network.activation == "relu":
        return _portable_mlp(network)
    if isinstance(network, Ensemble):
        members = [portable(member) for member in network.members]
        share = np.float32(1 / len(members))
        return lambda x: sum((member(x) for member in members[1:]), members[0](x)) * share
    return network


def _portable_mlp(network: MLP) -> Callable[[Array], Array]:
    layers = [(np.ascontiguousarray(weight.T), bias) for weight, bias in network.layers]
    norms = [*network.norms, None]

    def values(x: Array) -> Array:
        value = np.ascontiguousarray(x, dtype=np.float32)
        for index, ((weight, bias), norm) in enumerate(zip(layers, norms, strict=True)):
            value = _linear(value, weight, bias)
            if index == len(layers) - 1:
                break
            if norm is not None and network.norm_first:
                _normalise(value, *norm, NORM_EPSILON)
            _rectify(value)
            if norm is not None and not network.norm_first:
                _normalise(value, *norm, NORM_EPSILON)
        return value

    return values


def _compiled(function: F) -> F:
    """Compile without `fastmath`: no sum is reordered and no product fused."""
    return cast(F, numba.njit(cache=True, error_model="numpy", nogil=True)(function))


@_compiled
def _linear(x: Array, weight: Array, bias: Array) -> Array:
    """`x[n, in] @ weight[in, out] + bias[out]`, each output summed over the inputs in order."""
    output = np.empty((x.shape[0], weight.shape[1]), dtype=np.float32)
    for row in range(x.shape[0]):
        sums = output[row]
        sums[:] = bias
        for i in range(x.shape[1]):
            value = x[row, i]
            # Half of a hidden layer is zero after its ReLU.
            if value != np.float32(0):
                weights = weight[i]
                for j in range(len(sums)):
                    sums[j] += value * weights[j]
    return output


@_compiled
def _rectify(value: Array) -> None:
    for row in range(value.shape[0]):
        for j in range(value.shape[1]):
            value[row, j] = max(value[row, j], np.float32(0))


@_compiled
def _normalise(value: Array, gamma: Array, beta: Array, epsilon: np.float32) -> None:
    """LayerNorm of each row, in place; sums in float64."""
    width = value.shape[1]
    for row in range(value.shape[0]):
        mean = 0.0
        for j in range(width):
            mean += value[row, j]
        mean /= width
        squares = 0.0
        for j in range(width):
            squares += (value[row, j] - mean) * (value[row, j] - mean)
        inverse = np.float32(1.0 / np.sqrt(squares / width + epsilon))
        for j in range(width):
            value[row, j] = np.float32(value[row, j] - mean) * inverse * gamma[j] + beta[j]
