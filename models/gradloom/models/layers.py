"""Layers as frozen dataclasses, kinds of tensors, and the other plain data that a network is made of."""

import dataclasses
import enum

from gradloom.models.arithmetic.pool import PoolWalk

__all__ = [
    "INPUT",
    "LAYER_TYPES",
    "AvgPool",
    "Conv",
    "FullyConnected",
    "Geometry",
    "GlobalAvgPool",
    "Kind",
    "Layer",
    "MaxPool",
    "NetworkError",
    "Pool",
    "Shortcut",
    "Subsample",
    "Training",
    "Upsample",
    "is_integer",
    "shape_text",
    "type_name",
]

INPUT = "input"
"""Name of the network's input where a layer's name is expected."""


class NetworkError(ValueError):
    """A network that the machine cannot train; the message names the layer, the rule and the fix."""


class Kind(enum.IntEnum):
    """Kind of a tensor; its number is ``8 * layer + kind``.

    Layers count from 1 in network order, the input is layer 0. ``DZ`` is the error of a layer's output,
    ``DX`` that of its accumulators, ``DS`` the error that a second reader of a tensor sends back.
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
class Pool(Layer):
    """A layer without weights that takes windows of planes, channel by channel; it is the only reader of its input."""

    def walk(self, geometry: "Geometry") -> PoolWalk:
        """The forward pass on planes of this geometry; the backward pass is its adjoint."""
        return PoolWalk(geometry.kernel, geometry.stride, geometry.pad)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaxPool(Pool):
    """Maximum of kernel x kernel windows; padding never wins."""

    kernel: int
    stride: int
    pad: int = 0

    def walk(self, geometry: "Geometry") -> PoolWalk:
        return dataclasses.replace(super().walk(geometry), maximum=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AvgPool(Pool):
    """Mean of kernel x kernel windows; padding counts as zeros."""

    kernel: int
    stride: int
    pad: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalAvgPool(Pool):
    """Mean of the whole (square) plane: an average pool whose kernel is the plane."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upsample(Pool):
    """Every row and column ``scale`` times (nearest neighbour): the adjoint of an average pool, without its division."""

    scale: int

    def walk(self, geometry: "Geometry") -> PoolWalk:
        return dataclasses.replace(super().walk(geometry), spread=True, mean=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subsample(Layer):
    """Shortcut without parameters: every ``stride``-th row and column, then channels of zeros up to ``out``.

    Its output is the residual of one layer and nothing else reads it (the CIFAR ResNets' shortcut).
    """

    out: int
    stride: int = 2


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
    """Defaults of a training run; ``schedule`` is "constant", or "linear" or "cosine" from ``lr`` to zero.

    The rate rises to ``lr`` on a line in the first ``warmup`` epochs (ETA, section III-C).
    """

    batch: int = 16
    epochs: int = 4
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup: int | None = None


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Shapes (C, Y, X) and window of a layer; of a fully connected layer the kernel is the input's plane, of an upsample layer the
    windows lie on its output.

    ``across``: columns from window to window, if they are not as many as rows; no network says so, but a machine may lay out its
    input thus.
    """

    in_shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: int
    pad: int
    across: int | None = None


@dataclasses.dataclass(frozen=True)
class Shortcut:
    """Second source of a tensor's error.

    ``residual``: the layer adds the tensor, the error is its bit * dz. ``reader``: the layer, a convolution or
    a subsampling shortcut, reads the tensor as well, the error is its DS.
    """

    kind: str
    layer: str


LAYER_TYPES: dict[str, type[Layer]] = {
    "conv": Conv,
    "max_pool": MaxPool,
    "avg_pool": AvgPool,
    "global_avg_pool": GlobalAvgPool,
    "upsample": Upsample,
    "subsample": Subsample,
    "fully_connected": FullyConnected,
}
"""Layers by their ``type`` in a file."""


def type_name(layer: type[Layer]) -> str:
    """``type`` of a class of layers in a file."""
    return next(name for name, cls in LAYER_TYPES.items() if cls is layer)


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shape_text(shape: tuple[int, ...] | list[int]) -> str:
    return " x ".join(map(str, shape))
