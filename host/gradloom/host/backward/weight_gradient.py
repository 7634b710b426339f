"""Weight gradients on the array, output stationary, and the update of weights and velocities tile by tile."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence

from gradloom.contracts.config import PE_ROWS, PE_TAPS
from gradloom.contracts.isa import Dest, Source
from gradloom.host.backward.gradient_blocks import DRAINED, choose_blocks, fitting
from gradloom.host.backward.gradient_commands import GradientCommands, UpdateStreams
from gradloom.host.backward.gradient_queues import GradientQueues
from gradloom.host.backward.gradient_tiles import Block, Operands, Tile
from gradloom.host.backward.schedule_backward import dx_region_name
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.dram.layout import ceil_div, equal_ranges
from gradloom.host.order.accesses import Access
from gradloom.host.order.allocators import RingAllocator
from gradloom.host.order.pieces import BoundEngine, Gate, Piece, Results, Work
from gradloom.host.order.tasks import Address, PlannedPool
from gradloom.host.tiles.row_ranges import RowRange
from gradloom.models.network import Conv, FullyConnected

__all__ = ["WeightGradient"]

Range = tuple[int, int]

_FULL_SETS = 4
"""Sets of tiles of which the stream buffers hold several at once, so that loads and stores run ahead."""
_DRAINED_CYCLES = 800
"""Array cycles of the tiles of one update, at most: more tiles save hardly any, and until all are drained they hold the buffer."""
_MOST_BESIDE = 256
"""Tiles that the fields of CONV and RUN can lay beside each other."""


def _lists(tiles: list[Tile], limit: int) -> Iterator[list[Tile]]:
    """Lists of at most ``limit`` tiles, as equal as can be."""
    return (tiles[first:last] for first, last in equal_ranges(0, len(tiles), max(1, limit)))


@dataclasses.dataclass(frozen=True)
class GatheredGradients(Results):
    """Where the gradients of a set of tiles go.

    Parameters
    ----------
    ring : part of the weight-gradient buffer
    first, total : beats of the set's first tiles, and of all; of several row ranges of all sets that stay there ``together``
    there : where they have been gathered before
    """

    ring: RingAllocator
    first: int
    total: int
    together: bool
    there: Address | None

    def place(self) -> Access:
        start = self.ring.find(self.first) if self.there is None else int(self.there)
        return Access("DW", ((start, start + self.first),))

    def unused(self) -> Sequence[Access]:
        """Together they take successive addresses; else the first ones take the next, and the others any if these are too few."""
        if self.there is not None:
            return ()
        start, end = self.ring.find(self.total if self.together else self.first), self.ring.first + self.ring.size
        whole = not self.together and start + self.total > end
        return (Access("DW", ((self.ring.first, end) if whole else (start, start + self.total),)),)


class WeightGradient(GradientCommands):
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
        builder: ProgramBuilder,
        layer: Conv | FullyConnected,
        lines: GradientQueues,
        *,
        dry: bool = False,
        export: bool = False,
        first: bool = True,
        last: bool = True,
        late: bool = False,
    ) -> None:
        super().__init__(builder, layer, lines.of(layer), dry=dry, export=export, first=first, last=last)
        self.late = late
        counts = fitting(self.gradients, builder.config, builder.images)
        chosen = builder.chosen(f"{layer.name} WG", counts, 0) or None
        self.blocks = choose_blocks(self.gradients, builder.config, builder.images, chosen)
        inputs = builder.pools["IBUF"]
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
            Block(windows, tuple(tiles[slice(*outputs)]), steps, row_range)
            for windows, outputs, steps, row_range in self.blocks
        ]
        places = dict[int, Operands]()
        works = [self._loads(blocks, places), self._computes(blocks, places)]
        return [self.builder.planned(8 * self.builder.network.index(self.layer.name) + 3, work) for work in works]

    def _loads(self, blocks: list[Block], places: dict[int, Operands]) -> Work:
        """Inputs of some steps and errors of some output tiles, unless they are on chip."""
        builder, sweep, config = self.builder, self.sweep, self.builder.config
        gate = self.line.gate
        if not self.late:
            gate |= Gate((builder.region(self.layer.name, dx_region_name(builder, self.layer), builder.images),),
                         (builder.region(self.layer.name, "w"),))
        before: Block | None = None
        pool, other = (PlannedPool(pool, builder.collector) for pool in (self._inputs, self._others))
        for n, block in enumerate(blocks):
            row_range, size = block.row_range, block.row_range.addresses(config)
            inputs, length = (block.steps[1] - block.steps[0]) * size, self.gradients.error_addresses(config, row_range)
            sets = 1 if self.sweep.k1 else PE_TAPS
            errors = ceil_div(len(block.outputs), sets) * length
            new_inputs = before is None or before.inputs != block.inputs
            new_errors = before is None or before.errors != block.errors
            if new_inputs:
                pool, other = other, pool
            room = [(pool.real, inputs)] * new_inputs + [(builder.pools["EBUF"], errors)] * new_errors
            beats = row_range.rows * sweep.groups_in * sweep.xe
            yield Piece(BoundEngine.LOAD, beats, gate, room=tuple(room), opens=self.line.name, ahead=self.line.ahead)
            start = pool.take(inputs) if new_inputs else places[n - 1].inputs
            first = builder.pool["EBUF"].take(errors) if new_errors else places[n - 1].first
            found = {outs: (first + m // sets * length, 0 if sweep.k1 else m % sets) for m, outs in enumerate(block.outputs)}
            if new_errors:
                for outs, (address, place) in found.items():
                    self._load_errors(row_range, outs, address, place)
            if self.stacked:
                found |= {(m,): (address, n) for outs, (address, _) in found.items() for n, m in enumerate(outs)}
            places[n] = Operands(*block.inputs, start, first, found)
            if new_inputs:
                windows = sum(self._cycles(part, row_range) for part in self._parts(block))
                copied = row_range.shared(config)
                self.work.inputs.load_rows(
                    row_range.inputs, size, block.steps, start, windows, copied, row_range.images[0], together=True)
            before = block

    def _computes(self, blocks: list[Block], places: dict[int, Operands]) -> Work:
        first, last = self.blocks.row_ranges[0], self.blocks.row_ranges[-1]
        several = first != last
        for n, block in enumerate(blocks):
            after = blocks[n + 1] if n + 1 < len(blocks) else None
            parts = self._parts(block)
            if block.row_range == first:
                self._places: dict[Tile, Address] = {}
            for part in parts:
                cycles, end = self._cycles(part[:1], block.row_range), part is parts[-1]
                drained = self._beats(part[0]) if self._drained(part[0]) else 0
                # Alone where its results leave the array more slowly than it makes them, so that other work can come between.
                alone = bool(drained) or self.builder.fine_grained
                count = 1 if alone else len(part)
                alike = parts if several and part is parts[0] else [part]
                total = sum(self._beats(tile) for other in alike for tile in other)
                results = self._results(part, total, fresh=block.row_range == first, together=several)
                closes = self.line.name if end and count == len(part) else ""
                yield Piece(
                    BoundEngine.ARRAY,
                    count * cycles,
                    lag=count * cycles,
                    closes=closes,
                    sweeps=drained,
                    results=results,
                    silent=block.row_range != last,
                    holds=several and not (block.row_range == first and part is parts[0]),
                    passes=not several,
                )
                if block.row_range == first != last and part is parts[0]:
                    every = sum(self._beats(tile) for part in parts for tile in part)
                    self.builder.call(functools.partial(self.line.ring.turn, every))
                tiles = self._tiles(part, places[n], block.row_range == first, block.row_range == last, apart=alone)
                for place, _ in enumerate(tiles, 2):
                    if alone:
                        closes = self.line.name if end and place == len(part) else ""
                        yield Piece(BoundEngine.ARRAY, cycles, lag=cycles, closes=closes, sweeps=drained,
                                    silent=block.row_range != last, passes=not several, holds=several)
            if after is None or after.inputs != block.inputs:
                PlannedPool(self._inputs, self.builder.collector).give_back(places[n].inputs)
            if after is None or after.errors != block.errors:
                self.builder.pool["EBUF"].give_back(places[n].first)
        # The next layer of the line begins when all updates of this one have been emitted.
        yield Piece(BoundEngine.ARRAY, 0, Gate(settled=(self.builder.region(self.layer.name, "w"),)))

    def _parts(self, block: Block) -> list[list[Tile]]:
        """Sets of a block's tiles."""
        return [part for outs in block.outputs for part in self._sets(outs, *block.steps, range(*block.windows))]

    def _results(self, part: list[Tile], total: int, *, fresh: bool, together: bool) -> GatheredGradients:
        """Where the gradients of a set go, ``total`` beats of all its tiles: ``fresh`` ones to new addresses, else to those of the
        row range before."""
        # One command of the A-Core updates the first of them.
        first = sum(self._beats(tile) for tile in next(_lists(part, self._at_once(part))))
        return GatheredGradients(self.line.ring, first, total, together, None if fresh else self._places[part[0]])

    def _drained(self, tile: Tile) -> bool:
        """Whether gradients leave the array more slowly than it makes them, in any row range."""
        return any(self._cycles([tile], row_range) < self._beats(tile) for row_range in self.blocks.row_ranges)

    def _cycles(self, part: list[Tile], row_range: RowRange) -> int:
        """Cycles of the array for the tiles of a set."""
        return len(part) * row_range.cycles(self.builder.config)

    def _tile(self, step: int, outputs: tuple[int, ...], window: int) -> Tile:
        if not self.sweep.k1:
            return Tile(step, outputs, (step,), window)
        inputs = (row * self.work.steps + step for row in range(PE_ROWS))
        return Tile(step, outputs, tuple(c for c in inputs if c < self.shape.cg), window)

    def _sets(self, outputs: tuple[int, ...], low: int, high: int, chosen: range) -> Iterator[list[Tile]]:
        """Tiles of successive steps whose weights are loaded and stored together, as many as fit and as equal as can be.

        Kernel 1: tiles with the same input rows. Wider ones: those whose weights lie one behind the other in DRAM, which a window
        that leaves out rows or columns of the kernel does not allow. Where output groups are left over by threes, those of a first
        layer may come one by one with three columns of its kernel in place of themselves on the taps.
        """
        if len(self.sweep.windows) > 1:
            if self.shape.flat and len(chosen) == len(self.sweep.windows):
                yield from self._flat_sets(outputs, low, high)
                return
            if self.stacked and len(outputs) * len(self.stacked.windows) < len(chosen) == len(self.sweep.windows):
                columns, inputs = range(len(self.stacked.windows)), tuple(range(self.shape.cg))
                yield from ([Tile(0, (m,), inputs, window, stacked=True)] for m in outputs for window in columns)
                return
            for step in range(low, high):
                for window in chosen:
                    yield [self._tile(step, outputs, window)]
            return
        tiles = [self._tile(step, outputs, 0) for step in range(low, high)]
        for _, alike in itertools.groupby(tiles, key=lambda tile: len(tile.inputs)):
            part = list(alike)
            limit = self.builder.config.abuf_depth // _FULL_SETS // self._with_rests(self._beats(part[0]))
            yield from _lists(part, min(limit, self._at_once(part)) if self.sweep.k1 or self._drained(part[0]) else limit)

    def _flat_sets(self, outputs: tuple[int, ...], low: int, high: int) -> Iterator[list[Tile]]:
        """Tiles of a flattened plane: the columns of successive beats lie one behind the other in DRAM, and so do the indices of
        their elements in the same run of a channel group."""
        flat = self.shape.flat
        assert flat is not None
        tiles = [self._tile(step, outputs, window) for step in range(low, high) for window in range(len(self.sweep.windows))]
        for _, alike in itertools.groupby(tiles, key=lambda tile: [c // flat.run for c in tile.inputs]):
            part = list(alike)
            limit = self.builder.config.abuf_depth // _FULL_SETS // self._with_rests(self._beats(part[0]))
            yield from _lists(part, min(limit, self._at_once(part)))

    def _at_once(self, part: list[Tile]) -> int:
        """Tiles of a set that one command of the A-Core may update."""
        config, beats = self.builder.config, self._beats(part[0])
        moved, drained = self.store_dw or not self.first, self.line.ring.size // DRAINED
        return max(1, min(
            _MOST_BESIDE if self.sweep.k1 else config.max_planes,
            (min(drained, config.export_depth) if moved else drained) // beats,
            _DRAINED_CYCLES // self.sweep.cycles(config, self.builder.images[1] - self.builder.images[0]),
        ))

    # Tiles

    def _tiles(self, part: list[Tile], operands: Operands, fresh: bool, final: bool, *, apart: bool) -> Iterator[None]:
        """Accumulate and drain the tiles of a set; after the last images update their weights. Stops before each but the first.

        ``apart``: other commands come between the tiles. What the A-Core needs is loaded with the last one then, as nothing keeps
        others from its addresses.
        """
        builder = self.builder
        total = sum(self._beats(tile) for tile in part)
        streams = UpdateStreams({}, {})
        later = builder.fine_grained and final and self.first and self.last
        loads = part[-1 if apart else 0] if final and self.last and not later else None
        offset = 0
        for group in _lists(part, self._at_once(part)):
            beats = sum(self._beats(tile) for tile in group)
            if fresh:
                self._places[group[0]] = builder.collector.take(self.line.ring, beats)
            dw = self._places[group[0]]
            if final and not self.first:
                self._load_stream(Dest.XIN, self._tensor("dw"), group, dw % builder.config.export_depth, 8)
            step, gap = (self.bb, len(group) - 1) if self.sweep.k1 else (beats // len(group), 0)
            for place, tile in enumerate(group):
                if tile is not part[0]:
                    yield
                if tile is loads:
                    streams = self._take_streams(total)
                    self._load_streams(part, streams)
                self._accumulate(tile, operands, dw + place * step, gap, fresh)
            if later:
                self._update_later(group, dw, beats)
            elif final:
                self._finish(group, dw, beats, streams.behind(offset))
                if self.store_dw:
                    self._store_stream(Source.XOUT, self._tensor("dw"), group, dw % builder.config.export_depth, 8)
            offset += beats
        if final and self.last and not self.dry and not later:
            self._store_streams(part, streams)

    def _update_later(self, group: list[Tile], dw: Address, beats: int) -> None:
        """The update of some drained tiles as a work of the A-Core's own."""
        builder = self.builder

        def update() -> Work:
            yield Piece(BoundEngine.ACORE, beats, update=True)
            streams = self._take_streams(beats)
            self._load_streams(group, streams)
            self._finish(group, dw, beats, streams)
            if self.store_dw:
                self._store_stream(Source.XOUT, self._tensor("dw"), group, dw % builder.config.export_depth, 8)
            if not self.dry:
                self._store_streams(group, streams)

        builder.later(update())
