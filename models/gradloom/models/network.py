"""Networks: layers as frozen dataclasses, shapes, tensor numbers, who reads what, and their rules.

A :class:`Network` that exists is valid: its constructor refuses what the machine cannot train with a
:class:`NetworkError` that names the layer, the rule and the fix. Files are TOML (:func:`load_network`,
:meth:`Network.to_toml`).
"""

import dataclasses
import enum
import re
import tomllib
from pathlib import Path
from typing import Any

from gradloom.models import zoo

__all__ = [
    "INPUT",
    "AvgPool",
    "Conv",
    "FullyConnected",
    "Geometry",
    "GlobalAvgPool",
    "Kind",
    "Layer",
    "MaxPool",
    "Network",
    "NetworkError",
    "Shortcut",
    "Training",
    "load_network",
]

INPUT = "input"
"""Name of the network's input where a layer's name is expected."""

MAX_SIZE = 4095
"""Largest number of rows, columns or classes (12-bit fields of the program)."""
MAX_PLANE = 32767
"""Largest number of positions of a normalised plane (15-bit field of the program)."""
MAX_CHANNELS = 65535
MAX_LAYERS = 255
"""Largest number of layers (tensor numbers have 11 bits)."""
MAX_KERNEL = 15


class NetworkError(ValueError):
    """A network that the machine cannot train; the message names the layer, the rule and the fix."""


class Kind(enum.IntEnum):
    """Kind of a tensor; its number is ``8 * layer + kind``.

    Layers count from 1 in network order, the input is layer 0. ``DZ`` is the error of a layer's output,
    ``DX`` that of its accumulators, ``DS`` the error that a second convolution on the same input sends back.
    """

    W = 0
    V = 1
    Z = 2
    DZ = 3
    DX = 4
    W_NEXT = 5
    V_NEXT = 6
    DS = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """What every layer has: a unique name, and the name of the tensor it reads.

    "" stands for the previous layer (of the first layer: the input).
    """

    name: str
    input: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv(Layer):
    """Convolution, then L1-FRN and TLU (``norm="frn"``), or bias and ReLU or nothing (``norm="none"``).

    ``residual`` names a tensor of the output's shape that is added before the threshold (only ``norm="frn"``,
    ``act="tlu"``). ``norm="frn"`` with ``act="none"`` is the projection shortcut.
    """

    out: int
    kernel: int
    stride: int = 1
    pad: int = 0
    norm: str = "frn"
    act: str = "tlu"
    residual: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaxPool(Layer):
    """Maximum of kernel x kernel windows; padding never wins."""

    kernel: int
    stride: int
    pad: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AvgPool(Layer):
    """Mean of kernel x kernel windows; padding counts as zeros."""

    kernel: int
    stride: int
    pad: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalAvgPool(Layer):
    """Mean of the whole (square) plane: an average pool whose kernel is the plane."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullyConnected(Layer):
    """Every input to every output, with bias: a convolution whose kernel is the input's plane.

    ``act`` is "relu" or "none".
    """

    out: int
    act: str = "none"

    @property
    def norm(self) -> str:
        return "none"

    @property
    def residual(self) -> None:
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Defaults of a training run; ``schedule`` is "constant", or "linear" or "cosine" from ``lr`` to zero."""

    batch: int = 16
    epochs: int = 4
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Shapes (C, Y, X) and window of a layer; of a fully connected layer the kernel is the input's plane."""

    in_shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: int
    pad: int


@dataclasses.dataclass(frozen=True)
class Shortcut:
    """Second source of a tensor's error.

    ``residual``: the layer adds the tensor, the error is its bit * dz. ``conv``: the error is the layer's DS.
    """

    kind: str
    layer: str


_TYPES: dict[str, type[Layer]] = {
    "conv": Conv,
    "max_pool": MaxPool,
    "avg_pool": AvgPool,
    "global_avg_pool": GlobalAvgPool,
    "fully_connected": FullyConnected,
}
_SCHEDULES = ("constant", "linear", "cosine")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True)
class Network:
    """A validated network.

    Parameters
    ----------
    name : :class:`str`
    input_shape : (C, Y, X)
    classes : :class:`int`
        Outputs of the last layer, which must be a :class:`FullyConnected` one.
    layers : tuple of :class:`Layer`
        In order; a layer may read any earlier one. After construction every layer's ``input`` is filled in.
    loss : :class:`str`
        "softmax" (cross-entropy) or "squared" (error against one-hot targets).
    train : :class:`Training`

    Raises
    ------
    :exc:`NetworkError`
        If a rule is broken.
    """

    name: str
    input_shape: tuple[int, int, int]
    classes: int
    layers: tuple[Layer, ...]
    loss: str = "softmax"
    train: Training = dataclasses.field(default_factory=Training)
    _geometry: dict[str, Geometry] = dataclasses.field(init=False, repr=False, compare=False)
    _number: dict[str, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_header()
        object.__setattr__(self, "input_shape", tuple(self.input_shape))
        object.__setattr__(self, "_geometry", {})
        object.__setattr__(self, "_number", {INPUT: 0})
        resolved: list[Layer] = []
        previous = INPUT
        for layer in self.layers:
            self._check_name(layer)
            layer = dataclasses.replace(layer, input=layer.input or previous)
            self._check_reference(layer, "input", layer.input)
            self._geometry[layer.name] = self._infer(layer)
            self._number[layer.name] = len(resolved) + 1
            resolved.append(layer)
            previous = layer.name
        object.__setattr__(self, "layers", tuple(resolved))
        self._check_last()
        self._check_consumers()

    # Structure

    def layer(self, name: str) -> Layer:
        return self.layers[self._number[name] - 1]

    def index(self, name: str) -> int:
        """Number of a layer, from 1 in network order; 0 for the input."""
        return self._number[name]

    def tid(self, name: str, kind: Kind) -> int:
        """Tensor number ``8 * layer + kind``."""
        return 8 * self._number[name] + kind

    def dx_tid(self, name: str) -> int:
        """Tensor whose exponent dx has: DX after FRN, else DZ (ReLU only masks codes)."""
        return self.tid(name, Kind.DX if getattr(self.layer(name), "norm", None) == "frn" else Kind.DZ)

    def geometry(self, name: str) -> Geometry:
        return self._geometry[name]

    def shape(self, name: str) -> tuple[int, int, int]:
        """(C, Y, X) of the output of a layer, or of the input."""
        return self.input_shape if name == INPUT else self._geometry[name].out_shape

    def weight_shape(self, name: str) -> tuple[int, int, int, int]:
        """(M, C, Ky, Kx) of a convolution or fully connected layer."""
        g = self._geometry[name]
        return (g.out_shape[0], g.in_shape[0], *g.kernel)

    @property
    def weighted(self) -> tuple[Conv | FullyConnected, ...]:
        """Layers with weights, in network order."""
        return tuple(layer for layer in self.layers if isinstance(layer, Conv | FullyConnected))

    @property
    def logits(self) -> FullyConnected:
        """The last layer."""
        last = self.layers[-1]
        assert isinstance(last, FullyConnected)
        return last

    @property
    def error_exponent(self) -> int:
        """Fixed exponent of the loss gradient."""
        return -12 if self.loss == "softmax" else -8

    def parameters(self, name: str) -> tuple[str, ...]:
        """Per-channel parameters of a layer: gamma, beta, tau of FRN, or beta, the bias, alone."""
        layer = self.layer(name)
        if not isinstance(layer, Conv | FullyConnected):
            return ()
        return ("gamma", "beta", "tau") if layer.norm == "frn" else ("beta",)

    def consumers(self, name: str) -> tuple[tuple[Layer, str], ...]:
        """Layers that read a tensor, in network order, each with "input" or "residual"."""
        found = []
        for layer in self.layers:
            if layer.input == name:
                found.append((layer, "input"))
            if getattr(layer, "residual", None) == name:
                found.append((layer, "residual"))
        return tuple(found)

    def needs_error(self, name: str) -> bool:
        """Whether an error is propagated to this tensor: some layer with weights lies at or before it."""
        while name != INPUT and not isinstance(self.layer(name), Conv | FullyConnected):
            name = self.layer(name).input
        return name != INPUT

    def main_consumer(self, name: str) -> Layer | None:
        """The first layer that reads the tensor as its input: its backward pass writes the tensor's error.

        ``None`` where the tensor is only added to another layer (a projection shortcut): its error is that
        of the addition.
        """
        return next((layer for layer, role in self.consumers(name) if role == "input"), None)

    def shortcut(self, name: str) -> Shortcut | None:
        """The second source of the tensor's error, or the only one if :meth:`main_consumer` is ``None``."""
        main = self.main_consumer(name)
        for layer, role in self.consumers(name):
            if role == "residual":
                return Shortcut("residual", layer.name)
            if layer is not main:
                return Shortcut("conv", layer.name)
        return None

    def sends_ds(self, name: str) -> bool:
        """Whether the layer is the second convolution on its input; its error then travels as DS."""
        source = self.layer(name).input
        if not self.needs_error(source) or not isinstance(self.layer(name), Conv | FullyConnected):
            return False
        main = self.main_consumer(source)
        return main is not None and main.name != name

    def macs(self) -> int:
        """Multiply-accumulates of the forward pass of one image, padding included."""
        total = 0
        for layer in self.weighted:
            g = self._geometry[layer.name]
            total += (
                g.out_shape[0] * g.out_shape[1] * g.out_shape[2] * g.in_shape[0] * g.kernel[0] * g.kernel[1]
            )
        return total

    # Files

    def to_toml(self) -> str:
        """The network as TOML; :func:`load_network` reads it back to an equal network."""
        lines = [
            f'name = "{self.name}"',
            f"input = {list(self.input_shape)}",
            f"classes = {self.classes}",
            f'loss = "{self.loss}"',
        ]
        for layer in self.layers:
            kind = next(key for key, cls in _TYPES.items() if type(layer) is cls)
            lines += ["", "[[layers]]", f'type = "{kind}"']
            lines += [
                f"{key} = {_literal(value)}"
                for key, value in dataclasses.asdict(layer).items()
                if value is not None
            ]
        lines += ["", "[train]"]
        lines += [f"{key} = {_literal(value)}" for key, value in dataclasses.asdict(self.train).items()]
        return "\n".join(lines) + "\n"

    # Rules

    def _check_header(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise NetworkError(
                f"the network's name must be letters, digits, '_', '.' or '-', not {self.name!r}: rename it"
            )
        shape = self.input_shape
        if (
            not isinstance(shape, tuple | list)
            or len(shape) != 3
            or not all(_is_integer(n) and n > 0 for n in shape)
        ):
            raise NetworkError(
                f"input must be three positive integers (channels, rows, columns), not {shape!r}: give all "
                "three"
            )
        if max(shape[1:]) > MAX_SIZE or shape[0] > MAX_CHANNELS:
            raise NetworkError(
                f"input of {_text(shape)} is too large: give at most {MAX_CHANNELS} channels and {MAX_SIZE} "
                "rows and columns"
            )
        if not _is_integer(self.classes) or not 2 <= self.classes <= MAX_SIZE:
            raise NetworkError(
                f"classes must be an integer in 2..{MAX_SIZE}, not {self.classes!r}: give the number of "
                "outputs"
            )
        if self.loss not in ("softmax", "squared"):
            raise NetworkError(
                f"loss must be 'softmax' or 'squared', not {self.loss!r}: choose one of the two"
            )
        if not isinstance(self.layers, tuple | list) or not self.layers:
            raise NetworkError("a network must have at least one layer: end it with a fully_connected layer")
        if len(self.layers) > MAX_LAYERS:
            raise NetworkError(
                f"a network may have at most {MAX_LAYERS} layers, this one has {len(self.layers)}: remove "
                "layers"
            )
        train = self.train
        for key in ("batch", "epochs"):
            if not _is_integer(getattr(train, key)) or getattr(train, key) < 1:
                raise NetworkError(
                    f"train: {key} must be a positive integer, not {getattr(train, key)!r}: give 1 or more"
                )
        for key, low, high in (
            ("lr", 2.0**-30, 64.0),
            ("momentum", 0.0, 255 / 256),
            ("weight_decay", 0.0, 0.5),
        ):
            value = getattr(train, key)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise NetworkError(
                    f"train: {key} must be a number in {low:g}..{high:g}, not {value!r}: change it"
                )
        if train.schedule not in _SCHEDULES:
            raise NetworkError(
                f"train: schedule must be one of {', '.join(_SCHEDULES)}, not {train.schedule!r}: choose one"
            )

    def _check_name(self, layer: object) -> None:
        if not isinstance(layer, tuple(_TYPES.values())):
            raise NetworkError(
                f"{layer!r} is not a layer: give one of {', '.join(cls.__name__ for cls in _TYPES.values())}"
            )
        assert isinstance(layer, Layer)
        if not isinstance(layer.name, str) or not _NAME.fullmatch(layer.name):
            raise NetworkError(
                f"layer {layer.name!r}: a name must be letters, digits, '_', '.' or '-': rename it"
            )
        if layer.name in self._number:
            raise NetworkError(
                f"layer {layer.name!r}: the name is taken{' by the input' if layer.name == INPUT else ''}: "
                "rename it"
            )

    def _check_reference(self, layer: Layer, key: str, name: str) -> None:
        if not isinstance(name, str):
            raise NetworkError(
                f"layer {layer.name!r}: {key} must be a layer's name, not {name!r}: give a string"
            )
        if name not in self._number:
            raise NetworkError(
                f"layer {layer.name!r}: {key} {name!r} is no earlier layer: give one of "
                f"{', '.join(self._number)}"
            )

    def _integer(self, layer: Layer, key: str, low: int, high: int) -> int:
        value = getattr(layer, key)
        if not _is_integer(value):
            raise NetworkError(
                f"layer {layer.name!r}: {key} must be an integer, not {value!r}: give a whole number"
            )
        if not low <= value <= high:
            raise NetworkError(
                f"layer {layer.name!r}: {key} must lie in {low}..{high}, not {value}: change it"
            )
        return value

    def _infer(self, layer: Layer) -> Geometry:
        shape = self.shape(layer.input)
        channels, rows, columns = shape
        if isinstance(layer, FullyConnected):
            out = self._integer(layer, "out", 1, MAX_CHANNELS)
            if layer.act not in ("relu", "none"):
                raise NetworkError(
                    f"layer {layer.name!r}: act of a fully connected layer must be 'relu' or 'none', not "
                    f"{layer.act!r}: change it"
                )
            return Geometry(shape, (out, 1, 1), (rows, columns), 1, 0)
        if isinstance(layer, GlobalAvgPool):
            if rows != columns or rows > MAX_KERNEL:
                raise NetworkError(
                    f"layer {layer.name!r}: a global average pool needs a square plane of at most "
                    f"{MAX_KERNEL} x "
                    f"{MAX_KERNEL}, its input is {rows} x {columns}: put an avg_pool layer before or in its "
                    "place"
                )
            return Geometry(shape, (channels, 1, 1), (rows, columns), rows, 0)
        assert isinstance(layer, Conv | MaxPool | AvgPool)
        kernel = self._integer(layer, "kernel", 1, MAX_KERNEL)
        stride = self._integer(layer, "stride", 1, 2 if isinstance(layer, Conv) else MAX_KERNEL)
        pad = self._integer(layer, "pad", 0, MAX_KERNEL)
        if pad >= kernel:
            raise NetworkError(
                f"layer {layer.name!r}: pad must be below kernel, pad is {pad} and kernel {kernel}: lower pad"
            )
        size = ((rows + 2 * pad - kernel) // stride + 1, (columns + 2 * pad - kernel) // stride + 1)
        if min(size) < 1 or min(rows, columns) + 2 * pad < kernel:
            raise NetworkError(
                f"layer {layer.name!r}: a kernel of {kernel} with pad {pad} does not fit its input of {rows} "
                f"x {columns}, nothing would be left: shrink kernel or raise pad"
            )
        if max(size) > MAX_SIZE:
            raise NetworkError(
                f"layer {layer.name!r}: its output of {size[0]} x {size[1]} is larger than {MAX_SIZE}: lower "
                "pad"
            )
        if not isinstance(layer, Conv):
            return Geometry(shape, (channels, *size), (kernel, kernel), stride, pad)
        geometry = Geometry(
            shape, (self._integer(layer, "out", 1, MAX_CHANNELS), *size), (kernel, kernel), stride, pad
        )
        self._check_conv(layer, geometry)
        return geometry

    def _check_conv(self, layer: Conv, geometry: Geometry) -> None:
        where = f"layer {layer.name!r}"
        _, rows, columns = geometry.out_shape
        allowed = {"frn": ("tlu", "none"), "none": ("relu", "none")}
        if layer.norm not in allowed:
            raise NetworkError(
                f"{where}: norm must be 'frn' or 'none', not {layer.norm!r}: choose one of the two"
            )
        if layer.act not in allowed[layer.norm]:
            raise NetworkError(
                f"{where}: act must be {' or '.join(map(repr, allowed[layer.norm]))} with norm "
                f"{layer.norm!r}, not {layer.act!r}: change act or norm"
            )
        if layer.norm == "frn" and rows * columns == 1:
            raise NetworkError(
                f"{where}: FRN on a 1 x 1 plane would leave only signs: set norm to 'none', or use a "
                "fully_connected layer"
            )
        if layer.norm == "frn" and rows * columns > MAX_PLANE:
            raise NetworkError(
                f"{where}: FRN needs a plane of at most {MAX_PLANE} positions, its output is {rows} x "
                f"{columns}: raise stride or shrink the input"
            )
        if layer.residual is None:
            return
        self._check_reference(layer, "residual", layer.residual)
        if layer.norm != "frn" or layer.act != "tlu":
            raise NetworkError(
                f"{where}: a residual needs norm 'frn' and act 'tlu', here they are {layer.norm!r} and "
                f"{layer.act!r}: change them or remove residual"
            )
        if self.shape(layer.residual) != geometry.out_shape:
            raise NetworkError(
                f"{where}: residual {layer.residual!r} is {_text(self.shape(layer.residual))}, the layer's "
                "output is "
                f"{_text(geometry.out_shape)}: add a projection (a conv with act 'none') of the same shape"
            )

    def _check_last(self) -> None:
        last = self.layers[-1]
        if not isinstance(last, FullyConnected):
            raise NetworkError(
                f"layer {last.name!r}: the last layer must be fully_connected, it gives the logits: append "
                "one"
            )
        if last.act != "none":
            raise NetworkError(
                f"layer {last.name!r}: the last layer gives the logits and has no activation: set act to "
                "'none'"
            )
        if last.out != self.classes:
            raise NetworkError(
                f"layer {last.name!r}: out is {last.out}, the network has {self.classes} classes: make them "
                "equal"
            )

    def _check_consumers(self) -> None:
        for layer in self.layers[:-1]:
            readers = self.consumers(layer.name)
            if not readers:
                raise NetworkError(
                    f"layer {layer.name!r}: no layer reads its output: remove it, or name it as an input"
                )
            if not self.needs_error(layer.name) or len(readers) == 1:
                continue
            listed = ", ".join(f"{reader.name} ({role})" for reader, role in readers)
            if len(readers) > 2:
                raise NetworkError(
                    f"layer {layer.name!r}: at most two layers may read a tensor, its output goes to "
                    f"{listed}: remove one of them"
                )
            for reader, role in readers:
                if role == "input" and not isinstance(reader, Conv | FullyConnected):
                    raise NetworkError(
                        f"layer {reader.name!r}: a pool must be the only reader of its input, {layer.name!r} "
                        f"goes to {listed}: let the other read the pool's output"
                    )
            if all(role == "residual" for _, role in readers):
                raise NetworkError(
                    f"layer {layer.name!r}: of two layers that read a tensor one must have it as its input, "
                    f"its output goes to {listed}: remove one residual"
                )


def _text(shape: tuple[int, ...] | list[int]) -> str:
    return " x ".join(map(str, shape))


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _from_table(table: dict[str, Any], default_name: str) -> Network:
    known = ("name", "input", "classes", "loss", "layers", "train")
    for key in table:
        if key not in known:
            raise NetworkError(f"unknown key {key!r}: the keys are {', '.join(known)}")
    for key in ("input", "classes", "layers"):
        if key not in table:
            raise NetworkError(f"key {key!r} is missing: give it")
    if not isinstance(table["layers"], list) or not all(isinstance(entry, dict) for entry in table["layers"]):
        raise NetworkError("layers must be a list of tables: write each layer under [[layers]]")
    layers = [_layer(entry, number) for number, entry in enumerate(table["layers"], 1)]
    settings = table.get("train", {})
    if not isinstance(settings, dict):
        raise NetworkError("train must be a table: write its keys under [train]")
    keys = [field.name for field in dataclasses.fields(Training)]
    for key in settings:
        if key not in keys:
            raise NetworkError(f"train: unknown key {key!r}: the keys are {', '.join(keys)}")
    shape = table["input"]
    return Network(
        table.get("name", default_name),
        tuple(shape) if isinstance(shape, list) else shape,
        table["classes"],
        tuple(layers),
        loss=table.get("loss", "softmax"),
        train=Training(**settings),
    )


def _layer(entry: dict[str, Any], number: int) -> Layer:
    where = f"layer {entry['name']!r}" if "name" in entry else f"layer number {number}"
    entry = dict(entry)
    kind = entry.pop("type", None)
    if not isinstance(kind, str) or kind not in _TYPES:
        raise NetworkError(f"{where}: type must be one of {', '.join(_TYPES)}, not {kind!r}: change it")
    fields = dataclasses.fields(_TYPES[kind])
    keys = [field.name for field in fields]
    for key in entry:
        if key not in keys:
            raise NetworkError(
                f"{where}: unknown key {key!r}: the keys of {kind} are type, {', '.join(keys)}"
            )
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in entry:
            raise NetworkError(f"{where}: key {field.name!r} is missing: give it")
    return _TYPES[kind](**entry)


def load_network(source: str) -> Network:
    """A built-in network by name, or a TOML file.

    Raises
    ------
    :exc:`NetworkError`
        If there is no such network or file, or the network breaks a rule.
    """
    file = zoo.path(source) or Path(source)
    if not file.is_file():
        raise NetworkError(
            f"there is no network {source!r}: give one of {', '.join(zoo.names())} or a TOML file"
        )
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NetworkError(f"{file} is not a TOML file: {error}") from None
    try:
        return _from_table(table, file.stem)
    except NetworkError as error:
        raise NetworkError(f"{file}: {error}") from None
