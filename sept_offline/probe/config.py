"""Settings of the probe stage and of the paper's loop between probe and VAE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sept_offline.config import check_range
from sept_offline.errors import ConfigError

Reward = Literal["elbo", "information", "total-variation", "negative-elbo"]
REWARDS: tuple[Reward, ...] = ("elbo", "information", "total-variation", "negative-elbo")


@dataclass(frozen=True)
class ProbeConfig:
    """Settings of the probe, which is learned from logged segments."""

    use: Literal["auto", "always", "never"] = "auto"
    """Whether a probe acts first, if the latent is refined at every step: `auto` compares both in
    learned dynamics at the end of the fit and probes only if that earns more."""
    reward: Reward = "information"
    """Reward of a segment: information, elbo, negative-elbo or total-variation."""
    steps: int = 150
    """Number of full-batch gradient steps."""
    learning_rate: float = 3e-3
    """Learning rate of Adam."""
    hidden: int = 32
    """Width of the three hidden layers."""
    ess_floor: float = 0.1
    """Minimum effective sample size, as a share of the segments."""
    estimated_floor_factor: float = 2.0
    """Factor on the floor if the behaviour's probabilities are estimated."""
    holdout: float = 0.2
    """Share of the segments held out for the final check."""
    margin: float = 2.0
    """Minimum improvement of the held-out reward for the probe to be kept, in standard errors."""
    progress_weight: float = 0.0
    """λ, the weight of a bonus for the final state of each segment, in standard deviations."""
    tracking_rate: float = 1.0
    """α, the rate at which the VAE that rewards the probe tracks the trained one (paper's loop)."""
    warmup: int = 0
    """Updates of the VAE before the probe starts to learn (paper's loop)."""
    minibatches: int = 1
    """Probe minibatches per update (paper's loop)."""
    batch: int = 512
    """Segments per probe minibatch (paper's loop)."""

    def __post_init__(self) -> None:
        if self.reward not in REWARDS:
            raise ConfigError(
                f"probe.reward is {self.reward!r}; expected one of {', '.join(REWARDS)}."
            )
        check_range(self, ("steps", "hidden", "minibatches", "batch"), "probe", least=1)
        check_range(self, ("warmup",), "probe", least=0)
        check_range(self, ("ess_floor", "tracking_rate"), "probe", least=0, most=1)
        check_range(self, ("holdout",), "probe", least=0, most=0.9)
        check_range(self, ("learning_rate",), "probe", above=0)
        check_range(self, ("estimated_floor_factor",), "probe", least=1)

    def floor(self, estimated: bool) -> float:
        """The minimum effective share, given whether the probabilities are estimated."""
        return min(1.0, self.ess_floor * (self.estimated_floor_factor if estimated else 1.0))
