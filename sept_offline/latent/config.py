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
    """How the latent is learned; the defaults are those of the transitions objective."""

    objective: Objective = "transitions"
    """`transitions`: evidence of single transitions, added up; `segment`: the paper's VAE."""
    refine: bool = True
    """Whether the latent is refined with every step (transitions objective), or read once, from the
    first `probe_steps` steps."""
    refine_steps: int = 64
    """Steps after which it is refined no more."""
    dim: int = 2
    """Numbers in a latent."""
    updates: int = 2000
    """Gradient steps in all."""
    learning_rate: float = 2e-3
    """Initial learning rate of Adam."""
    learning_rate_end: float = 1e-4
    """The rate falls to this along half a cosine; equal to `learning_rate`, it is constant."""
    beta: float = 1.0
    """Weight of the latent's cost, the KL to N(0, I)."""
    context: int = 64
    """Steps of the longest context that is learned from (transitions objective)."""
    contexts: int = 64
    """Contexts per minibatch (transitions objective)."""
    transitions: int = 512
    """Transitions per minibatch (transitions objective), or windows (`dynasept`)."""
    segments: int = 128
    """Segments per minibatch (segment objective)."""
    hidden: int = 128
    """Width of the two hidden layers of each network (transitions objective, `dynasept`)."""
    initial_spread: float = 0.05
    """Standard deviation of the instances' first means, and of the first posteriors."""
    posterior_factor: float = 5.0
    """How many times faster the instances' posteriors learn than the networks."""
    through: float = 1.0
    """Weight of the decoder's loss with z from the encoder (transitions objective)."""
    changes: bool = False
    """Whether the VAE reads each step as (s, a, s′ − s), with the final state, and decodes the
    changes given the actions; else it reads and decodes pairs (s, a) (segment objective)."""
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
