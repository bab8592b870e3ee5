"""The true hidden parameters as context: privileged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...errors import AgentError
from ..fields import strings
from ..networks import Standardiser
from ..records import Value, Weights
from .base import Context, Tracker

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class HiddenContext(Context):
    """The true hidden parameters, standardised: the privileged `oracle`."""

    kind = "hidden"
    stored = (Value("names", strings), Weights("scaler", Standardiser.from_arrays))
    needs = frozenset({"hidden"})

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
