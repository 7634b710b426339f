"""How the weight gradients of a layer are cut: rows at a time, output groups and input groups whose gradients are open together.

The array keeps one gradient per MAC while it sweeps over rows, so every pair of an output tile and an input step sweeps over
those of all images. Inputs and errors of a range of rows (:mod:`gradloom.host.tiles.row_ranges`) stay on chip while all pairs of a
block use them; the drain adds what the row ranges before it gave (``dacc``). So every operand is loaded once for each block, not
for each pair.
"""

import dataclasses
import itertools
from collections.abc import Iterator

from gradloom.contracts.config import PE_TAPS, Config
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import channel_cycles
from gradloom.host.dram.layout import ceil_div
from gradloom.host.tiles.conv_mapping import ConvMapping
from gradloom.host.tiles.row_ranges import RowRange, row_ranges

__all__ = ["DRAINED", "Blocks", "GradientShape", "choose_blocks", "fitting", "gradient_cycles"]

Range = tuple[int, int]

_COMMAND_CYCLES = 10
"""What one more command of the array costs beside its data."""
_LEAST_CYCLES = 80
"""From one command to the next, at least: three are under way, and each has to be drained."""
_CHANNELS = 3
"""Channels counted on: half of what the A-Core's two could bring is left to its updates, unless nothing else needs them."""
DRAINED = 2
"""Updates whose gradients the weight-gradient buffer holds at once: one is swept while the next one's are drained."""
_HANDOUT_CYCLES, _UPDATE_CYCLES = 20, 90
"""Cycles of the Sequencer for a tile's command, and for those of an update of tiles beside each other."""
_SET_CYCLES = 8
"""What an update of tiles beside each other costs all engines together: of cuts that are bound by the same engine, the one with the
fewest updates. AlexNet at batch 4 on eta is 1.8 % shorter by it, with two thirds of the commands; 2 and 30 give the same."""


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
    error_entries : entries of a row of an image's errors
    beats : beats of the gradients of one tile and step in one kernel window, at most
    room : beats of the weight-gradient buffer for all that is open together
    share : of how many parts of the error buffer a block may take one
    alone : nothing else needs the Loaders and the input buffer at the time
    """

    layer: str
    sweep: ConvMapping
    tiles: int
    outputs: int
    steps: int
    error_entries: int
    beats: int
    room: int
    share: int = 2
    alone: bool = False

    def error_addresses(self, config: Config, row_range: RowRange) -> int:
        """Addresses of each error bank that one output tile of a row range takes."""
        return row_range.groups(config) * self.error_entries


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Row ranges of rows, and ranges of kernel windows, output tiles and input steps.

    The order is windows, outputs, steps, row ranges, or, if ``inputs_stay``, windows, steps, outputs, row ranges.
    """

    row_ranges: tuple[RowRange, ...]
    windows: tuple[Range, ...]
    tiles: tuple[Range, ...]
    steps: tuple[Range, ...]
    inputs_stay: bool = False

    def __iter__(self) -> Iterator[tuple[Range, Range, Range, RowRange]]:
        """Windows, tiles, steps and row range of every block, in order."""
        outer, inner = (self.steps, self.tiles) if self.inputs_stay else (self.tiles, self.steps)
        for windows, first, second, row_range in itertools.product(self.windows, outer, inner, self.row_ranges):
            yield windows, *((second, first) if self.inputs_stay else (first, second)), row_range


Cut = tuple[int, int, int, bool]
"""Windows, tiles and steps of a block, and whether the inputs stay while output tiles change."""


@dataclasses.dataclass(frozen=True)
class _Load:
    """What all row ranges together ask of the machine for one pair of an output tile and an input step.

    Parameters
    ----------
    ranges : how many there are
    addresses, errors : of the input and error banks that the largest one takes
    array : cycles of the array for one kernel window
    inputs, outputs : rows that are loaded
    """

    ranges: int
    addresses: int
    errors: int
    array: int
    inputs: int
    outputs: int


def _ranges(low: int, high: int, size: int) -> tuple[Range, ...]:
    return tuple(itertools.pairwise([*range(low, high, size), high]))


def _sizes(count: int) -> list[int]:
    """Sizes that cut ``count`` into different numbers of blocks."""
    return sorted({ceil_div(count, blocks) for blocks in range(1, count + 1)})


def _row_groups(sweep: ConvMapping, config: Config, images: int) -> int:
    """Of so many images."""
    return ceil_div(images * sweep.upi, config.wpus)


def fitting(shape: GradientShape, config: Config, images: Range) -> list[int]:
    """Numbers of images whose rows fit on chip at a time."""
    every = range(1, images[1] - images[0] + 1)
    return [
        count for count in every if next(_cuts(shape, config, images, _row_groups(shape.sweep, config, count)), None) is not None
    ]


def choose_blocks(shape: GradientShape, config: Config, images: Range, chosen: int | None = None) -> Blocks:
    """The cheapest cut that fits: cycles of the array, of the input loads or of the error loads, whichever are most.

    ``chosen``: only row ranges of so many images' rows, one of :func:`fitting`.

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If one row group of one input step or one output tile does not fit the buffers.
    """
    sweep = shape.sweep
    sizes = _sizes(_row_groups(sweep, config, images[1] - images[0]))
    if chosen is not None:
        sizes = [_row_groups(sweep, config, chosen)]
    # Of equals one whose errors stay: inputs, which then come again and again, have all channels, errors have one.
    found = min(
        ((*cost, cut[-1], -size, cut) for size in sizes for cut, cost in _cuts(shape, config, images, size)), default=None
    )
    if found is None:
        least = row_ranges(sweep, config, images, 1)[0]
        raise ScheduleError(
            f"layer {shape.layer!r}: one row group takes {least.addresses(config)} addresses "
            f"of each input row bank, {shape.error_addresses(config, least)} of each error row bank "
            f"and {shape.beats} beats of weight gradients, "
            f"configuration {config.name!r} has {config.ibuf_depth} (ibuf_depth), {config.ebuf_depth} (ebuf_depth) "
            f"and {shape.room} of {config.dw_depth} (dw_depth): raise them or shrink the layer"
        )
    size, (windows, tiles, steps, stay) = -found[-2], found[-1]
    return Blocks(
        tuple(row_ranges(sweep, config, images, size)),
        _ranges(0, len(sweep.windows), windows),
        _ranges(0, shape.tiles, tiles),
        _ranges(0, shape.steps, steps),
        stay,
    )


def gradient_cycles(shape: GradientShape, config: Config, images: Range) -> int | None:
    """Cycles of the cheapest cut of :func:`choose_blocks`; ``None`` if nothing fits."""
    sizes = _sizes(_row_groups(shape.sweep, config, images[1] - images[0]))
    return min((cost[0] for size in sizes for _, cost in _cuts(shape, config, images, size)), default=None)


def _load(shape: GradientShape, config: Config, found: list[RowRange]) -> _Load:
    laps = shape.sweep.laps
    return _Load(
        ranges=len(found),
        addresses=max(row_range.addresses(config) for row_range in found),
        errors=max(shape.error_addresses(config, row_range) for row_range in found),
        array=laps * sum(max(row_range.cycles(config) // laps + _COMMAND_CYCLES, _LEAST_CYCLES) for row_range in found),
        inputs=sum(row_range.rows for row_range in found),
        outputs=sum(row_range.units for row_range in found),
    )


def _cuts(shape: GradientShape, config: Config, images: Range, size: int) -> Iterator[tuple[Cut, tuple[int, int]]]:
    """Blocks in row ranges of ``size`` row groups, and what they cost. They fit half of the input buffer, the other half being the
    backward convolutions', and their share of the error buffer, or, if they cannot be smaller, the whole of both."""
    found = row_ranges(shape.sweep, config, images, size)
    if any(row_range.conflicts(config) for row_range in found):
        return
    load, sets = _load(shape, config, found), 1 if shape.sweep.k1 else PE_TAPS
    for windows, tiles, steps in itertools.product({1, len(shape.sweep.windows)}, _sizes(shape.tiles), _sizes(shape.steps)):
        least = size == tiles == steps == 1
        inputs, errors = steps * load.addresses, ceil_div(tiles, sets) * load.errors
        if inputs > config.ibuf_depth // (1 if least else 2) or errors > config.ebuf_depth // (1 if least else shape.share):
            continue
        if load.ranges > 1 and windows * tiles * steps * shape.beats > shape.room:
            continue
        room = (2, 2) if shape.alone else (4, 3)
        beside = room[0] * inputs <= config.ibuf_depth and room[1] * errors <= config.ebuf_depth
        for stay in (False, True):
            cut = windows, tiles, steps, stay
            yield cut, _cycles(shape, config, load, cut, beside)


def _cycles(shape: GradientShape, config: Config, load: _Load, cut: Cut, beside: bool) -> tuple[int, int]:
    """Cycles of whichever is slowest, and beats of all loads. Loads are in the array's way unless the next blocks' operands fit
    ``beside`` the present ones."""
    windows, tiles, steps, stay = cut
    sweep, pairs = shape.sweep, shape.tiles * shape.steps * len(shape.sweep.windows)
    output_blocks, step_blocks = ceil_div(shape.tiles, tiles), ceil_div(shape.steps, steps)
    window_blocks = ceil_div(len(sweep.windows), windows)
    once, whole = load.ranges == 1, window_blocks == 1
    again = 1 if once and (stay or step_blocks == 1) and whole else output_blocks * window_blocks
    inputs = load.inputs * sweep.groups_in * sweep.xe * again
    again = 1 if once and (not stay or output_blocks == 1) and whole else step_blocks * window_blocks
    errors = load.outputs * shape.outputs * shape.error_entries * again
    loads = inputs + errors
    # The last row range has the updates, whose commands serve all steps of a block, of kernel 1 those that are drained together.
    together = min(steps, max(1, shape.room // DRAINED // shape.beats)) if sweep.k1 else steps
    updates = pairs * _UPDATE_CYCLES // together
    busy = max(pairs * load.array, updates + pairs * load.ranges * _HANDOUT_CYCLES)
    slowest = max(busy, channel_cycles(config, inputs, errors, channels=config.load_channels if shape.alone else _CHANNELS))
    slowest += pairs // together * _SET_CYCLES
    return slowest + (0 if beside else loads // 4), loads
