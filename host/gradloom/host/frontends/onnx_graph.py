"""ONNX graphs to :class:`~gradloom.host.frontends.import_graph.Graph`."""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from gradloom.host.files import UserError
from gradloom.host.frontends.import_graph import Graph, Node, Op, adaptive, bias_vector, expanded, features, refuse
from gradloom.host.frontends.onnx_file import check_model, title_of
from gradloom.host.frontends.onnx_rules import folded_norms, one_more_window, window_of
from gradloom.host.frontends.onnx_values import constants_of, infer_shapes, shapes_of
from gradloom.host.frontends.torch_rules import refusal
from gradloom.models.layers import AvgPool, Layer, MaxPool, Subsample, Upsample, shape_text

__all__ = ["DOMAIN", "read"]

DOMAIN = "gradloom"
"""Domain of the functions L1FRN and TLU that :mod:`gradloom.api.onnx_models` exports."""
_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze")
_REPEATING = frozenset({("asymmetric", "floor"), ("tf_half_pixel_for_nn", "floor")} | {
    (f"{start}half_pixel{end}", f"round_prefer_{tie}")
    for start, end in (("", ""), ("pytorch_", ""), ("", "_symmetric")) for tie in ("floor", "ceil")})
"""Coordinates and roundings of Resize by which a plane enlarged by a whole number s takes position x / s, rounded down, at x."""
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def read(model: onnx.ModelProto) -> Graph:
    """Read a model whose input is one batch of images, or of features.

    Raises
    ------
    :exc:`UserError`
        If it is damaged, holds an operator that the machine does not have or parameters that do not fit, or its images' shape
        is not fixed.
    """
    check_model(model)
    constants = constants_of(model)
    # First every node for itself, with messages by its name; then onnx's own checks, which name no fix.
    found = _Reader(model.graph, shapes_of(infer_shapes(model, constants, strict=False).graph), constants).read()
    infer_shapes(model, constants, strict=True)
    folded = "" if model.producer_name == "gradloom" else folded_norms(found.nodes)
    return dataclasses.replace(found, notes=(*found.notes, folded)) if folded else found


class _Reader:
    def __init__(self, graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, np.ndarray]) -> None:
        self.graph = graph
        self.constants = constants
        """Values that do not depend on the images, by name."""
        self.shapes = shapes
        """Shapes by name, with the batch."""
        self.nodes: list[Node] = []
        self.made: set[str] = set()
        """Names of values that nodes give, and the input's."""
        self.strides: dict[str, tuple[str, int, int]] = {}
        """Slices of which the rest follows: what they slice, and the strides of rows and columns so far."""
        self.trained: set[str] = set()
        self.transposed: set[str] = set()
        self.own_shapes: dict[str, tuple[int, ...]] = {}
        self.notes: list[str] = []
        self.turned = {
            node.output[0]: node.input[0]
            for node in graph.node
            if node.op_type == "Transpose" and node.input[0] in constants and constants[node.input[0]].ndim == 2
            and constants.get(node.output[0], np.zeros(0)).shape == constants[node.input[0]].shape[::-1]
        }
        """Matrices that are stored transposed, and where."""

    def read(self) -> Graph:
        source = next(value.name for value in self.graph.input if value.name not in self.constants)
        shape = self.shapes[source][1:]
        self.made.add(source)
        used = self._used()
        self.readers = collections.Counter(
            [self.graph.output[0].name, *(name for node in self.graph.node if used & set(node.output) for name in node.input)]
        )
        for node in self.graph.node:
            if used & set(node.output) and node.output[0] not in self.constants:
                self._node(node)
        output = self.graph.output[0].name
        if output not in self.made:
            raise UserError(f"the ONNX model's output {output!r} does not depend on its input: give the logits as its output")
        flat = len(shape) == 1
        return Graph(tuple(self.nodes), source, output, (shape[0], 1, 1) if flat else (shape[0], shape[1], shape[2]),
                     frozenset(self.transposed), self.own_shapes, flat, tuple(self.notes))

    def _used(self) -> set[str]:
        """Names of the values that the output depends on, but for those that only hold shapes."""
        makers = {name: node for node in self.graph.node for name in node.output}
        found: set[str] = set()
        waiting = [self.graph.output[0].name]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                node = makers.get(name)
                # A target of Reshape says nothing that the shape of its result does not say.
                waiting += [] if node is None else node.input[:1] if node.op_type in _RESHAPES else node.input
        return found

    def _node(self, node: onnx.NodeProto) -> None:
        where = title_of(node)
        read = _READERS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        if read is None:
            raise refuse(where, *refusal(node.op_type))
        read(self, node, where, {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute})

    # Operators

    def _conv(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        name, w = self._parameter(node, 1, where)
        if w.ndim != 4:
            raise refuse(where, f"its weight {name!r} has {w.ndim} dimensions, the machine works on planes of rows and columns",
                         "use two-dimensional windows")
        shape = self._plane(node.input[0], where)
        if settings.get("group", 1) != 1:
            raise refuse(where, f"group is {settings['group']}, every output channel reads every input channel", "use group 1")
        if w.shape[1] != shape[0]:
            raise refuse(where, f"its weight {name!r} of shape {w.shape} reads {w.shape[1]} channels, its input has {shape[0]}",
                         f"give it the shape {(len(w), shape[0], *w.shape[2:])}")
        given = tuple(settings.get("kernel_shape", w.shape[2:]))
        if given != w.shape[2:]:
            raise refuse(where, f"kernel_shape is {shape_text(given)} and its weight is {shape_text(w.shape[2:])}",
                "make them equal")
        arrays = {"w": (name, w)} | self._bias(node, where, len(w), column=False)
        self._emit(node, Op.CONV, where, {"out": len(w), **window_of(where, settings, shape, w.shape[2:])}, arrays)

    def _gemm(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        scaled = settings.get("alpha", 1.0) != 1 or (settings.get("beta", 1.0) != 1 and _given(node, 2))
        if scaled or settings.get("transA", 0):
            raise refuse(where, "alpha, beta and transA are not supported", "leave them at their defaults")
        self._linear(node, where, transposed=not settings.get("transB", 0))

    def _matmul(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        self._linear(node, where, transposed=True)

    def _linear(self, node: onnx.NodeProto, where: str, *, transposed: bool) -> None:
        """A fully connected layer; ``transposed``: its matrix is (inputs, outputs)."""
        name, w = self._parameter(node, 1, where)
        if w.ndim != 2:
            raise refuse(where, f"its matrix {name!r} has {w.ndim} dimensions", "multiply flattened images by a matrix")
        shape = self._shape(node.input[0], where)
        if len(shape) != 1:
            raise refuse(where, "its input is a feature map, a fully connected layer takes every element of an image",
                         "put a Flatten before it")
        rows = w.shape if not transposed else w.shape[::-1]
        if rows[1] != shape[0]:
            wanted = (shape[0], rows[0]) if transposed else (rows[0], shape[0])
            raise refuse(where, f"its matrix {name!r} of shape {w.shape} reads {rows[1]} features, its input has {shape[0]}",
                         f"give it the shape {wanted}")
        if transposed:
            self.transposed ^= {name}
            w = w.T
        bias = self._bias(node, where, len(w), column=False) if node.op_type == "Gemm" else {}
        self._emit(node, Op.LINEAR, where, {"out": len(w)}, {"w": (name, w)} | bias)

    def _bias(self, node: onnx.NodeProto, where: str, count: int, *, column: bool,
              position: int = 2) -> dict[str, tuple[str, np.ndarray]]:
        """The bias that is a node's input, if it has one, of ``count`` outputs; ``column``: it is added to feature maps.

        ``where`` is what messages call the layer that takes it.
        """
        if not _given(node, position):
            return {}
        name, value = self._parameter(node, position, where)
        if column:
            full = (1,) * (4 - value.ndim) + value.shape
            if value.ndim > 4 or full[0] != 1 or full[2:] != (1, 1):
                raise refuse(where, f"its bias {name!r} has the shape {value.shape}, the layer has {count} outputs",
                             f"give it the shape {(count, 1, 1)}")
        vector = bias_vector(where, name, value.reshape(-1) if column else value, count)
        if value.size == count:
            self.own_shapes[name] = value.shape
        else:
            self.notes.append(expanded(where, name, count))
        return {"bias": (name, vector)}

    def _norm(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        if settings.get("spatial", 1) != 1:
            raise refuse(where, "it has parameters for each position (spatial is 0), L1-FRN has them for each channel",
                         "export it with spatial 1")
        arrays = {"gamma": self._channels(node, 1, where), "beta": self._channels(node, 2, where)}
        self._emit(node, Op.NORM, where, {"exact": node.domain == DOMAIN}, arrays)

    def _tlu(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        self._emit(node, Op.TLU, where, arrays={"tau": self._channels(node, 1, where)})

    def _relu(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        self._emit(node, Op.RELU, where)

    def _same(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        self._emit(node, Op.SAME, where)

    def _dropout(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        ratio = float(self.constants.get(node.input[1], 0.5)) if _given(node, 1) else float(settings.get("ratio", 0.5))
        # Without training_mode the operator passes everything on, whatever its ratio.
        training = bool(np.any(self.constants.get(node.input[2], True))) if _given(node, 2) else False
        if ratio > 0 and training:
            raise refuse(where, f"the machine has no dropout, and its ratio is {ratio:g}", "set the ratio to 0 or remove it")
        if ratio > 0:
            self.notes.append(f"{where}: it is switched off in the file and left out, the machine has no dropout")
        self._same(node, where, settings)

    def _cast(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        if settings.get("to") not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16):
            raise refuse(where, "features are real numbers", "cast to FLOAT or remove it")
        self._same(node, where, settings)

    def _max_pool(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        shape = self._plane(node.input[0], where)
        found = window_of(where, settings, shape)
        if one_more_window(settings, found, shape) or (len(node.output) > 1 and self.readers[node.output[1]]):
            raise refuse(where, "ceil_mode and indices are not supported", "leave them out")
        self._emit(node, MaxPool, where, found)

    def _avg_pool(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        shape = self._plane(node.input[0], where)
        found = window_of(where, settings, shape)
        if one_more_window(settings, found, shape) or (found["pad"] and not settings.get("count_include_pad", 0)):
            raise refuse(where, "padding counts as zeros in the mean, and ceil_mode is not supported",
                         "set count_include_pad to 1 and ceil_mode to 0")
        self._emit(node, AvgPool, where, found)

    def _global_pool(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        op, found = adaptive(where, self._plane(node.input[0], where), (1, 1))
        self._emit(node, op, where, found)

    def _resize(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        source, target = self._plane(node.input[0], where)[1:], self._plane(node.output[0], where, "result")[1:]
        scale = target[0] // source[0]
        # Operator sets 7, 8 to 10, and from 11 on, where the size may be given instead.
        position = 2 if len(node.input) > 2 else 1
        given = self.constants.get(node.input[position], ()) if _given(node, position) else settings.get("scales", ())
        # A scale that is not quite whole may give the same size, but by other rows.
        whole = target == (scale * source[0], scale * source[1]) and set(np.reshape(given, -1).tolist()) <= {1.0, float(scale)}
        # Before operator set 11 it was "asymmetric", "floor": no other rows than by the defaults of those that follow.
        way = tuple(settings.get(key, default).decode() for key, default in (
            ("coordinate_transformation_mode", b"half_pixel"), ("nearest_mode", b"round_prefer_floor")))
        if settings.get("mode", b"nearest") != b"nearest" or not whole or way not in _REPEATING:
            raise refuse(where, *refusal("resize"))
        self._emit(node, Upsample, where, {"scale": scale})

    def _mean(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        axes = self._numbers(node, 1, settings, "axes")
        if sorted(int(axis) % 4 for axis in axes) != [2, 3]:
            raise refuse(where, "only the mean over rows and columns of a feature map is a layer", "reduce axes 2 and 3")
        self._global_pool(node, where, settings)

    def _flatten(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        """Nothing, if every image is flattened, keeps its shape, or gains or loses dimensions of 1 behind the others."""
        source, target = self._shape(node.input[0], where), self._shape(node.output[0], where, "result")
        same = self.shapes[node.input[0]][0] == self.shapes[node.output[0]][0]
        if not same or (target != (int(np.prod(source)),) and features(target) != features(source)):
            raise refuse(where, f"it reshapes images of {shape_text(source)} to {shape_text(target)}",
                         "only flattening each image is supported, use Flatten with axis 1")
        self._same(node, where, settings)

    def _add(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        constants = [position for position, name in enumerate(node.input) if name in self.constants]
        if constants:
            self._added(node, where, constants[0])
            return
        shapes = [self.shapes.get(name, ()) for name in node.input]
        if len(shapes) != 2 or shapes[0] != shapes[1] or not all(shapes[0]):
            raise refuse(where, "only two feature maps of one shape are added", "give both sides the same shape")
        self._emit(node, Op.ADD, where, inputs=tuple(node.input))

    def _added(self, node: onnx.NodeProto, where: str, position: int) -> None:
        """A convolution or matrix product and a bias that follows it are one layer."""
        source = node.input[1 - position] if len(node.input) == 2 else ""
        place = next((place for place, found in enumerate(self.nodes) if found.name == source), None)
        layer = None if place is None else self.nodes[place]
        if layer is None or layer.op not in (Op.CONV, Op.LINEAR) or "bias" in layer.arrays or self.readers[source] != 1:
            raise refuse(where, "a constant is added only as the bias of the MatMul right before it",
                         "use Gemm or Conv with a bias")
        bias = self._bias(node, layer.where, layer.settings["out"], column=layer.op == Op.CONV, position=position)
        self.nodes[self.nodes.index(layer)] = dataclasses.replace(layer, name=node.output[0], arrays=layer.arrays | bias)
        self.made.add(node.output[0])

    def _slice(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        shape = self._plane(node.input[0], where)
        starts, ends, axes, steps = (
            self._numbers(node, position, settings, key) for position, key in enumerate(("starts", "ends", "axes", "steps"), 1)
        )
        axes = axes or list(range(len(starts)))
        steps = steps or [1] * len(starts)
        source, *before = self.strides.get(node.input[0], (node.input[0], 1, 1))
        table = {axis % 4: (start, end, step) for axis, start, end, step in zip(axes, starts, ends, steps, strict=False)}
        rows, columns = (table.pop(axis, (0, shape[axis - 1], 1)) for axis in (2, 3))
        whole = bool(starts) and all(start == 0 and end >= (1 << 30) and step == 1 for start, end, step in table.values())
        stride = (before[0] * rows[2], before[1] * columns[2])
        # torch.onnx writes a slice for each dimension, one after the other.
        follows = self.readers[node.output[0]] == 1 and any(
            other.op_type == "Slice" and other.input[0] == node.output[0] for other in self.graph.node
        )
        unlike = stride[0] != stride[1] and not follows
        if not whole or rows[0] or columns[0] or unlike or min(rows[2],
            columns[2]) < 1 or rows[1] < shape[1] or columns[1] < shape[2]:
            raise refuse(where, "only every s-th row and column of a whole feature map is a layer (subsample)", "slice so")
        if follows:
            self.strides[node.output[0]] = (source, *stride)
        elif stride == (1, 1) and node.input[0] in self.strides:
            self._emit(node, Op.SAME, where, inputs=(source,))
        else:
            self._emit(node, Subsample, where, {"out": shape[0], "stride": stride[0]}, inputs=(source,))

    def _pad(self, node: onnx.NodeProto, where: str, settings: dict[str, Any]) -> None:
        shape = self._plane(node.input[0], where)
        pads = self._numbers(node, 1, settings, "pads")
        value = float(self.constants.get(node.input[2], 1)) if _given(node, 2) else float(settings.get("value", 0))
        plain = settings.get("mode", b"constant") == b"constant" and value == 0 and not _given(node, 3)
        if not plain or len(pads) != 8 or any(pads[:5]) or any(pads[6:]) or pads[5] < 0:
            raise refuse(where, "only channels of zeros behind the source's are appended (subsample)",
                         "pad planes in the convolution")
        found = {"out": shape[0] + pads[5], "stride": 1}
        source = next((node_ for node_ in self.nodes if node_.name == node.input[0] and node_.op is Subsample), None)
        if source is not None and self.readers[node.input[0]] == 1:
            self.nodes.remove(source)
            self._emit(node, Subsample, where, found | {"stride": source.settings["stride"]}, inputs=source.inputs)
        else:
            self._emit(node, Subsample, where, found)

    # Shared

    def _numbers(self, node: onnx.NodeProto, position: int, settings: dict[str, Any], key: str) -> list[int]:
        """Whole numbers that are an input, or in older operator sets an attribute."""
        if _given(node, position):
            return [int(number) for number in np.reshape(self.constants.get(node.input[position], ()), -1)]
        return [int(number) for number in settings.get(key, ())]

    def _shape(self, name: str, where: str, what: str = "input") -> tuple[int, ...]:
        """Shape of a value for one image."""
        shape = self.shapes.get(name, ())
        if len(shape) < 2 or 0 in shape:
            raise refuse(where, f"the shape of its {what} {name!r} is not known", "check the file with onnx.checker")
        return shape[1:]

    def _plane(self, name: str, where: str, what: str = "input") -> tuple[int, int, int]:
        """Shape of a feature map."""
        shape = self._shape(name, where, what)
        if len(shape) != 3:
            raise refuse(where, f"its {what} {name!r} is no feature map, its shape for one image is {shape_text(shape)}",
                         "give it (images, channels, rows, columns)")
        return shape[0], shape[1], shape[2]

    def _channels(self, node: onnx.NodeProto, position: int, where: str) -> tuple[str, np.ndarray]:
        """A parameter with one number a channel."""
        name, value = self._parameter(node, position, where)
        count = self._shape(node.input[0], where)[0]
        if value.shape != (count,):
            raise refuse(where, f"its parameter {name!r} has the shape {value.shape}, its input has {count} channels",
                         f"give it the shape {(count,)}")
        return name, value

    def _parameter(self, node: onnx.NodeProto, position: int, where: str) -> tuple[str, np.ndarray]:
        """Own name and float64 value; a matrix that is stored transposed has the name of what is stored."""
        name = node.input[position] if _given(node, position) else ""
        if name not in self.constants:
            raise refuse(where, f"its parameter {name!r} is computed", "store it as an initializer")
        value = self.constants[name]
        if value.dtype.name not in _FLOATS:
            raise refuse(where, f"its parameter {name!r} holds {value.dtype}, the machine trains real numbers", "store float32")
        if not value.size:
            raise refuse(where, f"its parameter {name!r} of shape {value.shape} is empty", "give it numbers")
        while name in self.turned:
            name = self.turned[name]
            self.transposed ^= {name}
        if name in self.trained:
            raise refuse(where, f"parameter {name!r} has another reader, shared parameters are not trained", "copy it")
        self.trained.add(name)
        return name, value.astype(np.float64)

    def _emit(self, node: onnx.NodeProto, op: str | type[Layer], where: str, settings: dict[str, int] | None = None,
              arrays: dict[str, tuple[str, np.ndarray]] | None = None, inputs: tuple[str, ...] | None = None) -> None:
        layer = (node.name or node.output[0]).strip("/").replace("/", ".")
        if arrays and "w" in arrays and arrays["w"][0].endswith(".weight"):
            layer = arrays["w"][0].removesuffix(".weight")  # the module's name, where PyTorch exported it
        inputs = inputs or (node.input[0],)
        missing = next((name for name in inputs if name not in self.made), None)
        if missing is not None:
            raise refuse(where, f"its input {missing!r} is no output of a layer", "compute only from the network's input")
        self.made.add(node.output[0])
        shape = self._shape(node.output[0], where, "result")
        self.nodes.append(Node(node.output[0], op, where, layer, inputs, settings or {}, arrays or {}, shape))


def _given(node: onnx.NodeProto, position: int) -> bool:
    return position < len(node.input) and bool(node.input[position])


_READERS: dict[tuple[str, str], Callable[[_Reader, onnx.NodeProto, str, dict[str, Any]], None]] = {
    ("", "Conv"): _Reader._conv,
    ("", "Gemm"): _Reader._gemm,
    ("", "MatMul"): _Reader._matmul,
    ("", "BatchNormalization"): _Reader._norm,
    ("", "Relu"): _Reader._relu,
    ("", "MaxPool"): _Reader._max_pool,
    ("", "AveragePool"): _Reader._avg_pool,
    ("", "GlobalAveragePool"): _Reader._global_pool,
    ("", "Resize"): _Reader._resize,
    ("", "Upsample"): _Reader._resize,
    ("", "ReduceMean"): _Reader._mean,
    ("", "Flatten"): _Reader._flatten,
    ("", "Reshape"): _Reader._flatten,
    ("", "Squeeze"): _Reader._flatten,
    ("", "Unsqueeze"): _Reader._flatten,
    ("", "Add"): _Reader._add,
    ("", "Sum"): _Reader._add,
    ("", "Identity"): _Reader._same,
    ("", "Dropout"): _Reader._dropout,
    ("", "Cast"): _Reader._cast,
    ("", "Slice"): _Reader._slice,
    ("", "Pad"): _Reader._pad,
    (DOMAIN, "L1FRN"): _Reader._norm,
    (DOMAIN, "TLU"): _Reader._tlu,
}
