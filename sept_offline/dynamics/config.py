"""Settings of the Bayesian network, of what it infers in an episode and of planning with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sept_offline.config import check_range
from sept_offline.errors import ConfigError

Budget = Literal["reduced", "paper"]
MOST, MOST_SAMPLES = 1_000_000, 10_000
"""An agent brings these settings along and computes by them in its episode: no more than this."""


@dataclass(frozen=True)
class DynamicsConfig:
    """How the network, and a model of rewards and ends beside it, are fitted to the logs."""

    dim: int = 5
    """Of w."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the network's hidden layers."""
    alpha: float = 0.5
    """Of the divergence; towards 0 it is variational inference."""
    samples: int = 4
    """K: draws of the weights an estimate of the energy takes."""
    updates: int = 5000
    """Gradient steps of the network."""
    batch_size: int = 128
    """Transitions a minibatch of the network."""
    learning_rate: float = 3e-3
    """Of the network, at first."""
    learning_rate_end: float = 1e-4
    """To which the rate falls along half a cosine."""
    prior_variance: float = 1.0
    """Of every weight."""
    initial_spread: float = 0.02
    """Standard deviation of the weights' first posterior."""
    latent_spread: float = 0.05
    """Standard deviation of the instances' first w and of their posteriors."""
    latent_factor: float = 5.0
    """The instances' posteriors learn so much faster than the network."""
    angles: tuple[str, ...] | None = None
    """Columns that are angles in [−π, π], by name; those that look like it if None is said."""
    outcome_hidden: tuple[int, ...] = (64, 64)
    """Of the model of rewards and ends."""
    outcome_updates: int = 3000
    """Its gradient steps."""
    outcome_batch: int = 256
    """Its transitions a minibatch."""
    outcome_rate: float = 2e-3
    """Its learning rate."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        counts = ("dim", "samples", "updates", "batch_size", "outcome_updates", "outcome_batch")
        check_range(self, counts, "dynamics", least=1)
        positive = (
            "learning_rate",
            "learning_rate_end",
            "prior_variance",
            "initial_spread",
            "latent_spread",
            "latent_factor",
            "outcome_rate",
        )
        check_range(self, positive, "dynamics", above=0)
        check_range(self, ("alpha",), "dynamics", above=0, most=1)
        for name in ("hidden", "outcome_hidden"):
            widths = getattr(self, name)
            if not widths or min(widths) < 1:
                raise ConfigError(f"dynamics.{name} needs layers of at least 1 unit: {widths}.")


@dataclass(frozen=True)
class BnnConfig:
    """What `bnn` does in the test episode."""

    budget: Budget = "reduced"
    """Whose budget these numbers are, for the record and the tables."""
    every: int = 10
    """Steps between two updates."""
    infer_steps: int = 40
    """Gradient steps on q(w) an update."""
    infer_rate: float = 0.05
    """Learning rate of w."""
    tune_steps: int = 10
    """Gradient steps on the network an update; 0 leaves it as fitted."""
    tune_rate: float = 2e-4
    """Learning rate of the network's weights."""
    samples: int = 8
    """K of the energy in the episode."""
    start: Literal["logs", "scratch"] = "logs"
    """The first policy: that of the logs of all instances, or an untrained one as in the paper."""
    episodes: int = 64
    """Fictional episodes an update, side by side."""
    horizon: int = 24
    """Steps of a fictional episode at most."""
    updates: int = 200
    """Updates of the policy an update of the model, spread over the fictional episodes."""
    explore: float = 0.3
    """Share of random actions in fictional episodes."""
    anywhere: float = 0.5
    """Share of fictional episodes that begin in states logged at any time; of the others half begin
    where logged episodes do and half in states seen in this one."""
    average_decay: float = 0.98
    """Of the average of the policy's weights, per update: the average acts."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        counts = ("every", "episodes", "horizon", "updates")
        check_range(self, counts, "bnn", least=1, most=MOST)
        check_range(self, ("samples",), "bnn", least=1, most=MOST_SAMPLES)
        check_range(self, ("infer_steps", "tune_steps"), "bnn", least=0, most=MOST)
        check_range(self, ("infer_rate", "tune_rate"), "bnn", above=0)
        check_range(self, ("explore", "anywhere"), "bnn", least=0, most=1)
        check_range(self, ("average_decay",), "bnn", least=0, below=1)


@dataclass(frozen=True)
class DptConfig:
    """What `dpt` does in the test episode, and the w its policy learns with."""

    budget: Budget = "reduced"
    """Whose budget these numbers are, for the record and the tables."""
    every: int = 1
    """Steps between two updates of w."""
    infer_steps: int = 10
    """Gradient steps on q(w) an update."""
    infer_rate: float = 0.05
    """Learning rate of w."""
    samples: int = 8
    """K of the energy in the episode."""
    copies: int = 50
    """Draws of w from each training instance's posterior that the policy learns with."""
    unknown: float = 0.1
    """Share of transitions the policy learns from with the mean w, which an episode begins with."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        check_range(self, ("every", "copies"), "dpt", least=1, most=MOST)
        check_range(self, ("samples",), "dpt", least=1, most=MOST_SAMPLES)
        check_range(self, ("infer_steps",), "dpt", least=0, most=MOST)
        check_range(self, ("infer_rate",), "dpt", above=0)
        check_range(self, ("unknown",), "dpt", least=0, below=1)
