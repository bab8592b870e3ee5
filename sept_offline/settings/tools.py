"""The settings of the tools around the core: of a demarcation and of an off-policy evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from sept_offline.settings.values import Count, Layers, Positive, Range, Settings, Share

MOST_ROUNDS = 30
"""Maximum rounds of refinement; groups that still change after that are not separable."""


@dataclass(frozen=True)
class DemarcateConfig(Settings):
    """How episodes are grouped by their dynamics, and when the labels are supported."""

    dim: Count = 3
    """Dimension of an episode's latent."""
    updates: Count = 1500
    """Gradient steps for the episodes' latents."""
    refining: Count | None = None
    """Updates of the groups' decoder per round of refinement (default: half of `updates`)."""
    rounds: Annotated[int, Range(least=1, most=MOST_ROUNDS)] = 3
    """Minimum rounds of refitting the decoder and reassigning the episodes."""
    hidden: Count = 128
    """Width of the hidden layers."""
    episodes: Count = 48
    """Episodes per minibatch."""
    window: Count = 24
    """Steps per episode and update to infer the latent from, and to explain."""
    learning_rate: Positive = 2e-3
    """Initial learning rate of all networks."""
    learning_rate_end: Positive = 1e-4
    """Final learning rate of the cosine schedule."""
    resolution: Positive = 0.05
    """Dynamics that differ by less than this share of the changes' standard deviation count as the
    same, so that approximation errors of the networks do not look like different dynamics."""
    smallest: Annotated[int, Range(least=2)] | None = None
    """Minimum episodes per group (default: 5, or 5 % of all episodes if that is more). Rare
    episodes, which the networks fit worst, can look like a small group."""
    gain: Positive = 0.03
    """Minimum gain of separating two groups, in nats per step, on steps not used to assign them."""
    unsure: Literal["nearest", "drop"] = "nearest"
    """What to do with episodes that fit no group, or two equally well: assign them to the most
    likely group, or drop them."""
    stable: Share = 0.8
    """Minimum agreement of independent halves (adjusted Rand index) for labels to be supported."""
    most_unsure: Share = 0.2
    """Maximum share of unsure episodes for labels to be supported."""

    def smallest_of(self, episodes: int) -> int:
        """Minimum episodes per group for a dataset of `episodes` episodes."""
        return self.smallest or max(5, episodes // 20)

    @property
    def refining_updates(self) -> int:
        """Updates of the groups' decoder per round."""
        return self.refining or max(1, self.updates // 2)


@dataclass(frozen=True)
class OpeConfig(Settings):
    """Settings of an off-policy evaluation."""

    horizon: Count | None = None
    """Maximum number of steps per episode (default: the length that half of the episodes reach)."""
    confidence: Annotated[float, Range(above=0, below=1)] = 0.95
    """Confidence level of the intervals."""
    replicates: Count = 1000
    """Number of bootstrap draws."""
    hidden: Layers = (128, 128)
    """Widths of the hidden layers of the fitted Q."""
    updates: Count | None = None
    """Updates of each fitted Q (default: enough for values to propagate 1.5 horizons)."""
    target_every: Count = 25
    """Updates between two copies of the weights to the target; lowered if updates are few."""
    batch_size: Count = 256
    """Transitions per minibatch of the fitted Q."""
    learning_rate: Positive = 3e-3
    """Initial learning rate of the fitted Q; it falls to 0 along half a cosine."""

    def updates_for(self, horizon: int) -> int:
        """Updates of each fitted Q for episodes of `horizon` steps."""
        return self.updates or max(8000, 3 * horizon * self.target_every // 2)

    def target_every_for(self, horizon: int) -> int:
        """Updates between two copies, so that values propagate over the horizon if possible."""
        return max(1, min(self.target_every, 2 * self.updates_for(horizon) // (3 * horizon)))

    def travels(self, horizon: int) -> bool:
        """Whether there are enough copies: values propagate one step with each."""
        return self.updates_for(horizon) // self.target_every_for(horizon) >= horizon
