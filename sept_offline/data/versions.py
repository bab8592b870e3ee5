"""The versions a dataset records of the libraries that wrote it."""

from __future__ import annotations

import platform

import h5py
import numpy as np
import pyarrow as pa

import sept_offline


def library_versions() -> dict[str, str]:
    """Name and version of what shapes the bytes of a file."""
    return {
        "sept-offline": sept_offline.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "pyarrow": pa.__version__,
    }
