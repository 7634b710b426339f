"""Pools by planes or by rows of a plane: which stored rows a range of output rows needs, of windows or of what lies in them."""

import dataclasses

from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.stream_fit import STREAM_SHARES, planes_at_once
from gradloom.host.dram.layout import ceil_div

__all__ = ["PoolPart", "Windows", "pool_parts"]

Range = tuple[int, int]
_BACKWARD_SHARES = 2 * STREAM_SHARES
"""Of the stream buffers a part of a large plane takes one, backward. Then the array makes weight gradients, whose updates wait for
as long as a part takes, and of which the buffer holds few."""


@dataclasses.dataclass(frozen=True)
class Windows:
    """Of a pool: rows and columns of a window, from window to window, of padding."""

    kernel: int
    stride: int
    pad: int

    def forward(self, rows: Range, stored: int) -> Range:
        """Input rows of some windows."""
        first, last = rows
        return max(0, first * self.stride - self.pad), min(stored, (last - 1) * self.stride - self.pad + self.kernel)

    def backward(self, rows: Range, stored: int) -> Range:
        """Windows of some input rows, at least one."""
        first, last = rows[0] + self.pad, rows[1] - 1 + self.pad
        low = min(max(0, ceil_div(first - self.kernel + 1, self.stride)), first // self.stride, stored - 1)
        return low, max(low + 1, min(stored, last // self.stride + 1))


@dataclasses.dataclass(frozen=True)
class PoolPart:
    """What one command of the A-Core takes of each of its planes.

    Parameters
    ----------
    out, stored : planes of this size are written and read
    rows, stored_rows : which rows of the tensors' planes they are, ``None``: all
    poff : the field of RUN
    """

    out: Plane
    stored: Plane
    rows: Range | None = None
    stored_rows: Range | None = None
    poff: int = 0

    def fields(self) -> dict[str, int]:
        return {**self.out.fields(), "pyi": self.stored.y, "pxi": self.stored.x, "poff": self.poff}

    @property
    def row(self) -> int:
        """First row that is written."""
        return self.rows[0] if self.rows else 0


def pool_parts(
    builder: ProgramBuilder, layer: str, windows: Windows, out: Plane, stored: Plane, *, spread: bool, backward: bool
) -> tuple[int, list[PoolPart]]:
    """Planes that a command takes, and the parts of these planes: one if a plane fits the buffers, else tiles of rows.

    Parameters
    ----------
    out, stored : planes that are written and read
    spread : whether those that are read have a position for each window; else those that are written have
    backward : whether it belongs to the backward pass

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If not even one row fits.
    """
    depth, cut = builder.config.abuf_depth, builder.knobs.subtile_beats
    if 0 < cut < out.nb and builder.images[1] - builder.images[0] == 1:
        parts = _rows(windows, out, stored, cut, spread=spread)
        if parts:
            return 1, parts
    if max(out.nb, stored.nb) <= depth:
        big, small = (out, stored) if out.nb > stored.nb else (stored, out)
        needs = (("one plane takes {} beats of the A-Core's buffers", "abuf_depth", small.nb, depth),)
        return planes_at_once(builder, layer, big, bits=False, also=needs), [PoolPart(out, stored)]
    for share in (_BACKWARD_SHARES, STREAM_SHARES, 1) if backward else (STREAM_SHARES, 1):
        parts = _rows(windows, out, stored, depth // share, spread=spread)
        if parts:
            return 1, parts
    need = windows.backward if spread else windows.forward
    low, high = need((0, 1), stored.y)
    raise ScheduleError(
        f"layer {layer!r}: one row of its windows takes {max(out.xe, (high - low) * stored.xe)} beats of the A-Core's stream "
        f"buffers, configuration {builder.config.name!r} has {depth} (abuf_depth): raise abuf_depth or shrink the layer"
    )


def _rows(windows: Windows, out: Plane, stored: Plane, beats: int, *, spread: bool) -> list[PoolPart]:
    """Parts of at most ``beats`` beats each way, the longest first; none if a row does not fit."""
    need = windows.backward if spread else windows.forward
    parts: list[PoolPart] = []
    first = 0
    while first < out.y:
        for last in range(min(out.y, first + beats // out.xe), first, -1):
            low, high = need((first, last), stored.y)
            if (high - low) * stored.xe <= beats:
                break
        else:
            return []
        poff = first - low * windows.stride if spread else low - first * windows.stride
        parts.append(PoolPart(Plane(last - first, out.x), Plane(high - low, stored.x), (first, last), (low, high), poff))
        first = last
    return parts
