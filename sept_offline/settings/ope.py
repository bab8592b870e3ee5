"""The settings of an off-policy evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from sept_offline.errors import ConfigError
from sept_offline.settings.values import check_range


@dataclass(frozen=True)
class OpeConfig:
    """Settings of an off-policy evaluation."""

    horizon: int | None = None
    """Maximum number of steps per episode (default: the length that half of the episodes reach)."""
    confidence: float = 0.95
    """Confidence level of the intervals."""
    replicates: int = 1000
    """Number of bootstrap draws."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of the fitted Q."""
    updates: int | None = None
    """Updates of each fitted Q (default: enough for values to propagate 1.5 horizons)."""
    target_every: int = 25
    """Updates between two copies of the weights to the target; lowered if updates are few."""
    batch_size: int = 256
    """Transitions per minibatch of the fitted Q."""
    learning_rate: float = 3e-3
    """Initial learning rate of the fitted Q; it falls to 0 along half a cosine."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        counts = ("horizon", "updates", "replicates", "target_every", "batch_size")
        check_range(self, counts, least=1)
        check_range(self, ("confidence",), above=0, below=1)
        check_range(self, ("learning_rate",), above=0)
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden needs layers of at least 1 unit, found {self.hidden}.")

    def updates_for(self, horizon: int) -> int:
        """Updates of each fitted Q for episodes of `horizon` steps."""
        return self.updates or max(8000, 3 * horizon * self.target_every // 2)

    def target_every_for(self, horizon: int) -> int:
        """Updates between two copies, so that values propagate over the horizon if possible."""
        return max(1, min(self.target_every, 2 * self.updates_for(horizon) // (3 * horizon)))

    def travels(self, horizon: int) -> bool:
        """Whether there are enough copies: values propagate one step with each."""
        return self.updates_for(horizon) // self.target_every_for(horizon) >= horizon
