"""How the weight gradients of a layer are cut: images at a time, output groups and input groups whose gradients are open together.

The array keeps one gradient per MAC while it sweeps over images, so every pair of an output tile and an input step sweeps over
all of them. Inputs and errors of a few images stay on chip while all pairs of a block use them; the drain adds what the
images before them gave (``dacc``). So every operand is loaded once for each block, not once for each pair.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from gradloom.host.layout import ceil_div
from gradloom.host.tiling import ScheduleError, channel_cycles
from gradloom.host.windows import Sweep, row_banks_conflict
from gradloom.rtl.config import PE_TAPS, Config

__all__ = ["Blocks", "GradientShape", "choose_blocks", "fitting"]

Range = tuple[int, int]

_COMMAND_CYCLES = 10
"""What one more command of the array costs beside its data."""
_LEAST_CYCLES = 80
"""From one command to the next, at least: three are under way, and each has to be drained."""
_HANDOUT_CYCLES, _UPDATE_CYCLES = 20, 90
"""Cycles of the Sequencer for a tile's command, and for those of an update of tiles beside each other."""
_LOAD_BOUND = 1.03
"""Cycles above those of the array alone from which on rows of an image, whose operands all stay on chip, may be better."""


@dataclasses.dataclass(frozen=True)
class GradientShape:
    """What a weight gradient sweeps over.

    Parameters
    ----------
    layer : name of the layer
    sweep : the input side, as in the forward pass
    tiles : output tiles (an output group, or three for kernel 1)
    outputs : output groups
    steps : input steps (an input group, or three for kernel 1)
    error_rows, error_entries : rows of an image's errors, entries of a row
    beats : beats of the gradients of one tile and step in one kernel window, at most
    room : beats of the weight-gradient buffer for all that is open together
    """

    layer: str
    sweep: Sweep
    tiles: int
    outputs: int
    steps: int
    error_rows: int
    error_entries: int
    beats: int
    room: int

    def error_addresses(self, config: Config, images: int, rows: Range | None = None) -> int:
        """Addresses of each error bank that one output tile of ``images`` images takes, or of ``rows`` of them."""
        count = self.error_rows if rows is None else rows[1] - rows[0]
        return ceil_div(images * count, config.wpus) * self.error_entries


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Ranges of images, kernel windows, output tiles and input steps.

    The order is windows, outputs, steps, images, rows, or, if ``inputs_stay``, windows, steps, outputs, images, rows.
    ``rows``: units of one image that are swept at a time, if it does not fit.
    """

    images: tuple[Range, ...]
    windows: tuple[Range, ...]
    tiles: tuple[Range, ...]
    steps: tuple[Range, ...]
    rows: tuple[Range | None, ...] = (None,)
    inputs_stay: bool = False

    @property
    def pieces(self) -> list[tuple[Range, Range | None]]:
        """Images and rows whose operands are on chip at a time, in order."""
        return list(itertools.product(self.images, self.rows))

    def __iter__(self) -> Iterator[tuple[Range, Range, Range, tuple[Range, Range | None]]]:
        """Windows, tiles, steps, and images and rows of every block, in order."""
        outer, inner = (self.steps, self.tiles) if self.inputs_stay else (self.tiles, self.steps)
        for windows, first, second, piece in itertools.product(self.windows, outer, inner, self.pieces):
            yield windows, *((second, first) if self.inputs_stay else (first, second)), piece


def _ranges(low: int, high: int, size: int) -> tuple[Range, ...]:
    return tuple(itertools.pairwise([*range(low, high, size), high]))


def _sizes(count: int) -> list[int]:
    """Sizes that cut ``count`` into different numbers of blocks."""
    return sorted({ceil_div(count, blocks) for blocks in range(1, count + 1)})


def fitting(shape: GradientShape, config: Config, images: Range) -> list[int]:
    """Numbers of whole images that fit on chip at a time."""
    batch = images[1] - images[0]
    return [count for count in range(1, batch + 1) if next(_whole(shape, config, batch, count), None)]


def choose_blocks(shape: GradientShape, config: Config, images: Range, chosen: int | None = None) -> Blocks:
    """The cheapest cut that fits: cycles of the array, of the input loads or of the error loads, whichever are most.

    ``chosen``: only cuts of so many images at a time, one of :func:`fitting`.

    Raises
    ------
    :exc:`~gradloom.host.tiling.ScheduleError`
        If one image of one input step or one output tile does not fit the buffers.
    """
    batch, sweep = images[1] - images[0], shape.sweep
    every = len(sweep.windows)
    best: tuple[tuple[int, int, bool, int], tuple[int, int, int, int, bool]] | None = None
    for count in range(1, batch + 1) if chosen is None else (chosen,):
        for cut, cost in _whole(shape, config, batch, count):
            # Of equals one whose errors stay: inputs, which then come again and again, have two channels, errors have one.
            if best is None or (*cost, cut[-1], -count) < best[0]:
                best = (*cost, cut[-1], -count), (count, *cut)
    if best is None or (chosen is None and best[0][0] > _array(shape, config, [(batch, sweep)]) * _LOAD_BOUND):
        by_rows = _choose_rows(shape, config, images, None if best is None else round(best[0][0] / _LOAD_BOUND))
        if by_rows is not None:
            return by_rows
    if best is None:
        raise ScheduleError(
            f"layer {shape.layer!r}: one row takes {sweep.strip(0, 1).addresses(config, 1)} addresses "
            f"of each input row bank, {shape.error_addresses(config, 1, (0, 1))} of each error row bank "
            f"and {shape.beats} beats of weight gradients, "
            f"configuration {config.name!r} has {config.ibuf_depth} (ibuf_depth), {config.ebuf_depth} (ebuf_depth) "
            f"and {shape.room} of {config.dw_depth} (dw_depth): raise them or shrink the layer"
        )
    count, windows, tiles, steps, stay = best[1]
    return Blocks(
        _ranges(*images, count),
        _ranges(0, every, windows),
        _ranges(0, shape.tiles, tiles),
        _ranges(0, shape.steps, steps),
        inputs_stay=stay,
    )


def _choose_rows(shape: GradientShape, config: Config, images: Range, limit: int | None) -> Blocks | None:
    """The same for rows of one image at a time, if that takes at most ``limit`` cycles."""
    sweep, every = shape.sweep, len(shape.sweep.windows)
    best: tuple[tuple[int, int, int], tuple[int, int, int, int, bool]] | None = None
    for rows in _sizes(sweep.upi):
        strips = [sweep.strip(*strip) for strip in _ranges(0, sweep.upi, rows)]
        if any(row_banks_conflict(strip, config, 1) for strip in strips):
            continue
        for cut, cost in _cuts(shape, config, [(1, strip) for strip in strips * (images[1] - images[0])]):
            if best is None or (*cost, -rows) < best[0]:
                best = (*cost, -rows), (rows, *cut)
    if best is None or (limit is not None and best[0][0] > limit):
        return None
    rows, windows, tiles, steps, stay = best[1]
    return Blocks(
        _ranges(*images, 1),
        _ranges(0, every, windows),
        _ranges(0, shape.tiles, tiles),
        _ranges(0, shape.steps, steps),
        _ranges(0, sweep.upi, rows),
        stay,
    )


Pieces = Sequence[tuple[int, Sweep]]
"""Images and the sweep over them, or over a strip of rows, of everything that is on chip at a time."""


Cut = tuple[int, int, int, bool]
"""Windows, tiles and steps of a block, and whether the inputs stay while output tiles change."""


def _whole(shape: GradientShape, config: Config, batch: int, count: int) -> Iterator[tuple[Cut, tuple[int, int]]]:
    """Blocks of so many whole images at a time that fit, and what they cost."""
    if not row_banks_conflict(shape.sweep, config, count):
        yield from _cuts(shape, config, [(min(count, batch - low), shape.sweep) for low in range(0, batch, count)])


def _cuts(shape: GradientShape, config: Config, pieces: Pieces) -> Iterator[tuple[Cut, tuple[int, int]]]:
    """Blocks that fit half of the input buffer, the other half being the backward convolutions', and the error buffer, or, if they
    cannot be smaller, the whole of both, and what they cost."""
    sets = 1 if shape.sweep.k1 else PE_TAPS
    addresses = max(sweep.addresses(config, images) for images, sweep in pieces)
    rows = max(shape.error_addresses(config, images, (0, sweep.upi)) for images, sweep in pieces)
    for windows, tiles, steps in itertools.product({1, len(shape.sweep.windows)}, _sizes(shape.tiles), _sizes(shape.steps)):
        share = 2 if pieces[0][0] > 1 or tiles > 1 or steps > 1 else 1
        inputs, errors = steps * addresses, ceil_div(tiles, sets) * rows
        if inputs > config.ibuf_depth // share or errors > config.ebuf_depth // share:
            continue
        if len(pieces) > 1 and windows * tiles * steps * shape.beats > shape.room:
            continue
        beside = 4 * inputs <= config.ibuf_depth and 3 * errors <= config.ebuf_depth
        for stay in (False, True):
            cut = windows, tiles, steps, stay
            yield cut, _cycles(shape, config, pieces, cut, beside)


def _array(shape: GradientShape, config: Config, pieces: Pieces) -> int:
    """Cycles of the array."""
    laps = shape.sweep.laps
    commands = (piece.cycles(config, images) // laps for images, piece in pieces)
    sweeps = shape.tiles * shape.steps * len(shape.sweep.windows) * laps
    return sweeps * sum(max(cycles + _COMMAND_CYCLES, _LEAST_CYCLES) for cycles in commands)


def _cycles(shape: GradientShape, config: Config, pieces: Pieces, cut: Cut, beside: bool) -> tuple[int, int]:
    """Cycles of whichever is slowest, and beats of all loads. Loads are in the array's way unless the next blocks' operands fit
    ``beside`` the present ones."""
    windows, tiles, steps, stay = cut
    sweep, array = shape.sweep, _array(shape, config, pieces)
    once = len(pieces) == 1
    output_blocks, step_blocks = ceil_div(shape.tiles, tiles), ceil_div(shape.steps, steps)
    window_blocks = ceil_div(len(sweep.windows), windows)
    again = 1 if once and (stay or step_blocks == 1) and window_blocks == 1 else output_blocks * window_blocks
    inputs = sum(images * piece.rows for images, piece in pieces) * sweep.groups_in * sweep.xe * again
    again = 1 if once and (not stay or output_blocks == 1) and window_blocks == 1 else step_blocks * window_blocks
    errors = sum(images * piece.upi for images, piece in pieces) * shape.outputs * shape.error_entries * again
    loads = inputs + errors
    # The last piece of all images has the updates, whose commands serve all steps of a block.
    updates = shape.tiles * shape.steps * len(sweep.windows) * _UPDATE_CYCLES // (1 if sweep.k1 else steps)
    busy = max(array, updates + shape.tiles * shape.steps * len(sweep.windows) * len(pieces) * _HANDOUT_CYCLES)
    slowest = max(busy, channel_cycles(config, inputs, errors))
    return slowest + (0 if beside else loads // 4), loads
