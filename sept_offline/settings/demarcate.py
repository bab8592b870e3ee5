"""The settings of a demarcation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sept_offline.errors import ConfigError
from sept_offline.settings.values import check_range

Unsure = Literal["nearest", "drop"]

MOST_ROUNDS = 30
"""Maximum rounds of refinement; groups that still change after that are not separable."""


@dataclass(frozen=True)
class DemarcateConfig:
    """How episodes are grouped by their dynamics, and when the labels are supported."""

    dim: int = 3
    """Dimension of an episode's latent."""
    updates: int = 1500
    """Gradient steps for the episodes' latents."""
    refining: int | None = None
    """Updates of the groups' decoder per round of refinement (default: half of `updates`)."""
    rounds: int = 3
    """Minimum rounds of refitting the decoder and reassigning the episodes."""
    hidden: int = 128
    """Width of the hidden layers."""
    episodes: int = 48
    """Episodes per minibatch."""
    window: int = 24
    """Steps per episode and update to infer the latent from, and to explain."""
    learning_rate: float = 2e-3
    """Initial learning rate of all networks."""
    learning_rate_end: float = 1e-4
    """Final learning rate of the cosine schedule."""
    resolution: float = 0.05
    """Dynamics that differ by less than this share of the changes' standard deviation count as the
    same, so that approximation errors of the networks do not look like different dynamics."""
    smallest: int | None = None
    """Minimum episodes per group (default: 5, or 5 % of all episodes if that is more). Rare
    episodes, which the networks fit worst, can look like a small group."""
    gain: float = 0.03
    """Minimum gain of separating two groups, in nats per step, on steps not used to assign them."""
    unsure: Unsure = "nearest"
    """What to do with episodes that fit no group, or two equally well: assign them to the most
    likely group, or drop them."""
    stable: float = 0.8
    """Minimum agreement of independent halves (adjusted Rand index) for labels to be supported."""
    most_unsure: float = 0.2
    """Maximum share of unsure episodes for labels to be supported."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        counts = ("dim", "updates", "refining", "rounds", "hidden", "episodes", "window")
        check_range(self, counts, least=1)
        check_range(self, ("learning_rate", "learning_rate_end", "resolution", "gain"), above=0)
        check_range(self, ("stable", "most_unsure"), least=0, most=1)
        check_range(self, ("rounds",), most=MOST_ROUNDS)
        check_range(self, ("smallest",), least=2)
        if self.unsure not in ("nearest", "drop"):
            raise ConfigError(f"unsure is {self.unsure!r}; expected 'nearest' or 'drop'.")

    def smallest_of(self, episodes: int) -> int:
        """Minimum episodes per group for a dataset of `episodes` episodes."""
        return self.smallest or max(5, episodes // 20)

    @property
    def refining_updates(self) -> int:
        """Updates of the groups' decoder per round."""
        return self.refining or max(1, self.updates // 2)
