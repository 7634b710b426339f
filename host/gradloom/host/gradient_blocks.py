"""How the weight gradients of a layer are cut: images at a time, output groups and input groups whose gradients are open together.

The array keeps one gradient per MAC while it sweeps over images, so every pair of an output tile and an input step sweeps over
all of them. Inputs and errors of a few images stay on chip while all pairs of a block use them; the drain adds what the
images before them gave (``dacc``). So every operand is loaded once for each block, not once for each pair.
"""

import dataclasses
import itertools

from gradloom.host.layout import ceil_div
from gradloom.host.tiling import ScheduleError
from gradloom.host.windows import Sweep, row_banks_conflict
from gradloom.rtl.config import PE_TAPS, Config

__all__ = ["Blocks", "GradientShape", "choose_blocks"]

Range = tuple[int, int]

_COMMAND_CYCLES = 10
"""What one more command of the array costs beside its data."""


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
    """

    layer: str
    sweep: Sweep
    tiles: int
    outputs: int
    steps: int
    error_rows: int
    error_entries: int
    beats: int

    def error_addresses(self, config: Config, images: int) -> int:
        """Addresses of each error bank that one output tile of ``images`` images takes."""
        return ceil_div(images * self.error_rows, config.wpus) * self.error_entries


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Ranges of images, kernel windows, output tiles and input steps, in the order windows, outputs, steps, images."""

    images: tuple[Range, ...]
    windows: tuple[Range, ...]
    tiles: tuple[Range, ...]
    steps: tuple[Range, ...]


def _ranges(low: int, high: int, size: int) -> tuple[Range, ...]:
    return tuple(itertools.pairwise([*range(low, high, size), high]))


def _sizes(count: int) -> list[int]:
    """Sizes that cut ``count`` into different numbers of blocks."""
    return sorted({ceil_div(count, blocks) for blocks in range(1, count + 1)})


def choose_blocks(shape: GradientShape, config: Config, images: Range) -> Blocks:
    """The cheapest cut that fits: cycles of the array, of the input loads or of the error loads, whichever are most.

    Raises
    ------
    :exc:`~gradloom.host.tiling.ScheduleError`
        If one image of one input step or one output tile does not fit the buffers.
    """
    batch, sweep = images[1] - images[0], shape.sweep
    sets = 1 if sweep.k1 else PE_TAPS
    every = len(sweep.windows)
    best: tuple[tuple[int, int, int], tuple[int, int, int, int]] | None = None
    for count in range(1, batch + 1):
        if row_banks_conflict(sweep, config, count):
            continue
        for windows, tiles, steps in itertools.product({1, every}, _sizes(shape.tiles), _sizes(shape.steps)):
            inputs = steps * sweep.addresses(config, count)
            errors = ceil_div(tiles, sets) * shape.error_addresses(config, count)
            share = 2 if count > 1 or tiles > 1 or steps > 1 else 1
            if inputs > config.ibuf_depth // share or errors > config.ebuf_depth // share:
                continue
            if count < batch and windows * tiles * steps * shape.beats > config.dw_depth // share:
                continue
            cost = (*_cycles(shape, config, batch, count, windows, tiles, steps), -count)
            if best is None or cost < best[0]:
                best = cost, (count, windows, tiles, steps)
    if best is None:
        raise ScheduleError(
            f"layer {shape.layer!r}: one image takes {sweep.addresses(config, 1)} addresses "
            f"of each input row bank, {shape.error_addresses(config, 1)} of each error row bank "
            f"and {shape.beats} beats of weight gradients, "
            f"configuration {config.name!r} has {config.ibuf_depth} (ibuf_depth), {config.ebuf_depth} (ebuf_depth) "
            f"and {config.dw_depth} (dw_depth): raise them or shrink the layer"
        )
    count, windows, tiles, steps = best[1]
    return Blocks(
        _ranges(*images, count), _ranges(0, every, windows), _ranges(0, shape.tiles, tiles), _ranges(0, shape.steps, steps)
    )


def _cycles(
    shape: GradientShape, config: Config, batch: int, count: int, windows: int, tiles: int, steps: int
) -> tuple[int, int]:
    """Cycles of whichever is slowest, and beats of all loads."""
    sweep = shape.sweep
    chunks = [min(count, batch - low) for low in range(0, batch, count)]
    sweeps = shape.tiles * shape.steps * len(sweep.windows)
    groups = sum(ceil_div(images * sweep.upi, config.wpus) for images in chunks)
    array = sweeps * (groups * sweep.cols + _COMMAND_CYCLES * len(chunks))
    once = len(chunks) == 1
    output_blocks, step_blocks = ceil_div(shape.tiles, tiles), ceil_div(shape.steps, steps)
    window_blocks = ceil_div(len(sweep.windows), windows)
    again = 1 if once and step_blocks == 1 else output_blocks * window_blocks
    inputs = batch * sweep.groups_in * sweep.rows * sweep.xe * again
    again = 1 if once and output_blocks == 1 else step_blocks * window_blocks
    errors = batch * shape.outputs * shape.error_rows * shape.error_entries * again
    loads = inputs + errors
    return max(array, inputs, errors) if config.load_channels >= 3 else max(array, loads), loads
