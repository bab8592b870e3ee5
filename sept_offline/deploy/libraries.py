"""The libraries of the extra [onnx], and an error if they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from sept_offline.errors import ConfigError


def onnx() -> Any:
    """The library that writes graphs."""
    module = _need("onnx")
    for part in ("helper", "numpy_helper", "checker"):
        importlib.import_module(f"onnx.{part}")
    return module


def onnxruntime() -> Any:
    """The library that runs graphs."""
    return _need("onnxruntime")


def _need(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"An ONNX export needs the package {name!r}: pip install 'sept-offline[onnx]', "
            "or export with --numpy."
        ) from error
