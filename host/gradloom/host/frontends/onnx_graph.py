"""ONNX graphs to :class:`~gradloom.host.frontends.import_graph.Graph`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from gradloom.host.files import UserError
from gradloom.host.frontends.import_graph import Graph, Node, Op, adaptive, refuse, window
from gradloom.host.frontends.torch_rules import refusal

__all__ = ["DOMAIN", "read"]

DOMAIN = "gradloom"
"""Domain of the functions L1FRN and TLU that :mod:`gradloom.host.onnx` exports."""


def read(model: onnx.ModelProto) -> Graph:
    """Read a model whose input is one batch of images.

    Raises
    ------
    :exc:`UserError`
        If it holds an operator that the machine does not have, or its images' shape is not fixed.
    """
    try:
        model = shape_inference.infer_shapes(model, strict_mode=True)
    except (shape_inference.InferenceError, ValueError) as error:
        raise UserError(f"the ONNX model's shapes cannot be inferred ({str(error).strip().splitlines()[0]}): check it with "
                        "onnx.checker") from None
    return _Reader(model.graph).read()


class _Reader:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        """Values of initializers and Constant nodes by name."""
        self.shapes = {
            value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        """Shapes by name; 0 where a dimension has no number, as the batch."""
        self.nodes: list[Node] = []
        self.trained: set[str] = set()
        self.transposed: set[str] = set()

    def read(self) -> Graph:
        inputs = [value.name for value in self.graph.input if value.name not in self.constants]
        if len(inputs) != 1 or len(self.graph.output) != 1:
            raise UserError(f"the ONNX model has {len(inputs)} inputs and {len(self.graph.output)} outputs: the machine takes one "
                            "batch of images and gives its logits")
        shape = self.shapes[inputs[0]][1:]
        if len(self.shapes[inputs[0]]) != 4 or 0 in shape:
            raise UserError(f"the ONNX model's input {inputs[0]!r} must have a fixed shape (images, channels, rows, columns), only "
                            "the number of images may be open: export it so")
        used = self._used()
        for node in self.graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = _constant(node)
            elif any(name in used for name in node.output):
                self._node(node)
        return Graph(tuple(self.nodes), inputs[0], self.graph.output[0].name, (shape[0], shape[1], shape[2]),
                     frozenset(self.transposed))

    def _used(self) -> set[str]:
        """Names of the values that the output depends on."""
        makers = {name: node for node in self.graph.node for name in node.output}
        found: set[str] = set()
        waiting = [self.graph.output[0].name]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += makers[name].input if name in makers else []
        return found

    def _node(self, node: onnx.NodeProto) -> None:
        title = node.name or node.output[0]
        where = f"node {title!r} ({node.op_type})"
        read = _READERS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if read is None:
            raise refuse(where, *refusal(node.op_type))
        read(self, node, where, {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute})

    # Operators

    def _conv(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        w = self._parameter(node, 1, where)
        if settings.get("group", 1) != 1:
            raise refuse(where, f"group is {settings['group']}, every output channel reads every input channel", "use group 1")
        arrays = {"w": w} | ({"bias": self._parameter(node, 2, where)} if _given(node, 2) else {})
        window_ = _window(where, settings, w[1].shape[2:])
        self._emit(node, Op.CONV, where, {"out": len(w[1]), **window_}, arrays)

    def _gemm(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        if settings.get("alpha", 1.0) != 1 or settings.get("beta", 1.0) != 1 or settings.get("transA", 0):
            raise refuse(where, "alpha, beta and transA are not supported", "leave them at their defaults")
        name, value = self._parameter(node, 1, where)
        w = (name, value) if settings.get("transB", 0) else self._turned(name, value)
        self._linear(node, where, w, 2 if _given(node, 2) else None)

    def _matmul(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        name, value = self._parameter(node, 1, where)
        if value.ndim != 2:
            raise refuse(where, f"its matrix has {value.ndim} dimensions", "multiply flattened images by a matrix")
        self._linear(node, where, self._turned(name, value), None)

    def _turned(self, name: str, value: np.ndarray) -> tuple[str, np.ndarray]:
        self.transposed.add(name)
        return name, value.T

    def _linear(self, node: onnx.NodeProto, where: str, w: tuple[str, np.ndarray], bias: int | None) -> None:
        if len(self.shapes.get(node.input[0], ())) != 2:
            raise refuse(where, "its input is a feature map, a fully connected layer takes every element of an image",
                         "put a Flatten before it")
        arrays = {"w": w} | ({} if bias is None else {"bias": self._parameter(node, bias, where)})
        self._emit(node, Op.LINEAR, where, {"out": len(w[1])}, arrays)

    def _norm(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        arrays = {"gamma": self._parameter(node, 1, where), "beta": self._parameter(node, 2, where)}
        self._emit(node, Op.NORM, where, {"exact": node.domain == DOMAIN}, arrays)

    def _tlu(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        self._emit(node, Op.TLU, where, arrays={"tau": self._parameter(node, 1, where)})

    def _relu(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        self._emit(node, Op.RELU, where)

    def _same(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        self._emit(node, Op.SAME, where)

    def _dropout(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        ratio = float(self.constants.get(node.input[1], 0.5)) if _given(node, 1) else float(settings.get("ratio", 0.5))
        if ratio > 0:
            raise refuse(where, f"the machine has no dropout, and its ratio is {ratio:g}", "set the ratio to 0 or remove it")
        self._same(node, where, settings)

    def _max_pool(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        if settings.get("ceil_mode", 0) or len(node.output) > 1:
            raise refuse(where, "ceil_mode and indices are not supported", "leave them out")
        self._emit(node, Op.MAX_POOL, where, _window(where, settings))

    def _avg_pool(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        found = _window(where, settings)
        if settings.get("ceil_mode", 0) or (found["pad"] and not settings.get("count_include_pad", 0)):
            raise refuse(where, "padding counts as zeros in the mean, and ceil_mode is not supported",
                         "set count_include_pad to 1 and ceil_mode to 0")
        self._emit(node, Op.AVG_POOL, where, found)

    def _global_pool(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        shape = self._shape(node.input[0], where)
        self._emit(node, *_positional(adaptive(where, shape, (1, 1)), where))

    def _mean(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        axes = self.constants.get(node.input[1], ()) if _given(node, 1) else settings.get("axes", ())
        if sorted(int(axis) % 4 for axis in axes) != [2, 3]:
            raise refuse(where, "only the mean over rows and columns of a feature map is a layer", "reduce axes 2 and 3")
        self._global_pool(node, where, settings)

    def _flatten(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        source, target = self.shapes.get(node.input[0], ()), self.shapes.get(node.output[0], ())
        flat = len(target) == 2 and target[1] in (0, int(np.prod(source[1:])))
        if not source or not (flat or target == source):
            raise refuse(where, "only flattening each image is supported", "use Flatten with axis 1")
        self._same(node, where, settings)

    def _add(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        constants = [name for name in node.input if name in self.constants]
        if constants:
            self._bias(node, where, constants[0])
            return
        first, second = (self.shapes.get(name, ())[1:] for name in node.input)
        if first != second:
            raise refuse(where, "only two feature maps of one shape are added", "give both sides the same shape")
        self._emit(node, Op.ADD, where, inputs=tuple(node.input))

    def _bias(self, node: onnx.NodeProto, where: str, name: str) -> None:
        """A matrix product and a bias that follows it are one Linear."""
        source = next(other for other in node.input if other != name)
        last = self.nodes[-1] if self.nodes else None
        if last is None or last.name != source or last.op != Op.LINEAR or "bias" in last.arrays:
            raise refuse(where, "a constant is added only as the bias of the MatMul right before it",
                         "use Gemm or Conv with a bias")
        self.nodes[-1] = Node(node.output[0], last.op, last.where, last.layer, last.inputs, last.settings,
                              last.arrays | {"bias": self._named(name, where)})

    def _slice(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        shape = self._shape(node.input[0], where)
        starts, ends, axes, steps = (
            [int(v) for v in self.constants.get(node.input[k], ())] if _given(node, k) else [] for k in range(1, 5)
        )
        axes = axes or list(range(len(starts)))
        table = {axis % 4: (start, end, step) for axis, start, end, step in zip(axes, starts, ends, steps or [1] * 4, strict=False)}
        rows, columns = (table.pop(axis, (0, shape[axis - 1], 1)) for axis in (2, 3))
        whole = all(start == 0 and end >= (1 << 30) for start, end, _ in table.values())
        if not whole or rows[0] or columns[0] or rows[2] != columns[2] or rows[1] < shape[1] or columns[1] < shape[2]:
            raise refuse(where, "only every s-th row and column of a whole feature map is a layer (subsample)", "slice so")
        self._emit(node, Op.SUBSAMPLE, where, {"out": shape[0], "stride": rows[2]})

    def _pad(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        shape = self._shape(node.input[0], where)
        pads = [int(v) for v in self.constants.get(node.input[1], ())] if len(node.input) > 1 else []
        value = float(self.constants.get(node.input[2], 0)) if _given(node, 2) else 0.0
        plain = settings.get("mode", b"constant") == b"constant" and value == 0 and not _given(node, 3)
        if not plain or len(pads) != 8 or any(pads[:5]) or any(pads[6:]) or pads[5] < 0:
            raise refuse(where, "only channels of zeros behind the source's are appended (subsample)",
                         "pad planes in the convolution")
        found = {"out": shape[0] + pads[5], "stride": 1}
        source = next((node_ for node_ in self.nodes if node_.name == node.input[0] and node_.op == Op.SUBSAMPLE), None)
        if source is not None and sum(node.input[0] in other.input for other in self.graph.node) == 1:
            self.nodes.remove(source)
            self._emit(node, Op.SUBSAMPLE, where, found | {"stride": source.settings["stride"]}, inputs=source.inputs)
        else:
            self._emit(node, Op.SUBSAMPLE, where, found)

    # Shared

    def _shape(self, name: str, where: str) -> tuple[int, int, int]:
        shape = self.shapes.get(name, ())[1:]
        if len(shape) != 3 or 0 in shape:
            raise refuse(where, f"the shape of its input {name!r} is not known", "fix the shape of the model's input")
        return shape[0], shape[1], shape[2]

    def _parameter(self, node: onnx.NodeProto, position: int, where: str) -> tuple[str, np.ndarray]:
        name = node.input[position]
        if name in self.trained:
            raise refuse(where, f"parameter {name!r} has another reader, shared parameters are not trained", "copy it")
        self.trained.add(name)
        return self._named(name, where)

    def _named(self, name: str, where: str) -> tuple[str, np.ndarray]:
        if name not in self.constants:
            raise refuse(where, f"its parameter {name!r} is computed", "store it as an initializer")
        return name, self.constants[name].astype(np.float64)

    def _emit(self, node: onnx.NodeProto, op: str, where: str, settings: dict[str, int] | None = None,
              arrays: dict[str, tuple[str, np.ndarray]] | None = None, inputs: tuple[str, ...] | None = None) -> None:
        layer = (node.name or node.output[0]).strip("/").replace("/", ".")
        if arrays and "w" in arrays and arrays["w"][0].endswith(".weight"):
            layer = arrays["w"][0].removesuffix(".weight")  # the module's name, where PyTorch exported it
        self.nodes.append(Node(node.output[0], op, where, layer, inputs or (node.input[0],), settings or {}, arrays or {}))


def _given(node: onnx.NodeProto, position: int) -> bool:
    return position < len(node.input) and bool(node.input[position])


def _positional(found: tuple[str, dict[str, int]], where: str) -> tuple[str, str, dict[str, int]]:
    return found[0], where, found[1]


def _constant(node: onnx.NodeProto) -> np.ndarray:
    for attribute in node.attribute:
        if attribute.name == "value":
            return numpy_helper.to_array(attribute.t)
        if attribute.name in ("value_int", "value_float", "value_ints", "value_floats"):
            return np.array(onnx.helper.get_attribute_value(attribute))
    return np.zeros(0)


def _window(where: str, settings: dict[str, Any], kernel: tuple[int, ...] = ()) -> dict[str, int]:
    kernel = kernel or tuple(settings["kernel_shape"])
    if len(kernel) != 2:
        raise refuse(where, "the machine works on planes of rows and columns", "use two-dimensional windows")
    if any(dilation != 1 for dilation in settings.get("dilations", (1, 1))):
        raise refuse(where, f"dilations are {list(settings['dilations'])}, windows are dense", "use dilations of 1")
    stride = tuple(settings.get("strides", (1, 1)))
    pads = tuple(settings.get("pads", (0, 0, 0, 0)))
    auto = settings.get("auto_pad", b"NOTSET").decode()
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        if stride != (1, 1) or kernel[0] % 2 == 0 or kernel[1] % 2 == 0:
            raise refuse(where, f"auto_pad {auto} may pad more on one side", "give pads, equal on all sides")
        pads = (kernel[0] // 2, kernel[1] // 2) * 2
    if pads[:2] != pads[2:]:
        raise refuse(where, f"pads are {list(pads)}, padding is the same on all sides", "pad all sides equally")
    return window(where, kernel, stride, pads[:2])


_READERS: dict[tuple[str, str], Callable[[_Reader, onnx.NodeProto, str, dict[str, Any]], None]] = {
    ("", "Conv"): _Reader._conv,
    ("", "Gemm"): _Reader._gemm,
    ("", "MatMul"): _Reader._matmul,
    ("", "BatchNormalization"): _Reader._norm,
    ("", "Relu"): _Reader._relu,
    ("", "MaxPool"): _Reader._max_pool,
    ("", "AveragePool"): _Reader._avg_pool,
    ("", "GlobalAveragePool"): _Reader._global_pool,
    ("", "ReduceMean"): _Reader._mean,
    ("", "Flatten"): _Reader._flatten,
    ("", "Reshape"): _Reader._flatten,
    ("", "Add"): _Reader._add,
    ("", "Identity"): _Reader._same,
    ("", "Dropout"): _Reader._dropout,
    ("", "Slice"): _Reader._slice,
    ("", "Pad"): _Reader._pad,
    (DOMAIN, "L1FRN"): _Reader._norm,
    (DOMAIN, "TLU"): _Reader._tlu,
}
