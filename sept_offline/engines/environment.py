"""The environment variables of worker processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMBA")
WORKER = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES} | {"PYTHONSAFEPATH": "1"}
"""One thread per worker, set before a library can start its own. Without PYTHONSAFEPATH Python
would put the current folder before all others and import whatever lies there, multiprocessing.py
for instance; a family that the user names is found by the path that workers are handed."""


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
