"""A family whose answer is known by hand: a coin shows the mode, then the mode must be named.

Observation: [face, time]. The face starts as +1 or −1, evenly. With hidden mode +1 it stays, with
mode −1 it turns over at each probing step. The last action is the guess: action 1 for mode +1,
action 0 for mode −1, reward 1 if right and 0 if not; all other rewards are 0.

    time 0           time 1
    face 0 ─ probe → face 1 ─ guess → end          mode = face 0 · face 1

Whatever the mode, each face is even at every time, so the state alone says nothing: without a
latent every guess is right with probability 1/2; with one, always.

With `shy`, action 1 is the only one that shows the mode; after action 0 the face falls at random.
A probe that takes action 0 then knows nothing. With `probing=2` there are two probing steps before
the guess: the paper's segments leave out the state they end in, so they need two to show one move.
With `telling`, the first action is a guess too and paid as the last one is, so that its reward
tells the mode to whoever is shown rewards: 1/2 + 1 on average, 1/2 + 1/2 for all others.
With `box`, an action is a number in [−1, 1] and the guess is paid (1 + mode · action) / 2: 1/2 for
the middle or for chance, 1 for the right end.
"""

from __future__ import annotations

import functools
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from sept_offline.actions import Box as BoxSpace
from sept_offline.actions import Finite, Policy
from sept_offline.data import DatasetWriter
from sept_offline.family import Family, Hidden

MODES = (-1.0, 1.0)
SPACE = BoxSpace.of([-1.0], [1.0], ["guess"])
MANY = 20
"""Test instances; with each mode, half of them."""


class TwoStep(gymnasium.Env[Any, Any]):
    """One instance; see above."""

    def __init__(
        self,
        hidden: Hidden,
        probing: int = 1,
        shy: bool = False,
        telling: bool = False,
        box: bool = False,
    ) -> None:
        self.mode, self.probing, self.shy = hidden["mode"], probing, shy
        self.telling = telling
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.box = box
        self.action_space = Box(-1, 1, (1,), np.float32) if box else Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.face, self.time = self._toss(), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        last = self.time == self.probing
        if self.box:
            right, shown = (1 + self.mode * float(action[0])) / 2, True
        else:
            right, shown = int(action) == (self.mode > 0), not self.shy or int(action) == 1
        self.face = self.face * self.mode if shown else self._toss()
        paid = last or (self.telling and self.time == 0)
        self.time += 1
        return self._seen(), float(right) if paid else 0.0, last, False, {}

    def _toss(self) -> float:
        return float(self.np_random.choice((-1.0, 1.0)))

    def _seen(self) -> Any:
        return np.array([self.face, self.time], dtype=np.float32)


def two_step(
    probing: int = 1, shy: bool = False, telling: bool = False, box: bool = False
) -> Family:
    """The family; a test split of many instances, since an instance gives one bit."""
    both = tuple({"mode": mode} for mode in MODES)
    return Family(
        name="two-step",
        make=partial(TwoStep, probing=probing, shy=shy, telling=telling, box=box),
        splits={"train": both, "test": both * (MANY // 2)},
        train_steps=probing + 1,
        test_steps=probing + 1,
        probe_steps=probing,
        latent_dim=2,
        solved=1.0,
        observation_names=("face", "time"),
        action_names=("guess",) if box else ("other", "same"),
    )


def log_two_step(
    path: Path,
    probing: int = 1,
    shy: bool = False,
    episodes: int = 400,
    telling: bool = False,
    box: bool = False,
) -> Path:
    """Log random actions, evenly over both modes; the same logs are made once in a process."""
    path.write_bytes(_logged(path.suffix, probing, shy, episodes, telling, box))
    return path


@functools.cache
def _logged(suffix: str, probing: int, shy: bool, episodes: int, telling: bool, box: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"logs{suffix}"
        _log(path, probing, shy, episodes, telling, box)
        return path.read_bytes()


def _log(path: Path, probing: int, shy: bool, episodes: int, telling: bool, box: bool) -> None:
    family = two_step(probing, shy, telling, box)
    rng = np.random.default_rng(5)
    hidden = {f"train-{i}": instance for i, instance in enumerate(family.instances())}
    with DatasetWriter(
        path,
        action_space=SPACE if box else Finite.of(2, family.action_names),
        family=family.name,
        observation_names=family.observation_names,
        hidden=hidden,
        probe_steps=probing,
    ) as writer:
        for number in range(episodes):
            name = f"train-{number % 2}"
            env = family.make(hidden[name])
            observations = [env.reset(seed=number)[0]]
            if box:
                policy: Policy = SPACE.uniform(probing + 1)
                actions = policy.draw(rng.random((probing + 1, SPACE.draws)))
            else:
                policy = Finite.of(2).uniform(probing + 1)
                actions = rng.integers(2, size=probing + 1)
            rewards = []
            for action in actions:
                observation, reward, *_ = env.step(action)
                observations.append(observation)
                rewards.append(reward)
            writer.append(
                instance=name,
                observations=np.stack(observations),
                actions=actions,
                rewards=np.array(rewards),
                terminated=True,
                truncated=False,
                propensities=policy.logged(actions),
                behaviour="random",
                seed=number,
            )
