"""Settings that a fit chooses from the logs, each with its reason in one sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sept_offline.actions import Box, Finite
from sept_offline.data import Dataset
from sept_offline.data.records import Segments, Steps
from sept_offline.errors import ConfigError
from sept_offline.probe.behaviour import estimate_behaviour
from sept_offline.seeding import generator, integer
from sept_offline.settings import AUTO, BOX_ALGORITHMS, FINITE_ALGORITHMS, FitConfig

FEW_ACTIONS = 1.5
"""Effective number of actions below which a logged step has hardly any alternative."""
NARROW = 0.7
"""Share of such steps above which logs are narrow: experts' logs have 0.9, replayed ones 0.4."""
STEPS = 4000
"""Number of steps to estimate the behaviour from if its probabilities were not logged."""
UPDATES, MOST_UPDATES = 8000, 24_000
"""Updates of control: for up to `ENOUGH_STEPS` logged steps, and at most."""
ENOUGH_STEPS = 50_000


@dataclass(frozen=True)
class Choice:
    """A choice and its reason in one sentence."""

    chosen: int | str
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
    rows = np.sort(rng.permutation(len(steps.actions))[:STEPS])
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


def check_algorithm(data: Dataset, algorithm: str) -> None:
    """Refuse an algorithm for the other kind of actions."""
    box = isinstance(data.action_space, Box)
    fitting = BOX_ALGORITHMS if box else FINITE_ALGORITHMS
    if algorithm not in (AUTO, *fitting):
        kind = "continuous" if box else "a finite set"
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
    return replace(config, control=control), choices
