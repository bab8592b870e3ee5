"""A builder of ONNX graphs, which adds one operator at a time, and the libraries it needs."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from sept_offline.errors import ConfigError

OPSET, IR_VERSION = 17, 8
"""The first operator set with LayerNormalization, which older runtimes support too."""


class Graph:
    """A graph under construction: `op` adds an operator and returns the name of its output."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._signature: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}

    def input(self, name: str, dtype: Any, *shape: int | str) -> str:
        """Add an input tensor; a size that may vary is given as a name."""
        self._inputs.append(self._declare("inputs", name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: Any, *shape: int | str) -> None:
        """Add `value` as the output `name`."""
        self._nodes.append(_onnx().helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._declare("outputs", name, dtype, shape))

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Add a constant array."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        name = f"constant_{len(self._constants)}"
        self._constants.append(_onnx().numpy_helper.from_array(array, name))
        return name

    def double(self, value: Any) -> str:
        """Add a constant array of float64."""
        return self.constant(value, np.float64)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add the operator `kind` on `inputs`; returns its first output."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(_onnx().helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """`value` converted to another type."""
        return self.op("Cast", value, to=_type(dtype))

    def reshape(self, value: str, *shape: int) -> str:
        """`value` in another shape; 0 keeps a size, −1 is inferred."""
        return self.op("Reshape", value, self.constant(shape, np.int64))

    def unsqueeze(self, value: str, *axes: int) -> str:
        """`value` with new axes of size 1."""
        return self.op("Unsqueeze", value, self.constant(axes, np.int64))

    def slice(self, value: str, start: int, end: int, axis: int) -> str:
        """`value` from `start` up to `end` along an axis."""
        bounds = (self.constant([bound], np.int64) for bound in (start, end, axis))
        return self.op("Slice", value, *bounds)

    def sum(self, value: str, axis: int, keep: bool = False) -> str:
        """The sum along an axis."""
        return self.op("ReduceSum", value, self.constant([axis], np.int64), keepdims=int(keep))

    def mean(self, value: str, axis: int) -> str:
        """The mean along an axis."""
        return self.op("ReduceMean", value, axes=[axis], keepdims=0)

    def expand(self, value: str, *shape: int) -> str:
        """`value` repeated along its axes of size 1; a size of 1 here leaves an axis as it is."""
        return self.op("Expand", value, self.constant(shape, np.int64))

    def finished(self) -> bytes:
        """The checked model, serialised."""
        from sept_offline import __version__

        onnx = _onnx()
        helper = onnx.helper
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, self._constants
        )
        model = helper.make_model(
            graph,
            producer_name="sept-offline",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def signature(self) -> dict[str, dict[str, Any]]:
        """Inputs and outputs by name, each with its type and shape, JSON-ready."""
        return self._signature

    def _declare(self, way: str, name: str, dtype: Any, shape: tuple[int | str, ...]) -> Any:
        self._signature[way][name] = {"type": np.dtype(dtype).name, "shape": list(shape)}
        return _onnx().helper.make_tensor_value_info(name, _type(dtype), list(shape))


def _type(dtype: Any) -> int:
    code: int = _onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return code


def _onnx() -> Any:
    """The library that writes graphs."""
    module = library("onnx")
    for part in ("helper", "numpy_helper", "checker"):
        importlib.import_module(f"onnx.{part}")
    return module


def library(name: str) -> Any:
    """A library of the extra [onnx], or an error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"An ONNX export needs the package {name!r}: pip install 'sept-offline[onnx]', "
            "or export with --numpy."
        ) from error
