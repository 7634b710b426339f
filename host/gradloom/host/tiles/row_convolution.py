"""A convolution in tiles of rows: the commands of its tiles, what they cost, and the parts in which they are swept."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gradloom.host.compilation.layer_sizes import Plane, channel_cycles
from gradloom.host.compilation.sums import NextSums, TileSums
from gradloom.host.order.allocators import FreeListAllocator, RingAllocator
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate, Piece, Work
from gradloom.host.order.tasks import Address, Region
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.row_parts import bitmap_rows, row_parts
from gradloom.host.tiles.row_tiles import RowTile, RowTiles, tile_words

__all__ = ["RowConvolution"]

Range = tuple[int, int]
_RUN_CYCLES = 80
"""Of a command of the A-Core beside its beats, about."""


class RowConvolution:
    """A convolution in tiles of rows.

    Parameters
    ----------
    work : :class:`~gradloom.host.tiles.convolution.Convolution`
        Of whole images.
    plane : :class:`~gradloom.host.compilation.layer_sizes.Plane`
        Of its outputs.
    bits : :class:`bool`
        Whether the A-Core reads or writes the plane's bitmap.
    kept : :class:`bool`
        The last two tiles of a plane stay in the two halves (:class:`~gradloom.host.tiles.row_tiles.RowTiles`).

    Attributes
    ----------
    tiles : tuple of :class:`~gradloom.host.tiles.row_tiles.RowTile`
        In order.
    outputs : list of list of int
        Output groups that are computed together.
    resident : :class:`bool`
        The inputs of a tile stay on chip (:meth:`load_inputs`).
    cycles : :class:`int`
        Of the array for one image, every tile once.
    """

    def __init__(self, work: Convolution, plane: Plane, *, bits: bool, kept: bool) -> None:
        self.work, self.sweep, self.builder, self.plane, self.bits = work, work.sweep, work.builder, plane, bits
        self.kept, self.outputs = kept, work.tiles()
        self._step = bitmap_rows(plane) if bits else 1
        found = RowTiles(work, len(self.outputs), self._step, kept=kept)
        self.tiles, self.resident, self.region = found.tiles, found.resident, found.region
        self.cycles = sum(self._cycles(*strip) for tile in self.tiles for strip in tile.strips)
        self._parts = {tile: self._rows(tile) for tile in self.tiles}
        self._ring: Region | None = None
        self._start: Address | None = None

    def _cycles(self, first: int, last: int) -> int:
        """Cycles of the array for all output groups of some units."""
        return len(self.outputs) * self.work.steps * self.sweep.strip(first, last).step_cycles(self.builder.config, 1)

    def tile_cycles(self, tile: RowTile) -> int:
        """Cycles of the array for a tile of some output groups that are computed together."""
        return self._cycles(tile.first, tile.last) // len(self.outputs)

    def swept_cycles(self, tile: RowTile, outs: list[int]) -> int:
        """Cycles of the A-Core for a tile of some output groups, about."""
        return len(outs) * sum((last - first) * self.plane.xe + _RUN_CYCLES for first, last in self.parts(tile))

    def swept(
        self,
        tile: RowTile,
        outs: list[int],
        gate: Gate = OPEN,
        *,
        room: Sequence[tuple[FreeListAllocator, int]] = (),
        rows: bool = True,
    ) -> Piece:
        """A tile that the A-Core sweeps, or of which it only takes the sums of magnitudes (not ``rows``)."""
        cycles, beats = self.tile_cycles(tile), sum(last - first for first, last in self.parts(tile)) * self.plane.xe if rows else 0
        lag = max(0, 2 * cycles - len(outs) * (beats + _RUN_CYCLES))
        return Piece(BoundEngine.ARRAY, cycles, gate, room=tuple(room), lag=lag, results=NextSums(self.builder.sums))

    def input_beats(self, tiles: Sequence[RowTile]) -> int:
        """Beats of the inputs of some tiles."""
        strips = [self.sweep.strip(*strip) for tile in tiles for strip in tile.strips]
        return sum(sweep.rows * sweep.xe for sweep in strips) * self.sweep.groups_in

    @property
    def bound(self) -> int:
        """Cycles of one image: of the array, or of the loads of inputs or of weights, if they take longer."""
        inputs = self.input_beats(self.tiles) * (1 if self.resident else len(self.outputs))
        blocks = self.work.weights.beats * sum(len(tile.strips) for tile in self.tiles)
        return max(self.cycles, channel_cycles(self.builder.config, inputs, blocks))

    @property
    def room(self) -> tuple[FreeListAllocator, int]:
        """Addresses of the input buffer that :meth:`open` takes."""
        return self.builder.pools["IBUF"], self.region

    def open(self) -> None:
        """Take the region of the input buffer, until :meth:`close`."""
        self._open(lambda first: RingAllocator(self.region, first=first))

    def _open(self, make: Callable[[int], RingAllocator]) -> None:
        _, size = self.room
        start, region = self.builder.pool["IBUF"].take(size), Region(size)
        self._ring, self._start = region, start
        self.builder.call(lambda: setattr(region, "ring", make(int(start))))

    def close(self) -> None:
        """Give the region back."""
        assert self._start is not None
        self.builder.pool["IBUF"].give_back(self._start)

    def _strip(self, first: int, last: int) -> Convolution:
        assert self._ring is not None
        return self.work.strip(first, last, self._ring)

    def load_inputs(self, image: int, tile: RowTile) -> Address | None:
        """Inputs of a tile for all output groups, if there is room. Returns their address."""
        if not self.resident:
            return None
        assert self._ring is not None
        work = self._strip(tile.first, tile.last)
        address = self.builder.collector.take(self._ring, work.steps * work.sweep.addresses(self.builder.config, 1))
        cycles = self._cycles(tile.first, tile.last)
        work.inputs.load((image, image + 1), (0, work.steps), address, cycles, together=True)
        return address

    def compute(
        self,
        image: int,
        outputs: list[int],
        tile: RowTile,
        inputs: Address | None = None,
        *,
        norms: bool = False,
        further: bool = False,
        sums: TileSums | None = None,
    ) -> TileSums:
        """All CONV commands of a tile of one image.

        ``inputs``, ``norms``, ``further``, ``sums``: as for :meth:`~gradloom.host.tiles.convolution.Convolution.compute`.
        """
        sums = sums or self.builder.take_sums()
        for number, (first, last) in enumerate(tile.strips):
            commands = self._strip(first, last).compute(
                (image, image + 1),
                outputs,
                inputs,
                norms=norms,
                sums=sums,
                offset=tile_words(self.sweep, self.builder.config, first - tile.first),
                further=further or number > 0,
            )
            for _ in commands:
                raise AssertionError("a strip has no places between its commands")
        return sums

    def by_tiles(
        self,
        gate: Callable[[Range], Gate],
        emit: Callable[[int, RowTile, list[int], Address | None, bool], None],
        *,
        passes: int = 1,
        room: Sequence[tuple[FreeListAllocator, int]] = (),
    ) -> Work:
        """Images one after the other, every tile for all output groups.

        Parameters
        ----------
        gate : of an image
        emit : computes a tile for some output groups and sweeps it; last arguments: where its inputs are, whether this is the
            last pass
        passes : how often to go over all tiles
        room : further addresses that an image takes
        """
        for image in range(*self.builder.images):
            images = (image, image + 1)
            steps = list(itertools.product(range(passes), self.tiles, self.outputs))
            inputs: Address | None = None
            for number, (turn, tile, outs) in enumerate(steps):
                begins, ends = number == 0, number == len(steps) - 1
                yield self.swept(
                    tile,
                    outs,
                    gate(images) if begins else OPEN,
                    room=(self.room, *room) if begins else (),
                    rows=turn == passes - 1,
                )
                if begins:
                    self.open()
                if outs is self.outputs[0]:
                    inputs = self.load_inputs(image, tile)
                emit(image, tile, outs, inputs, turn == passes - 1)
                if ends:
                    self.close()

    def first_row(self, tile: RowTile) -> int:
        """First row of the plane in a tile."""
        return self.sweep.plane_row(tile.first)

    def parts(self, tile: RowTile) -> list[Range]:
        """Rows of a tile that the A-Core sweeps at a time."""
        return self._parts[tile]

    def _rows(self, tile: RowTile) -> list[Range]:
        sweep = self.sweep
        rows = self.first_row(tile), min(self.plane.y, sweep.plane_row(tile.last)) if tile.last < sweep.upi else self.plane.y
        return row_parts(self.builder, self.work.layer, self.plane, rows, bits=self.bits, legal=sweep.begins)

    def place_fields(self, tile: RowTile, sums: TileSums, tap: int, row: int) -> dict[str, Any]:
        """Fields of RUN that say where the sums of an output group lie from a row on."""
        return self.work.place_fields(sums, tap, self.sweep.unit(row) - tile.first, row)
