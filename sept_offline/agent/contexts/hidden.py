"""The true hidden parameters as context: privileged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import AgentError
from ..fields import strings
from ..networks import Arrays, Standardiser
from .base import Tracker

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class HiddenContext:
    """The true hidden parameters, standardised: the privileged `oracle`."""

    kind = "hidden"
    needs = frozenset({"hidden"})
    learns = False
    probe_steps = 0

    def __init__(self, names: tuple[str, ...], scaler: Standardiser) -> None:
        if len(names) != scaler.dim:
            raise AgentError(f"{len(names)} hidden parameters, but a scaler of {scaler.dim}.")
        self.names, self.scaler, self.dim = tuple(names), scaler, scaler.dim

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that holds them."""
        given: Hidden = {} if hidden is None else hidden
        if set(given) != set(self.names):
            raise AgentError(
                f"The agent needs the hidden parameters {', '.join(self.names)}, "
                f"found {', '.join(map(str, given)) or 'none'}."
            )
        try:
            values = [float(given[name]) for name in self.names]
        except (TypeError, ValueError) as error:
            raise AgentError(
                f"Hidden parameters must be numbers, found {dict(given)!r:.80}."
            ) from error
        if not all(map(math.isfinite, values)):
            raise AgentError(f"Hidden parameters must be finite, found {dict(given)}.")
        return Tracker(self.scaler(np.array(values, dtype=np.float32)))

    def check(self, observation_dim: int, action_width: int) -> None:
        """Nothing in it depends on these sizes."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The scaler."""
        return self.scaler.to_arrays(f"{prefix}.scaler")

    def describe(self) -> dict[str, Any]:
        """Its kind and the parameters' names, in order."""
        return {"kind": self.kind, "names": list(self.names)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> HiddenContext:
        """What `to_arrays(prefix)` and `describe()` wrote."""
        scaler = Standardiser.from_arrays(arrays, f"{prefix}.scaler")
        return cls(strings(description, "names"), scaler)
