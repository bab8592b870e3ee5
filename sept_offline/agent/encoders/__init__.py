"""Segment encoders in NumPy: from the first steps of an episode to a posterior over the latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from ..networks import Arrays
from ..records import named
from .base import SegmentEncoder, step_features
from .lstm import LstmEncoder, LstmWeights
from .pooled import FlatEncoder, PooledEncoder
from .transition import TransitionEncoder, posterior

AnyEncoder = PooledEncoder | FlatEncoder | LstmEncoder | TransitionEncoder
ENCODERS: dict[str, type[AnyEncoder]] = {each.kind: each for each in get_args(AnyEncoder)}


def encoder_from_arrays(arrays: Arrays, description: Mapping[str, Any], prefix: str) -> AnyEncoder:
    """The encoder that `description` names."""
    return named(ENCODERS, description, "encoder").from_arrays(arrays, description, prefix)


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
