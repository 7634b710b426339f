"""A network: its layers in order, shapes, tensor numbers, and who reads what.

A :class:`Network` that exists is valid: its constructor refuses what the machine cannot train with a
:class:`NetworkError` that names the layer, the rule and the fix (:mod:`gradloom.models.networks.rules`). Files are TOML
(:func:`load_network`, :meth:`Network.to_toml`).
"""

import copy
import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path

from gradloom.models.arithmetic.frn import XHAT_EXPONENT
from gradloom.models.formats import NORMALISED_BITS, Coding, Format, Scale, find_format
from gradloom.models.images import ImageSettings
from gradloom.models.layers import (
    INPUT,
    AvgPool,
    Conv,
    FullyConnected,
    Geometry,
    GlobalAvgPool,
    Kind,
    Layer,
    MaxPool,
    NetworkError,
    Pool,
    Shortcut,
    Subsample,
    Training,
)
from gradloom.models.networks import files as network_file
from gradloom.models.networks import zoo
from gradloom.models.networks.geometry import check_reference, infer
from gradloom.models.networks.rules import check_header, check_last, check_name, check_readers, check_training
from gradloom.models.rounding import Rounding

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
    "Pool",
    "Rounding",
    "Shortcut",
    "Subsample",
    "Training",
    "load_network",
]


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
    rounding : :class:`Rounding`
    format : :class:`str`
        Number format (:data:`~gradloom.models.formats.FORMATS`).
    data : :class:`~gradloom.models.images.ImageSettings`
        What a run does with its images unless it is told otherwise.

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
    rounding: Rounding = dataclasses.field(default_factory=Rounding)
    format: str = "pint8"
    data: ImageSettings = dataclasses.field(default_factory=ImageSettings)
    _geometry: dict[str, Geometry] = dataclasses.field(init=False, repr=False, compare=False)
    _number: dict[str, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_header(self.name, self.input_shape, self.classes, self.loss, self.layers)
        form = find_format(self.format)
        if self.rounding.keeps_rests and not form.rests_fit:
            raise NetworkError(f"rounding: weights of the format {form.name} have no rests: choose 'nearest' or 'stochastic' for "
                               "weights, not 'feedback'")
        check_training(self.train)
        object.__setattr__(self, "input_shape", tuple(self.input_shape))
        object.__setattr__(self, "_geometry", {})
        object.__setattr__(self, "_number", {INPUT: 0})
        shapes = {INPUT: self.input_shape}
        resolved: list[Layer] = []
        previous = INPUT
        for layer in self.layers:
            check_name(layer, self._number)
            layer = dataclasses.replace(layer, input=layer.input or previous)
            check_reference(layer, "input", layer.input, shapes)
            self._geometry[layer.name] = infer(layer, shapes)
            shapes[layer.name] = self._geometry[layer.name].out_shape
            self._number[layer.name] = len(resolved) + 1
            resolved.append(layer)
            previous = layer.name
        object.__setattr__(self, "layers", tuple(resolved))
        check_last(self.layers[-1], self.classes)
        for layer in self.layers[:-1]:
            readers, main = self.consumers(layer.name), self.main_consumer(layer.name)
            check_readers(layer, readers, main, needs_error=self.needs_error(layer.name))

    def rounded(self, changes: Mapping[str, str] | None) -> "Network":
        """The same network with some kinds of tensors rounded otherwise (:meth:`Rounding.changed`)."""
        return dataclasses.replace(self, rounding=self.rounding.changed(changes or {}))

    def formatted(self, name: str | None) -> "Network":
        """The same network in another number format, with that format's own rounding; ``None`` changes nothing."""
        if name is None or name == self.format:
            return self
        return dataclasses.replace(self, format=name, rounding=find_format(name).rounding)

    @property
    def arithmetic(self) -> Format:
        """The number format."""
        return find_format(self.format)

    def coding(self, tid: int) -> Coding:
        """How a tensor with an exponent of its own is coded: what a convolution reads is narrow, other errors may be wide."""
        number, kind = divmod(tid, 8)
        if kind in (Kind.DZ, Kind.DS):
            layer = self.layers[number - 1]
            operand = kind == Kind.DZ and isinstance(layer, Conv | FullyConnected) and layer.norm == "none"
            return self.arithmetic.operand if operand else self.arithmetic.error
        return self.arithmetic.operand

    def fixed_exponents(self, e_input: int) -> dict[int, int]:
        """Exponents of the features by tensor number where the format takes them from the network.

        ``e_input`` is that of the images as PINT(8, 3), whose largest values have 12 bits. A normalised layer has a mean
        magnitude of 1 and takes xhat's unit; any other keeps its input's range, as its weights are scaled to do
        (docs/formats.md).
        """
        form = self.arithmetic
        if form.activations is not Scale.FIXED:
            return {}
        found = {int(Kind.Z): e_input + NORMALISED_BITS - form.operand.value_bits}
        for layer in self.layers:
            if not isinstance(layer, Subsample):
                normal = getattr(layer, "norm", None) == "frn"
                e = XHAT_EXPONENT + form.normalised_up if normal else found[self.z_tid(layer.input)]
                found[self.tid(layer.name, Kind.Z)] = e
        return found

    # Structure

    def layer(self, name: str) -> Layer:
        return self.layers[self._number[name] - 1]

    def index(self, name: str) -> int:
        """Number of a layer, from 1 in network order; 0 for the input."""
        return self._number[name]

    def geometry(self, name: str) -> Geometry:
        return self._geometry[name]

    def laid_out(self, name: str, geometry: Geometry) -> "Network":
        """The same network as a machine runs it whose only layer that reads the input has another geometry, of the same outputs."""
        found = copy.copy(self)
        object.__setattr__(found, "input_shape", geometry.in_shape)
        object.__setattr__(found, "_geometry", self._geometry | {name: geometry})
        return found

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
        return (-12 if self.loss == "softmax" else -8) + NORMALISED_BITS - self.arithmetic.operand.value_bits

    def parameters(self, name: str) -> tuple[str, ...]:
        """Per-channel parameters of a layer: gamma, beta, tau of FRN, or beta, the bias, alone."""
        layer = self.layer(name)
        if not isinstance(layer, Conv | FullyConnected):
            return ()
        return ("gamma", "beta", "tau") if layer.norm == "frn" else ("beta",)

    def macs(self) -> int:
        """Multiply-accumulates of the forward pass of one image, padding included."""
        total = 0
        for layer in self.weighted:
            g = self._geometry[layer.name]
            total += (
                g.out_shape[0] * g.out_shape[1] * g.out_shape[2] * g.in_shape[0] * g.kernel[0] * g.kernel[1]
            )
        return total

    # Tensor numbers

    def tid(self, name: str, kind: Kind) -> int:
        """Tensor number ``8 * layer + kind``."""
        return 8 * self._number[name] + kind

    def z_tid(self, name: str) -> int:
        """Tensor whose exponent the features have: Z, but a subsampling shortcut copies its input's codes."""
        if name != INPUT and isinstance(self.layer(name), Subsample):
            return self.z_tid(self.layer(name).input)
        return self.tid(name, Kind.Z)

    def dz_tid(self, name: str) -> int:
        """Tensor whose exponent the error of the output has: DZ, but a shortcut copies the adding layer's codes."""
        adder = self.consumers(name)[0][0].name if isinstance(self.layer(name), Subsample) else name
        return self.tid(adder, Kind.DZ)

    def dx_tid(self, name: str) -> int:
        """Tensor whose exponent dx has: DX after FRN, else DZ (ReLU only masks codes)."""
        return self.tid(name, Kind.DX if getattr(self.layer(name), "norm", None) == "frn" else Kind.DZ)

    def ds_tid(self, name: str) -> int:
        """Tensor whose exponent the error has that a second reader sends back: DS, of a shortcut that of its dz."""
        return self.dz_tid(name) if isinstance(self.layer(name), Subsample) else self.tid(name, Kind.DS)

    # Who reads what

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
        """The first layer that computes from the tensor: its backward pass writes the tensor's error.

        ``None`` where the tensor is only added to another layer or read by a subsampling shortcut: its error
        is that of the addition.
        """
        readers = (layer for layer, role in self.consumers(name) if role == "input")
        return next((layer for layer in readers if not isinstance(layer, Subsample)), None)

    def shortcut(self, name: str) -> Shortcut | None:
        """The second source of the tensor's error, or the only one if :meth:`main_consumer` is ``None``."""
        main = self.main_consumer(name)
        for layer, role in self.consumers(name):
            if role == "residual":
                return Shortcut("residual", layer.name)
            if layer is not main:
                return Shortcut("reader", layer.name)
        return None

    def sends_ds(self, name: str) -> bool:
        """Whether the layer is a second reader of its input; its error then travels as DS."""
        source = self.layer(name).input
        if not self.needs_error(source) or not isinstance(self.layer(name), Conv | FullyConnected | Subsample):
            return False
        main = self.main_consumer(source)
        return main is None or main.name != name

    # Files

    def to_toml(self) -> str:
        """The network as TOML; :func:`load_network` reads it back to an equal network."""
        return network_file.write(
            self.name, self.input_shape, self.classes, self.layers, self.loss, self.train, self.rounding, self.format,
            self.data,
        )

    @classmethod
    def from_toml(cls, text: str, name: str = "network") -> "Network":
        """Inverse of :meth:`to_toml`; ``name`` is that of a network whose text has none.

        Raises
        ------
        :exc:`NetworkError`
            If the text is not TOML, or the network breaks a rule.
        """
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise NetworkError(f"the text is not TOML: {error}") from None
        return cls(**network_file.parse(table, name))


def load_network(source: str) -> Network:
    """A built-in network by name, or a TOML file.

    Raises
    ------
    :exc:`NetworkError`
        If there is no such network or file, or the network breaks a rule.
    """
    table = zoo.table(source)
    if table is not None:
        return Network(**network_file.parse(table, source))
    file = Path(source)
    if not file.is_file():
        raise NetworkError(
            f"there is no network {source!r}: give one of {', '.join(zoo.names())} or a TOML file"
        )
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NetworkError(f"{file} is not a TOML file: {error}") from None
    try:
        return Network(**network_file.parse(table, file.stem))
    except NetworkError as error:
        raise NetworkError(f"{file}: {error}") from None
