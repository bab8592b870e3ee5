"""The settings of the control stage."""

from __future__ import annotations

from dataclasses import dataclass

from sept_offline.config import check_range
from sept_offline.errors import ConfigError
from sept_offline.family import suggest

ALGORITHMS = ("double_dqn", "discrete_cql", "discrete_bcq", "nfq")
AUTO = "auto"
"""Instead of an algorithm: `fit` chooses from the logs."""
REWARD_FORMS = ("raw", "instance", "log")


@dataclass(frozen=True)
class ControlConfig:
    """Settings of control."""

    algorithm: str = "double_dqn"
    """One of double_dqn, discrete_cql, discrete_bcq, nfq; `auto` is discrete_cql if the behaviour
    takes a single action at most logged steps, else double_dqn."""
    hidden: tuple[int, ...] = (256, 512)
    """Widths of the hidden layers."""
    layer_norm: bool = False
    """Whether to use layer normalisation."""
    gamma: float = 0.99
    """Discount factor."""
    learning_rate: float = 5e-4
    """Learning rate of Adam."""
    batch_size: int = 64
    """Transitions per minibatch."""
    updates: int = 5000
    """Total number of gradient steps; 0: chosen by the number of logged steps."""
    target_rate: float = 0.005
    """Polyak rate of the target network, per update; `nfq` copies its weights instead."""
    average_decay: float = 0.999
    """Decay per update of the running average of the weights, which is deployed; lower at first."""
    average_every: int = 10
    """Updates between two updates of the average."""
    grad_clip: float | None = None
    """Maximum gradient norm; None: no clipping."""
    critics: int = 1
    """Number of d3rlpy's Q-functions that share a target."""
    members: int = 1
    """Size of the ensemble; members have different initial weights and minibatches."""
    cql_alpha: float = 1.0
    """Weight of the conservative term of `discrete_cql`."""
    bcq_flexibility: float = 0.3
    """Minimum probability of an action in `discrete_bcq`, relative to the most likely action."""
    bcq_beta: float = 0.5
    """Weight of the regulariser of the imitator in `discrete_bcq`."""
    reward_form: str = "raw"
    """Scaling of the rewards: raw, instance (root mean square of 1 per instance) or log."""
    reward_scale: float = 1.0
    """Factor on the rewards, applied after `reward_form`."""
    goal_shift: float | None = None
    """C of the shift r − C·(1 − γ·(1 − done)) for goal tasks: the scaled reward at the goal."""
    centred: bool = True
    """Whether C is the mean logged return if `goal_shift` is None: values then start near the
    logged returns, and no choice of action changes."""
    bounded: bool = True
    """Whether targets are clipped to the range that the logged rewards allow."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        known = (AUTO, *ALGORITHMS)
        if self.algorithm not in known:
            raise ConfigError(
                f"control.algorithm is {self.algorithm!r}{suggest(self.algorithm, known)}; "
                f"expected one of {', '.join(known)}."
            )
        if self.reward_form not in REWARD_FORMS:
            raise ConfigError(
                f"control.reward_form is {self.reward_form!r}"
                f"{suggest(self.reward_form, REWARD_FORMS)}; expected one of "
                f"{', '.join(REWARD_FORMS)}."
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
