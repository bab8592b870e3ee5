"""Versions of this library and its dependencies."""

from __future__ import annotations

import importlib.metadata
import platform

from sept_offline import __version__

OWN = "sept-offline"
"""The name of this library among the versions."""
LIBRARIES = ("d3rlpy", "torch", "numpy", "gymnasium", "h5py", "pyarrow")


def versions() -> dict[str, str]:
    """This library, Python and what results depend on, without importing any of them."""
    known = {OWN: __version__}
    for name in LIBRARIES:
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            known[name] = "not installed"
    return known | {"python": platform.python_version()}
