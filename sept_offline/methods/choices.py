"""Settings that a fit chooses from the logs, each with its reason in one sentence.

They are the algorithm of control, its updates and discount factor, the length of the probe, and how
many observations to stack (from the models in `stack_models`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Box, Finite
from sept_offline.agent import Agent, Spaces
from sept_offline.data import Dataset
from sept_offline.data.records import Segments, Steps
from sept_offline.data.summary import DEFAULT_PROBE_STEPS
from sept_offline.errors import ConfigError
from sept_offline.methods.hold_out import unfitted_episodes
from sept_offline.methods.method import Method
from sept_offline.methods.stack_models import (
    Gain,
    TestedModel,
    fit_and_test,
    gain_of,
    lasting_gain,
    regressed,
    sample_episodes,
)
from sept_offline.probe.behaviour import estimate_behaviour
from sept_offline.seeding import generator, integer
from sept_offline.settings import AUTO, BOX_ALGORITHMS, FINITE_ALGORITHMS, FitConfig
from sept_offline.stacking import Stack
from sept_offline.stage import Stage

FEW_ACTIONS = 1.5
"""Effective number of actions below which a logged step has hardly any alternative."""
NARROW = 0.7
"""Share of such steps above which logs are narrow: experts' logs have 0.9, replayed ones 0.4."""
BEHAVIOUR_STEPS = 4000
"""Number of steps to estimate the behaviour from if its probabilities were not logged."""
UPDATES, MOST_UPDATES = 8000, 24_000
"""Updates of control: for up to `ENOUGH_STEPS` logged steps, and at most."""
ENOUGH_STEPS = 50_000
LEAST_GAMMA, GAMMA = 0.9, 0.99
"""Discount factors of continuous actions: at least, and at most; of discrete actions the latter."""
HORIZONS = 3
"""Horizons of the discount, 1 / (1 − γ), in the longest logged episode of continuous actions."""

TRIED = 4
"""Number of stacked observations to compare with the current one alone."""
SHORTER, LONGER = 2, 8
"""Other lengths to try if that one is better."""
MODEL_UPDATES = 1200
"""Maximum updates of the model of the current observation; the others get a third."""
TEST_SHARE = 0.2
"""Share of the episodes on which the models of the next observation are tested."""
FEWEST = 5
"""Test episodes without which nothing is concluded."""
LASTING = 0.1
"""Minimum by which a step's error must resemble a recent one more than one of another episode."""


@dataclass(frozen=True)
class Choice:
    """A choice and its reason in one sentence."""

    chosen: int | float | str
    why: str

    def summary(self) -> dict[str, Any]:
        """The form stored in the record of an agent."""
        return asdict(self)


def choose_algorithm(data: Dataset, seed: int) -> Choice:
    """By the space; conservative if the behaviour takes a single action at most logged steps."""
    if isinstance(data.action_space, Box):
        return Choice("rebrac", "The actions are continuous.")
    steps = data.steps()
    chances, source = _chances(steps, data.num_actions, seed)
    entropy = -(chances * np.log(np.maximum(chances, 1e-12))).sum(axis=1)
    narrow = float((np.exp(entropy) < FEW_ACTIONS).mean())
    shown = f"at {narrow:.0%} of the steps the behaviour{source} nearly always takes one action"
    if narrow >= NARROW:
        return Choice("discrete_cql", f"The logs are narrow: {shown}.")
    return Choice("double_dqn", f"The logs show alternatives: {shown}.")


def _chances(steps: Steps, num_actions: int, seed: int) -> tuple[np.ndarray[Any, Any], str]:
    """Probabilities of all actions at logged steps `[n, A]`; estimated where most are unknown."""
    logged = steps.propensities
    if logged is not None:
        known = np.isfinite(logged).all(axis=1)
        if known.mean() >= 0.5:
            return logged[known].astype(np.float64), ""
    rng = generator(seed, "algorithm", "steps")
    rows = np.sort(rng.permutation(len(steps.actions))[:BEHAVIOUR_STEPS])
    single = Segments(
        observations=np.stack(
            [steps.observations[steps.row[rows]], steps.observations[steps.row[rows] + 1]], axis=1
        ),
        actions=steps.actions[rows][:, None],
        rewards=steps.rewards[rows][:, None],
        propensities=None,
        instance=steps.instance[rows],
        episode=steps.episode[rows],
        skipped=0,
    )
    behaviour = estimate_behaviour(single, Finite.of(num_actions), integer(seed, "algorithm"))
    return behaviour.propensities[:, 0], " (estimated)"


def choose_updates(data: Dataset) -> Choice:
    """More updates for more steps: with few steps, values drift upwards in long training."""
    updates = UPDATES * max(1.0, data.num_steps / ENOUGH_STEPS) ** 0.5
    chosen = int(round(min(updates, MOST_UPDATES), -3))
    return Choice(chosen, f"The logs have {data.num_steps:,} steps.")


def choose_gamma(data: Dataset) -> Choice:
    """A horizon that fits the episodes; discrete actions do not gain by a shorter one."""
    if isinstance(data.action_space, Finite):
        return Choice(GAMMA, "The actions are discrete.")
    longest = int(data.episode_index.length.max())
    chosen = round(1 - HORIZONS / longest, 3)
    return Choice(
        min(max(chosen, LEAST_GAMMA), GAMMA), f"The longest logged episode has length {longest}."
    )


def choose_probe_steps(data: Dataset) -> Choice:
    """The dataset's probe length, or the default one; at most the length of every episode."""
    named = data.metadata.probe_steps
    wanted = named or DEFAULT_PROBE_STEPS
    shortest = int(data.episode_index.length.min(initial=wanted))
    if shortest < wanted:
        return Choice(shortest, f"The shortest episode has length {shortest}.")
    return Choice(wanted, "The dataset sets it." if named else "The dataset sets none.")


def check_algorithm(data: Dataset, algorithm: str) -> None:
    """Refuse an algorithm for the other kind of actions."""
    box = isinstance(data.action_space, Box)
    fitting = BOX_ALGORITHMS if box else FINITE_ALGORITHMS
    if algorithm not in (AUTO, *fitting):
        kind = "continuous" if box else "discrete"
        raise ConfigError(
            f"control.algorithm is {algorithm!r}, but the actions of {data.path} are {kind}; "
            f"expected one of {', '.join((AUTO, *fitting))}."
        )


def choose_settings(
    data: Dataset, config: FitConfig, seed: int, *, double_dqn: bool = False
) -> tuple[FitConfig, dict[str, Choice]]:
    """The settings with every open one chosen, and the choices by the setting's name.

    double_dqn: the method supports no other algorithm.
    """
    control, choices = config.control, {}
    check_algorithm(data, control.algorithm)
    if control.algorithm == AUTO and double_dqn:
        control = replace(control, algorithm="double_dqn")
    elif control.algorithm == AUTO:
        choices["control.algorithm"] = choice = choose_algorithm(data, seed)
        control = replace(control, algorithm=str(choice.chosen))
    if control.updates == 0:
        choices["control.updates"] = choice = choose_updates(data)
        control = replace(control, updates=int(choice.chosen))
    if control.gamma == 0:
        choices["control.gamma"] = choice = choose_gamma(data)
        control = replace(control, gamma=float(choice.chosen))
    config = replace(config, control=control)
    if config.probe_steps == 0:
        choices["probe_steps"] = choice = choose_probe_steps(data)
        config = replace(config, probe_steps=int(choice.chosen))
    return config, choices


def check_stack(method: Method, config: FitConfig) -> None:
    """Refuse a stack for a method that does not read one."""
    if config.stack > 1 and not method.stacks:
        raise ConfigError(
            f"The method {method.name!r} always uses stack = 1, found {config.stack}; omit "
            "--stack, or fit another method."
        )


def observing_plainly(agent: Agent, stack: Stack | None) -> Agent:
    """The agent for stacked rows as one that takes the current observation and stacks it."""
    if stack is None:
        return agent
    spaces, dim = agent.spaces, stack.dim
    plain = Spaces(
        spaces.observation_names[:dim], spaces.actions, spaces.low[:dim], spaces.high[:dim]
    )
    return replace(agent, spaces=plain, stack=stack.length)


def past_that_explains(
    present: TestedModel, data: Dataset, tested: NDArray[np.bool_]
) -> tuple[int, Gain] | None:
    """The stack whose steps clearly explain errors of the current observation's model."""
    plain, some, more = (regressed(present, data, tested, length) for length in (1, TRIED, LONGER))
    gain = gain_of(plain, some, present.open)
    if not gain.clear:
        return None
    if gain_of(some, more, present.open).clear:
        return LONGER, gain_of(plain, more, present.open)
    return TRIED, gain


def choose_stack(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Choice]:
    """Stack if the last steps clearly improve the prediction of test episodes."""
    seed = integer(seed, "stack")
    some = sample_episodes(data, seed)
    tested = unfitted_episodes(some, TEST_SHARE, seed)
    if tested.sum() < FEWEST:
        return Choice(
            1, "There are too few episodes to test whether the last steps improve predictions."
        )
    # At most as long as the fit itself.
    long = max(1, min(MODEL_UPDATES, config.latent.updates, config.control.updates // 4))
    short = max(1, long // 3)
    fitted = partial(fit_and_test, some, tested, seed)

    present = yield from fitted(1, long, "stack-1")
    if not present.open.any():
        most = present.unexplained.max(initial=0.0)
        return Choice(
            1, f"The current observation leaves at most {most:.1%} of the next change unexplained."
        )
    names = data.metadata.observation_names or [f"column {i}" for i in range(data.observation_dim)]
    stacked = yield from fitted(TRIED, short, f"stack-{TRIED}")
    gain = gain_of(present, stacked, present.open)
    if gain.clear:
        # The longer one may have overfit; then the shorter one is better.
        early = yield from fitted(1, short, "stack-1-short")
        gain = min(gain, gain_of(early, stacked, present.open), key=lambda each: each.low)
    if not gain.clear:
        past = past_that_explains(present, some, tested)
        if past is not None:
            length, explained = past
            return Choice(
                length,
                f"The last {length} observations with their actions explain a part of what the "
                f"current one does not predict: the error of the next {names[explained.column]!r} "
                f"falls by {explained}.",
            )
        lasting = lasting_gain(present, some, generator(seed, "lasting"))
        if lasting is not None and lasting.low > LASTING:
            return Choice(
                TRIED,
                "Something that is not observed lasts for some steps: the error of the next "
                f"{names[lasting.column]!r} resembles that at the last such step of the episode by "
                f"{lasting} more than that in other episodes.",
            )
        return Choice(
            1,
            f"The last {TRIED} observations with their actions do not clearly predict more than "
            f"the current one: the error of the next {names[gain.column]!r} falls by {gain}.",
        )
    chosen, best = TRIED, stacked
    shorter = yield from fitted(SHORTER, short, f"stack-{SHORTER}")
    if not gain_of(shorter, stacked, present.open).clear:
        chosen, best = SHORTER, shorter
    else:
        longer = yield from fitted(LONGER, short, f"stack-{LONGER}")
        if gain_of(stacked, longer, present.open).clear:
            chosen, best = LONGER, longer
    gain = gain_of(present, best, present.open)
    return Choice(
        chosen,
        f"The last {chosen} observations with their actions predict more than the current one: the "
        f"error of the next {names[gain.column]!r} falls by {gain}.",
    )
