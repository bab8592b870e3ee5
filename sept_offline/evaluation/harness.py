"""The harness: exactly one episode per test instance, an agent against a family."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.agent import Agent, AgentEpisode
from sept_offline.environments import check_spaces, open_environment
from sept_offline.errors import AgentError, ConfigError, FamilyError, HarnessError
from sept_offline.evaluation.handle import SingleEpisode, environment_seed, ledger_of
from sept_offline.evaluation.references import References, references_at, scores
from sept_offline.evaluation.results import EpisodeResult, Results, plain_actions
from sept_offline.family import Family, Hidden, known_family, load_family
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import integer, root_seed
from sept_offline.threads import one_thread


@dataclass
class Driven:
    """The record of the driver: observations `[T + 1, d]`, actions and phases `[T]`; and time.

    The time is the agent's own.
    """

    observations: list[tuple[float, ...]] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    nanoseconds: int = 0


def evaluate(
    agent: Agent,
    family: str | Family | None = None,
    instances: str = "test",
    *,
    seed: int = 0,
    episodes_per_instance: int = 1,
    max_steps: int | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run `agent` for one episode in every instance of a split, in the family's simulator.

    With `episodes_per_instance` above 1, the episodes are independent: each starts from the same
    trained agent and nothing is carried over. The agent sees only observations, and the hidden
    parameters or rewards that it declares in `agent.needs`. `family` is by default that of the
    training logs, `max_steps` the family's test limit. The same seed gives the same results, except
    for the measured times.
    """
    progress = progress or Silent()
    if family is None:
        if not agent.family:
            raise FamilyError(
                "The agent's training logs name no family, so there is no simulator to "
                "evaluate it in; run sept-offline ope, or pass --family."
            )
        record = known_family(agent.family, agent.record.get("family_object"))
    else:
        record = load_family(family)
    limit = record.test_steps if max_steps is None else max_steps
    if limit < 1 or episodes_per_instance < 1:
        raise ConfigError(
            f"max_steps is {limit} and episodes_per_instance {episodes_per_instance}; "
            "both must be at least 1."
        )
    seed = root_seed(seed)
    hiddens = record.instances(instances)
    if not hiddens:
        raise FamilyError(f"Split {instances!r} of family {record.name!r} has no instances.")
    references = references_at(record, limit)
    episodes: list[EpisodeResult] = []
    progress.start("evaluate", len(hiddens) * episodes_per_instance, "episodes")
    with one_thread():
        _warm_up(agent)
        for instance, hidden in zip(record.instance_ids(instances), hiddens, strict=True):
            for number in range(episodes_per_instance):
                episodes.append(
                    _run(agent, record, instance, hidden, number, seed, limit, references)
                )
                progress.update(len(episodes), **{"return": episodes[-1].total})
    progress.finish()
    return Results(
        method=agent.method,
        family=record.name,
        needs=tuple(sorted(agent.needs)),
        learns=agent.learns,
        instances=instances,
        seed=seed,
        limit=limit,
        episodes=tuple(episodes),
        behaviour_estimated=bool(agent.record.get("behaviour_estimated", False)),
    )


def _run(
    agent: Agent,
    family: Family,
    instance: str,
    hidden: Hidden,
    number: int,
    seed: int,
    limit: int,
    references: References | None,
) -> EpisodeResult:
    began = time.perf_counter()
    env: gymnasium.Env[Any, Any] = TimeLimit(open_environment(family, hidden, instance), limit)
    try:
        _check_spaces(agent, family, *check_spaces(family, env))
        handle = SingleEpisode(env, environment_seed(seed, instance, number))
        ledger = ledger_of(handle)
        episode = agent.begin(
            seed=integer(seed, "evaluate", instance, number, "agent"),
            hidden=dict(hidden) if "hidden" in agent.needs else None,
        )
        # the one way by which a reward reaches an agent
        channel = (lambda: ledger.rewards[-1]) if "reward" in agent.needs else None
        driven = drive(episode, handle, channel)
    except AgentError as error:
        raise AgentError(f"Family {family.name!r}, instance {instance}: {error}") from error
    finally:
        env.close()  # type: ignore[no-untyped-call]
    seconds = time.perf_counter() - began
    for step, reward in enumerate(ledger.rewards):
        if not math.isfinite(reward):
            raise FamilyError(
                f"Family {family.name!r}, instance {instance}: step {step} gave reward {reward}; "
                "rewards must be finite."
            )
    latent = episode.latent
    return EpisodeResult(
        instance=instance,
        episode=number,
        actions=plain_actions(np.array(driven.actions)),
        phases=tuple(driven.phases),
        rewards=tuple(ledger.rewards),
        terminated=ledger.terminated,
        **scores(family, references, hidden, ledger.rewards, limit),
        latent=None if latent is None else tuple(float(value) for value in latent),
        uncertainty=_plain(episode.uncertainty),
        novelty=_plain(episode.novelty),
        flagged=bool(episode.flagged),
        act_microseconds=driven.nanoseconds / 1e3 / len(driven.actions),
        seconds=seconds,
        observations=tuple(driven.observations),
    )


def drive(
    episode: AgentEpisode, handle: SingleEpisode, reward: Callable[[], float] | None = None
) -> Driven:
    """Let the agent act from reset to end; `reward` gives the last step's to those that declare it.

    An episode that ends during the probe counts as it ended: there is only one reset.
    """
    driven = Driven()
    observation, ended = handle.reset(), False
    driven.observations.append(_seen(observation))
    while not ended:
        driven.phases.append(episode.phase)
        last = reward() if reward is not None and driven.actions else None
        before = time.perf_counter_ns()
        action = episode.act(observation, last)
        driven.nanoseconds += time.perf_counter_ns() - before
        driven.actions.append(action)
        observation, terminated, truncated = handle.step(action)
        driven.observations.append(_seen(observation))
        ended = terminated or truncated
    episode.end()
    return driven


def _seen(observation: NDArray[Any]) -> tuple[float, ...]:
    return tuple(np.asarray(observation, dtype=np.float64).ravel().tolist())


def _warm_up(agent: Agent) -> None:
    """Have the agent's kernels compiled before they are timed; no episode is begun."""
    for control in (agent.control, agent.fallback):
        if control is not None:
            control.network.row(np.zeros(control.network.input_dim, dtype=np.float32))


def _plain(value: float | None) -> float | None:
    return None if value is None else float(value)


def _check_spaces(agent: Agent, family: Family, dim: int, actions: ActionSpace) -> None:
    spaces = agent.spaces
    if (spaces.observation_dim, spaces.actions.expected) != (dim, actions.expected):
        raise HarnessError(
            f"The agent ({agent.method}, of family {agent.family!r}) takes the actions "
            f"{spaces.actions.expected} on observations of shape [{spaces.observation_dim}], but "
            f"family {family.name!r} has {actions.expected} and [{dim}]; evaluate it on the family "
            "it was fitted for."
        )
