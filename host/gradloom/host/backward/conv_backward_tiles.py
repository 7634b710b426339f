"""Errors that leave the array or only the A-Core, in the pieces that the buffers hold: planes of some images, or rows of one."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gradloom.contracts.isa import XSource
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.stream_fit import holds, planes_at_once
from gradloom.host.compilation.sums import TileSums
from gradloom.host.dram.layout import equal_ranges
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate, Piece, Work
from gradloom.host.order.tasks import Address, Later, Number
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.row_convolution import RowConvolution
from gradloom.host.tiles.row_parts import row_parts, swept_rows
from gradloom.host.tiles.row_tiles import RowTile

__all__ = ["ErrorPart", "error_works"]

Range = tuple[int, int]
_WORTH = 0.97
"""Share of the cycles that must be left."""


@dataclasses.dataclass
class ErrorPart:
    """One command of the A-Core.

    Parameters
    ----------
    images, group : planes of one channel group
    plane, rows : size of what is written of each of them, and which rows that are (``None``: all)
    fields, reads : of RUN, where the sums lie
    """

    images: Range
    group: int
    plane: Plane
    rows: Range | None
    fields: dict[str, Any]
    reads: list[tuple[str | Later, Number, int]]

    @property
    def row(self) -> int:
        """First row."""
        return self.rows[0] if self.rows else 0

    @property
    def count(self) -> int:
        return self.images[1] - self.images[0]

    @property
    def beats(self) -> int:
        return self.count * self.plane.nb


def error_works(
    builder: ProgramBuilder,
    layer: str,
    work: Convolution | None,
    plane: Plane,
    channels: int,
    encode: Callable[[ErrorPart], None],
    gate: Callable[[Range], Gate],
    *,
    bits: bool,
    masked: bool,
    fetch: Callable[[Range, int, Sequence[Range | None]], None] = lambda *_: None,
    early: Gate = OPEN,
    as_made: bool = False,
) -> list[Work]:
    """A backward convolution (``None``: nothing but what is added), ``encode`` for each part of its results.

    Parameters
    ----------
    channels : of the results
    gate : of some images
    bits, masked : whether bitmaps may be read, whether they are
    fetch : loads what is added to some rows of planes ahead of their sums
    early, as_made : as for :meth:`~gradloom.host.tiles.convolution.Convolution.works`
    """
    if work is None:
        return [_added(builder, layer, plane, channels, encode, bits=bits, masked=masked)]
    tiled = _rows(work, plane, whole=work.fits and holds(builder, plane, bits=bits), masked=masked)
    if tiled is not None:
        return [_by_rows(tiled, plane, encode, gate)]
    cut = swept_rows(builder, work, plane, bits=masked)
    limit = planes_at_once(builder, layer, plane, bits=bits) if cut == [None] else 1

    def emit(images: Range, tile: list[int], inputs: Address | None) -> Work:
        def prepare() -> None:
            if builder.fine_grained:
                for group, part in itertools.product(tile, equal_ranges(*images, limit)):
                    fetch(part, group, cut)

        sums = yield from work.compute(images, tile, inputs, prepare=prepare)
        builder.sweep(sums, lambda: sweeps(images, tile, sums))

    def sweeps(images: Range, tile: list[int], sums: TileSums) -> Work:
        for tap, group in enumerate(tile):
            for part, rows in itertools.product(equal_ranges(*images, limit), cut):
                yield Piece(BoundEngine.ACORE, (part[1] - part[0]) * plane.of(rows).nb, loads=False)
                fields = work.psum_fields(sums, tap, images, part, rows)
                encode(ErrorPart(part, group, plane.of(rows), rows, fields, [*sums.read]))

    return work.works(work.image_tiles(), gate, emit, early=early, as_made=as_made)


def _added(
    builder: ProgramBuilder,
    layer: str,
    plane: Plane,
    channels: int,
    encode: Callable[[ErrorPart], None],
    *,
    bits: bool,
    masked: bool,
) -> Work:
    """The error of a tensor that is only added to another one."""
    groups = builder.groups(channels)
    limit, parts = 1, [(0, plane.y)]
    whole = holds(builder, plane, bits=bits)
    if whole:
        limit = planes_at_once(builder, layer, plane, bits=bits)
    else:
        parts = row_parts(builder, layer, plane, (0, plane.y), bits=masked)
    for piece, images, chosen in builder.sweeps(groups, limit, plane.nb):
        # Those who wait for it have other things to do first.
        each = piece._replace(cycles=piece.cycles // len(chosen), update=True) if builder.fine_grained else piece
        yield each
        for group in chosen:
            if builder.fine_grained and group != chosen[0]:
                yield Piece(BoundEngine.ACORE, each.cycles, inside=True, update=True)
            for rows in parts:
                part = Plane(rows[1] - rows[0], plane.x)
                encode(ErrorPart(images, group, part, None if whole else rows, {"xsrc": int(XSource.NONE)}, []))


def _rows(work: Convolution, plane: Plane, *, whole: bool, masked: bool) -> RowConvolution | None:
    """Tiles of rows where an image does not fit, or where it does (``whole``), but its inputs not for all output groups.

    Of a tile of rows they do; a layer that would wait for them is better off so.
    """
    if not whole:
        return RowConvolution(work, plane, bits=masked, kept=False)
    if work.inputs.resident(1):
        return None
    try:
        tiled = RowConvolution(work, plane, bits=masked, kept=False)
    except ScheduleError:
        return None
    low, high = work.builder.images
    return tiled if tiled.resident and tiled.bound * (high - low) < work.bound() * _WORTH else None


def _by_rows(
    tiled: RowConvolution,
    plane: Plane,
    encode: Callable[[ErrorPart], None],
    gate: Callable[[Range], Gate],
) -> Work:
    """One image after the other, its rows in tiles."""

    def emit(image: int, tile: RowTile, outs: list[int], inputs: Address | None, last: bool) -> None:
        sums = tiled.compute(image, outs, tile, inputs)
        for tap, group in enumerate(outs):
            for rows in tiled.parts(tile):
                fields, part = tiled.place_fields(tile, sums, tap, rows[0]), Plane(rows[1] - rows[0], plane.x)
                encode(ErrorPart((image, image + 1), group, part, rows, fields, [*sums.read]))

    return tiled.by_tiles(gate, emit)
