"""Settings of the latent stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sept_offline.config import check_range
from sept_offline.errors import ConfigError
from sept_offline.limits import LONGEST_REFINED

Objective = Literal["transitions", "segment"]


@dataclass(frozen=True)
class LatentConfig:
    """Settings of the latent; the defaults are for the transitions objective."""

    objective: Objective = "transitions"
    """`transitions`: sum the evidence of single transitions; `segment`: the paper's VAE."""
    refine: bool = True
    """Whether the latent is refined at every step (transitions objective) or inferred once, from
    the first `probe_steps` steps."""
    refine_steps: int = 64
    """Number of steps for which the latent is refined."""
    dim: int = 2
    """Number of latent dimensions."""
    updates: int = 2000
    """Total number of gradient steps."""
    learning_rate: float = 2e-3
    """Initial learning rate of Adam."""
    learning_rate_end: float = 1e-4
    """Final learning rate of a cosine schedule; if equal to `learning_rate`, it is constant."""
    beta: float = 1.0
    """Weight of the KL divergence to N(0, I)."""
    context: int = 64
    """Maximum number of steps in a training context (transitions objective)."""
    contexts: int = 64
    """Contexts per minibatch (transitions objective)."""
    transitions: int = 512
    """Transitions per minibatch (transitions objective), or windows (`dynasept`)."""
    segments: int = 128
    """Segments per minibatch (segment objective)."""
    hidden: int = 128
    """Width of the two hidden layers of each network (transitions objective, `dynasept`)."""
    initial_spread: float = 0.05
    """Initial standard deviation of the instances' means and of their posteriors."""
    posterior_factor: float = 5.0
    """Learning rate of the instances' posteriors, as a multiple of the networks'."""
    through: float = 1.0
    """Weight of the decoder's loss with z from the encoder (transitions objective)."""
    changes: bool = False
    """Whether the VAE reads each step as (s, a, s′ − s), including the final state, and decodes the
    changes given the actions; otherwise it reads and decodes pairs (s, a) (segment objective)."""
    entropy: float = 1.0
    """Weight of −H(q) (segment objective)."""
    encoder_units: int = 300
    """Units of each direction of the LSTM encoder (segment objective)."""
    decoder_units: int = 256
    """Units of the LSTM decoder (segment objective)."""
    minibatches: int = 1
    """Minibatches per update (segment objective; the paper uses 10)."""

    def __post_init__(self) -> None:
        counts = (
            "dim",
            "updates",
            "context",
            "contexts",
            "transitions",
            "segments",
            "hidden",
            "encoder_units",
            "decoder_units",
            "minibatches",
        )
        check_range(self, counts, "latent", least=1)
        check_range(self, ("refine_steps",), "latent", least=1, most=LONGEST_REFINED)
        positive = ("learning_rate", "learning_rate_end", "initial_spread", "posterior_factor")
        check_range(self, positive, "latent", above=0)
        check_range(self, ("beta", "entropy", "through"), "latent", least=0)
        if self.objective not in ("transitions", "segment"):
            raise ConfigError(
                f"latent.objective is {self.objective!r}; expected 'transitions' or 'segment'."
            )
