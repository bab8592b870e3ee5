"""A builder of ONNX graphs, whose tensors compute like arrays, and the libraries it needs."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from sept_offline.errors import ConfigError

OPSET, IR_VERSION = 17, 8
"""The first operator set with LayerNormalization, which older runtimes support too."""
COMPARISONS = ("Greater", "Less", "LessOrEqual")


class Tensor:
    """A value in a graph under construction: every operation adds an operator to the graph."""

    def __init__(self, graph: Graph, name: str, dtype: Any) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def op(self, kind: str, *others: Any, dtype: Any = None, **attributes: Any) -> Tensor:
        """Add the operator `kind` on this tensor and others; returns its first output.

        Numbers among the others become constants of this tensor's type, which the output has too
        unless `dtype` says otherwise.
        """
        if kind in COMPARISONS:
            dtype = bool
        inputs = [self, *(self._tensor(other) for other in others)]
        return self.graph.node(kind, inputs, dtype or self.dtype, **attributes)

    def _tensor(self, value: Any) -> Tensor:
        return value if isinstance(value, Tensor) else self.graph.constant(value, self.dtype)

    def __add__(self, other: Any) -> Tensor:
        return self.op("Add", other)

    def __sub__(self, other: Any) -> Tensor:
        return self.op("Sub", other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._tensor(other) - self

    def __mul__(self, other: Any) -> Tensor:
        return self.op("Mul", other)

    def __truediv__(self, other: Any) -> Tensor:
        return self.op("Div", other)

    def __neg__(self) -> Tensor:
        return self.op("Neg")

    def exp(self) -> Tensor:
        """e to the power of each entry."""
        return self.op("Exp")

    def where(self, chosen: Tensor, other: Any) -> Tensor:
        """`chosen` where this one is true, else `other`."""
        tensors = [self, chosen, chosen._tensor(other)]
        return self.graph.node("Where", tensors, chosen.dtype)

    def cast(self, dtype: Any) -> Tensor:
        """Converted to another type."""
        return self.op("Cast", dtype=dtype, to=_type(dtype))

    def reshape(self, *shape: int) -> Tensor:
        """In another shape; 0 keeps a size, −1 is inferred."""
        return self.op("Reshape", self.graph.constant(shape, np.int64))

    def unsqueeze(self, *axes: int) -> Tensor:
        """With new axes of size 1."""
        return self.op("Unsqueeze", self.graph.constant(axes, np.int64))

    def slice(self, start: int, end: int, axis: int) -> Tensor:
        """From `start` up to `end` along an axis."""
        return self.op("Slice", *(self.graph.constant([at], np.int64) for at in (start, end, axis)))

    def sum(self, axis: int, keep: bool = False) -> Tensor:
        """The sum along an axis."""
        return self.op("ReduceSum", self.graph.constant([axis], np.int64), keepdims=int(keep))

    def mean(self, axis: int, keep: bool = False) -> Tensor:
        """The mean along an axis."""
        return self.op("ReduceMean", axes=[axis], keepdims=int(keep))

    def expand(self, *shape: int) -> Tensor:
        """Repeated along its axes of size 1; a size of 1 keeps an axis unchanged."""
        return self.op("Expand", self.graph.constant(shape, np.int64))


def concat(*tensors: Tensor, axis: int) -> Tensor:
    """Tensors side by side along an axis."""
    return tensors[0].op("Concat", *tensors[1:], axis=axis)


class Graph:
    """A graph under construction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.signature: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}
        """Inputs and outputs by name, each with its type and shape, JSON-ready."""
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dtype: Any, *shape: int | str) -> Tensor:
        """Add an input tensor; a size that may vary is given as a name."""
        self._inputs.append(self._declare("inputs", name, dtype, shape))
        return Tensor(self, name, dtype)

    def output(self, name: str, value: Tensor, *shape: int | str) -> None:
        """Add `value` as the output `name`."""
        self._nodes.append(_onnx().helper.make_node("Identity", [value.name], [name]))
        self._outputs.append(self._declare("outputs", name, value.dtype, shape))

    def constant(self, value: Any, dtype: Any = np.float32) -> Tensor:
        """Add a constant array."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        name = f"constant_{len(self._constants)}"
        self._constants.append(_onnx().numpy_helper.from_array(array, name))
        return Tensor(self, name, dtype)

    def double(self, value: Any) -> Tensor:
        """Add a constant array of float64."""
        return self.constant(value, np.float64)

    def node(self, kind: str, inputs: list[Tensor], dtype: Any, **attributes: Any) -> Tensor:
        """Add the operator `kind`; returns its first output, of type `dtype`."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        names = [tensor.name for tensor in inputs]
        self._nodes.append(_onnx().helper.make_node(kind, names, [name], **attributes))
        return Tensor(self, name, dtype)

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

    def _declare(self, way: str, name: str, dtype: Any, shape: tuple[int | str, ...]) -> Any:
        self.signature[way][name] = {"type": np.dtype(dtype).name, "shape": list(shape)}
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
