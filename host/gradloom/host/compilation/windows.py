"""Kernel windows of a layer, and its sizes in channel groups.

Kernels wider than 3 are folded into windows of at most 3 x 3 taps; a fully connected layer is a convolution whose kernel is its
input's plane (with X rounded up to even), or one of 1 x 2 on the beats of that plane (:mod:`gradloom.host.tiles.flat_shapes`).
"""

import dataclasses

from gradloom.contracts.config import PE_ROWS, PE_TAPS
from gradloom.host.dram.flat_plane import FlatPlane

__all__ = ["Shape", "Window", "kernel_windows"]


@dataclasses.dataclass(frozen=True)
class Window:
    """Kernel rows from ``row`` and columns from ``col`` (in backward of the rotated kernel).

    ``pair``: one column, whose products are those of two neighbouring positions (pattern PAIR).
    """

    row: int
    rows: int
    col: int
    cols: int
    pair: bool = False


def _starts(kernel: int, stride: int) -> list[tuple[int, int]]:
    if stride == 1:
        return [(start, min(PE_TAPS, kernel - start)) for start in range(0, kernel, PE_TAPS)]
    count = max(1, kernel // 2)
    return [(2 * i, 2 if i < count - 1 else kernel - 2 * i) for i in range(count)]


def kernel_windows(ky: int, kx: int, stride: int) -> list[Window]:
    """Windows from 0, 3, 6, ... (stride 1) or from 0, 2, 4, ..., the last with all the rest (stride 2)."""
    return [
        Window(row, rows, col, cols) for row, rows in _starts(ky, stride) for col, cols in _starts(kx, stride)
    ]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A layer with weights, in channel groups.

    Parameters
    ----------
    cg, mg : input and output channel groups
    yi, xi, yo, xo : input and output rows and columns
    ky, kx : stored kernel rows and columns
    laps_in, laps_out : laps of the array for a group of input, resp. output channels: fewer than the machine's where no group
        has channels in the last one
    across : of a 1 x Kx kernel of a first layer (:mod:`gradloom.host.dram.im2col`): columns from window to window; column k
        of the kernel reads column k div ``stride`` of row k mod ``stride``
    flat : the plane of a fully connected layer's inputs, if its beats are planes of 1 x 2 of their own
    """

    cg: int
    mg: int
    yi: int
    xi: int
    yo: int
    xo: int
    ky: int
    kx: int
    stride: int
    pad: int
    laps_in: int = 1
    laps_out: int = 1
    across: int | None = None
    flat: FlatPlane | None = None

    @property
    def stackable(self) -> bool:
        """Whether it is a first layer whose input groups have a PE row each (:func:`stacked_sweep`)."""
        return self.across is not None and self.cg <= PE_ROWS
