"""The array's sweep for every phase of a layer: forward and gradients, a first layer by its kernel's rows, errors."""

import dataclasses

from gradloom.contracts.config import PE_TAPS, Config
from gradloom.contracts.isa import Pattern, PsumLayout
from gradloom.host.compilation.windows import Shape, Window, kernel_windows
from gradloom.host.dram.layout import ceil_div, even
from gradloom.host.tiles.conv_mapping import ConvMapping

__all__ = ["backward_sweep", "forward_sweep", "stacked_sweep"]


def forward_sweep(shape: Shape, config: Config) -> ConvMapping:
    """Forward, and the input side of the weight gradient.

    A 1 x 1 kernel of stride 2 without padding stores only the rows that it reads. A 1 x Kx kernel
    (:mod:`gradloom.host.dram.im2col`) has Kx windows of one position, and so have the beats of a flattened plane.
    """
    lowered = shape.across is not None
    one = lowered or shape.flat is not None or (shape.ky == shape.kx == 1 and not (config.wpus == 2 and shape.stride == 2))
    windows = tuple(kernel_windows(shape.ky, shape.kx, shape.stride))
    if one:
        windows = tuple(Window(0, 1, col, 1) for col in range(shape.kx))
    places = [(window.row, window.col) for window in windows]
    if lowered:
        places = [divmod(window.col, shape.stride)[::-1] for window in windows]
    every = shape.stride if one and not lowered and not shape.pad else 1
    rows = shape.yo if every > 1 else shape.yi
    return ConvMapping(
        Pattern.K1 if one else Pattern.K3,
        PsumLayout.K1 if one else PsumLayout.ROWS,
        shape.cg,
        rows,
        even(shape.xi) // 2,
        shape.yo,
        shape.xo,
        shape.stride // every,
        windows,
        tuple(row - shape.pad for row, _ in places),
        tuple(col - shape.pad for _, col in places),
        pitch=rows,
        every=every,
        xstep=shape.across or shape.stride,
        laps=shape.laps_in,
    )


def stacked_sweep(shape: Shape, config: Config, *, pairs: bool = True) -> ConvMapping:
    """A layer whose kernel's rows are channels (:mod:`gradloom.host.dram.im2col`), of at most three groups: one on every PE
    row, as the three rows of a kernel, and three of its columns on the taps.

    ``pairs`` (forward): a column that is left over, the first of those that read the same rows, is taken for two positions at a
    time where these read neighbouring columns. Such windows come first, as they gather no sums of magnitudes.
    """
    windows, columns, starts = list[Window](), list[int](), list[int]()
    for first in range(shape.stride):
        of_row = range(first, shape.kx, shape.stride)
        single = int(pairs and len(of_row) % PE_TAPS == 1 and shape.across == 1)
        cuts = [of_row[:1]] * single + [of_row[low : low + PE_TAPS] for low in range(single, len(of_row), PE_TAPS)]
        for taps in cuts:
            pair = bool(single) and taps is cuts[0]
            held = [*taps] * (1 + pair)
            windows.append(Window(0, shape.cg, len(columns), len(held), pair))
            columns += held
            starts.append(taps[0])
    order = sorted(range(len(windows)), key=lambda n: not windows[n].pair)
    return dataclasses.replace(
        forward_sweep(shape, config),
        pattern=Pattern.K3,
        layout=PsumLayout.ROWS,
        windows=tuple(windows[n] for n in order),
        y0=tuple(starts[n] % shape.stride for n in order),
        c0=tuple(starts[n] // shape.stride for n in order),
        stacked=True,
        columns=tuple(columns),
    )


def backward_sweep(shape: Shape, *, kept: bool = False) -> ConvMapping:
    """Errors of the outputs to errors of the inputs.

    Stride 1: the rotated kernel with pad K - 1 - p. Stride 2: pattern BP2; for a window from kernel row r the
    first unit is floor((p - 1) / 2) - r / 2, so that all windows add to the same positions, and the plane
    starts at the second row of its unit for even p. A 1 x 1 kernel of stride 2 without padding computes the
    error at the output's size; the A-Core spreads it, with ``kept`` only along the rows. Of a flattened plane each column of the
    kernel gives one of two positions, and 0 at the other: it reads the error's column of padding there.
    """
    common = (shape.mg, shape.yo, even(shape.xo) // 2)
    if shape.flat:
        return ConvMapping(
            Pattern.K1,
            PsumLayout.K1,
            *common,
            shape.yi,
            shape.xi,
            1,
            tuple(Window(0, 1, col, 1) for col in range(shape.kx)),
            (0,) * shape.kx,
            tuple(-col for col in range(shape.kx)),
            pitch=shape.yo,
            laps=shape.laps_out,
        )
    one = shape.ky == 1 and shape.kx == 1
    if one and (shape.stride == 1 or shape.pad == 0):
        up = shape.stride == 2
        return ConvMapping(
            Pattern.K1,
            PsumLayout.K1_UP if up else PsumLayout.K1,
            *common,
            shape.yo if up else shape.yi,
            shape.xo if up else shape.xi,
            1,
            (Window(0, 1, 0, 1),),
            (shape.pad,),
            (shape.pad,),
            pitch=shape.yo,
            laps=shape.laps_out,
            kept=up and kept,
        )
    windows = tuple(kernel_windows(shape.ky, shape.kx, shape.stride))
    if shape.stride == 1:
        return ConvMapping(
            Pattern.K3,
            PsumLayout.ROWS,
            *common,
            shape.yi,
            shape.xi,
            1,
            windows,
            tuple(window.row - (shape.ky - 1 - shape.pad) for window in windows),
            tuple(window.col - (shape.kx - 1 - shape.pad) for window in windows),
            flip=True,
            pitch=shape.yo,
            laps=shape.laps_out,
        )
    first, second = shape.pad - 1 >> 1, int(shape.pad % 2 == 0)
    return ConvMapping(
        Pattern.BP2,
        PsumLayout.SPLIT,
        *common,
        ceil_div(shape.yi + second, 2),
        ceil_div(shape.xi + second, 2),
        1,
        windows,
        tuple(first - window.row // 2 for window in windows),
        tuple(first - window.col // 2 for window in windows),
        psr=second,
        psc=second,
        pitch=shape.yo,
        laps=shape.laps_out,
    )
