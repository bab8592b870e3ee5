"""A method: the record that describes it, and the parts that all methods share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Box
from sept_offline.agent import Actor, Agent, Control, Spaces
from sept_offline.agent.contexts.base import Context
from sept_offline.agent.networks import Standardiser
from sept_offline.control import ControlStage, Learner, Replay, prepare_rewards
from sept_offline.control.rewards import mean_return
from sept_offline.data import Dataset
from sept_offline.errors import DataError
from sept_offline.seeding import integer
from sept_offline.settings import ControlConfig, FitConfig
from sept_offline.stage import Stage

Stages = Generator[Stage, None, Agent]
"""Stages to train one after another, and the agent that comes of them."""
Recipe = Callable[[Dataset, FitConfig, int], Stages]


@dataclass(frozen=True)
class Method:
    """A way from logs to an agent.

    `stages` yields one stage after another; the caller advances each to its end (or restores
    an ended one), then asks for the next. It returns the agent. Files, clocks and progress bars
    are the iterator's business.
    """

    name: str
    stages: Recipe
    summary: str
    privileged: bool = False
    """Whether it is shown the hidden parameters of the training instances."""
    judged: bool = True
    """Whether a fit ends with a verdict: its agents act quickly and need observations alone."""
    segments: bool = False
    """Whether it reads the first T_p steps of every episode, so that none may be shorter."""
    stacks: bool = True
    """Whether it learns from observations stacked with the last steps; if not, `stack` is 1."""
    probe_optional: bool = False
    """Whether `probe.use` may leave out its probe."""
    finite: bool = False
    """Whether it needs discrete actions."""
    novelty: bool = False
    """Whether its agents measure how new an instance is, so that a fallback may act."""
    double_dqn: bool = False
    """Whether its control is always DoubleDQN, for any `control.algorithm`."""
    title: str = ""
    """Its name in figures and tables, as the paper writes it; `name` where empty."""
    ablation: bool = False
    """Whether it is SEPT with one part changed; other methods are baselines."""
    probe_reward: bool = False
    """Whether training reports the reward of a probe."""
    moving_latent: bool = False
    """Whether its latent changes until the end of an episode."""
    sections: tuple[str, ...] = ()
    """Sections of `FitConfig`, beside its own, that not every method reads."""


def check_data(data: Dataset, probe_steps: int) -> None:
    """Refuse, in one sentence, data that cannot be learned from.

    `probe_steps`: how many steps every episode must have; 0 for a method that reads no segments.
    """
    index = data.episode_index
    present = np.unique(index.instance)
    if len(present) < 2:
        raise DataError(
            f"{data.path} holds {len(present)} instance; at least 2 are needed to learn what "
            "differs between them."
        )
    short = np.flatnonzero(index.length < probe_steps)
    if len(short):
        first = int(short[0])
        are = "1 episode is" if len(short) == 1 else f"{len(short)} episodes are"
        raise DataError(
            f"{data.path}: {are} shorter than the probe of {probe_steps} steps "
            f"(the first is episode {first} of instance {data.instances[index.instance[first]]!r} "
            f"with {index.length[first]} steps), but the probe is trained on the start of "
            f"every episode; use --set probe_steps={index.length.min()}."
        )
    steps = data.steps()
    space = data.action_space
    outside = np.count_nonzero(space.outside(steps.actions))
    if outside:
        raise DataError(
            f"{data.path}: {outside} actions are outside {space.expected}; "
            "run sept-offline validate to see where."
        )
    for name, values in (("observations", steps.observations), ("rewards", steps.rewards)):
        bad = ~np.isfinite(values)
        if bad.any():
            raise DataError(
                f"{data.path}: {int(bad.sum())} values of {name} are not finite; "
                "run sept-offline validate to see where."
            )
    if isinstance(space, Box):
        _check_components(data.path, space, steps.actions)
    else:
        counts = np.bincount(steps.actions, minlength=space.width)
        _check_counts(data.path, counts, data.metadata.action_names)


def _check_counts(path: object, counts: NDArray[np.int64], names: Sequence[str] | None) -> None:
    """Refuse logs in which an action of a finite set is missing; counts `[A]`."""
    titles = [f"action {n}" + (f" ({names[n]})" if names else "") for n in range(len(counts))]
    taken, never = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if len(taken) < 2:
        raise DataError(
            f"{path}: only {titles[taken[0]]} was ever logged, so nothing can be learned "
            "about the others."
        )
    if len(never):
        raise DataError(
            f"{path}: {titles[never[0]]} of the {len(counts)} actions, counted from 0, was never "
            "logged, so its effect is unknown; drop it from the action space or log it."
        )


def _check_components(path: object, space: Box, actions: NDArray[Any]) -> None:
    """Refuse logs in which a component of the actions `[N, k]` never varies."""
    for name, values in zip(space.names, actions.T, strict=True):
        if np.ptp(values) == 0:
            raise DataError(
                f"{path}: the component {name!r} of the actions is always {values[0]:g}, so its "
                "effect is unknown; drop it from the action space or log other values."
            )


def spaces_of(data: Dataset) -> Spaces:
    """The agent's observations and actions, with the dataset's names."""
    return Spaces.of(
        data.steps().observations,
        data.action_space,
        data.metadata.observation_names,
    )


def agent_of(
    name: str,
    data: Dataset,
    context: Context,
    control: Control,
    fallback: Control | None = None,
    record: dict[str, Any] | None = None,
) -> Agent:
    """The agent that the method `name` has fitted to `data`."""
    family = data.metadata.family or ""
    return Agent(name, family, spaces_of(data), context, control, fallback, record or {})


def centre_rewards(data: Dataset, config: ControlConfig) -> ControlConfig:
    """The same settings with the shift of the rewards, if `centred` asks for one.

    Whoever prepares rewards by these settings, in training or in an episode, shifts them equally.
    """
    if not config.centred or config.goal_shift is not None:
        return config
    steps = data.steps()
    rewards = prepare_rewards(steps.rewards, steps.terminations, steps.instance, config)
    return replace(config, goal_shift=mean_return(rewards, steps.time, config.gamma))


def control_stage(
    data: Dataset,
    config: ControlConfig,
    seed: int,
    contexts: NDArray[Any] | None = None,
    context_instance: NDArray[Any] | None = None,
    context_weights: NDArray[Any] | None = None,
    name: str = "control",
    replay: Callable[..., Replay] = Replay,
    beside: NDArray[np.float32] | None = None,
    learner: Callable[[ControlConfig, int, int, int], Learner] = Learner,
    rewards: NDArray[np.float64] | None = None,
) -> Generator[Stage, None, Control]:
    """Train π(a | s, context) on every logged step; the contexts are already standardised.

    `replay` may define another kind of minibatch, and `learner` another kind of update.
    `beside[N+E, k]` is a context that every observation of the logs has for itself; `rewards[N]`,
    already prepared, replace the logged ones.
    """
    steps = data.steps()
    scaler = Standardiser.fit(steps.observations)
    if rewards is None:
        shifted = centre_rewards(data, config)
        rewards = prepare_rewards(steps.rewards, steps.terminations, steps.instance, shifted)
    seen, space = scaler(steps.observations), data.action_space
    logged = replay(
        seen if beside is None else np.concatenate([seen, beside], axis=1),
        steps.row,
        space.encode(steps.actions) if isinstance(space, Box) else steps.actions,
        rewards,
        steps.terminations,
        steps.instance,
        contexts=contexts,
        context_instance=context_instance,
        context_weights=context_weights,
    )
    stage = ControlStage(logged, config, integer(seed, name), space.width, learner)
    stage.name = name
    yield stage
    if isinstance(space, Box):
        return Actor(scaler, stage.result(), space)
    return Control(scaler, stage.result())


def fallback_stage(
    data: Dataset, config: FitConfig, seed: int
) -> Generator[Stage, None, Control | None]:
    """The robust policy for instances that are flagged as new, if there is to be one."""
    if config.fallback == "none":
        return None
    return (yield from control_stage(data, config.control, seed, name="fallback"))
