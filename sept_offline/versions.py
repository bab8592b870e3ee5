"""Versions of this library and its dependencies."""

from __future__ import annotations

import functools
import importlib.metadata
import platform

from sept_offline import __version__

OWN = "sept-offline"
"""The name of this library among the versions."""
LIBRARIES = ("d3rlpy", "torch", "numpy", "gymnasium", "h5py", "pyarrow")


def versions() -> dict[str, str]:
    """This library, Python and what results depend on, without importing any of them."""
    installed = {name: _installed(name) for name in LIBRARIES}
    return {OWN: __version__} | installed | {"python": platform.python_version()}


@functools.cache
def _installed(name: str) -> str:
    """The version of a package; it is in a file that takes milliseconds to parse."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
