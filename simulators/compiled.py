"""Compilation of the simulators: Numba, cached on disk, bit-exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile `function`; a second start of the program loads it from the cache.

    `fastmath` stays off: reordered sums would let a row's result depend on its batch.
    """
    return cast(F, numba.njit(cache=True, error_model="numpy")(function))
