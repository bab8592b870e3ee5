"""The settings of an off-policy evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from sept_offline.errors import ConfigError


@dataclass(frozen=True)
class OpeConfig:
    """How an agent is judged from logs."""

    horizon: int | None = None
    """Steps after which an episode is cut; the longest logged episode's by default."""
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
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        for name in ("horizon", "updates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected at least 1.")
        for name in ("replicates", "target_every", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; expected at least 1.")
        if not 0 < self.confidence < 1:
            raise ConfigError(f"confidence is {self.confidence}; expected between 0 and 1.")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate is {self.learning_rate}; expected above 0.")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden needs layers of at least 1 unit, found {self.hidden}.")

    def updates_for(self, horizon: int) -> int:
        """Of each fitted Q, for episodes of so many steps."""
        return self.updates or max(2000, 3 * horizon * self.target_every // 2)

    def target_every_for(self, horizon: int) -> int:
        """Updates between two copies, such that values can travel the horizon if at all."""
        return max(1, min(self.target_every, 2 * self.updates_for(horizon) // (3 * horizon)))

    def travels(self, horizon: int) -> bool:
        """Whether there are copies enough: a value goes back one step with each."""
        return self.updates_for(horizon) // self.target_every_for(horizon) >= horizon
