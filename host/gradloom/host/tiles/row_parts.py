"""Rows of a plane that the A-Core takes at a time: parts that its stream buffers hold.

A part begins where a beat of the plane's bitmap does, if one is read or written, and where its sums can be read from.
"""

import math
from collections.abc import Callable

from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.stream_fit import STREAM_SHARES
from gradloom.host.dram.layout import even
from gradloom.host.tiles.convolution import Convolution

__all__ = ["bitmap_rows", "cut_rows", "fits_beside", "legal_ranges", "row_parts", "swept_rows"]

Range = tuple[int, int]
_POSITIONS = 16
"""Positions of a plane whose bits a beat of a bitmap holds."""


def bitmap_rows(plane: Plane) -> int:
    """Rows from one row whose bits begin a beat to the next."""
    return _POSITIONS // math.gcd(even(plane.x), _POSITIONS)


def legal_ranges(first: int, last: int, limit: int, legal: Callable[[int], bool]) -> list[Range] | None:
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
    builder: ProgramBuilder, layer: str, plane: Plane, rows: Range, *, bits: bool, legal: Callable[[int], bool] = lambda _: True
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
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If the fewest rows that may be taken together do not fit.
    """
    config, step = builder.config, bitmap_rows(plane) if bits else 1
    for share in (STREAM_SHARES, 1):
        limit = config.abuf_depth // share // plane.xe
        if bits:
            limit = min(limit, config.mbuf_depth // share * _POSITIONS // (2 * plane.xe))
        parts = legal_ranges(*rows, limit, lambda row: row % step == 0 and legal(row))
        if parts is not None:
            return parts
    raise ScheduleError(
        f"layer {layer!r}: the fewest rows of a plane that can be taken at a time ({step}) take {step * plane.xe} beats of the "
        f"A-Core's buffers, configuration {config.name!r} has {config.abuf_depth} (abuf_depth) and {config.mbuf_depth} of "
        f"bitmaps (mbuf_depth): raise them or shrink the layer"
    )


def fits_beside(builder: ProgramBuilder, plane: Plane) -> bool:
    """Whether a stream buffer holds the next plane beside one. Else the A-Core, which would wait for loads and
    stores, takes rows."""
    return 2 * plane.nb <= builder.config.abuf_depth


def cut_rows(builder: ProgramBuilder, plane: Plane, *, bits: bool, legal: Callable[[int], bool] = lambda _: True) -> list[Range]:
    """Rows that the A-Core takes at a time of a plane that its buffers hold, if it is chosen to be cut; else none."""
    step, most = bitmap_rows(plane) if bits else 1, plane.rows_of(builder.knobs.subtile_beats)
    found = legal_ranges(0, plane.y, most, lambda row: row % step == 0 and legal(row)) if most else None
    return found if found and len(found) > 1 else []


def swept_rows(builder: ProgramBuilder, work: Convolution, plane: Plane, *, bits: bool) -> list[Range | None]:
    """What the A-Core sweeps at a time of every plane that a convolution makes: all of it (``None``), or some rows (as
    :func:`row_parts`; docs/decisions/0006-tiles-of-rows.md)."""
    if fits_beside(builder, plane):
        return [*cut_rows(builder, plane, bits=bits, legal=work.sweep.begins)] or [None]
    return [*row_parts(builder, work.layer, plane, (0, plane.y), bits=bits, legal=work.sweep.begins)]
