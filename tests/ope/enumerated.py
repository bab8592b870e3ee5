"""Tiny random decision processes, every trajectory of which is written down with its probability.

States 0 … S−1, A actions, H steps. An instance is a draw of first states, transitions, rewards and
chances of an early end. The behaviour looks at state and clock; the agent's policy at the whole
past, as a probe that feeds a latent does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sept_offline.data.records import Steps

Past = tuple[int, ...]
"""s_0, a_0, s_1, …, s_t."""


class Tabular:
    """One random process with its behaviour and a policy that remembers."""

    def __init__(self, seed: int, states: int, actions: int, horizon: int) -> None:
        rng = np.random.default_rng(seed)
        self.states, self.actions, self.horizon = states, actions, horizon
        self.first = rng.dirichlet(np.ones(states))
        self.moves = rng.dirichlet(np.ones(states), size=(states, actions))
        self.rewards = rng.normal(size=(states, actions, states)) * 3
        self.ending = rng.random((states, actions)) * 0.6
        chances = rng.dirichlet(np.ones(actions), size=(horizon, states))
        self.chances = 0.8 * chances + 0.2 / actions
        self._rng = rng
        self._policy: dict[Past, Any] = {}

    def behaviour(self, past: Past) -> Any:
        return self.chances[len(past) // 2, past[-1]]

    def policy(self, past: Past) -> Any:
        """[A]; greedy for half of the pasts."""
        if past not in self._policy:
            chances = self._rng.dirichlet(np.ones(self.actions))
            sure = np.eye(self.actions)[int(self._rng.integers(self.actions))]
            self._policy[past] = sure if self._rng.random() < 0.5 else chances
        return self._policy[past]

    def q(self, past: Past) -> Any:
        """[A], the policy's exact values, by recursion."""
        values = np.zeros(self.actions)
        for action in range(self.actions):
            for state in range(self.states):
                gain = self.rewards[past[-1], action, state]
                if len(past) // 2 + 1 < self.horizon:
                    going = 1 - self.ending[past[-1], action]
                    gain = gain + going * self.v((*past, action, state))
                values[action] += self.moves[past[-1], action, state] * gain
        return values

    def v(self, past: Past) -> float:
        return float(self.policy(past) @ self.q(past))

    @property
    def truth(self) -> float:
        return float(sum(p * self.v((s,)) for s, p in enumerate(self.first)))


@dataclass
class Logs:
    """Every trajectory: its probability under the behaviour, and its steps in columns."""

    shares: list[float] = field(default_factory=list)
    pasts: list[list[Past]] = field(default_factory=list)
    actions: list[list[int]] = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)

    def add(self, share: float, taken: list[tuple[Past, int, float]], terminated: bool) -> None:
        self.shares.append(share)
        self.pasts.append([past for past, _, _ in taken])
        self.actions.append([action for _, action, _ in taken])
        self.rewards.append([reward for _, _, reward in taken])
        self.terminated.append(terminated)

    def steps(self) -> Steps:
        lengths = [len(actions) for actions in self.actions]
        count = sum(lengths)
        ends = np.cumsum(lengths) - 1
        terminations = np.zeros(count, dtype=bool)
        terminations[ends] = self.terminated
        truncations = np.zeros(count, dtype=bool)
        truncations[ends] = ~np.array(self.terminated)
        episode = np.repeat(np.arange(len(lengths)), lengths)
        time = np.concatenate([np.arange(length) for length in lengths])
        return Steps(
            observations=np.zeros((count + len(lengths), 1), dtype=np.float32),
            actions=np.concatenate(self.actions).astype(np.int64),
            rewards=np.concatenate(self.rewards),
            propensities=None,
            terminations=terminations,
            truncations=truncations,
            row=np.arange(count) + episode,
            episode=episode,
            instance=np.zeros(count, dtype=np.int64),
            time=time,
        )

    def along(self, chances: Any) -> Any:
        """[N, A] of `chances(past)` at every logged step."""
        return np.array([chances(past) for pasts in self.pasts for past in pasts])


def enumerate_logs(process: Tabular, cut: float = 0.0) -> Logs:
    """All trajectories; with `cut`, each is stopped after any step, whatever it was, so often."""
    logs = Logs()

    def go(share: float, past: Past, taken: list[tuple[Past, int, float]]) -> None:
        if len(taken) == process.horizon:
            logs.add(share, taken, False)
            return
        if taken and cut:
            logs.add(share * cut, taken, False)
            share *= 1 - cut
        for action, chance in enumerate(process.behaviour(past)):
            for state in range(process.states):
                reach = share * chance * process.moves[past[-1], action, state]
                step = (past, action, float(process.rewards[past[-1], action, state]))
                end = process.ending[past[-1], action]
                logs.add(reach * end, [*taken, step], True)
                go(reach * (1 - end), (*past, action, state), [*taken, step])

    for state, chance in enumerate(process.first):
        go(float(chance), (state,), [])
    return logs
