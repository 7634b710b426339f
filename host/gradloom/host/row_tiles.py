"""Planes that are larger than the machine's buffers: tiles of rows of one image.

Three things have a limit of their own: a half of the partial sums (a tile), the input buffer (strips of a tile, which a command
of the array computes) and the A-Core's stream buffers (parts of a tile, which a command of the A-Core sweeps). A tile begins
where a beat of the plane's bitmap begins.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

from gradloom.host.array_sweep import psum_words, row_banks_conflict
from gradloom.host.convolution import Convolution
from gradloom.host.fit import ScheduleError
from gradloom.host.layer_sizes import Plane, channel_cycles
from gradloom.host.layout import ceil_div, even
from gradloom.host.pacing import Lane, Part, Piece, Work
from gradloom.host.places import Pool, Ring
from gradloom.host.sums import Sums
from gradloom.host.tiling import STREAM_SHARES, Builder
from gradloom.rtl.isa import PsumLayout

__all__ = ["RowConvolution", "RowTile", "bitmap_rows", "cut_rows", "fits_beside", "row_parts", "swept_rows"]

Range = tuple[int, int]
Parts = tuple[Part, ...]
_RUN_CYCLES = 80
"""Of a command of the A-Core beside its beats, about."""
_POSITIONS = 16
"""Positions of a plane whose bits a beat of a bitmap holds."""


@dataclasses.dataclass(frozen=True)
class RowTile:
    """Units of one image whose sums lie in a half of the partial-sum buffers, and the strips in which they are computed."""

    first: int
    last: int
    strips: tuple[Range, ...]


def bitmap_rows(plane: Plane) -> int:
    """Rows from one row whose bits begin a beat to the next."""
    return _POSITIONS // math.gcd(even(plane.x), _POSITIONS)


def _cut(first: int, last: int, limit: int, legal: Callable[[int], bool]) -> list[Range] | None:
    """Ranges of at most ``limit`` that begin at legal places, the longest first; ``None`` if there are none."""
    found = []
    while first < last:
        end = last if last - first <= limit else next((p for p in range(first + limit, first, -1) if legal(p)), first)
        if end == first:
            return None
        found.append((first, end))
        first = end
    return found


def row_parts(
    builder: Builder, layer: str, plane: Plane, rows: Range, *, bits: bool, legal: Callable[[int], bool] = lambda _: True
) -> list[Range]:
    """Rows that one command of the A-Core takes: a quarter of the stream buffers, or a whole one.

    Parameters
    ----------
    rows : (first, last)
        Of the plane.
    bits : :class:`bool`
        Whether bitmaps are read or written.
    legal : callable
        Rows at which a part may begin.

    Raises
    ------
    :exc:`~gradloom.host.fit.ScheduleError`
        If the fewest rows that may be taken together do not fit.
    """
    config, step = builder.config, bitmap_rows(plane) if bits else 1
    for share in (STREAM_SHARES, 1):
        limit = config.abuf_depth // share // plane.xe
        if bits:
            limit = min(limit, config.mbuf_depth // share * _POSITIONS // (2 * plane.xe))
        parts = _cut(*rows, limit, lambda row: row % step == 0 and legal(row))
        if parts is not None:
            return parts
    raise ScheduleError(
        f"layer {layer!r}: the fewest rows of a plane that can be taken at a time ({step}) take {step * plane.xe} beats of the "
        f"A-Core's buffers, configuration {config.name!r} has {config.abuf_depth} (abuf_depth) and {config.mbuf_depth} of "
        f"bitmaps (mbuf_depth): raise them or shrink the layer"
    )


def fits_beside(builder: Builder, plane: Plane) -> bool:
    """Whether a stream buffer holds the next plane beside one. Else the A-Core, which would wait for loads and
    stores, takes rows."""
    return 2 * plane.nb <= builder.config.abuf_depth


def cut_rows(builder: Builder, plane: Plane, *, bits: bool, legal: Callable[[int], bool] = lambda _: True) -> list[Range]:
    """Rows that the A-Core takes at a time of a plane that its buffers hold, if it is chosen to be cut; else none."""
    step, most = bitmap_rows(plane) if bits else 1, plane.rows_of(builder.choices.cut)
    found = _cut(0, plane.y, most, lambda row: row % step == 0 and legal(row)) if most else None
    return found if found and len(found) > 1 else []


def swept_rows(builder: Builder, work: Convolution, plane: Plane, *, bits: bool) -> list[Range | None]:
    """What the A-Core sweeps at a time of every plane that a convolution makes: all of it (``None``), or some rows (as
    :func:`row_parts`; docs/decisions/0029-rows-of-whole-planes.md)."""
    if fits_beside(builder, plane):
        return [*cut_rows(builder, plane, bits=bits, legal=work.sweep.begins)] or [None]
    return [*row_parts(builder, work.layer, plane, (0, plane.y), bits=bits, legal=work.sweep.begins)]


class RowConvolution:
    """A convolution in tiles of rows.

    Parameters
    ----------
    work : :class:`~gradloom.host.convolution.Convolution`
        Of whole images.
    plane : :class:`~gradloom.host.tiling.Plane`
        Of its outputs.
    bits : :class:`bool`
        Whether the A-Core reads or writes the plane's bitmap.
    kept : :class:`bool`
        The last two tiles of a plane stay in the two halves: they are as large as can be. Else all are about as large, and
        if possible so small that the inputs of one stay on chip for all output groups, beside those of the next.

    Attributes
    ----------
    tiles : tuple of :class:`RowTile`
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
        self.resident = False
        self.region = self.builder.config.ibuf_depth // work.share * 2
        self._step = bitmap_rows(plane) if bits else 1
        self.tiles = tuple(RowTile(first, last, self._strips(first, last)) for first, last in self._ranges(kept))
        self.cycles = sum(self._cycles(*strip) for tile in self.tiles for strip in tile.strips)
        self._parts = {tile: self._rows(tile) for tile in self.tiles}
        self._ring: Ring | None = None

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
        needs: Parts = (),
        gives: Parts = (),
        *,
        room: Sequence[tuple[Pool, int]] = (),
        rows: bool = True,
    ) -> Piece:
        """A tile that the A-Core sweeps, or of which it only takes the sums of magnitudes (not ``rows``)."""
        cycles, beats = self.tile_cycles(tile), sum(last - first for first, last in self.parts(tile)) * self.plane.xe if rows else 0
        lag = max(0, 2 * cycles - len(outs) * (beats + _RUN_CYCLES))
        return Piece(Lane.ARRAY, cycles, needs, gives, room=tuple(room), lag=lag, target=self.builder.sums.next)

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

    def _words(self, units: int) -> int:
        return psum_words(self.sweep.strip(0, units), self.builder.config, 1) if units else 0

    def _ranges(self, kept: bool) -> list[Range]:
        """Units of the tiles."""
        config, sweep, units = self.builder.config, self.sweep, self.sweep.upi
        limit = next((n for n in range(units, 0, -1) if self._words(n) <= config.psum_depth), 0)

        def legal(unit: int) -> bool:
            return sweep.plane_row(unit) % self._step == 0

        found = _cut(0, units, limit, legal) if limit else None
        if found is None:
            raise ScheduleError(
                f"layer {self.work.layer!r}: the fewest rows that can be computed together ({self._step}) take "
                f"{self._words(min(units, self._step))} words of each partial-sum bank, configuration {config.name!r} has "
                f"{config.psum_depth} (psum_depth): raise psum_depth or shrink the layer"
            )
        if kept and len(found) > 1:
            return self._kept_ranges(limit, legal)
        if not kept and len(self.outputs) > 1:
            cuts = [cut for size in range(limit, 0, -1) if (cut := _cut(0, units, size, legal)) and self._together(cut)]
            if cuts:
                self.resident = True
                return min(cuts, key=lambda cut: sum(ceil_div(last - first, config.wpus) for first, last in cut))
        while limit > 1 and (smaller := _cut(0, units, limit - 1, legal)) is not None and len(smaller) == len(found):
            found, limit = smaller, limit - 1
        return found

    def _together(self, ranges: list[Range]) -> bool:
        """Whether half of the region holds all input groups of each tile."""
        size = max(self.sweep.strip(*units).addresses(self.builder.config, 1) for units in ranges)
        return self.work.steps * size <= self.region // 2

    def _kept_ranges(self, limit: int, legal: Callable[[int], bool]) -> list[Range]:
        """Tiles from the last one back. Every WPU needs a unit of the first and of the last one for its sum of magnitudes.

        No tiles if that cannot be.
        """
        least, edges = self.builder.config.wpus, [self.sweep.upi]
        while edges[-1] > limit:
            places = (unit for unit in range(max(edges[-1] - limit, least), edges[-1]) if legal(unit))
            edges.append(next(places, 0))
        if edges[-1]:
            edges.append(0)
        if edges[0] - edges[1] < least or edges[-2] not in range(least, limit + 1):
            return []
        edges.reverse()
        return list(itertools.pairwise(edges))

    def _strips(self, first: int, last: int) -> tuple[Range, ...]:
        """Units that a command computes: what half of the region in the input buffer holds, or more if need be.

        A strip but the last ends with a whole row of the partial-sum banks.
        """
        config = self.builder.config
        if self.resident:
            return ((first, last),)
        step = config.wpus * (2 if self.sweep.layout == PsumLayout.ROWS else 1)

        def legal(unit: int) -> bool:
            return (unit - first) % step == 0

        every = [cut for size in range(last - first, 0, -1) if (cut := _cut(first, last, size, legal))]
        for limit in (self.region // 2, self.region, config.ibuf_depth):
            cuts = [cut for cut in every if all(self.sweep.strip(*strip).addresses(config, 1) <= limit for strip in cut)]
            if cuts:
                self.region = max(self.region, limit)
                # Of as few as can be those that are most alike.
                found = [cut for cut in cuts if len(cut) == len(cuts[0])][-1]
                break
        else:
            strips = (self.sweep.strip(place, min(place + step, last)) for place in range(first, last, step))
            fewest = max(strip.addresses(config, 1) for strip in strips)
            raise ScheduleError(
                f"layer {self.work.layer!r}: the inputs of {step} rows take {fewest} addresses of each "
                f"input row bank, configuration {config.name!r} has {config.ibuf_depth} (ibuf_depth): "
                f"raise ibuf_depth or shrink the layer"
            )
        if any(row_banks_conflict(self.sweep.strip(*strip), config, range(strip[1] - strip[0])) for strip in found):
            self.work.refuse_banks()
        return tuple(found)

    # Commands

    @property
    def room(self) -> tuple[Pool, int]:
        """Addresses of the input buffer that :meth:`open` takes."""
        return self.builder.pool["IBUF"], self.region

    def open(self) -> None:
        """Take the region of the input buffer, until :meth:`close`."""
        pool, size = self.room
        self._ring = Ring(size, first=pool.take(size))

    def close(self) -> None:
        """Give the region back."""
        assert self._ring is not None
        self.builder.pool["IBUF"].give_back(self._ring.first)

    def _strip(self, first: int, last: int) -> Convolution:
        assert self._ring is not None
        return self.work.strip(first, last, self._ring)

    def load_inputs(self, image: int, tile: RowTile) -> int | None:
        """Inputs of a tile for all output groups, if there is room. Returns their address."""
        if not self.resident:
            return None
        assert self._ring is not None
        work = self._strip(tile.first, tile.last)
        address = self._ring.take(work.steps * work.sweep.addresses(self.builder.config, 1))
        cycles = self._cycles(tile.first, tile.last)
        work.inputs.load((image, image + 1), (0, work.steps), address, cycles, together=True)
        return address

    def compute(
        self,
        image: int,
        outputs: list[int],
        tile: RowTile,
        inputs: int | None = None,
        *,
        norms: bool = False,
        further: bool = False,
        sums: Sums | None = None,
    ) -> Sums:
        """All CONV commands of a tile of one image.

        ``inputs``, ``norms``, ``further``, ``sums``: as for :meth:`~gradloom.host.convolution.Convolution.compute`.
        """
        sums = sums or self.builder.sums.take()
        for number, (first, last) in enumerate(tile.strips):
            commands = self._strip(first, last).compute(
                (image, image + 1),
                outputs,
                inputs,
                norms=norms,
                sums=sums,
                offset=self._words(first - tile.first),
                further=further or number > 0,
            )
            for _ in commands:
                raise AssertionError("a strip has no places between its commands")
        return sums

    def by_tiles(
        self,
        needs: Callable[[Range], Parts],
        gives: Callable[[Range], Parts],
        emit: Callable[[int, RowTile, list[int], int | None, bool], None],
        *,
        passes: int = 1,
        room: Sequence[tuple[Pool, int]] = (),
    ) -> Work:
        """Images one after the other, every tile for all output groups.

        Parameters
        ----------
        needs, gives : what an image needs, and what is there when it is done
        emit : computes a tile for some output groups and sweeps it; last arguments: where its inputs are, whether this is the
            last pass
        passes : how often to go over all tiles
        room : further addresses that an image takes
        """
        for image in range(*self.builder.images):
            images = (image, image + 1)
            steps = list(itertools.product(range(passes), self.tiles, self.outputs))
            inputs: int | None = None
            for number, (turn, tile, outs) in enumerate(steps):
                begins, ends = number == 0, number == len(steps) - 1
                yield self.swept(
                    tile,
                    outs,
                    needs(images) if begins else (),
                    gives(images) if ends else (),
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

    def place_fields(self, tile: RowTile, sums: Sums, tap: int, row: int) -> dict[str, int]:
        """Fields of RUN that say where the sums of an output group lie from a row on."""
        return self.work.place_fields(sums, tap, self.sweep.unit(row) - tile.first, row)
