"""The settings of an off-policy evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from sept_offline.config import check_range
from sept_offline.errors import ConfigError


@dataclass(frozen=True)
class OpeConfig:
    """How an agent is judged from logs."""

    horizon: int | None = None
    """Steps after which an episode is cut; by default as many as half of the episodes reach."""
    confidence: float = 0.95
    """How often an interval is to hold the truth."""
    replicates: int = 1000
    """Draws of the bootstrap."""
    hidden: tuple[int, ...] = (128, 128)
    """Layers of the fitted Q."""
    updates: int | None = None
    """Of each fitted Q; by default enough for values to travel the horizon once and a half."""
    target_every: int = 25
    """Updates between two copies of the weights into the target; fewer where updates are few."""
    batch_size: int = 256
    """Transitions a minibatch of the fitted Q."""
    learning_rate: float = 3e-3
    """Of the fitted Q, at first; it falls to 0 along half a cosine."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        counts = ("horizon", "updates", "replicates", "target_every", "batch_size")
        check_range(self, counts, least=1)
        check_range(self, ("confidence",), above=0, below=1)
        check_range(self, ("learning_rate",), above=0)
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden needs layers of at least 1 unit, found {self.hidden}.")

    def updates_for(self, horizon: int) -> int:
        """Of each fitted Q, for episodes of so many steps."""
        return self.updates or max(8000, 3 * horizon * self.target_every // 2)

    def target_every_for(self, horizon: int) -> int:
        """Updates between two copies, such that values can travel the horizon if at all."""
        return max(1, min(self.target_every, 2 * self.updates_for(horizon) // (3 * horizon)))

    def travels(self, horizon: int) -> bool:
        """Whether there are copies enough: a value goes back one step with each."""
        return self.updates_for(horizon) // self.target_every_for(horizon) >= horizon
