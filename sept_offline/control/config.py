"""The settings of the control stage."""

from __future__ import annotations

from dataclasses import dataclass

from sept_offline.config import check_range
from sept_offline.errors import ConfigError
from sept_offline.family import suggest

ALGORITHMS = ("double_dqn", "discrete_cql", "discrete_bcq", "nfq")
AUTO = "auto"
"""In place of an algorithm: a fit chooses from the logs."""
REWARD_FORMS = ("raw", "instance", "log")


@dataclass(frozen=True)
class ControlConfig:
    """How control learns; with the defaults every seed was good at its last update."""

    algorithm: str = "double_dqn"
    """One of double_dqn, discrete_cql, discrete_bcq, nfq; `auto` is discrete_cql where most logged
    steps show one action only, else double_dqn."""
    hidden: tuple[int, ...] = (256, 512)
    """Widths of the hidden layers."""
    layer_norm: bool = False
    """Whether each of them is normalised."""
    gamma: float = 0.99
    """Discount."""
    learning_rate: float = 5e-4
    """Of Adam."""
    batch_size: int = 64
    """Transitions a minibatch."""
    updates: int = 5000
    """Gradient steps in all; 0 lets a fit choose by how many steps were logged."""
    target_rate: float = 0.005
    """Polyak's rate, at every update; `nfq` copies its weights at every update instead."""
    average_decay: float = 0.999
    """Of the deployed average of the weights, per update; warmed up."""
    average_every: int = 10
    """Updates between two additions to the average."""
    grad_clip: float | None = None
    """Largest norm of a gradient; none if None."""
    critics: int = 1
    """d3rlpy's Q-functions that share a target."""
    members: int = 1
    """Independently started networks whose averages act together, each with its own minibatches."""
    cql_alpha: float = 1.0
    """Weight of the conservative term of `discrete_cql`."""
    bcq_flexibility: float = 0.3
    """Probability, as a share of the likeliest action's, that `discrete_bcq` asks of an action."""
    bcq_beta: float = 0.5
    """Weight of the regulariser of its imitator."""
    reward_form: str = "raw"
    """raw, instance (each instance's rewards have a root mean square of 1) or log."""
    reward_scale: float = 1.0
    """Multiplies the rewards, after `reward_form`."""
    goal_shift: float | None = None
    """C of the shift r − C·(1 − γ·(1 − done)): the scaled reward at the goal, for goal tasks."""
    centred: bool = True
    """Whether C is the mean logged return where `goal_shift` is None: values then start where the
    logs are, and no choice of action changes."""
    bounded: bool = True
    """Whether targets are kept within what the logged rewards allow."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        known = (AUTO, *ALGORITHMS)
        if self.algorithm not in known:
            raise ConfigError(
                f"control.algorithm has no choice {self.algorithm!r}"
                f"{suggest(self.algorithm, known)}; known are {', '.join(known)}."
            )
        if self.reward_form not in REWARD_FORMS:
            raise ConfigError(
                f"control.reward_form has no choice {self.reward_form!r}"
                f"{suggest(self.reward_form, REWARD_FORMS)}; known are {', '.join(REWARD_FORMS)}."
            )
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(
                f"control.hidden needs layers of at least 1 unit, found {self.hidden}."
            )
        check_range(self, ("updates",), "control", least=0)
        counts = ("batch_size", "average_every", "critics", "members")
        check_range(self, counts, "control", least=1)
        check_range(self, ("learning_rate", "reward_scale", "grad_clip"), "control", above=0)
        check_range(self, ("gamma", "average_decay"), "control", least=0, below=1)
        check_range(self, ("target_rate",), "control", above=0, most=1)
        check_range(self, ("bcq_flexibility",), "control", above=0, below=1)
