"""What a worker process finds in its environment when it starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMBA")
THREADS = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES}
"""One thread a worker, said before a library could start its own."""


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Processes started inside have `values` in their environment; afterwards all is as before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
