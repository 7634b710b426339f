"""Weights of a convolution's tiles: their place in the weight buffer, their loads, and the fields of CONV that find them."""

from gradloom.contracts.config import PE_ROWS, PE_TAPS, WEIGHT_BANKS
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.windows import Shape
from gradloom.host.dram.layout import ceil_div
from gradloom.host.order.accesses import Access, tensor_access
from gradloom.host.order.pieces import Kept
from gradloom.host.tiles.conv_mapping import ConvMapping

__all__ = ["TileWeights"]

Range = tuple[int, int]

_EVERY_WINDOW = (0, 1 << 16)
"""Third range of a conflict box of weights: kernel windows."""


class TileWeights:
    """Weight blocks of one layer for one phase.

    Parameters
    ----------
    transpose : :class:`bool`
        Backward: blocks are exchanged.

    Attributes
    ----------
    steps : :class:`int`
        Steps of input groups of a whole tile.
    per_step : :class:`int`
        Addresses of each bank that a step takes.
    beats : :class:`int`
        Of all weights in DRAM.
    ways : :class:`int`
        Channels that fill the buffer side by side: each of its banks takes a beat a cycle.
    """

    def __init__(self, builder: ProgramBuilder, layer: str, shape: Shape, sweep: ConvMapping, *, transpose: bool) -> None:
        self.builder, self.layer, self.shape, self.sweep, self.transpose = builder, layer, shape, sweep, transpose
        self.region = builder.memory[layer, "w"].flattened(shape.flat)
        self.beats = self.region.data_bytes() // builder.config.beat_bytes
        self.steps = sweep.group_step()
        self._blocks = shape.ky * shape.kx
        self._group = ceil_div(len(sweep.columns), PE_TAPS)
        """Addresses that an input group takes if there is one on every PE row (K3)."""
        self.per_step = ceil_div(self._blocks, PE_TAPS)
        if sweep.dealt:
            self.per_step = shape.cg * self._group if sweep.stacked else PE_TAPS * len(sweep.windows)
        self.ways = min(len(load_channels(builder.config, Dest.WBUF)), WEIGHT_BANKS)

    def row_groups(self, row: int, chunk: Range) -> Range:
        """Input groups of a PE row in a chunk of steps (kernel 1)."""
        first = row * self.steps
        limit = min(first + self.steps, self.sweep.groups_in)
        return min(first + chunk[0], limit), min(first + chunk[1], limit)

    def reads(self, outputs: list[int], chunk: Range) -> list[Access]:
        """Parts of the tensor that a tile's chunk needs."""
        chunks = [self.row_groups(row, chunk) for row in range(PE_ROWS)] if self.sweep.k1 else [chunk]
        if self.sweep.stacked:
            chunks = [(0, self.shape.cg)]
        pairs = [((m, m + 1), some) for m in outputs for some in chunks if some[0] < some[1]]
        boxes = [(inputs, outs) if self.transpose else (outs, inputs) for outs, inputs in pairs]
        return [tensor_access(self.region.space, self.region.part(box)) for box in boxes]

    def _key(self, outputs: list[int], chunk: Range) -> tuple[str, bool, tuple[int, ...], Range]:
        return self.layer, self.transpose, tuple(outputs), chunk

    def kept(self, outputs: list[int], chunk: Range) -> Kept:
        """Where the weights of a tile's chunk may still lie."""
        return Kept(self.builder.weights, self._key(outputs, chunk))

    def beats_before(self, chunk: Range, windows: int) -> int:
        """Beats of one channel that are to come before the first window of a tile, unless the weights are :meth:`kept`;
        ``windows``: as for :meth:`load`. A channel's share of them where all channels are fast enough."""
        beats = (chunk[1] - chunk[0]) * self.per_step * PE_TAPS * self.builder.config.block_beats
        shared = ceil_div(beats, self.ways)
        return shared if shared <= windows < beats else beats

    def load(self, outputs: list[int], chunk: Range, windows: int) -> int:
        """Weight blocks of a tile, for so many windows of the array, unless they still lie on chip. Returns the address of step 0.

        What lies on chip stays right: a layer's weights change when its backward pass is over. They come through the errors'
        channel. Where they take longer than the windows other channels bring parts, as many as fill the buffer side by side; else
        these are left to what else they bring, which could not get past weights that wait for the C-Core.
        """
        builder, region, size = self.builder, self.region, chunk[1] - chunk[0]
        bb = builder.config.block_beats
        key = self._key(outputs, chunk)
        found = builder.weights.held(key)
        if found is not None:
            return found + 1
        addr = builder.weights.take_for(key, size * self.per_step + 1) + 1
        if self.sweep.dealt:
            if self.sweep.stacked:
                self._load_columns(outputs[0], addr)
            else:
                self._load_kernel1(outputs, chunk, addr, windows)
            return addr
        m, beats = outputs[0], self._blocks * bb
        parts = min(size, self.ways, max(1, ceil_div(size * beats, windows)))
        for n in range(parts):
            first, last = chunk[0] + size * n // parts, chunk[0] + size * (n + 1) // parts
            groups = ((first, last), (m, m + 1)) if self.transpose else ((m, m + 1), (first, last))
            builder.load(
                Dest.WBUF,
                region,
                [(*groups, _EVERY_WINDOW)],
                region.at(groups[0][0], groups[1][0]),
                n0=beats,
                n1=last - first,
                stride1=region.outer_bytes if self.transpose else region.unit,
                addr=addr + (first - chunk[0]) * self.per_step,
                length=(last - first) * self.per_step,
                way=builder.channel(Dest.WBUF, shared=parts > 1, most=self.ways),
                ostep=self.per_step,
            )
        return addr

    def preload(self, outputs: list[int], chunk: Range) -> None:
        """The same for a tile that the array has not come to yet."""
        self.load(outputs, chunk, 0)

    def _load_kernel1(self, outputs: list[int], chunk: Range, addr: int, windows: int) -> None:
        """One load a PE row and tap, the taps of a row at the same addresses and so through one channel. Backward the taps of an
        input group lie one behind the other in DRAM, so that one load brings all of a row, but those of several windows."""
        builder, region, size = self.builder, self.region, chunk[1] - chunk[0]
        bb, each = builder.config.block_beats, len(self.sweep.windows)
        shared, woven = size * each * len(outputs) * PE_ROWS * bb > windows, self.transpose and each == 1
        for row in range(PE_ROWS):
            first, last = self.row_groups(row, chunk)
            if first == last:
                continue
            way = builder.channel(Dest.WBUF, shared=shared, most=self.ways)
            taps = [outputs] if woven else [[m] for m in outputs]
            for tap, (m, *more) in enumerate(taps):
                groups = ((first, last), (m, m + 1 + len(more))) if self.transpose else ((m, m + 1), (first, last))
                runs = (
                    {"n0": len(taps[tap]) * each * bb, "n1": last - first, "stride1": region.outer_bytes}
                    if self.transpose
                    else {"n0": (last - first) * each * bb}
                )
                builder.load(
                    Dest.WBUF,
                    region,
                    [(*groups, _EVERY_WINDOW)],
                    region.at(groups[0][0], groups[1][0]),
                    **runs,
                    addr=addr + row * size * each,
                    length=(last - first) * each,
                    way=way,
                    bank0=tap,
                    linear=int(not woven),
                    ostep=each if self.transpose else 1,
                )

    def _load_columns(self, m: int, addr: int) -> None:
        """Columns of the kernel in the order of the windows' taps: a load for each place brings one of all input groups."""
        builder, region, bb = self.builder, self.region, self.builder.config.block_beats
        for place, column in enumerate(self.sweep.columns):
            row, bank = divmod(place, PE_TAPS)
            builder.load(
                Dest.WBUF,
                region,
                [((m, m + 1), (0, self.shape.cg), (column, column + 1))],
                region.at(m) + column * bb * builder.config.beat_bytes,
                n0=bb,
                n1=self.shape.cg,
                stride1=region.unit,
                addr=addr + row,
                length=(self.shape.cg - 1) * self._group + 1,
                way=builder.channel(Dest.WBUF, shared=False, most=self.ways),
                bank0=bank,
                linear=1,
                ostep=self._group,
            )

    def fields(self, window: int, chunk: Range, part: Range, base: int) -> dict[str, int]:
        """Fields of CONV for the steps ``part`` of a chunk whose weights begin at ``base``."""
        sweep, size = self.sweep, chunk[1] - chunk[0]
        each = len(sweep.windows) if sweep.k1 else self.per_step
        fields = {"transpose": int(self.transpose), "flip": int(sweep.flip), "wbase": base + (part[0] - chunk[0]) * each}
        if sweep.k1:
            limits = {
                f"rlim{row}": last - first
                for row, (first, last) in enumerate(self.row_groups(row, part) for row in range(PE_ROWS))
            }
            fields["wbase"] += window
            return fields | limits | {"wstep": each, "koff": size * each, "nr": PE_ROWS}
        place = sweep.windows[window]
        for row in range(PE_ROWS):
            r = min(row, place.rows - 1)
            if sweep.stacked:
                linear = r * self._group * PE_TAPS + place.col
            elif sweep.flip:
                linear = (
                    (self.shape.ky - 1 - place.row - r) * self.shape.kx + self.shape.kx - PE_TAPS - place.col
                )
            else:
                linear = (place.row + r) * self.shape.kx + place.col
            fields |= {f"wob{row}": linear % PE_TAPS, f"woa{row}": linear // PE_TAPS}
        return fields | {"wstep": self.per_step, "nr": place.rows, "nk": place.cols}
