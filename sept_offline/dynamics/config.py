"""Settings of the Bayesian network, of inference in an episode and of planning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sept_offline.config import check_range
from sept_offline.errors import ConfigError

Budget = Literal["reduced", "paper"]
MOST, MOST_SAMPLES = 1_000_000, 10_000
"""Limits: these settings come with an agent's file and determine the cost of its episode."""


@dataclass(frozen=True)
class DynamicsConfig:
    """Settings of the network and of the model of rewards and terminations."""

    dim: int = 5
    """Dimension of w."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the network's hidden layers."""
    alpha: float = 0.5
    """α of the divergence; variational inference is the limit at 0."""
    samples: int = 4
    """K: samples of the weights per estimate of the energy."""
    updates: int = 5000
    """Gradient steps of the network."""
    batch_size: int = 128
    """Transitions per minibatch of the network."""
    learning_rate: float = 3e-3
    """Initial learning rate of the network."""
    learning_rate_end: float = 1e-4
    """Final learning rate of the cosine schedule."""
    prior_variance: float = 1.0
    """Prior variance of every weight."""
    initial_spread: float = 0.02
    """Initial standard deviation of the weights' posterior."""
    latent_spread: float = 0.05
    """Initial standard deviation of the instances' w and of their posteriors."""
    latent_factor: float = 5.0
    """Learning rate of the instances' posteriors, as a multiple of the network's."""
    angles: tuple[str, ...] | None = None
    """Names of columns that are angles in [−π, π]; None: detected from the data."""
    outcome_hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the model of rewards and terminations."""
    outcome_updates: int = 3000
    """Gradient steps of the model of rewards and terminations."""
    outcome_batch: int = 256
    """Transitions per minibatch of the model of rewards and terminations."""
    outcome_rate: float = 2e-3
    """Learning rate of the model of rewards and terminations."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
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
    """Settings of `bnn` in the test episode."""

    budget: Budget = "reduced"
    """Name of the budget that these numbers define, for the record and the tables."""
    every: int = 10
    """Steps between two updates."""
    infer_steps: int = 40
    """Gradient steps on q(w) per update."""
    infer_rate: float = 0.05
    """Learning rate of w."""
    tune_steps: int = 10
    """Gradient steps on the network per update; 0: none."""
    tune_rate: float = 2e-4
    """Learning rate of the network's weights."""
    samples: int = 8
    """K of the energy in the episode."""
    start: Literal["logs", "scratch"] = "logs"
    """Initial policy: trained on the logs of all instances, or untrained as in the paper."""
    episodes: int = 64
    """Fictional episodes per update, run in parallel."""
    horizon: int = 24
    """Maximum number of steps in a fictional episode."""
    updates: int = 200
    """Updates of the policy per update of the model, spread over the fictional episodes."""
    explore: float = 0.3
    """Share of random actions in fictional episodes."""
    anywhere: float = 0.5
    """Share of fictional episodes that start in states logged at any time. Half of the others start
    in logged first states, half in states seen in this episode."""
    average_decay: float = 0.98
    """Decay per update of the running average of the policy's weights, which acts."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        counts = ("every", "episodes", "horizon", "updates")
        check_range(self, counts, "bnn", least=1, most=MOST)
        check_range(self, ("samples",), "bnn", least=1, most=MOST_SAMPLES)
        check_range(self, ("infer_steps", "tune_steps"), "bnn", least=0, most=MOST)
        check_range(self, ("infer_rate", "tune_rate"), "bnn", above=0)
        check_range(self, ("explore", "anywhere"), "bnn", least=0, most=1)
        check_range(self, ("average_decay",), "bnn", least=0, below=1)


@dataclass(frozen=True)
class DptConfig:
    """Settings of `dpt` (direct policy transfer): inference in the episode, w in training."""

    budget: Budget = "reduced"
    """Name of the budget that these numbers define, for the record and the tables."""
    every: int = 1
    """Steps between two updates of w."""
    infer_steps: int = 10
    """Gradient steps on q(w) per update."""
    infer_rate: float = 0.05
    """Learning rate of w."""
    samples: int = 8
    """K of the energy in the episode."""
    copies: int = 50
    """Samples of w from each training instance's posterior for the training of the policy."""
    unknown: float = 0.1
    """Share of training transitions with the mean w, with which an episode starts."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        check_range(self, ("every", "copies"), "dpt", least=1, most=MOST)
        check_range(self, ("samples",), "dpt", least=1, most=MOST_SAMPLES)
        check_range(self, ("infer_steps",), "dpt", least=0, most=MOST)
        check_range(self, ("infer_rate",), "dpt", above=0)
        check_range(self, ("unknown",), "dpt", least=0, below=1)
