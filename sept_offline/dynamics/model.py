"""The fitted model as it travels with an agent, and what an episode infers with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sept_offline.agent.networks import Arrays, take
from sept_offline.agent.records import count, field
from sept_offline.dynamics.bayesian import Dynamics, alpha_energy, draw, log_ratio
from sept_offline.dynamics.columns import Columns, Reader
from sept_offline.dynamics.outcome import OutcomeModel
from sept_offline.errors import AgentError
from sept_offline.seeding import torch_generator
from sept_offline.training.adam import Adam
from sept_offline.training.inputs import Floats
from sept_offline.training.layers import Gaussian, array
from sept_offline.training.updates import descend

Network = TypeVar("Network", bound=nn.Module)
WIDEST, DEEPEST = 100_000, 64
"""Maximum units per layer, and maximum layers, of a model in an agent's file."""
ROWS = 64
"""Maximum number of steps per gradient step; of more, a sample is drawn."""
FACTORS = (1.0, 4.0)
"""Factors on the learning rates of means and of log-variances, whose units differ."""


@dataclass(frozen=True)
class Model:
    """The model with which a test episode infers w.

    w_mean[I, k], w_log_variance[I, k]: the training instances' posteriors; alpha: of the energy it
    was fitted by.
    """

    columns: Columns
    dynamics: Dynamics
    w_mean: Floats
    w_log_variance: Floats
    alpha: float

    @property
    def dim(self) -> int:
        """k, of w."""
        return self.dynamics.dim

    def prior(self) -> tuple[Floats, Floats]:
        """Mean and log-variance [k] of w in a new instance: one drawn from the training ones."""
        mean = self.w_mean.mean(axis=0)
        spread = self.w_mean.var(axis=0) + np.exp(self.w_log_variance).mean(axis=0)
        return mean, np.log(spread + 1e-6).astype(np.float32)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All weights, each under a name that starts with `prefix`."""
        return {
            **self.columns.to_arrays(f"{prefix}.columns"),
            **_module_arrays(self.dynamics, f"{prefix}.dynamics"),
            f"{prefix}.w_mean": self.w_mean,
            f"{prefix}.w_log_variance": self.w_log_variance,
        }

    def describe(self) -> dict[str, Any]:
        """Sizes and α."""
        return {
            "num_actions": self.dynamics.action_width,
            "dim": self.dim,
            "hidden": list(self.dynamics.hidden),
            "alpha": self.alpha,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> Model:
        """Restore what `to_arrays(prefix)` and `describe()` wrote."""
        columns = Columns.from_arrays(arrays, f"{prefix}.columns")
        reader, hidden = Reader(columns), _widths(description, "hidden")
        sizes = count(description, "num_actions", WIDEST), count(description, "dim", WIDEST)
        dynamics = _load_module(
            lambda: Dynamics(reader, *sizes, hidden, spread=1.0), arrays, f"{prefix}.dynamics"
        )
        mean = take(arrays, f"{prefix}.w_mean", 2)
        log_variance = take(arrays, f"{prefix}.w_log_variance", 2)
        if mean.shape != log_variance.shape or mean.shape[1] != dynamics.dim or not len(mean):
            raise AgentError("The agent's posteriors of w do not fit its network; fit it again.")
        return cls(columns, dynamics, mean, log_variance, field(description, "alpha", float))


@dataclass(frozen=True)
class Fiction:
    """Data for fictional episodes besides the dynamics.

    starts[S, d]: states in which logged episodes begin; anywhere[S, d]: states of any time.
    """

    outcome: OutcomeModel
    starts: Floats
    anywhere: Floats

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All weights and states, each under a name that starts with `prefix`."""
        return {
            **_module_arrays(self.outcome, f"{prefix}.outcome"),
            f"{prefix}.starts": self.starts,
            f"{prefix}.anywhere": self.anywhere,
        }

    def describe(self) -> dict[str, Any]:
        """Sizes."""
        return {"hidden": list(self.outcome.hidden)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str, model: Model) -> Fiction:
        """Restore what `to_arrays(prefix)` and `describe()` wrote, for the same `model`."""
        reader, hidden = Reader(model.columns), _widths(description, "hidden")
        outcome = _load_module(
            lambda: OutcomeModel(reader, model.dynamics.action_width, hidden),
            arrays,
            f"{prefix}.outcome",
        )
        starts, anywhere = (take(arrays, f"{prefix}.{name}", 2) for name in ("starts", "anywhere"))
        width = model.dynamics.reader.width
        if starts.shape[1:] != (width,) or anywhere.shape[1:] != (width,):
            raise AgentError(f"The agent's start states do not have {width} columns.")
        return cls(outcome, starts, anywhere)


def _widths(description: Any, name: str) -> tuple[int, ...]:
    widths = field(description, name, list)
    plain = all(isinstance(width, int) and 0 < width <= WIDEST for width in widths)
    if not plain or not 0 < len(widths) <= DEEPEST:
        raise AgentError(
            f"The agent's description has no layers of 1 to {WIDEST:,} units under {name!r}."
        )
    return tuple(widths)


def _module_arrays(module: nn.Module, prefix: str) -> dict[str, NDArray[Any]]:
    return {f"{prefix}.{name}": array(tensor) for name, tensor in module.state_dict().items()}


def _load_module(make: Callable[[], Network], arrays: Arrays, prefix: str) -> Network:
    """The network that `make` creates, with the stored weights.

    It is made without memory: the sizes that it claims are first compared with the weights.
    """
    with torch.device("meta"):
        module = make()
    weights = {}
    for name, tensor in module.state_dict().items():
        value = take(arrays, f"{prefix}.{name}", tensor.ndim)
        if value.shape != tuple(tensor.shape):
            raise AgentError(
                f"The agent's weights contain {prefix}.{name} with shape {list(value.shape)}, "
                f"expected {list(tensor.shape)}."
            )
        weights[name] = torch.from_numpy(np.array(value))
    module.load_state_dict(weights, assign=True)
    module.requires_grad_(False)
    return module


class Belief:
    """q(w) and q(W) of one episode; the model itself is never changed.

    The prior of w is that of a new instance (the training instances' spread), the prior of W the
    posterior that the logs have left.
    """

    def __init__(self, model: Model, seed: int, samples: int) -> None:
        self.model, self.samples = model, samples
        self._rng = torch_generator(seed, "agent", "belief")
        mean, log_variance = (torch.from_numpy(part.copy()) for part in model.prior())
        self._prior: Gaussian = (mean, log_variance)
        self._w = [mean.clone(), log_variance.clone()]
        network = model.dynamics.network
        self._fitted: Gaussian = (network.mean.detach(), network.log_variance.detach())
        self._weights = list(self._fitted)
        means = torch.from_numpy(model.w_mean.copy())
        # What a whole log would leave is narrow, what nothing leaves is wide; a gradient step moves
        # a log-variance little, so the first one begins half-way.
        narrow = torch.from_numpy(model.w_log_variance.mean(axis=0))
        self._first = 0.5 * (log_variance + torch.minimum(narrow, log_variance))
        self._candidates = torch.cat((mean.unsqueeze(0), means))
        self._seen: list[tuple[Floats, int, Floats]] = []
        self._known, self._change = torch.empty(0), torch.empty(0)

    @property
    def mean(self) -> Floats:
        """The posterior mean of w, [k]."""
        mean: Floats = self._w[0].detach().numpy().copy()
        return mean

    @property
    def spread(self) -> float:
        """The standard deviation of w, mean over columns."""
        return float(torch.exp(0.5 * self._w[1].detach()).mean())

    def see(self, before: Floats, action: int, after: Floats) -> None:
        """Remember one step: `before[d]`, `after[d]`."""
        self._seen.append((before.copy(), action, after.copy()))

    def states(self) -> Floats:
        """All states seen so far but the first, [n, d]."""
        states: Floats = np.stack([after for _, _, after in self._seen])
        return states

    def infer(self, steps: int, rate: float) -> None:
        """Gradient steps on q(w), from the likeliest of where it is and where instances were."""
        if not len(self._known):
            self._w[1] = self._first.clone()
        self._read()
        self._restart()
        self._descend(self._w, steps, rate)

    def tune(self, steps: int, rate: float) -> None:
        """Gradient steps on q(W), which begin at what the logs have left."""
        if steps:
            self._read()
            self._weights = [part.clone() for part in self._weights]
            self._descend(self._weights, steps, rate)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Draws of w [count, k] and of all weights [count, P]."""
        with torch.no_grad():
            w = draw((self._w[0], self._w[1]), count, self._rng)
            return w, draw((self._weights[0], self._weights[1]), count, self._rng)

    def _read(self) -> None:
        if len(self._known) == len(self._seen):
            return
        before, after = (
            torch.from_numpy(np.stack([step[place] for step in self._seen])) for place in (0, 2)
        )
        dynamics = self.model.dynamics
        actions = torch.tensor([action for _, action, _ in self._seen])
        taken = torch.nn.functional.one_hot(actions, dynamics.action_width).float()
        self._known = dynamics.known(before, taken)
        self._change = dynamics.reader.change(before, after)

    def _restart(self) -> None:
        """Begin at an instance's w where that explains what was seen better than the present one.

        Where instances are of a few kinds, w has a mode at each, and no gradient leads across.
        """
        with torch.no_grad():
            points = torch.cat((self._w[0].detach().unsqueeze(0), self._candidates))
            count = len(points)
            weights = self._weights[0].detach().unsqueeze(0).expand(count, -1)
            w = points.unsqueeze(1).expand(-1, len(self._known), -1)
            fits = self.model.dynamics.log_likelihood(self._change, self._known, w, weights)
            deviation = (points - self._prior[0]) ** 2 * torch.exp(-self._prior[1])
            best = int((fits.sum(1) - 0.5 * deviation.sum(1)).argmax())
        if best > 0:
            self._w[0] = points[best].clone()

    def _descend(self, parts: list[Tensor], steps: int, rate: float) -> None:
        for part in parts:
            part.requires_grad_(True)
        groups = [([part], factor) for part, factor in zip(parts, FACTORS, strict=True)]
        optimiser = Adam.of_groups(groups, rate)
        for step in range(steps):
            # the last steps are small: w comes to rest instead of circling
            descend(optimiser, self._energy(), rate * (1 - step / steps))
        for part in parts:
            part.requires_grad_(False)

    def _energy(self) -> Tensor:
        seen = len(self._known)
        known, change = self._known, self._change
        if seen > ROWS:
            rows = torch.randint(seen, (ROWS,), generator=self._rng)
            known, change = known[rows], change[rows]
        q_w, q_weights = (self._w[0], self._w[1]), (self._weights[0], self._weights[1])
        w, weights = (draw(q, self.samples, self._rng) for q in (q_w, q_weights))
        site = log_ratio(w, q_w, self._prior)
        if q_weights[0] is not self._fitted[0]:
            site = site + log_ratio(weights, q_weights, self._fitted)
        repeated = w.unsqueeze(1).expand(-1, len(known), -1)
        likelihood = self.model.dynamics.log_likelihood(change, known, repeated, weights)
        return alpha_energy(likelihood, site.unsqueeze(1) / seen, self.model.alpha)
