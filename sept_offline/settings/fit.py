"""Every setting of `fit`, in frozen records: `FitConfig` and the groups in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from sept_offline.errors import ConfigError
from sept_offline.family import suggest
from sept_offline.limits import LONGEST_REFINED, LONGEST_SEGMENT, LONGEST_STACK
from sept_offline.settings.values import (
    Count,
    Layers,
    Natural,
    NotNegative,
    Positive,
    Range,
    Settings,
    Share,
)

Reward = Literal["elbo", "information", "total-variation", "negative-elbo"]
FINITE_ALGORITHMS = ("double_dqn", "discrete_cql", "discrete_bcq", "discrete_iql", "nfq")
"""Control algorithms for discrete actions."""
BOX_ALGORITHMS = ("rebrac", "td3_plus_bc", "iql", "cql", "awac")
"""Control algorithms for continuous actions."""
ALGORITHMS = (*FINITE_ALGORITHMS, *BOX_ALGORITHMS)
AUTO = "auto"
"""Instead of an algorithm: `fit` chooses from the logs."""
REWARD_FORMS = ("raw", "instance", "log")
Budget = Literal["reduced", "paper"]
MOST, MOST_SAMPLES = 1_000_000, 10_000
"""Limits of `bnn` and `dpt`, whose settings come with an agent's file and determine the cost of its
episode."""
Bounded = Annotated[int, Range(least=1, most=MOST)]
Fraction = Annotated[float, Range(least=0, below=1)]
Steps = Annotated[int, Range(least=1, most=LONGEST_SEGMENT)]


@dataclass(frozen=True)
class LatentConfig(Settings, section="latent"):
    """Settings of the latent; the defaults are for the transitions objective."""

    objective: Literal["transitions", "segment"] = "transitions"
    """`transitions`: sum the evidence of single transitions; `segment`: the paper's VAE."""
    refine: bool = True
    """Whether the latent is refined at every step (transitions objective) or inferred once, from
    the first `probe_steps` steps."""
    refine_steps: Annotated[int, Range(least=1, most=LONGEST_REFINED)] = 64
    """Number of steps for which the latent is refined."""
    dim: Count = 2
    """Number of latent dimensions; `fit` takes 12 or more, unless a preset or you set it."""
    updates: Count = 2000
    """Total number of gradient steps."""
    learning_rate: Positive = 2e-3
    """Initial learning rate of Adam."""
    learning_rate_end: Positive = 1e-4
    """Final learning rate of a cosine schedule; if equal to `learning_rate`, it is constant."""
    beta: NotNegative = 1.0
    """Weight of the KL divergence to N(0, I)."""
    context: Count = 64
    """Maximum number of steps in a training context (transitions objective)."""
    contexts: Count = 64
    """Contexts per minibatch (transitions objective)."""
    transitions: Count = 512
    """Transitions per minibatch (transitions objective), or windows (`dynasept`)."""
    segments: Count = 128
    """Segments per minibatch (segment objective)."""
    hidden: Count = 128
    """Width of the two hidden layers of each network (transitions objective, `dynasept`)."""
    initial_spread: Positive = 0.05
    """Initial standard deviation of the instances' means and of their posteriors."""
    posterior_factor: Positive = 5.0
    """Learning rate of the instances' posteriors, as a multiple of the networks'."""
    through: NotNegative = 1.0
    """Weight of the decoder's loss with z from the encoder (transitions objective)."""
    least_log_variance: Annotated[float, Range(least=-10, most=0)] = -4.0
    """Minimum log-variance of the decoder, in units of what the average model leaves (transitions
    objective); lower for smooth, noiseless dynamics, not where states jump."""
    changes: bool = False
    """Whether the VAE reads each step as (s, a, s′ − s), including the final state, and decodes the
    changes given the actions; otherwise it reads and decodes pairs (s, a) (segment objective)."""
    entropy: NotNegative = 1.0
    """Weight of −H(q) (segment objective)."""
    encoder_units: Count = 300
    """Units of each direction of the LSTM encoder (segment objective)."""
    decoder_units: Count = 256
    """Units of the LSTM decoder (segment objective)."""
    minibatches: Count = 1
    """Minibatches per update (segment objective; the paper uses 10)."""


@dataclass(frozen=True)
class ProbeConfig(Settings, section="probe"):
    """Settings of the probe, which is learned from logged segments."""

    use: Literal["auto", "always", "never"] = "auto"
    """Whether a probe acts first, if the latent is refined at every step: `auto` compares both in
    learned dynamics at the end of the fit and probes only if that earns more."""
    reward: Reward = "information"
    """Reward of a segment: information, elbo, negative-elbo or total-variation."""
    steps: Count = 150
    """Number of full-batch gradient steps."""
    learning_rate: Positive = 3e-3
    """Learning rate of Adam."""
    hidden: Count = 32
    """Width of the three hidden layers."""
    ess_floor: Share = 0.1
    """Minimum effective sample size, as a share of the segments."""
    estimated_floor_factor: Annotated[float, Range(least=1)] = 2.0
    """Factor on the floor if the behaviour's probabilities are estimated."""
    holdout: Annotated[float, Range(least=0, most=0.9)] = 0.2
    """Share of the segments held out for the final check."""
    margin: float = 2.0
    """Minimum improvement of the held-out reward for the probe to be kept, in standard errors."""
    tracking_rate: Share = 1.0
    """α, the rate at which the VAE that rewards the probe tracks the trained one (paper's loop)."""
    warmup: Natural = 0
    """Updates of the VAE before the probe starts to learn (paper's loop)."""
    minibatches: Count = 1
    """Probe minibatches per update (paper's loop)."""
    batch: Count = 512
    """Segments per probe minibatch (paper's loop)."""

    def floor(self, estimated: bool) -> float:
        """The minimum effective share, given whether the probabilities are estimated."""
        return min(1.0, self.ess_floor * (self.estimated_floor_factor if estimated else 1.0))


@dataclass(frozen=True)
class ControlConfig(Settings, section="control"):
    """Settings of control."""

    algorithm: str = "double_dqn"
    """For discrete actions one of double_dqn, discrete_cql, discrete_bcq, discrete_iql, nfq;
    for continuous actions one of rebrac, td3_plus_bc, iql, cql, awac. `auto` is rebrac for
    continuous actions; else discrete_cql if the behaviour takes a single action at most logged
    steps, and double_dqn if not."""
    hidden: Layers = (256, 512)
    """Widths of the hidden layers."""
    layer_norm: bool = False
    """Whether to use layer normalisation; critics of continuous actions always do."""
    gamma: Fraction = 0.99
    """Discount factor. 0: chosen by the kind of actions and the length of the logged episodes."""
    learning_rate: Positive = 5e-4
    """Learning rate of Adam."""
    batch_size: Count = 64
    """Transitions per minibatch."""
    updates: Natural = 5000
    """Total number of gradient steps; 0: chosen by the number of logged steps."""
    target_rate: Annotated[float, Range(above=0, most=1)] = 0.005
    """Polyak rate of the target network, per update; `nfq` copies its weights instead."""
    average_decay: Fraction = 0.999
    """Decay per update of the running average of the weights, which is deployed; lower at first."""
    average_every: Count = 10
    """Updates between two updates of the average."""
    grad_clip: Positive | None = None
    """Maximum gradient norm; None: no clipping."""
    critics: Natural = 0
    """Number of d3rlpy's Q-functions that share a target; 0: one for discrete actions, two
    for continuous ones."""
    members: Count = 1
    """Size of the ensemble; members have different initial weights and minibatches."""
    cql_alpha: NotNegative = 1.0
    """Weight of the conservative term of `discrete_cql` and `cql`."""
    bcq_flexibility: Annotated[float, Range(above=0, below=1)] = 0.3
    """Minimum probability of an action in `discrete_bcq`, relative to the most likely action."""
    bcq_beta: float = 0.5
    """Weight of the regulariser of the imitator in `discrete_bcq`."""
    rebrac_actor_beta: NotNegative = 0.01
    """Weight of the distance between the actor's and the logged action in `rebrac`."""
    rebrac_critic_beta: NotNegative = 0.01
    """The same for the next action, in the targets of `rebrac`."""
    rebrac_warmup: Share = 0.0
    """Share of the updates, from the start, during which the weight of the actor's distance falls
    from 1 to `rebrac_actor_beta`. It keeps the actor from the ends of the range, where its gradient
    vanishes, until the critics have learned."""
    td3_alpha: Positive = 2.5
    """Weight of the values, relative to imitation, in `td3_plus_bc`."""
    iql_expectile: Annotated[float, Range(above=0, below=1)] = 0.7
    """Expectile of the value function of `iql` and `discrete_iql`."""
    iql_temperature: NotNegative = 3.0
    """Factor on the advantages that weight logged actions in `iql` and `discrete_iql`."""
    awac_lambda: Positive = 1.0
    """Divisor of the advantages in `awac`."""
    reward_form: str = "raw"
    """Scaling of the rewards: raw, instance (root mean square of 1 per instance) or log."""
    reward_scale: Positive = 1.0
    """Factor on the rewards, applied after `reward_form`."""
    goal_shift: float | None = None
    """C of the shift r − C·(1 − γ·(1 − done)) for goal tasks: the scaled reward at the goal."""
    centred: bool = True
    """Whether C is the mean logged return if `goal_shift` is None: values then start near the
    logged returns. It changes no preferred action; `rebrac` and `td3_plus_bc` weigh imitation by
    the size of the values, which it does change."""
    counterfactual: Share = 0.0
    """Share of a minibatch's steps that are moved to other instances, between and beyond the logged
    ones, by the latent's decoder (`sept`, `totalvar` and `maxent` with `latent.refine`)."""
    bounded: bool = True
    """Whether targets are clipped to the range that the logged rewards allow."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        super().__post_init__()
        for name, known in (("algorithm", (AUTO, *ALGORITHMS)), ("reward_form", REWARD_FORMS)):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(
                    f"control.{name} is {value!r}{suggest(value, known)}; "
                    f"expected one of {', '.join(known)}."
                )

    @property
    def num_critics(self) -> int:
        """The number of critics, chosen by the algorithm if it is left open."""
        return self.critics or (2 if self.algorithm in BOX_ALGORITHMS else 1)


@dataclass(frozen=True)
class DynamicsConfig(Settings, section="dynamics"):
    """Settings of the network and of the model of rewards and terminations."""

    dim: Count = 5
    """Dimension of w."""
    hidden: Layers = (64, 64)
    """Widths of the network's hidden layers."""
    alpha: Annotated[float, Range(above=0, most=1)] = 0.5
    """α of the divergence; variational inference is the limit at 0."""
    samples: Count = 4
    """K: samples of the weights per estimate of the energy."""
    updates: Count = 5000
    """Gradient steps of the network."""
    batch_size: Count = 128
    """Transitions per minibatch of the network."""
    learning_rate: Positive = 3e-3
    """Initial learning rate of the network."""
    learning_rate_end: Positive = 1e-4
    """Final learning rate of the cosine schedule."""
    prior_variance: Positive = 1.0
    """Prior variance of every weight."""
    initial_spread: Positive = 0.02
    """Initial standard deviation of the weights' posterior."""
    latent_spread: Positive = 0.05
    """Initial standard deviation of the instances' w and of their posteriors."""
    latent_factor: Positive = 5.0
    """Learning rate of the instances' posteriors, as a multiple of the network's."""
    angles: tuple[str, ...] | None = None
    """Names of columns that are angles in [−π, π]; None: detected from the data."""
    outcome_hidden: Layers = (64, 64)
    """Widths of the hidden layers of the model of rewards and terminations."""
    outcome_updates: Count = 3000
    """Gradient steps of the model of rewards and terminations."""
    outcome_batch: Count = 256
    """Transitions per minibatch of the model of rewards and terminations."""
    outcome_rate: Positive = 2e-3
    """Learning rate of the model of rewards and terminations."""


@dataclass(frozen=True)
class BnnConfig(Settings, section="bnn"):
    """Settings of `bnn` in the test episode."""

    budget: Budget = "reduced"
    """Name of the budget that these numbers define, for the record and the tables."""
    every: Bounded = 10
    """Steps between two updates."""
    infer_steps: Annotated[int, Range(least=0, most=MOST)] = 40
    """Gradient steps on q(w) per update."""
    infer_rate: Positive = 0.05
    """Learning rate of w."""
    tune_steps: Annotated[int, Range(least=0, most=MOST)] = 10
    """Gradient steps on the network per update; 0: none."""
    tune_rate: Positive = 2e-4
    """Learning rate of the network's weights."""
    samples: Annotated[int, Range(least=1, most=MOST_SAMPLES)] = 8
    """K of the energy in the episode."""
    start: Literal["logs", "scratch"] = "logs"
    """Initial policy: trained on the logs of all instances, or untrained as in the paper."""
    episodes: Bounded = 64
    """Fictional episodes per update, run in parallel."""
    horizon: Bounded = 24
    """Maximum number of steps in a fictional episode."""
    updates: Bounded = 200
    """Updates of the policy per update of the model, spread over the fictional episodes."""
    explore: Share = 0.3
    """Share of random actions in fictional episodes."""
    anywhere: Share = 0.5
    """Share of fictional episodes that start in states logged at any time. Half of the others start
    in logged first states, half in states seen in this episode."""
    average_decay: Fraction = 0.98
    """Decay per update of the running average of the policy's weights, which acts."""


@dataclass(frozen=True)
class DptConfig(Settings, section="dpt"):
    """Settings of `dpt` (direct policy transfer): inference in the episode, w in training."""

    budget: Budget = "reduced"
    """Name of the budget that these numbers define, for the record and the tables."""
    every: Bounded = 1
    """Steps between two updates of w."""
    infer_steps: Annotated[int, Range(least=0, most=MOST)] = 10
    """Gradient steps on q(w) per update."""
    infer_rate: Positive = 0.05
    """Learning rate of w."""
    samples: Annotated[int, Range(least=1, most=MOST_SAMPLES)] = 8
    """K of the energy in the episode."""
    copies: Bounded = 50
    """Samples of w from each training instance's posterior for the training of the policy."""
    unknown: Fraction = 0.1
    """Share of training transitions with the mean w, with which an episode starts."""


@dataclass(frozen=True)
class EpoptConfig(Settings, section="epopt"):
    """Which episodes `epopt` trains on."""

    percentile: Annotated[float, Range(above=0, most=100)] = 10.0
    """ε: percentage of an iteration's episodes, those with the lowest returns, to train on."""
    episodes: Count = 100
    """Episodes drawn per iteration."""
    everything: Share = 0.5
    """Share of the updates, from the start, that train on all episodes."""


@dataclass(frozen=True)
class MamlConfig(Settings, section="maml"):
    """How `maml` adapts, in training and in the test episode."""

    inner_rate: Positive = 0.03
    """Learning rate of the one gradient step on the first T_p steps."""
    tasks: Count = 8
    """Instances per update; each provides an equal share of the minibatch's transitions."""


@dataclass(frozen=True)
class FocalConfig(Settings, section="focal"):
    """Settings of `focal`, and of the distances in `unicorn` and `csro`."""

    rewards: bool = True
    """Whether the encoder reads the reward of each step, as published; the agent then needs it."""
    repulsion: Positive = 1.0
    """Weight of the inverse distance between contexts of different instances."""
    softening: Positive = 0.1
    """Constant added to squared distances, so that their inverse is finite."""


@dataclass(frozen=True)
class UnicornConfig(Settings, section="unicorn"):
    """Settings of `unicorn`."""

    rewards: bool = True
    """Whether the encoder reads the reward of each step, as published; the agent then needs it."""
    distance: NotNegative = 1.0
    """Weight of the distances of `focal`, relative to the reconstruction."""


@dataclass(frozen=True)
class CsroConfig(Settings, section="csro"):
    """Settings of `csro`."""

    rewards: bool = True
    """Whether the encoder reads the reward of each step, as published; the agent then needs it."""
    independence: NotNegative = 1.0
    """Weight of the bound on the information between an embedding and its state and action."""
    hidden: Count = 64
    """Width of the hidden layers of the network that predicts embeddings."""


@dataclass(frozen=True)
class BatiConfig(Settings, section="bati"):
    """Settings of `bati`."""

    rewards: bool = True
    """Whether the decoder also explains the reward of each step; the agent then needs it."""
    candidates: Annotated[int, Range(least=2, most=MOST_SAMPLES)] = 128
    """Number of latents whose likelihoods are compared: the instances' means, then points between
    two of them."""


@dataclass(frozen=True)
class FitConfig(Settings):
    """Settings of all stages; `--set a.b=c` uses the names of these fields."""

    probe_steps: Annotated[int, Range(least=0, most=LONGEST_SEGMENT)] = 0
    """T_p, the number of steps in a probed segment. 0: chosen from the logs."""
    stack: Annotated[int, Range(least=0, most=LONGEST_STACK)] = 0
    """Number of observations the agent reads at once: the current one and the last ones, with the
    actions between them. 1: the current one alone. 0: chosen from the logs."""
    held_out: Annotated[float, Range(above=0, most=0.5)] = 0.2
    """Share of each instance's episodes held out from the latent, for identification and
    novelty."""
    novelty_prior: Literal["normal", "instances"] = "normal"
    """Prior of the latent for novelty: N(0, I) or, for families with a few separate modes, the
    latents of the training instances."""
    verdict: bool = True
    """Whether the fit ends with a verdict, which may take as long as the fit itself."""
    fallback: Literal["none", "avg"] = "none"
    """Policy to use when the instance looks out-of-distribution."""
    oracle_noise: NotNegative = 0.0
    """Standard deviation of the noise on the hidden parameters that `oracle` trains with, in
    standard deviations of the training instances. It prevents overfitting to few instances."""
    latent: LatentConfig = field(default_factory=LatentConfig)
    """Settings of the latent."""
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    """Settings of the probe."""
    control: ControlConfig = field(default_factory=ControlConfig)
    """Settings of control."""
    history_steps: Steps = 4
    """Number of previous steps that `history` reads."""
    epopt: EpoptConfig = field(default_factory=EpoptConfig)
    """Settings of `epopt`."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    """The Bayesian network of `bnn` and `dpt`."""
    bnn: BnnConfig = field(default_factory=BnnConfig)
    """Settings of `bnn` in its episode."""
    dpt: DptConfig = field(default_factory=DptConfig)
    """Settings of `dpt` in its episode."""
    maml: MamlConfig = field(default_factory=MamlConfig)
    """Settings of `maml`."""
    focal: FocalConfig = field(default_factory=FocalConfig)
    """Settings of `focal`."""
    unicorn: UnicornConfig = field(default_factory=UnicornConfig)
    """Settings of `unicorn`."""
    csro: CsroConfig = field(default_factory=CsroConfig)
    """Settings of `csro`."""
    bati: BatiConfig = field(default_factory=BatiConfig)
    """Settings of `bati`."""
