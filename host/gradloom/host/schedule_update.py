"""Weight gradients on the array, output stationary, and the update of weights and velocities tile by tile."""

import functools
import itertools
from collections.abc import Callable, Iterator

from gradloom.host.convolution import Convolution
from gradloom.host.gradient_blocks import GradientShape, choose_blocks, fitting
from gradloom.host.gradient_lines import GradientLines, updated
from gradloom.host.gradient_tiles import Block, Operands, Tile
from gradloom.host.layer_sizes import shape_of
from gradloom.host.layout import ceil_div, equal_ranges, even
from gradloom.host.memory import Region
from gradloom.host.pacing import Lane, Part, Piece, Work
from gradloom.host.schedule_backward import convolved, dx_kind, dx_region_name
from gradloom.host.schedule_rounding import weight_rounding
from gradloom.host.spans import Span
from gradloom.host.tiling import Builder, shifts
from gradloom.host.tokens import Access, row_access
from gradloom.host.windows import Shape, forward_sweep
from gradloom.models.arith import reciprocal
from gradloom.models.network import INPUT, Conv, FullyConnected
from gradloom.rtl.config import PE_ROWS, PE_TAPS
from gradloom.rtl.isa import Dest, Kind, Opcode, Source, XSource

__all__ = ["WeightUpdate"]

Range = tuple[int, int]

_INDEX_MASK = (1 << 24) - 1
_FULL_SETS = 4
"""Sets of tiles of which the stream buffers hold several at once, so that loads and stores run ahead."""
_DRAINED = 2
"""Updates whose gradients the weight-gradient buffer holds at once: one is swept while the next one's are drained."""
_DRAINED_CYCLES = 800
"""Array cycles of the tiles of one update, at most: more tiles save hardly any, and until all are drained they hold the buffer."""
_MOST_BESIDE = 256
"""Tiles that the fields of CONV and RUN can lay beside each other."""


def _lists(tiles: list[Tile], limit: int) -> Iterator[list[Tile]]:
    """Lists of at most ``limit`` tiles, as equal as can be."""
    return (tiles[first:last] for first, last in equal_ranges(0, len(tiles), max(1, limit)))


class WeightUpdate:
    """Weight gradients of a layer and what becomes of them.

    Parameters
    ----------
    lines : say where and when they are made
    dry : only the statistics of the velocities
    export : also store the weight gradients
    first, last : whether this is the first, the last part of the batch; parts before the last only store their sums
    late : whether the step before has left it, so that nothing of this one is needed
    """

    def __init__(
        self,
        builder: Builder,
        layer: Conv | FullyConnected,
        lines: GradientLines,
        *,
        dry: bool = False,
        export: bool = False,
        first: bool = True,
        last: bool = True,
        late: bool = False,
    ) -> None:
        self.builder, self.layer, self.dry, self.late = builder, layer, dry, late
        self.first, self.last = first, last
        self.store_dw = (export or not last) and not dry
        self.shape: Shape = shape_of(builder.network, layer, builder.config)
        self.sweep = forward_sweep(self.shape, builder.config)
        self.work = Convolution(
            builder,
            layer.name,
            self.shape,
            self.sweep,
            builder.memory[layer.input, "z"],
            self.shape.mg,
            transpose=False,
            share=4,
        )
        self.errors = builder.memory[layer.name, dx_region_name(builder, layer)]
        self.line = lines.of(layer)
        self._later: list[Part] = []
        """What says that updates are done that are works of their own."""
        self.ee = even(self.shape.xo) // 2
        self.bb = builder.config.block_beats
        self.block = self.bb * builder.config.beat_bytes
        self.columns = self.shape.kx
        self.gradients = GradientShape(
            layer=layer.name,
            sweep=self.sweep,
            tiles=len(self.work.tiles()),
            outputs=self.shape.mg,
            steps=self.work.steps,
            error_entries=self.ee,
            beats=self.bb * (PE_ROWS * PE_TAPS if self.sweep.k1 else min(PE_ROWS, self.shape.ky) * min(PE_TAPS, self.shape.kx)),
            room=self.line.ring.size,
            share=self.line.share,
            alone=bool(self.line.needs),
        )
        counts = fitting(self.gradients, builder.config, builder.images)
        chosen = builder.chosen(f"{layer.name} WG", counts, 0) or None
        self.blocks = choose_blocks(self.gradients, builder.config, builder.images, chosen)
        inputs = builder.pool["IBUF"]
        # Sets of tiles take most of the input buffer from its begin on. Gradients that are alone take either end in turns: blocks
        # of different sizes leave no gaps that the next one does not fit in.
        self._inputs = inputs.from_end() if builder.by_sets or self.gradients.alone else inputs
        self._others = inputs.from_begin() if self.gradients.alone else self._inputs

    # Order

    def emit(self) -> list[Work]:
        """The loads of operands, and everything else. Nothing of it comes before the last use of the weights in the backward
        pass."""
        tiles = [tuple(tile) for tile in self.work.tiles()]
        blocks = [
            Block(windows, tuple(tiles[slice(*outputs)]), steps, span)
            for windows, outputs, steps, span in self.blocks
        ]
        loaded, places = self.builder.step(), dict[int, Operands]()
        works = [self._loads(blocks, loaded, places), self._computes(blocks, loaded, places)]
        return [self.builder.tagged(8 * self.builder.network.index(self.layer.name) + 3, work) for work in works]

    def _loads(self, blocks: list[Block], loaded: Callable[[int], Part], places: dict[int, Operands]) -> Work:
        """Inputs of some steps and errors of some output tiles, unless they are on chip."""
        builder, sweep, config, every = self.builder, self.sweep, self.builder.config, self.builder.images
        needs = [*self.line.needs]
        if not self.late:
            needs.append(builder.part(self.layer.name, dx_region_name(builder, self.layer), every))
            if self.layer.input != INPUT and builder.network.needs_error(self.layer.input):
                needs.append(convolved(builder, self.layer, every))
        before: Block | None = None
        pool, other = self._inputs, self._others
        for n, block in enumerate(blocks):
            span, size = block.span, block.span.addresses(config)
            inputs, length = (block.steps[1] - block.steps[0]) * size, self.gradients.error_addresses(config, span)
            sets = 1 if self.sweep.k1 else PE_TAPS
            errors = ceil_div(len(block.outputs), sets) * length
            new_inputs = before is None or before.inputs != block.inputs
            new_errors = before is None or before.errors != block.errors
            if new_inputs:
                pool, other = other, pool
            room = [(pool, inputs)] * new_inputs + [(builder.pool["EBUF"], errors)] * new_errors
            beats = span.rows * sweep.groups_in * sweep.xe
            yield Piece(Lane.LOAD, beats, tuple(needs), (loaded(n),), room=tuple(room), opens=self.line.name, ahead=self.line.ahead)
            start = pool.take(inputs) if new_inputs else places[n - 1].inputs
            first = builder.pool["EBUF"].take(errors) if new_errors else places[n - 1].first
            found = {outs: (first + m // sets * length, 0 if sweep.k1 else m % sets) for m, outs in enumerate(block.outputs)}
            places[n] = Operands(*block.inputs, start, first, found)
            if new_errors:
                for outs, (address, place) in found.items():
                    self._load_errors(span, outs, address, place)
            if new_inputs:
                windows = sum(self._cycles(part, span) for part in self._parts(block))
                self.work.inputs.load_rows(span.inputs, size, block.steps, start, windows, together=True)
            before = block

    def _computes(self, blocks: list[Block], loaded: Callable[[int], Part], places: dict[int, Operands]) -> Work:
        first, last = self.blocks.spans[0], self.blocks.spans[-1]
        several = first != last
        for n, block in enumerate(blocks):
            after = blocks[n + 1] if n + 1 < len(blocks) else None
            parts = self._parts(block)
            if block.span == first:
                self._places: dict[Tile, int] = {}
            for part in parts:
                cycles, end = self._cycles(part[:1], block.span), part is parts[-1]
                drained = self._beats(part[0]) if self._drained(part[0]) else 0
                target = functools.partial(self._target, part, block.span == first)
                # Alone where its results leave the array more slowly than it makes them, so that other work can come between.
                alone = bool(drained) or self.builder.apart
                count = 1 if alone else len(part)
                alike = parts if several and part is parts[0] else [part]
                closes = self.line.name if end and count == len(part) else ""
                yield Piece(
                    Lane.ARRAY,
                    count * cycles,
                    (loaded(n),),
                    lag=count * cycles,
                    closes=closes,
                    sweeps=drained,
                    target=target,
                    silent=block.span != last,
                    takes=functools.partial(self._takes, alike, together=several) if block.span == first else None,
                    holds=several and not (block.span == first and part is parts[0]),
                    passes=not several,
                )
                if block.span == first != last and part is parts[0]:
                    self.line.ring.turn(sum(self._beats(tile) for part in parts for tile in part))
                tiles = self._tiles(part, places[n], block.span == first, block.span == last, apart=alone)
                for place, _ in enumerate(tiles, 2):
                    if alone:
                        closes = self.line.name if end and place == len(part) else ""
                        yield Piece(Lane.ARRAY, cycles, lag=cycles, closes=closes, sweeps=drained, silent=block.span != last,
                                    passes=not several, holds=several)
            if after is None or after.inputs != block.inputs:
                self._inputs.give_back(places[n].inputs)
            if after is None or after.errors != block.errors:
                self.builder.pool["EBUF"].give_back(places[n].first)
        yield Piece(Lane.ARRAY, 0, tuple(self._later), gives=(updated(self.builder, self.layer.name),))

    def _parts(self, block: Block) -> list[list[Tile]]:
        """Sets of a block's tiles."""
        return [part for outs in block.outputs for part in self._sets(outs, *block.steps, range(*block.windows))]

    def _target(self, part: list[Tile], fresh: bool) -> Access:
        """Where the gradients of a set's first tiles go."""
        beats = sum(self._beats(tile) for tile in next(_lists(part, self._at_once(part))))
        start = self.line.ring.find(beats) if fresh else self._places[part[0]]
        return Access("DW", ((start, start + beats),))

    def _takes(self, parts: list[list[Tile]], *, together: bool) -> Access:
        """Where the gradients of some sets may go: ``together`` to successive addresses, which stay taken over several spans, else
        from the next address on, or anywhere if that is not enough."""
        ring, total = self.line.ring, sum(self._beats(tile) for part in parts for tile in part)
        if together:
            start = ring.find(total)
            return Access("DW", ((start, start + total),))
        start = ring.find(sum(self._beats(tile) for tile in next(_lists(parts[0], self._at_once(parts[0])))))
        end = ring.first + ring.size
        return Access("DW", ((start, start + total) if start + total <= end else (ring.first, end),))

    def _drained(self, tile: Tile) -> bool:
        """Whether gradients leave the array more slowly than it makes them, in any span."""
        return any(self._cycles([tile], span) < self._beats(tile) for span in self.blocks.spans)

    def _cycles(self, part: list[Tile], span: Span) -> int:
        """Cycles of the array for the tiles of a set."""
        return len(part) * span.cycles(self.builder.config)

    def _tile(self, step: int, outputs: tuple[int, ...], window: int) -> Tile:
        if not self.sweep.k1:
            return Tile(step, outputs, (step,), window)
        inputs = (row * self.work.steps + step for row in range(PE_ROWS))
        return Tile(step, outputs, tuple(c for c in inputs if c < self.shape.cg), window)

    def _sets(self, outputs: tuple[int, ...], low: int, high: int, chosen: range) -> Iterator[list[Tile]]:
        """Tiles of successive steps whose weights are loaded and stored together, as many as fit and as equal as can be.

        Kernel 1: tiles with the same input rows. Wider ones: those whose weights lie one behind the other in DRAM, which a window
        that leaves out rows or columns of the kernel does not allow.
        """
        if len(self.sweep.windows) > 1:
            for step in range(low, high):
                for window in chosen:
                    yield [self._tile(step, outputs, window)]
            return
        tiles = [self._tile(step, outputs, 0) for step in range(low, high)]
        for _, alike in itertools.groupby(tiles, key=lambda tile: len(tile.inputs)):
            part = list(alike)
            limit = self.builder.config.abuf_depth // _FULL_SETS // self._beats(part[0])
            yield from _lists(part, min(limit, self._at_once(part)) if self.sweep.k1 or self._drained(part[0]) else limit)

    def _at_once(self, part: list[Tile]) -> int:
        """Tiles of a set that one command of the A-Core may update."""
        config, beats = self.builder.config, self._beats(part[0])
        moved, drained = self.store_dw or not self.first, self.line.ring.size // _DRAINED
        return max(1, min(
            _MOST_BESIDE if self.sweep.k1 else config.max_planes,
            (min(drained, config.export_depth) if moved else drained) // beats,
            _DRAINED_CYCLES // self.sweep.cycles(config, self.builder.images[1] - self.builder.images[0]),
        ))

    def _extent(self, tile: Tile) -> tuple[int, int]:
        """Valid rows and taps."""
        if self.sweep.k1:
            return len(tile.inputs), len(tile.outputs)
        window = self.sweep.windows[tile.window]
        return window.rows, window.cols

    def _beats(self, tile: Tile) -> int:
        rows, taps = self._extent(tile)
        return rows * taps * self.bb

    # Loads and stores

    def _load_errors(self, span: Span, outputs: tuple[int, ...], addr: int, place: int) -> None:
        builder, region = self.builder, self.errors
        length = self.gradients.error_addresses(builder.config, span)
        for (tap, m), part in itertools.product(enumerate(outputs), span.outputs):
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

    def _transfer(
        self, region: Region, part: list[Tile], scale: int
    ) -> tuple[dict[str, int], int, list[tuple]]:
        """Runs, byte offset and conflict boxes of a set in the order of the weight-gradient buffer; ``scale`` 8 for dW."""
        tile, block, beats = part[0], self.block * scale, self.bb * scale
        m, c = tile.outputs[0], tile.inputs[0]
        every = (tile.window, tile.window + 1)
        window = self.sweep.windows[tile.window]
        if self.sweep.k1:
            # Of several windows each is a set of its own.
            count = len(part)
            boxes = [((o, o + 1), (i, i + count), every) for o in tile.outputs for i in tile.inputs]
            runs = {
                "n0": count * beats,
                "n1": len(tile.outputs),
                "n2": len(tile.inputs),
                "stride2": self.work.steps * region.unit,
                "stride1": ceil_div(self.shape.mg, PE_TAPS) * region.outer_bytes,
            }
            return runs, region.at(m, c) + window.col * block, boxes
        boxes = [((m, m + 1), (c, part[-1].inputs[0] + 1), every)]
        offset = region.at(m, c) + (window.row * self.columns + window.col) * block
        if len(part) > 1 or window.cols == self.columns:
            return {"n0": len(part) * window.rows * window.cols * beats}, offset, boxes
        return {"n0": window.cols * beats, "n1": window.rows, "stride1": self.columns * block}, offset, boxes

    def _load_stream(self, dest: Dest, region: Region, part: list[Tile], addr: int, scale: int = 1) -> None:
        runs, offset, boxes = self._transfer(region, part, scale)
        length = sum(self._beats(tile) for tile in part)
        self.builder.load(dest, region, boxes, offset, addr=addr, length=length, **runs)

    def _store_stream(
        self, src: Source, region: Region, part: list[Tile], addr: int, scale: int = 1
    ) -> None:
        runs, offset, boxes = self._transfer(region, part, scale)
        length = sum(self._beats(tile) for tile in part)
        self.builder.store(src, region, boxes, offset, addr=addr, length=length, **runs)

    # Tiles

    def _tiles(self, part: list[Tile], operands: Operands, fresh: bool, final: bool, *, apart: bool) -> Iterator[None]:
        """Accumulate and drain the tiles of a set; after the last images update their weights. Stops before each but the first.

        ``apart``: other commands come between the tiles. What the A-Core needs is loaded with the last one then, as nothing keeps
        others from its addresses.
        """
        builder, memory, name = self.builder, self.builder.memory, self.layer.name
        total = sum(self._beats(tile) for tile in part)
        streams = {"AA": 0, "AB": 0, "OA": 0, "OB": 0}
        later = builder.apart and final and self.first and self.last
        loads = part[-1 if apart else 0] if final and self.last and not later else None
        offset = 0
        for group in _lists(part, self._at_once(part)):
            beats = sum(self._beats(tile) for tile in group)
            if fresh:
                self._places[group[0]] = self.line.ring.take(beats)
            dw = self._places[group[0]]
            if final and not self.first:
                self._load_stream(Dest.XIN, memory[name, "dw"], group, dw % builder.config.export_depth, 8)
            step, gap = (self.bb, len(group) - 1) if self.sweep.k1 else (beats // len(group), 0)
            for place, tile in enumerate(group):
                if tile is not part[0]:
                    yield
                if tile is loads:
                    streams = {key: builder.ring[key].take(total) for key in streams}
                    self._load_stream(Dest.AA, memory[name, "w"], part, streams["AA"])
                    self._load_stream(Dest.AB, memory[name, "v"], part, streams["AB"])
                self._accumulate(tile, operands, dw + place * step, gap, fresh)
            if later:
                self._update_later(group, dw, beats)
            elif final:
                self._finish(group, dw, beats, {key: addr + offset for key, addr in streams.items()})
                if self.store_dw:
                    self._store_stream(Source.XOUT, memory[name, "dw"], group, dw % builder.config.export_depth, 8)
            offset += beats
        if final and self.last and not self.dry and not later:
            self._store_stream(Source.OB, memory[name, "v"], part, streams["OB"])
            self._store_stream(Source.OA, memory[name, "w"], part, streams["OA"])

    def _update_later(self, group: list[Tile], dw: int, beats: int) -> None:
        """The update of some drained tiles as a work of the A-Core's own."""
        builder, memory, name = self.builder, self.builder.memory, self.layer.name

        def update(drained: Part, done: Part) -> Work:
            yield Piece(Lane.ACORE, beats, (drained,), (done,), update=True)
            streams = {key: builder.ring[key].take(beats) for key in ("AA", "AB", "OA", "OB")}
            self._load_stream(Dest.AA, memory[name, "w"], group, streams["AA"])
            self._load_stream(Dest.AB, memory[name, "v"], group, streams["AB"])
            self._finish(group, dw, beats, streams)
            if self.store_dw:
                self._store_stream(Source.XOUT, memory[name, "dw"], group, dw % builder.config.export_depth, 8)
            if not self.dry:
                self._store_stream(Source.OB, memory[name, "v"], group, streams["OB"])
                self._store_stream(Source.OA, memory[name, "w"], group, streams["OA"])

        self._later.append(builder.later(Access("DW", ((dw, dw + beats),)), update))

    def _accumulate(self, tile: Tile, operands: Operands, dw: int, gap: int, fresh: bool) -> None:
        """One command of the array for each lap; its blocks begin at beat ``dw``, ``gap`` blocks apart.

        A lap without channels has inputs of 0 only, so one window gives its gradients, and these are kept.
        """
        config, sweep, span = self.builder.config, self.sweep, operands.span
        size = span.addresses(config)
        layout = self.work.inputs.layout(size, operands.steps[1] - operands.steps[0])
        base = operands.inputs + (tile.step - operands.steps[0]) * layout.apart
        errors, place = operands.errors[tile.outputs]
        rows, taps = self._extent(tile)
        fields = span.row_fields(config, tile.window, base, layout.entries) | {
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
        length = self.gradients.error_addresses(config, span)
        drained = self._beats(tile) + (rows * taps - 1) * gap * self.bb
        for lap in range(config.laps if fresh else sweep.laps):
            self.builder.recorder.emit(
                Opcode.CONV,
                fields | {"lap": lap, "lap_end": lap} | ({} if lap < sweep.laps else {"units": 1, "cols": 1}),
                reads=[
                    row_access("IBUF", *layout.read(operands.inputs, base, size)),
                    row_access("EBUF", errors, length, (place, place + len(tile.outputs))),
                ],
                writes=[Access("DW", ((dw, dw + drained),))],
            )

    def _finish(self, part: list[Tile], dw: int, beats: int, streams: dict[str, int]) -> None:
        """Update the weights of a drained set of tiles, or only export its sums."""
        builder, tile = self.builder, part[0]
        rows, taps = self._extent(tile)
        planes = 1 if self.sweep.k1 else len(part)
        fields = {
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
        reads = [("DW", dw, beats)] + ([] if self.first else [("XIN", 0, builder.config.export_depth)])
        writes = [("XOUT", 0, builder.config.export_depth)] if self.store_dw else []
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
            "sa0": streams["AA"],
            "sb0": streams["AB"],
            "oa0": streams["OA"],
            "ob0": streams["OB"],
        }
        tail = shifts(
            SH0=(1 - k, (dx, source), (v,)),
            SH1=(16, (v_next,), (v,)),
            SH2=(16, (w,), (3, v)),
            SH3=(16, (v_next,), (1, w)),
            SH4=(16, (w_next,), (w,)),
        )
        reads += [("AA", streams["AA"], beats), ("AB", streams["AB"], beats)]
        builder.run(
            "WU",
            fields,
            tail,
            reads=reads,
            writes=[*writes, ("OA", streams["OA"], beats), ("OB", streams["OB"], beats)],
        )

    def _indices(self, tile: Tile) -> dict[str, int]:
        """Element indices (logical OIHW positions) for stochastic rounding."""
        g = self.builder.config.group
        index, window = self.builder.lowered.index(self.layer.name, g), self.sweep.windows[tile.window]
        start = tile.outputs[0] * g * index.out + window.row * index.row + window.col * index.column
        if self.sweep.k1:
            first = [start + index.start(c) for c in tile.inputs]
            step = ceil_div(self.shape.mg, PE_TAPS) * g * index.out
        else:
            first = [start + index.start(tile.inputs[0]) + r * index.row for r in range(window.rows)]
            step = index.column
        found = {"s_k": step, "s_t": index.group if len(self.sweep.windows) == 1 else 0, "s_lane": index.out, "s_ch": index.lane}
        found |= {f"idx{row}": value for row, value in enumerate(first)}
        return {key: value & _INDEX_MASK for key, value in found.items()}
