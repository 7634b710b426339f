"""The commands of weight gradients and of what becomes of them: loads, tiles of the array, updates, stores."""

import dataclasses
import itertools
from typing import Any, NamedTuple

from gradloom.contracts.config import PE_ROWS, PE_TAPS
from gradloom.contracts.isa import Dest, Kind, Opcode, Source, XSource
from gradloom.host.backward.gradient_blocks import GradientShape, gradient_cycles
from gradloom.host.backward.gradient_queues import GradientQueue
from gradloom.host.backward.gradient_tiles import Operands, Tile
from gradloom.host.backward.schedule_backward import dx_kind, dx_region_name
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import shape_of
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.schedule_rounding import weight_rounding
from gradloom.host.compilation.windows import Shape, Window
from gradloom.host.dram.layout import ceil_div, even
from gradloom.host.dram.memory_map import Region
from gradloom.host.order.pieces import OPEN
from gradloom.host.order.tasks import Address, Later, Number, PlannedAccess, planned_rows
from gradloom.host.tiles.conv_mapping import ConvMapping
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.flat_shapes import FLAT_GAIN, flattened
from gradloom.host.tiles.phase_sweeps import forward_sweep, stacked_sweep
from gradloom.host.tiles.row_ranges import RowRange
from gradloom.host.tiles.shared_rows import SharedRows
from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.network import Conv, FullyConnected

__all__ = ["GradientCommands", "UpdateStreams"]

_INDEX_MASK = (1 << 24) - 1
_OPERANDS = {"w": Dest.AA, "v": Dest.AB, "rest": Dest.AA}
"""Where an update reads its tensors, in the order of the loads."""
_RESULTS = {"v": Source.OB, "w": Source.OA, "rest": Source.OA}
"""Where it writes them, in the order of the stores."""


class UpdateStreams(NamedTuple):
    """First addresses of an update's streams by tensor, in the order of loads and of stores; none where nothing is updated."""

    loaded: dict[str, Address]
    stored: dict[str, Address]

    def behind(self, beats: int) -> "UpdateStreams":
        """Of the tiles that come so many beats later."""
        return UpdateStreams(*({tensor: first + beats for tensor, first in table.items()} for table in self))


class GradientCommands:
    """Commands of a layer's weight gradients and update.

    Parameters
    ----------
    line : where and when they are made
    dry : only the statistics of the velocities
    export : also store the weight gradients
    first, last : whether this is the first, the last part of the batch; parts before the last only store their sums
    """

    def __init__(
        self, builder: ProgramBuilder, layer: Conv | FullyConnected, line: GradientQueue, *, dry: bool, export: bool, first: bool,
        last: bool,
    ) -> None:
        self.builder, self.layer, self.line, self.dry = builder, layer, line, dry
        self.first, self.last = first, last
        self.store_dw = (export or not last) and not dry
        self.rests = builder.network.rounding.keeps_rests and not dry
        """Whether weights have rests, which a dry run does not ask for."""
        self.bb = builder.config.block_beats
        self.block = self.bb * builder.config.beat_bytes
        self.shape: Shape = self._cheapest_shape()
        self.stacked = stacked_sweep(self.shape, builder.config, pairs=False) if self.shape.stackable else None
        """Output groups one by one, with columns of the kernel on the taps, where that takes fewer commands than several do."""
        self.work = self._convolution(self.shape)
        self.sweep = self.work.sweep
        self.errors = builder.memory[layer.name, dx_region_name(builder, layer)]
        self.ee = even(self.shape.xo) // 2
        self.columns = self.shape.kx
        self.gradients = self._gradient_shape(self.work)

    def _cheapest_shape(self) -> Shape:
        """The layer's, or with its plane flattened, where that gains much."""
        builder, layer = self.builder, self.layer
        whole, flat = shape_of(builder.network, layer, builder.config), flattened(builder.network, layer, builder.config)
        if flat is None:
            return whole
        works = [self._convolution(shape) for shape in (whole, flat)]
        before, after = (gradient_cycles(self._gradient_shape(work), builder.config, builder.images) for work in works)
        return flat if before is None or (after is not None and before >= FLAT_GAIN * after) else whole

    def _convolution(self, shape: Shape) -> Convolution:
        builder, region = self.builder, self.builder.memory[self.layer.input, "z"].flattened(shape.flat)
        sweep = forward_sweep(shape, builder.config)
        return Convolution(builder, self.layer.name, shape, sweep, region, shape.mg, transpose=False, share=4)

    def _gradient_shape(self, work: Convolution) -> GradientShape:
        shape = work.shape
        return GradientShape(
            layer=self.layer.name,
            sweep=work.sweep,
            tiles=len(work.tiles()),
            outputs=shape.mg,
            steps=work.steps,
            error_entries=even(shape.xo) // 2,
            beats=self.bb * (PE_ROWS * PE_TAPS if work.sweep.k1 else min(PE_ROWS, shape.ky) * min(PE_TAPS, shape.kx)),
            room=self.line.ring.size,
            share=self.line.share,
            alone=self.line.gate != OPEN,
        )

    def _tensor(self, name: str) -> Region:
        """A tensor of the weights' form, by the groups of the layer's inputs."""
        return self.builder.memory[self.layer.name, name].flattened(self.shape.flat)

    def _sweep(self, tile: Tile) -> ConvMapping:
        return self.stacked if self.stacked and tile.stacked else self.sweep

    def _window(self, tile: Tile) -> Window:
        return self._sweep(tile).windows[tile.window]

    def _columns(self, tile: Tile) -> range:
        """Columns of the kernel."""
        window = self._window(tile)
        first, each = (self.stacked.columns[window.col], self.shape.stride) if self.stacked and tile.stacked else (window.col, 1)
        return range(first, first + window.cols * each, each)

    def _extent(self, tile: Tile) -> tuple[int, int]:
        """Valid rows and taps."""
        if self._sweep(tile).k1:
            return len(tile.inputs), len(tile.outputs)
        window = self._window(tile)
        return window.rows, window.cols

    def _beats(self, tile: Tile) -> int:
        rows, taps = self._extent(tile)
        return rows * taps * self.bb

    # Loads and stores

    def _load_errors(self, row_range: RowRange, outputs: tuple[int, ...], addr: Address, place: int) -> None:
        builder, region = self.builder, self.errors
        length = self.gradients.error_addresses(builder.config, row_range)
        for (tap, m), part in itertools.product(enumerate(outputs), row_range.outputs):
            (first, last), (low, high) = part.images, part.rows
            turns, wpu = divmod(part.skipped, builder.config.wpus)
            builder.load(
                Dest.EBUF,
                region,
                [(part.images, (m, m + 1))],
                region.at(first, m) + low * self.ee * builder.config.beat_bytes,
                (place + tap, place + tap + 1),
                n0=(high - low) * self.ee,
                n1=last - first,
                stride1=region.outer_bytes,
                addr=addr + turns * self.ee,
                length=length - turns * self.ee,
                bank0=place + tap + PE_ROWS * wpu,
                bstep=PE_ROWS,
                xe=self.ee,
                xb=self.ee,
                ostep=length,
            )
        shared = row_range.shared(builder.config)
        if shared:
            for tap, m in enumerate(outputs):
                self._load_shares(row_range, shared, m, addr, place + tap)

    def _load_shares(self, row_range: RowRange, shared: SharedRows, m: int, addr: Address, bank: int) -> None:
        """Errors of an output group for the parts of the rows that the WPUs share, each row at the addresses of its row group."""
        builder, region, config = self.builder, self.errors, self.builder.config
        length, image, beats = self.gradients.error_addresses(config, row_range), row_range.images[1] - 1, ceil_div(shared.last, 2)
        for unit in range(shared.units):
            row = (row_range.last - 1) % row_range.sweep.upi + 1 - shared.units + unit
            place = (row_range.units // config.wpus + unit) * self.ee
            builder.load(
                Dest.EBUF,
                region,
                [((image, image + 1), (m, m + 1))],
                region.at(image, m) + row * self.ee * config.beat_bytes,
                (bank, bank + 1),
                n0=beats,
                n1=config.wpus,
                stride1=shared.beats * config.beat_bytes,
                addr=addr + place,
                length=length - place,
                bank0=bank,
                bstep=PE_ROWS,
                xe=self.ee,
                xb=beats,
                ostep=length,
            )

    def _transfer(
        self, region: Region, part: list[Tile], scale: int
    ) -> tuple[dict[str, int], int, list[tuple]]:
        """Runs, byte offset and conflict boxes of a set in the order of the weight-gradient buffer; ``scale`` 8 for dW."""
        tile, block, beats = part[0], self.block * scale, self.bb * scale
        m, c = tile.outputs[0], tile.inputs[0]
        every = (tile.window, tile.window + 1)
        window, columns = self._window(tile), self._columns(tile)
        if tile.stacked:
            boxes = [((m, m + 1), (0, window.rows), (column, column + 1)) for column in columns]
            runs = {"n0": beats, "n1": len(columns), "n2": window.rows, "stride1": columns.step * block, "stride2": region.unit}
            return runs, region.at(m, c) + columns[0] * block, boxes
        if self.sweep.k1:
            # Of several windows each is a set of its own; of a flattened plane the blocks of all go on with the next group's.
            count = len(part)
            groups, blocks = count, every
            if self.shape.flat:
                groups, blocks = ceil_div(tile.window + count, self.shape.kx), (tile.window, tile.window + count)
            boxes = [((o, o + 1), (i, i + groups), blocks) for o in tile.outputs for i in tile.inputs]
            runs = {
                "n0": count * beats,
                "n1": len(tile.outputs),
                "n2": len(tile.inputs),
                "stride2": self.work.steps * region.unit,
                "stride1": ceil_div(self.shape.mg, PE_TAPS) * region.outer_bytes,
            }
            return runs, region.at(m, c) + columns[0] * block, boxes
        boxes = [((m, m + 1), (c, part[-1].inputs[0] + 1), every)]
        offset = region.at(m, c) + (window.row * self.columns + window.col) * block
        if len(part) > 1 or window.cols == self.columns:
            return {"n0": len(part) * window.rows * window.cols * beats}, offset, boxes
        return {"n0": window.cols * beats, "n1": window.rows, "stride1": self.columns * block}, offset, boxes

    def _take_streams(self, beats: int) -> UpdateStreams:
        """Addresses of so many beats in every memory of an update.

        Raises
        ------
        :exc:`~gradloom.host.compilation.fit.ScheduleError`
            If a tile of weights and its rests do not fit.
        """
        ring, config, both = self.builder.ring, self.builder.config, self._with_rests(beats)
        if both > config.abuf_depth:
            what, way = ("a tile of weights and its rests take", ", or give --rounding weights=stochastic, which keeps no rests")
            if not self.rests:
                what, way = "a tile of weights takes", " or shrink the layer"
            raise ScheduleError(
                f"layer {self.layer.name!r}: {what} {both} beats of the A-Core's stream buffers, "
                f"configuration {config.name!r} has {config.abuf_depth} (abuf_depth): raise it{way}"
            )
        loaded, stored = (
            {tensor: ring[memories[tensor].name].take(both if tensor == "w" else beats) for tensor in memories if tensor != "rest"}
            for memories in (_OPERANDS, _RESULTS)
        )
        for streams in (loaded, stored) if self.rests else ():
            streams["rest"] = streams["w"] + (beats | 1)
        return UpdateStreams(loaded, stored)

    def _with_rests(self, beats: int) -> int:
        """Addresses of so many beats of weights and, behind them, their rests, which begin at an odd address if weights begin at an
        even one: the machine reads and writes both at once, in different halves of a buffer."""
        return (beats | 1) + beats if self.rests else beats

    def _load_streams(self, part: list[Tile], streams: UpdateStreams) -> None:
        for tensor, first in streams.loaded.items():
            self._load_stream(_OPERANDS[tensor], self._tensor(tensor), part, first)

    def _store_streams(self, part: list[Tile], streams: UpdateStreams) -> None:
        for tensor, first in streams.stored.items():
            self._store_stream(_RESULTS[tensor], self._tensor(tensor), part, first)

    def _load_stream(self, dest: Dest, region: Region, part: list[Tile], addr: Later, scale: int = 1) -> None:
        runs, offset, boxes = self._transfer(region, part, scale)
        length = sum(self._beats(tile) for tile in part)
        self.builder.load(dest, region, boxes, offset, addr=addr, length=length, **runs)

    def _store_stream(
        self, src: Source, region: Region, part: list[Tile], addr: Number, scale: int = 1
    ) -> None:
        runs, offset, boxes = self._transfer(region, part, scale)
        length = sum(self._beats(tile) for tile in part)
        self.builder.store(src, region, boxes, offset, addr=addr, length=length, **runs)

    # Array and A-Core

    def _accumulate(self, tile: Tile, operands: Operands, dw: Address, gap: int, fresh: bool) -> None:
        """One command of the array for each lap; its blocks begin at beat ``dw``, ``gap`` blocks apart.

        A lap without channels has inputs of 0 only, so one window gives its gradients, and these are kept.
        """
        config, sweep, row_range = self.builder.config, self._sweep(tile), operands.row_range
        swept = row_range if sweep is row_range.sweep else dataclasses.replace(row_range, sweep=sweep)
        size = row_range.addresses(config)
        layout = self.work.inputs.layout(size, operands.steps[1] - operands.steps[0])
        base = operands.inputs + (tile.step - operands.steps[0]) * layout.step_pitch
        errors, place = operands.errors[tile.outputs]
        rows, taps = self._extent(tile)
        fields = swept.row_fields(config, tile.window, base, layout.entries) | {
            "wg": 1,
            "clear": 1,
            "drain": 1,
            "dacc": int(not fresh),
            "steps": 1,
            "nr": rows,
            "nk": taps,
            "ebase": errors,
            "ebank": place,
            "ee": self.ee,
            "dwbase": dw,
            "dgap": gap,
        }
        if sweep.k1:
            fields |= {f"rlim{row}": int(row < rows) for row in range(PE_ROWS)}
        length = self.gradients.error_addresses(config, row_range)
        drained = self._beats(tile) + (rows * taps - 1) * gap * self.bb
        for lap in range(config.laps if fresh else sweep.laps):
            self.builder.put(
                Opcode.CONV,
                fields | {"lap": lap, "lap_end": lap} | ({} if lap < sweep.laps else {"units": 1, "cols": 1, "shared": 0}),
                reads=[
                    planned_rows("IBUF", *layout.read(operands.inputs, base, size)),
                    planned_rows("EBUF", errors, length, (place, place + len(tile.outputs))),
                ],
                writes=[PlannedAccess("DW", ((dw, dw + drained),))],
            )

    def _finish(self, part: list[Tile], dw: Address, beats: int, streams: UpdateStreams) -> None:
        """Update the weights of drained tiles, or only export their sums."""
        builder, tile = self.builder, part[0]
        rows, taps = self._extent(tile)
        planes = 1 if self.sweep.k1 else len(part)
        fields: dict[str, Any] = {
            "planes": planes,
            "nb": beats // planes,
            "xe": beats // planes,
            "py": 1,
            "n": 1,
            "xsrc": int(XSource.DW),
            "nr": rows,
            "nk": taps,
            "side": len(part) // planes - 1,
            "dwbase": dw,
            "xin": int(not self.first),
            "dry": int(self.dry),
            **self._indices(tile),
        }
        reads: list[tuple[str, Number, int]] = [("DW", dw, beats)]
        reads += [] if self.first else [("XIN", 0, builder.config.export_depth)]
        writes: list[tuple[str, Number, int]] = [("XOUT", 0, builder.config.export_depth)] if self.store_dw else []
        if not self.last:
            builder.run("DW_EXPORT", fields, (), reads=reads, writes=writes)
            return
        w, v, w_next, v_next = (
            builder.tid(self.layer.name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT)
        )
        dx, source = builder.tid(self.layer.name, dx_kind(self.layer)), builder.tid(self.layer.input, Kind.Z)
        inv, k = reciprocal(builder.batch)
        fields |= {
            "inv": inv,
            **weight_rounding(builder, self.layer.name, dry=self.dry),
            "sa0": streams.loaded["w"],
            "sb0": streams.loaded["v"],
            "oa0": streams.stored["w"],
            "ob0": streams.stored["v"],
        }
        if self.rests:
            fields |= {"sm0": streams.loaded["rest"], "om0": streams.stored["rest"]}
        tail = shifts(
            SH0=(1 - k, (dx, source), (v,)),
            SH1=(16, (v_next,), (v,)),
            SH2=(16, (w,), (3, v)),
            SH3=(16, (v_next,), (1, w)),
            SH4=(16, (w_next,), (w,)),
        )
        reads += [(_OPERANDS[tensor].name, first, beats) for tensor, first in streams.loaded.items()]
        writes += [(_RESULTS[tensor].name, first, beats) for tensor, first in streams.stored.items()]
        builder.run("WU_REST" if self.rests else "WU", fields, tail, reads=reads, writes=writes)

    def _indices(self, tile: Tile) -> dict[str, int]:
        """Element indices (logical OIHW positions) for stochastic rounding."""
        g = self.builder.config.group
        index, window, columns = self.builder.lowered.index(self.layer.name, g), self._window(tile), self._columns(tile)
        flat = self.shape.flat
        start = tile.outputs[0] * g * index.out + window.row * index.row + columns[0] * index.column
        step = columns.step * index.column
        if tile.stacked or self.sweep.k1:
            first = [start + index.start(c) for c in tile.inputs]
            if flat:
                first = [start + index.start(c // flat.beats) + flat.index(c % flat.beats) * index.column for c in tile.inputs]
            if not tile.stacked:
                step = ceil_div(self.shape.mg, PE_TAPS) * g * index.out
        else:
            first = [start + index.start(tile.inputs[0]) + r * index.row for r in range(window.rows)]
        beside = index.column if flat else index.group if len(self.sweep.windows) == 1 else 0
        found = {"s_k": step, "s_t": beside, "s_lane": index.out, "s_ch": index.lane}
        found |= {f"idx{row}": value for row, value in enumerate(first)}
        return {key: value & _INDEX_MASK for key, value in found.items()}
