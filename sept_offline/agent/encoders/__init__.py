"""Segment encoders in NumPy: from the first steps of an episode to a posterior over the latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import AgentError
from ..networks import Arrays
from .base import SegmentEncoder, step_features
from .lstm import LstmEncoder, LstmWeights
from .pooled import FlatEncoder, PooledEncoder
from .transition import TransitionEncoder, posterior

AnyEncoder = PooledEncoder | FlatEncoder | LstmEncoder | TransitionEncoder
ENCODERS: dict[str, type[AnyEncoder]] = {
    PooledEncoder.kind: PooledEncoder,
    FlatEncoder.kind: FlatEncoder,
    LstmEncoder.kind: LstmEncoder,
    TransitionEncoder.kind: TransitionEncoder,
}


def encoder_from_arrays(arrays: Arrays, description: Mapping[str, Any], prefix: str) -> AnyEncoder:
    """The encoder that `description` names."""
    kind = description.get("kind")
    if kind not in ENCODERS:
        raise AgentError(
            f"There is no encoder {kind!r}; expected one of {', '.join(sorted(ENCODERS))}."
        )
    return ENCODERS[kind].from_arrays(arrays, description, prefix)


__all__ = [
    "AnyEncoder",
    "FlatEncoder",
    "LstmEncoder",
    "LstmWeights",
    "PooledEncoder",
    "SegmentEncoder",
    "TransitionEncoder",
    "encoder_from_arrays",
    "posterior",
    "step_features",
]
