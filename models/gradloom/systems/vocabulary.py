"""The few words that the models of all systems share: layers, resources, predictions."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

__all__ = ["ConvShape", "Prediction", "Resources", "Workload", "ceil_div", "chunks", "forward_macs", "round_up", "step_macs"]


def ceil_div(value: int, by: int) -> int:
    """The least whole number that is not below ``value / by``."""
    return -(-value // by)


def round_up(value: int, to: int) -> int:
    """The least multiple of ``to`` that is not below ``value``: zeros fill a tile up."""
    return ceil_div(value, to) * to


def chunks(total: int, size: int) -> list[int]:
    """``total`` in chunks of ``size``, the last one smaller if it does not come out even."""
    full, rest = divmod(total, size)
    return [size] * full + ([rest] if rest else [])


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvShape:
    """A layer with weights as every paper's equations see it; a fully connected one is a 1 x 1 convolution of a 1 x 1 plane.

    Parameters
    ----------
    name : :class:`str`
    outputs, inputs : :class:`int`
        Channels (M and N of EF-Train, F and C of DarkFPGA).
    rows, columns : :class:`int`
        Of the output plane (R and C of EF-Train, H and W of DarkFPGA).
    kernel, stride : :class:`int`
        Square kernels.
    in_rows, in_columns : :class:`int`, optional
        Of the input plane; by default ``stride`` times those of the output.
    """

    name: str
    outputs: int
    inputs: int
    rows: int = 1
    columns: int = 1
    kernel: int = 1
    stride: int = 1
    in_rows: int = 0
    in_columns: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "in_rows", self.in_rows or self.rows * self.stride)
        object.__setattr__(self, "in_columns", self.in_columns or self.columns * self.stride)

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return self.kernel * self.kernel

    @property
    def positions(self) -> int:
        """Positions of the output plane."""
        return self.rows * self.columns

    @property
    def dense(self) -> bool:
        """Whether it is a fully connected layer."""
        return self.positions == 1 and self.kernel == 1

    @property
    def weights(self) -> int:
        """Weights, without biases."""
        return self.outputs * self.inputs * self.taps

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the forward pass of an image."""
        return self.weights * self.positions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """What a training step of a network has to do, as the papers' equations see it.

    Parameters
    ----------
    name : :class:`str`
    layers : tuple of :class:`ConvShape`
        Layers with weights, in order; the first one passes no error on.
    pools : tuple of :class:`int`
        Elements (C * Y * X) that each pooling layer reads of an image.
    """

    name: str
    layers: tuple[ConvShape, ...]
    pools: tuple[int, ...] = ()

    @property
    def weights(self) -> int:
        """Weights of all layers."""
        return sum(layer.weights for layer in self.layers)


def forward_macs(layers: Iterable[ConvShape]) -> int:
    """Multiply-accumulates of the forward pass of an image."""
    return sum(layer.macs for layer in layers)


def step_macs(layers: Sequence[ConvShape], batch: int = 1) -> int:
    """Multiply-accumulates of a training step.

    Three times those of the forward pass but for the first layer, which needs no error of its input (EF-Train, section 6.4, the
    formula for its number of operations; DarkFPGA's GOPS of table 3 count the same).
    """
    return batch * (3 * forward_macs(layers) - layers[0].macs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """What a design takes of a device; ``None`` where a paper has no equation.

    Parameters
    ----------
    luts, flip_flops : :class:`float`, optional
    dsps : :class:`float`, optional
        DSP slices, or multiplier blocks.
    brams : :class:`float`, optional
        Block RAMs of the device's own size (36 Kbit for Xilinx devices, 18 Kbit for Lattice ECP5).
    """

    luts: float | None = None
    flip_flops: float | None = None
    dsps: float | None = None
    brams: float | None = None

    def over(self, limit: "Resources") -> list[str]:
        """Names of the resources of which more is needed than ``limit`` has, in the order of the fields."""
        found = []
        for field in dataclasses.fields(self):
            need, has = getattr(self, field.name), getattr(limit, field.name)
            if need is not None and has is not None and need > has:
                found.append(field.name)
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model says about one training step on one design point.

    Parameters
    ----------
    system, point : :class:`str`
        Such as ``darkfpga`` and ``(128, 32)``.
    cycles : :class:`float`
        Of the step.
    clock_hz : :class:`float`
    batch : :class:`int`
        Images of the step.
    macs : :class:`int`
        Multiply-accumulates that the array can begin in a cycle.
    useful : :class:`int`
        Multiply-accumulates that the step needs (:func:`step_macs`).
    resources : :class:`Resources`
    bandwidth : :class:`float`, optional
        Bytes a second between the device and its memory that the cycles take for granted.
    notes : tuple of :class:`str`
        One sentence each.
    """

    system: str
    point: str
    cycles: float
    clock_hz: float
    batch: int
    macs: int
    useful: int
    resources: Resources
    bandwidth: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Of the step."""
        return self.cycles / self.clock_hz

    @property
    def images_per_second(self) -> float:
        return self.batch / self.seconds

    @property
    def use(self) -> float:
        """Share of the array's multiply-accumulates that are useful ones, 0 to 1."""
        return self.useful / (self.cycles * self.macs)

    @property
    def gops(self) -> float:
        """Operations a second in billions; a multiply-accumulate is two."""
        return 2 * self.useful / self.seconds / 1e9

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cycles) and self.cycles > 0):
            raise ValueError(f"cycles must be positive, not {self.cycles}")
