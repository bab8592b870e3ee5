"""The fitted model as it travels with an agent: networks, the instances' w, states to begin in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sept_offline.agent.networks import Arrays, take
from sept_offline.agent.reading import field
from sept_offline.dynamics.columns import Columns, Reader
from sept_offline.dynamics.network import Dynamics, Outcome
from sept_offline.errors import AgentError
from sept_offline.latent.arrays import Floats


@dataclass(frozen=True)
class Model:
    """What a test episode infers w with.

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
            "num_actions": self.dynamics.num_actions,
            "dim": self.dim,
            "hidden": list(self.dynamics.hidden),
            "alpha": self.alpha,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> Model:
        """What `to_arrays(prefix)` and `describe()` wrote."""
        columns = Columns.from_arrays(arrays, f"{prefix}.columns")
        dynamics = Dynamics(
            Reader(columns),
            field(description, "num_actions", int),
            field(description, "dim", int),
            _widths(description, "hidden"),
            spread=1.0,
        )
        _load_module(dynamics, arrays, f"{prefix}.dynamics")
        mean = take(arrays, f"{prefix}.w_mean", 2)
        log_variance = take(arrays, f"{prefix}.w_log_variance", 2)
        if mean.shape != log_variance.shape or mean.shape[1] != dynamics.dim or not len(mean):
            raise AgentError("The agent's posteriors of w do not fit its network; fit it again.")
        return cls(columns, dynamics, mean, log_variance, field(description, "alpha", float))


@dataclass(frozen=True)
class Fiction:
    """What fictional episodes need beside the dynamics.

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
        """What `to_arrays(prefix)` and `describe()` wrote, for the same `model`."""
        outcome = Outcome(
            Reader(model.columns), model.dynamics.num_actions, _widths(description, "hidden")
        )
        _load_module(outcome, arrays, f"{prefix}.outcome")
        starts, anywhere = (take(arrays, f"{prefix}.{name}", 2) for name in ("starts", "anywhere"))
        width = model.dynamics.reader.width
        if starts.shape[1:] != (width,) or anywhere.shape[1:] != (width,):
            raise AgentError(f"The agent's states to begin in do not have {width} columns.")
        return cls(outcome, starts, anywhere)


def _widths(description: Any, name: str) -> tuple[int, ...]:
    widths = field(description, name, list)
    if not widths or not all(isinstance(width, int) and width > 0 for width in widths):
        raise AgentError(f"The agent's description has layers of {widths} units under {name!r}.")
    return tuple(widths)


def _module_arrays(module: nn.Module, prefix: str) -> dict[str, NDArray[Any]]:
    return {
        f"{prefix}.{name}": tensor.detach().numpy().astype(np.float32, copy=True)
        for name, tensor in module.state_dict().items()
    }


def _load_module(module: nn.Module, arrays: Arrays, prefix: str) -> None:
    for name, tensor in module.state_dict().items():
        value = take(arrays, f"{prefix}.{name}", tensor.ndim)
        if value.shape != tuple(tensor.shape):
            raise AgentError(
                f"The agent's weights hold {prefix}.{name} with the shape {list(value.shape)}, "
                f"expected {list(tensor.shape)}."
            )
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(np.array(value)))
    module.requires_grad_(False)
