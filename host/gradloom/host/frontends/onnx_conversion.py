"""ONNX models: import as a network, export of a network and its trained parameters (docs/pytorch.md)."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.host.frontends.import_graph import EPSILON
from gradloom.host.frontends.imported import Imported, build, real_weights
from gradloom.models.layers import INPUT, Conv, FullyConnected, GlobalAvgPool, Layer, MaxPool, Subsample, Training, Upsample
from gradloom.models.network import Network
from gradloom.models.state import State

try:
    import onnx
except ImportError:
    raise ImportError("gradloom.api.onnx_models needs onnx, which is not installed: pip install 'gradloom[onnx]'") from None

from onnx import TensorProto, helper, numpy_helper

from gradloom.host.frontends.onnx_file import load_model
from gradloom.host.frontends.onnx_graph import DOMAIN, read

__all__ = ["Imported", "from_model", "to_model"]

_OPSET = 17
_IR = 9


def from_model(
    model: "onnx.ModelProto | Path | str",
    classes: int | None = None,
    *,
    name: str | None = None,
    loss: str = "softmax",
    train: Training | None = None,
) -> Imported:
    """gradloom's network of an ONNX model or file; the arguments are those of :func:`gradloom.api.pytorch.from_module`.

    A layer has the name of its node, a parameter that of its initializer. Where an exporter has folded BatchNormalization into
    convolutions, they are trained without a norm, and a note says so.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`, :exc:`~gradloom.models.network.NetworkError`
        If the file cannot be read, an operator is not supported or a rule of docs/networks.md is broken.
    """
    found, title = load_model(model)
    return build(read(found), name or re.sub(r"[^A-Za-z0-9_.-]", "_", title), classes, loss, train)


def to_model(source: Network | Imported, state: State) -> "onnx.ModelProto":
    """A network and a state's parameters in float32 as an ONNX model that any runtime computes.

    L1-FRN and TLU are model-local functions of standard operators (domain "gradloom"); :func:`from_model` reads them back to
    the same network. Names of parameters are those of an :class:`Imported`, or LAYER.weight, LAYER.gamma, ...
    """
    return _Writer(source if isinstance(source, Network) else source.network, source, state).model()


class _Writer:
    def __init__(self, net: Network, source: Network | Imported, state: State) -> None:
        self.net, self.state = net, state
        self.names = {} if isinstance(source, Network) else source.names
        readers = [layer for layer in net.layers if INPUT in (layer.input, getattr(layer, "residual", None))]
        self.flat = isinstance(source, Imported) and source.flat and all(isinstance(layer, FullyConnected) for layer in readers)
        """The model takes (images, features), as the source did."""
        self.parameters = set(self.names.values())
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def model(self) -> "onnx.ModelProto":
        for layer in self.net.layers:
            self._layer(layer)
        shape = self.net.input_shape[: 1 if self.flat else 3]
        graph = helper.make_graph(
            self.nodes,
            self.net.name,
            [helper.make_tensor_value_info(self._value(INPUT), TensorProto.FLOAT, ["batch", *shape])],
            [helper.make_tensor_value_info(self._value(self.net.logits.name), TensorProto.FLOAT, ["batch", self.net.classes])],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="gradloom", functions=_functions())

    def _layer(self, layer: Layer) -> None:
        g = self.net.geometry(layer.name)
        pads: dict[str, Any] = {"pads": [g.pad] * 4, "strides": [g.stride] * 2}
        if isinstance(layer, Conv):
            self._convolution(layer, pads)
        elif isinstance(layer, FullyConnected):
            self._fully_connected(layer)
        elif isinstance(layer, MaxPool):
            self._add("MaxPool", [self._value(layer.input)], layer.name, kernel_shape=list(g.kernel), **pads)
        elif isinstance(layer, GlobalAvgPool):
            self._add("GlobalAveragePool", [self._value(layer.input)], layer.name)
        elif isinstance(layer, Subsample):
            self._subsample(layer)
        elif isinstance(layer, Upsample):
            scales = self._constant(f"{layer.name}.scales", np.array([1, 1, layer.scale, layer.scale], np.float32))
            self._add("Resize", [self._value(layer.input), "", scales], layer.name, mode="nearest", nearest_mode="floor",
                      coordinate_transformation_mode="asymmetric")
        else:
            self._add("AveragePool", [self._value(layer.input)], layer.name, kernel_shape=list(g.kernel), count_include_pad=1,
                **pads)

    def _value(self, name: str) -> str:
        """Name of a layer's output, which no parameter has."""
        while name in self.parameters:
            name += ".out"
        return name

    def _convolution(self, layer: Conv, settings: dict[str, Any]) -> None:
        name = layer.name
        parameters = [self._value(layer.input), self._weights(name)]
        if layer.norm == "none":
            parameters.append(self._parameter(name, "beta"))
        plain = layer.norm == "none" and layer.act == "none"
        value = self._add("Conv", parameters, name if plain else f"{name}.sum", title=name, **settings)
        if layer.norm == "frn":
            gamma, beta = self._parameter(name, "gamma"), self._parameter(name, "beta")
            value = self._add("L1FRN", [value, gamma, beta], name if layer.act == "none" else f"{name}.norm", domain=DOMAIN)
        if layer.residual is not None:
            value = self._add("Add", [value, self._value(layer.residual)], f"{name}.added")
        if layer.act == "tlu":
            self._add("TLU", [value, self._parameter(name, "tau")], name, title=f"{name}.tlu", domain=DOMAIN)
        elif layer.act == "relu":
            self._add("Relu", [value], name, title=f"{name}.relu")

    def _fully_connected(self, layer: FullyConnected) -> None:
        name = layer.name
        value = self._value(layer.input)
        if self.net.shape(layer.input)[1:] != (1, 1) or not self._flat(layer.input):
            value = self._add("Flatten", [value], f"{name}.flat")
        target = name if layer.act == "none" else f"{name}.sum"
        value = self._add("Gemm", [value, self._weights(name), self._parameter(name, "beta")], target, title=name, transB=1)
        if layer.act == "relu":
            self._add("Relu", [value], name, title=f"{name}.relu")

    def _flat(self, name: str) -> bool:
        return self.flat if name == INPUT else isinstance(self.net.layer(name), FullyConnected)

    def _subsample(self, layer: Subsample) -> None:
        name, more = layer.name, layer.out - self.net.shape(layer.input)[0]
        bounds = {"starts": [0, 0], "ends": [1 << 31, 1 << 31], "axes": [2, 3], "steps": [layer.stride] * 2}
        inputs = [self._constant(f"{name}.{key}", np.array(value, np.int64)) for key, value in bounds.items()]
        value = self._add("Slice", [self._value(layer.input), *inputs], f"{name}.kept" if more else name)
        if more:
            pads = self._constant(f"{name}.pads", np.array([0, 0, 0, 0, 0, more, 0, 0], np.int64))
            self._add("Pad", [value, pads], name)

    def _weights(self, name: str) -> str:
        value = real_weights(self.net, self.state, name)
        if isinstance(self.net.layer(name), FullyConnected):
            value = value.reshape(len(value), -1)
        return self._constant(self.names.get((name, "w"), f"{name}.weight"), value.astype(np.float32))

    def _parameter(self, name: str, key: str) -> str:
        value = np.ldexp(self.state.parameters[name][key].astype(np.float64), -24).astype(np.float32)
        return self._constant(self.names.get((name, key), f"{name}.{key}"), value)

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def _add(self, op: str, inputs: list[str], output: str, *, title: str = "", domain: str = "", **settings: Any) -> str:
        value = self._value(output)
        self.nodes.append(helper.make_node(op, inputs, [value], name=title or output, domain=domain, **settings))
        return value


def _functions() -> list[Any]:
    """L1FRN(x, gamma, beta) and TLU(x, tau); parameters (C,), features (B, C, Y, X)."""
    opset = [helper.make_opsetid("", _OPSET)]
    column = numpy_helper.from_array(np.array([-1, 1, 1], np.int64), "column")
    epsilon = numpy_helper.from_array(np.array(EPSILON, np.float32), "epsilon")

    def node(op: str, inputs: list[str], output: str, **settings: Any) -> Any:
        return helper.make_node(op, inputs, [output], **settings)

    frn = [
        node("Constant", [], "column", value=column),
        node("Constant", [], "epsilon", value=epsilon),
        node("Abs", ["x"], "magnitude"),
        node("ReduceMean", ["magnitude"], "mean", axes=[2, 3], keepdims=1),
        node("Add", ["mean", "epsilon"], "scale"),
        node("Div", ["x", "scale"], "xhat"),
        node("Reshape", ["gamma", "column"], "gammas"),
        node("Reshape", ["beta", "column"], "betas"),
        node("Mul", ["gammas", "xhat"], "scaled"),
        node("Add", ["scaled", "betas"], "y"),
    ]
    tlu = [
        node("Constant", [], "column", value=column),
        node("Reshape", ["tau", "column"], "taus"),
        node("Max", ["x", "taus"], "y"),
    ]
    return [
        helper.make_function(DOMAIN, "L1FRN", ["x", "gamma", "beta"], ["y"], frn, opset),
        helper.make_function(DOMAIN, "TLU", ["x", "tau"], ["y"], tlu, opset),
    ]
