"""Settings of the latent stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sept_offline.config import check_range
from sept_offline.errors import ConfigError

Objective = Literal["instance", "segment"]


@dataclass(frozen=True)
class LatentConfig:
    """How the latent is learned; the defaults are those of the instance objective."""

    objective: Objective = "instance"
    """`instance`: one latent an instance and an encoder for it; `segment`: the paper's VAE."""
    dim: int = 2
    """Numbers in a latent."""
    updates: int = 1500
    """Gradient steps in all."""
    learning_rate: float = 2e-3
    """Of Adam, at first."""
    learning_rate_end: float = 1e-4
    """The rate falls to this along half a cosine; equal to `learning_rate`, it is constant."""
    beta: float = 1.0
    """Weight of the latent's cost, the KL to N(0, I)."""
    transitions: int = 512
    """Transitions a minibatch (instance objective)."""
    segments: int = 128
    """Segments a minibatch."""
    hidden: int = 128
    """Width of the two hidden layers of encoder and decoder (instance objective)."""
    initial_spread: float = 0.05
    """Standard deviation of the instances' first means and of their first posteriors."""
    posterior_factor: float = 5.0
    """The instances' posteriors learn so much faster than the networks (instance objective)."""
    through: float = 1.0
    """Weight of a fourth term, the decoder's loss with z from the encoder (instance objective)."""
    entropy: float = 1.0
    """Weight of −H(q) (segment objective)."""
    encoder_units: int = 300
    """Units of each direction of the LSTM encoder (segment objective)."""
    decoder_units: int = 256
    """Units of the LSTM decoder (segment objective)."""
    minibatches: int = 1
    """Minibatches an update (segment objective; the paper takes 10)."""

    def __post_init__(self) -> None:
        counts = (
            "dim",
            "updates",
            "transitions",
            "segments",
            "hidden",
            "encoder_units",
            "decoder_units",
            "minibatches",
        )
        check_range(self, counts, "latent", least=1)
        positive = ("learning_rate", "learning_rate_end", "initial_spread", "posterior_factor")
        check_range(self, positive, "latent", above=0)
        check_range(self, ("beta", "entropy", "through"), "latent", least=0)
        if self.objective not in ("instance", "segment"):
            raise ConfigError(
                f"latent.objective is {self.objective!r}; expected 'instance' or 'segment'."
            )
