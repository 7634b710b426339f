"""Where every tensor lies in DRAM, and its logical shape."""

import dataclasses
import math
from typing import Any

from gradloom.contracts.config import Config
from gradloom.host.dram import layout
from gradloom.host.dram.flat_plane import FlatPlane
from gradloom.host.dram.layout import bitmap_beats, ceil_div, even, plane_beats
from gradloom.host.order.accesses import Ranges
from gradloom.models.network import INPUT, Conv, FullyConnected, MaxPool, Network, Subsample

__all__ = ["ALIGNMENT", "MemoryMap", "Region", "memory_map"]

ALIGNMENT = 64
"""Every region starts at a multiple of this."""
_BITMAP = 8
"""Beats of a byte plane whose bits a beat of the bitmap holds."""


@dataclasses.dataclass(frozen=True)
class Region:
    """One tensor in DRAM: ``outer`` x ``inner`` units (image x channel group, or output x input group).

    Parameters
    ----------
    kind : :class:`str`
        Format: "feature", "bitmap", "reciprocals", "blocks", "dw", "parameters", "sums", "logits", "labels",
        "bytes".
    address : :class:`int`
        From the start of the memory.
    shape : tuple of int
        Logical shape.
    steps : :class:`int`
        Copies one after the other, one for each step of a start (inputs, labels, logits).
    flat : :class:`~gradloom.host.dram.flat_plane.FlatPlane`, optional
        The plane of the tensor, or of the kernel, whose beats are planes of their own (:meth:`flattened`).
    """

    layer: str
    name: str
    kind: str
    address: int
    outer: int
    inner: int
    unit: int
    shape: tuple[int, ...]
    steps: int = 1
    flat: FlatPlane | None = None

    @property
    def space(self) -> str:
        """Name for conflicts between commands."""
        return f"{self.layer}.{self.name}"

    @property
    def outer_bytes(self) -> int:
        return self.inner * self.unit

    @property
    def step_bytes(self) -> int:
        """Bytes of one copy, rounded up so that the next copy is aligned."""
        return ceil_div(self.data_bytes(), ALIGNMENT) * ALIGNMENT

    @property
    def size(self) -> int:
        return self.steps * self.step_bytes

    def flattened(self, plane: FlatPlane | None) -> "Region":
        """The same bytes with every beat of a plane (weights: the blocks of its two columns) as a unit; ``None``: as they are."""
        if plane is None:
            return self
        inner, unit = self.inner * plane.beats, self.unit // plane.beats
        return dataclasses.replace(self, inner=inner, unit=unit, shape=(self.shape[0], inner, 1, 2), flat=plane)

    def part(self, box: Ranges) -> Ranges:
        """Units of the tensor by channel groups, as they conflict with others: of a flattened one's ``box``.

        Of one channel group the rows, or the blocks from those of the box's first unit on that its third range says; where it lies
        in several, all of them.
        """
        if self.flat is None:
            return box
        (first, last), beats = box[1], self.flat.beats
        group, beat = divmod(first, beats)
        groups = group, ceil_div(last, beats)
        if groups != (group, group + 1) or (self.kind != "feature" and len(box) == 2):
            return box[0], groups
        if self.kind == "feature":
            return box[0], groups, (self.flat.place(beat)[0], self.flat.place(beat + last - first - 1)[0] + 1)
        return box[0], groups, (2 * beat + box[2][0], 2 * beat + box[2][1])

    def at(self, outer: int, inner: int = 0) -> int:
        """Byte offset of a unit from the region's start."""
        return outer * self.outer_bytes + inner * self.unit

    def rows(self, first: int, last: int) -> tuple[int, int]:
        """First beat and number of beats of the rows ``first`` to ``last`` of a plane (a bitmap's begin with a beat)."""
        xe = even(self.shape[3]) // 2
        if self.kind != "bitmap":
            return first * xe, (last - first) * xe
        return first * xe // _BITMAP, ceil_div(last * xe, _BITMAP) - first * xe // _BITMAP

    def pack(self, value: Any, g: int) -> bytes:
        """Logical tensor to the bytes of one copy."""
        if self.kind == "feature":
            return layout.pack_feature(value, g)
        if self.kind == "bitmap":
            return layout.pack_bitmap(value, g)
        if self.kind == "blocks":
            return layout.pack_blocks(value, g, kx=self._columns(g))
        if self.kind == "dw":
            return layout.pack_dw(value, g, kx=self._columns(g))
        if self.kind == "parameters":
            return layout.pack_parameters(value, g)
        if self.kind == "sums":
            return layout.pack_sums(value, g)
        if self.kind == "reciprocals":
            return layout.pack_reciprocals(value[0], value[1], g)
        if self.kind == "logits":
            return layout.pack_logits(value, g)
        if self.kind == "labels":
            return layout.pack_labels(value, g)
        raise ValueError(f"{self.space} has no logical form")

    def unpack(self, data: bytes, g: int) -> Any:
        """Bytes of one copy to the logical tensor."""
        shape: Any = self.shape
        if self.kind == "feature":
            return layout.unpack_feature(data, shape, g)
        if self.kind == "bitmap":
            return layout.unpack_bitmap(data, shape, g)
        if self.kind == "blocks":
            return layout.unpack_blocks(data, shape, g, kx=self._columns(g))
        if self.kind == "dw":
            return layout.unpack_dw(data, shape, g, kx=self._columns(g))
        if self.kind == "parameters":
            return layout.unpack_parameters(data, shape[0], shape[1], g)
        if self.kind == "sums":
            return layout.unpack_sums(data, shape[0], shape[1], g)
        if self.kind == "reciprocals":
            return layout.unpack_reciprocals(data, shape, g)
        if self.kind == "logits":
            return layout.unpack_logits(data, shape, g)
        raise ValueError(f"{self.space} has no logical form")

    def _columns(self, g: int) -> int:
        block = (2 if g == 1 else g * g) * (8 if self.kind == "dw" else 1)
        return self.unit // block // self.shape[2]

    def data_bytes(self) -> int:
        """Bytes of one copy without the alignment."""
        return self.outer * self.outer_bytes


class MemoryMap:
    """Regions by (layer, tensor) in the order of their addresses."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.regions: dict[tuple[str, str], Region] = {}
        self.size = 0

    def __getitem__(self, key: tuple[str, str]) -> Region:
        return self.regions[key]

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self.regions

    def add(
        self,
        layer: str,
        name: str,
        kind: str,
        outer: int,
        inner: int,
        unit: int,
        shape: tuple[int, ...],
        steps: int = 1,
    ) -> Region:
        """Place a tensor behind the others."""
        if unit % self.config.beat_bytes:
            raise ValueError(f"{layer}.{name}: {unit} bytes are no multiple of the beat")
        region = Region(layer, name, kind, self.size, outer, inner, unit, shape, steps)
        self.regions[layer, name] = region
        self.size += region.size
        return region

    def feature(self, layer: str, name: str, shape: tuple[int, int, int, int], steps: int = 1) -> None:
        b, c, y, x = shape
        groups = ceil_div(c, self.config.group)
        self.add(layer, name, "feature", b, groups, plane_beats(y, x) * self.config.beat_bytes, shape, steps)

    def bitmap(self, layer: str, name: str, shape: tuple[int, int, int, int]) -> None:
        b, c, y, x = shape
        groups = ceil_div(c, self.config.group)
        self.add(layer, name, "bitmap", b, groups, bitmap_beats(y, x) * self.config.beat_bytes, shape)

    def blocks(
        self, layer: str, name: str, shape: tuple[int, int, int, int], columns: int, kind: str = "blocks"
    ) -> None:
        m, c, ky, _ = shape
        g = self.config.group
        unit = ky * columns * self.config.block_beats * self.config.beat_bytes * (8 if kind == "dw" else 1)
        self.add(layer, name, kind, ceil_div(m, g), ceil_div(c, g), unit, shape)


def memory_map(
    network: Network,
    config: Config,
    batch: int,
    *,
    training: bool,
    steps: int,
    table: int,
    dw: bool,
    sums: bool,
    shared: MemoryMap | None = None,
    first: int = 0,
) -> MemoryMap:
    """Place all tensors of a program (the program itself comes behind them).

    Parameters
    ----------
    steps : copies of inputs, labels and logits
    table : entries of the hyperparameter table
    dw : whether weight gradients have a place (export, batches in parts)
    sums : whether gradient sums have a place (batches in parts)
    shared : where weights and parameters lie already
    first : offset of the first region of its own
    """
    memory, g, entry = MemoryMap(config), config.group, 8 * config.group
    memory.size = first
    memory.add("", "zeros", "bytes", 1, 1, 3 * entry, ())
    memory.add("", "hyper", "bytes", table, 1, max(16, config.beat_bytes), ())
    memory.feature(INPUT, "z", (batch, *network.input_shape), steps)
    memory.add(INPUT, "labels", "labels", batch, 1, config.beat_bytes, (batch,), steps)
    for layer in network.layers:
        name, geometry = layer.name, network.geometry(layer.name)
        shape = (batch, *geometry.out_shape)
        groups, last = ceil_div(shape[1], g), name == network.logits.name
        if last:
            memory.add(name, "logits", "logits", batch, groups, 2 * config.beat_bytes, shape[:2], steps)
        else:
            memory.feature(name, "z", shape)
        if isinstance(layer, Conv | FullyConnected):
            wide = geometry.kernel[1] if isinstance(layer, Conv) else _fc_columns(geometry.kernel)
            weights, count = network.weight_shape(name), len(network.parameters(name))
            if shared is None:
                memory.blocks(name, "w", weights, wide)
                memory.add(name, "parameters", "parameters", groups, 1, count * entry, (shape[1], count))
            else:
                memory.regions |= {(name, part): shared[name, part] for part in ("w", "parameters")}
        if not training:
            continue
        if isinstance(layer, MaxPool):
            memory.feature(name, "index", shape)
        if network.needs_error(name):
            memory.feature(name, "error" if last else "dz", shape)
        if network.sends_ds(name):
            memory.feature(name, "ds", (batch, *geometry.in_shape))
            if isinstance(layer, Subsample):
                memory.feature(name, "index", (1, ceil_div(geometry.in_shape[0], g) * g, *shape[2:]))
        if isinstance(layer, Conv | FullyConnected):
            memory.blocks(name, "v", weights, wide)
            if network.rounding.keeps_rests:
                memory.blocks(name, "rest", weights, wide)
            if layer.norm == "frn":
                memory.feature(name, "xhat", shape)
                memory.add(name, "reciprocals", "reciprocals", batch, groups, entry, shape[:2])
            if layer.act in ("tlu", "relu"):
                memory.bitmap(name, "bit", shape)
            if layer.norm == "frn" or layer.act == "relu":
                memory.feature(name, "dx", shape)
            if dw:
                memory.blocks(name, "dw", weights, wide, "dw")
            if sums:
                memory.add(name, "sums", "sums", groups, 1, 3 * entry, (shape[1], 3))
    return memory


def _fc_columns(kernel: tuple[int, int]) -> int:
    """Stored kernel columns of a fully connected layer: X rounded up to even, but 1 for a 1 x 1 plane."""
    return 1 if math.prod(kernel) == 1 else even(kernel[1])
