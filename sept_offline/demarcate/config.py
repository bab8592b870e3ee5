"""The settings of a demarcation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sept_offline.config import check_range
from sept_offline.errors import ConfigError

Unsure = Literal["nearest", "drop"]

MOST_ROUNDS = 30
"""Of refinement; groups that have not settled by then are not told apart."""


@dataclass(frozen=True)
class DemarcateConfig:
    """How episodes are told apart by their dynamics, and when the result is believed."""

    dim: int = 3
    """Of an episode's latent."""
    updates: int = 1500
    """Of the episodes' latents."""
    refining: int | None = None
    """Updates of the groups' decoder in each round of refinement; by default half of `updates`."""
    rounds: int = 3
    """Times that the decoder is refitted and the episodes are assigned anew, at least."""
    hidden: int = 128
    """Width of the hidden layers."""
    episodes: int = 48
    """A minibatch."""
    window: int = 24
    """Steps of an episode that its latent is read from, and that it has to explain, an update."""
    learning_rate: float = 2e-3
    """Of all networks, at first."""
    learning_rate_end: float = 1e-4
    """To which the rate falls along half a cosine."""
    resolution: float = 0.05
    """Dynamics that differ by less than this share of a change's spread count as the same; it
    keeps what the networks cannot learn of one dynamics from passing for two."""
    smallest: int | None = None
    """Episodes of the smallest group; by default 5, or 5 % of all if that is more. Rare episodes of
    one dynamics, where the networks know least, look like a small group of their own."""
    gain: float = 0.03
    """Nats a step that telling two groups apart must gain on steps it was not told apart by."""
    unsure: Unsure = "nearest"
    """What becomes of episodes that fit no group, or two alike: given to the likeliest, or left
    out."""
    stable: float = 0.8
    """Agreement of independent halves (adjusted Rand) below which labels are not supported."""
    most_unsure: float = 0.2
    """Share of unsure episodes above which labels are not supported."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        counts = ("dim", "updates", "refining", "rounds", "hidden", "episodes", "window")
        check_range(self, counts, least=1)
        check_range(self, ("learning_rate", "learning_rate_end", "resolution", "gain"), above=0)
        check_range(self, ("stable", "most_unsure"), least=0, most=1)
        check_range(self, ("rounds",), most=MOST_ROUNDS)
        check_range(self, ("smallest",), least=2)
        if self.unsure not in ("nearest", "drop"):
            raise ConfigError(f"unsure is {self.unsure!r}; expected 'nearest' or 'drop'.")

    def smallest_of(self, episodes: int) -> int:
        """Episodes of the smallest group among so many."""
        return self.smallest or max(5, episodes // 20)

    @property
    def refining_updates(self) -> int:
        """Of the groups' decoder in each round."""
        return self.refining or max(1, self.updates // 2)
