"""The fitted model as it travels with an agent: networks, the instances' w, states to begin in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sept_offline.agent.networks import Arrays, take
from sept_offline.agent.records import count, field
from sept_offline.dynamics.columns import Columns, Reader
from sept_offline.dynamics.network import Dynamics, Outcome
from sept_offline.errors import AgentError
from sept_offline.training.inputs import Floats

Network = TypeVar("Network", bound=nn.Module)
WIDEST, DEEPEST = 100_000, 64
"""Units of a layer, and layers, that a model may claim."""


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

    outcome: Outcome
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
            lambda: Outcome(reader, model.dynamics.action_width, hidden),
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
    return {
        f"{prefix}.{name}": tensor.detach().numpy().astype(np.float32, copy=True)
        for name, tensor in module.state_dict().items()
    }


def _load_module(make: Callable[[], Network], arrays: Arrays, prefix: str) -> Network:
    """The network that `make` makes, with the weights that were written.

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
