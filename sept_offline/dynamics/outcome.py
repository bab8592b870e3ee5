"""Rewards and ends in learned dynamics: a network of (s, a, s′), and its fit to the logs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.data.records import Steps
from sept_offline.dynamics.columns import Columns, Reader
from sept_offline.seeding import torch_generator
from sept_offline.settings import DynamicsConfig
from sept_offline.training.layers import initialise, perceptron
from sept_offline.training.updates import UpdateStage

ENDING = 0.2
"""Share of a minibatch that ends an episode, where any transition does: ends are rare, and where
they begin is what a plan turns on. What this adds to the odds of an end is taken off again."""
NEARLY_EQUAL = 1e-9
"""Values whose spread is this share of the largest, or less, are equal up to rounding."""


class OutcomeModel(nn.Module):
    """(s, a, s′) → the reward if the episode goes on, the reward if it ends, and whether it ends.

    What counts is the same in all instances; only where an action leads differs. Rewards are in
    standard deviations of their kind: scale[2], centre[2].
    """

    def __init__(
        self,
        reader: Reader,
        action_width: int,
        hidden: tuple[int, ...],
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.reader, self.action_width, self.hidden = reader, action_width, hidden
        inputs = 2 * reader.features_dim + action_width + reader.width
        self.body = perceptron(inputs, hidden, 3)
        if rng is not None:
            initialise(self.body, rng)
        self.register_buffer("centre", torch.zeros(2))
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("ends", torch.zeros(1))

    def features(self, before: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        """The network's inputs for transitions with encoded `actions[B, A]`, [B, ·]."""
        read = self.reader.features
        return torch.cat(
            (read(before), actions, read(after), self.reader.change(before, after)), dim=-1
        )

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Standardised rewards [B, 2], going on and ending, and the logit of an end [B]."""
        output = self.body(features)
        return output[:, :2], output[:, 2]

    def predict(self, before: Tensor, actions: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards [B] and ends [B] of transitions: 1 where an end is likelier than not, else 0."""
        rewards, logit = self(self.features(before, actions, after))
        rewards = rewards * self.get_buffer("scale") + self.get_buffer("centre")
        # where no logged episode ends, none does: the logit has nothing to learn from
        ended = (logit > 0) & (self.get_buffer("ends") > 0)
        return torch.where(ended, rewards[:, 1], rewards[:, 0]), ended.float()


def surplus_log_odds(forced: float, share: float) -> float:
    """The rise of the log odds of an end in minibatches with a share `forced` of ends.

    The others are drawn from all logged transitions, a `share` of which are ends, so the odds of an
    end rise from p : 1 − p to (forced / share + 1 − forced) · p : (1 − forced) · (1 − p).
    """
    return math.log1p(forced / ((1 - forced) * share)) if forced else 0.0


class OutcomeStage(UpdateStage):
    """Regression of rewards, of those that go on and those that end apart, and of the end itself.

    rewards[N], terminals[N]: of each step, as control would learn from them.
    """

    watched = ("reward_error", "wrong_ends")

    def __init__(
        self,
        steps: Steps,
        rewards: NDArray[Any],
        terminals: NDArray[Any],
        columns: Columns,
        config: DynamicsConfig,
        seed: int,
        *,
        space: ActionSpace,
    ) -> None:
        rate = config.outcome_rate
        super().__init__("outcome", config.outcome_updates, (rate, 0.02 * rate))
        self.config = config
        rng = torch_generator(seed, "outcome", "initialise")
        self.outcome = OutcomeModel(Reader(columns), space.width, config.outcome_hidden, rng)
        self.optimise({"outcome": self.outcome}, torch_generator(seed, "outcome", "train"))
        self._before = torch.from_numpy(steps.observations[steps.row])
        self._after = torch.from_numpy(steps.observations[steps.row + 1])
        self._actions = torch.from_numpy(space.encode(steps.actions))
        ended = np.array(terminals, dtype=bool)
        self._ended = torch.from_numpy(ended)
        self._ending = torch.from_numpy(np.flatnonzero(ended))
        self._forced = round(ENDING * config.outcome_batch) if ended.any() else 0
        self._surplus = surplus_log_odds(self._forced / config.outcome_batch, float(ended.mean()))
        with torch.no_grad():
            # even odds in a minibatch to begin with, not in the logs
            self.outcome.body[-1].bias[2] -= self._surplus  # type: ignore[index, operator]
        values = np.asarray(rewards, dtype=np.float64)
        centre, scale = np.zeros(2), np.ones(2)
        for kind, part in enumerate((values[~ended], values[ended])):
            if len(part):
                centre[kind] = part.mean()
                spread, largest = part.std(), np.abs(part).max()
                scale[kind] = spread if spread > NEARLY_EQUAL * largest else 1.0
        which = ended.astype(np.int64)
        self._targets = torch.from_numpy((values - centre[which]) / scale[which]).float()
        self.outcome.get_buffer("centre").copy_(torch.from_numpy(centre))
        self.outcome.get_buffer("scale").copy_(torch.from_numpy(scale))
        self.outcome.get_buffer("ends").fill_(float(ended.any()))

    def _update(self) -> Tensor:
        config = self.config
        rows = torch.randint(len(self._actions), (config.outcome_batch,), generator=self.rng)
        if self._forced:
            chosen = torch.randint(len(self._ending), (self._forced,), generator=self.rng)
            rows[: self._forced] = self._ending[chosen]
        ended = self._ended[rows]
        features = self.outcome.features(self._before[rows], self._actions[rows], self._after[rows])
        rewards, logit = self.outcome(features)
        guess = torch.where(ended, rewards[:, 1], rewards[:, 0])
        error = nn.functional.smooth_l1_loss(guess, self._targets[rows])
        drawn = logit + self._surplus
        end = nn.functional.binary_cross_entropy_with_logits(drawn, ended.float())
        self._descend(error + end)
        wrong = ((drawn > 0) != ended).float().mean()
        return torch.stack((error.detach(), wrong))
