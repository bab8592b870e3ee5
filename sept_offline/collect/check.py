"""What a user runs on a family of their own before trusting anything learned from it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.collect.rollout import make_vector, reset_rows, spaces
from sept_offline.errors import FamilyError
from sept_offline.family import Family, Hidden, load_family
from sept_offline.seeding import generator

if TYPE_CHECKING:
    import gymnasium

SPLITS = ("train", "validation", "test")


def check_family(family: str | Family, *, seed: int = 0, episodes: int = 3) -> None:
    """Raise a FamilyError that names the probable cause if `family` breaks its contract.

    Checked: the record's numbers and splits; Gymnasium's own environment checker; that a seed
    fixes an episode; that observations and rewards are finite; that no limit shorter than the
    family's ends an episode; that hidden parameters change the dynamics and are not handed out in
    `info`; that the batch from `make_vec` gives the numbers of single environments. Call it before
    anything is logged: each of these would otherwise show as an agent that learns nothing.
    """
    record = load_family(family)
    _check_record(record)
    _, num_actions = spaces(record)
    hiddens = [hidden for split in SPLITS for hidden in record.splits[split]]
    _check_gymnasium(record, hiddens[0])
    rng = generator(seed, "check", record.name)
    draws = [rng.integers(num_actions, size=record.train_steps) for _ in range(episodes)]
    traces = []
    for index, actions in enumerate(draws):
        first = _trace(record, hiddens[0], seed + index, actions)
        again = _trace(record, hiddens[0], seed + index, actions)
        if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
            raise FamilyError(
                f"Family {record.name!r}: the same seed and actions gave two different episodes; "
                "probably the environment draws from a generator other than self.np_random."
            )
        traces.append(first)
    _check_hidden(record, seed, draws, traces)
    if record.make_vec is not None:
        _check_vector(record, hiddens, seed, draws[0])


def _check_record(family: Family) -> None:
    def refuse(text: str) -> None:
        raise FamilyError(f"Family {family.name!r}: {text}")

    for split in SPLITS:
        if not family.splits.get(split):
            refuse(f"split {split!r} is missing or empty; give at least one hidden dict.")
    if len(family.splits["train"]) < 2:
        refuse("split 'train' has one instance; at least two must differ to learn from.")
    names = {tuple(sorted(hidden)) for hidden in family.splits["train"]}
    if len(names) > 1:
        refuse(f"the training instances name different parameters: {sorted(names)}.")
    for field in ("train_steps", "test_steps", "probe_steps", "latent_dim"):
        value = getattr(family, field)
        if not isinstance(value, int) or value < 1:
            refuse(f"{field} is {value!r}; expected a whole number of at least 1.")
    if family.probe_steps >= min(family.train_steps, family.test_steps):
        refuse(
            f"probe_steps is {family.probe_steps}, which leaves no step for control in episodes "
            f"of {min(family.train_steps, family.test_steps)}."
        )


def _check_gymnasium(family: Family, hidden: Hidden) -> None:
    from gymnasium.utils.env_checker import check_env

    env = family.make(hidden)
    _check_limit(family, env)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_env(env.unwrapped, skip_render_check=True)
    except Exception as error:
        raise FamilyError(
            f"Family {family.name!r} fails Gymnasium's environment checker: {error}"
        ) from error
    finally:
        env.close()  # type: ignore[no-untyped-call]


def _check_limit(family: Family, env: gymnasium.Env[Any, Any]) -> None:
    """A limit that random actions may never reach still cuts short whoever does better."""
    from gymnasium.wrappers import TimeLimit

    needed = max(family.train_steps, family.test_steps)
    layer: Any = env
    while hasattr(layer, "env"):
        if isinstance(layer, TimeLimit) and layer._max_episode_steps < needed:
            raise FamilyError(
                f"Family {family.name!r}: make() returned an environment with a time limit of "
                f"{layer._max_episode_steps} steps, fewer than the {needed} of train_steps and "
                "test_steps; leave the time limit to the library."
            )
        layer = layer.env


def _trace(
    family: Family, hidden: Hidden, seed: int, actions: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    env = family.make(hidden)
    try:
        observation, info = env.reset(seed=seed)
        _check_info(family, hidden, info)
        observations, rewards, ends = [observation], [], []
        for step, action in enumerate(actions):
            observation, reward, terminated, truncated, info = env.step(int(action))
            _check_info(family, hidden, info)
            if not np.isfinite(observation).all() or not np.isfinite(float(reward)):
                raise FamilyError(
                    f"Family {family.name!r}: step {step} gave observation {observation} and "
                    f"reward {reward} under hidden {dict(hidden)}; both must be finite."
                )
            observations.append(observation)
            rewards.append(float(reward))
            ends.append(terminated)
            if truncated and not terminated and step + 1 < family.train_steps:
                raise FamilyError(
                    f"Family {family.name!r}: make() returned an environment that truncates after "
                    f"{step + 1} steps, before train_steps = {family.train_steps}; leave the time "
                    "limit to the library."
                )
            if terminated:
                break
    finally:
        env.close()  # type: ignore[no-untyped-call]
    return np.array(observations), np.array(rewards), np.array(ends)


def _check_info(family: Family, hidden: Hidden, info: dict[str, Any]) -> None:
    leaked = sorted(set(hidden) & set(info))
    if leaked:
        raise FamilyError(
            f"Family {family.name!r}: info holds the hidden parameter {leaked[0]!r}; an agent must "
            "never be able to read it."
        )


def _check_hidden(
    family: Family,
    seed: int,
    draws: list[NDArray[Any]],
    traces: list[tuple[NDArray[Any], ...]],
) -> None:
    distinct = {tuple(sorted(hidden.items())): hidden for hidden in family.splits["train"]}
    if len(distinct) < 2:
        raise FamilyError(
            f"Family {family.name!r}: all training instances have the same hidden parameters."
        )
    for other in list(distinct.values())[1:]:
        for index, actions in enumerate(draws):
            trace = _trace(family, other, seed + index, actions)
            if not all(np.array_equal(a, b) for a, b in zip(trace, traces[index], strict=True)):
                return
    raise FamilyError(
        f"Family {family.name!r}: hidden parameters change nothing, the same actions gave the same "
        "episodes in every training instance; probably make() does not hand them to the dynamics."
    )


def _check_vector(family: Family, hiddens: list[Hidden], seed: int, actions: NDArray[Any]) -> None:
    rows = hiddens[: min(4, len(hiddens))]
    env = make_vector(family, rows, family.train_steps)
    try:
        observations = [reset_rows(env, [seed + row for row in range(len(rows))])]
        rewards, ends = [], []
        for action in actions:
            observation, reward, terminated, truncated, _ = env.step(np.full(len(rows), action))
            observations.append(np.array(observation))
            rewards.append(np.array(reward))
            ends.append(np.array(terminated))
            # A row that has ended resets on its next step, where a single environment does not.
            if (terminated | truncated).any():
                break
    finally:
        env.close()
    batch = (np.array(observations), np.array(rewards), np.array(ends))
    for row, hidden in enumerate(rows):
        single = _trace(family, hidden, seed + row, actions[: len(rewards)])
        for name, one, all_rows in zip(
            ("observations", "rewards", "terminations"), single, batch, strict=True
        ):
            if not np.array_equal(one, all_rows[:, row]):
                raise FamilyError(
                    f"Family {family.name!r}: the {name} of row {row} of make_vec differ from "
                    f"those of make({dict(hidden)}) under the same seed and actions; both must "
                    "share one dynamics."
                )
