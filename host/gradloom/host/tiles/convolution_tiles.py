"""Which tiles a convolution is computed in: images and output groups, sets of them, and what they would cost."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import NoReturn

from gradloom.contracts.config import PE_TAPS
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import channel_cycles
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.sums import HALVES
from gradloom.host.compilation.windows import Shape
from gradloom.host.dram.layout import ceil_div, equal_ranges
from gradloom.host.dram.memory_map import Region
from gradloom.host.tiles.conv_mapping import ConvMapping, psum_words, row_banks_conflict
from gradloom.host.tiles.tile_inputs import TileInputs
from gradloom.host.tiles.tile_weights import TileWeights
from gradloom.models.network import INPUT

__all__ = ["ConvolutionTiles", "growing"]

Range = tuple[int, int]

_COMMAND_CYCLES = 10
"""What the commands of one more tile cost beside their data."""
_TURNAROUND = 800
"""From the last partial sum of a layer to the next one's first operand, about."""
_TOLERANCE = 1.005
"""Cost of smaller tiles that is paid for their shorter loads."""
_SWEEP_CYCLES = 100
"""Of a sweep of the A-Core beside its beats, about."""
_NORM_CYCLES = 13
"""Of a plane's first pass backward beside its beats."""
_PLANE_CYCLES = 7
"""For every channel of a group, in which the A-Core prepares a plane's normalisation before its sweep, about."""


def growing(low: int, high: int, most: int, least: int = 1) -> list[Range]:
    """Ranges of ``least`` to ``most``, each at most as large as all before it."""
    edges = [low]
    while edges[-1] < high:
        edges.append(min(high, edges[-1] + min(most, max(least, edges[-1] - low))))
    return list(itertools.pairwise(edges))


class ConvolutionTiles:
    """Tiles of images x output groups of one layer's forward or backward convolution.

    Parameters
    ----------
    region : :class:`~gradloom.host.dram.memory_map.Region`
        What is swept over: the layer's input, or its error dx.
    outputs : :class:`int`
        Output groups of this phase.
    transpose : :class:`bool`
        Backward: weight blocks are exchanged.
    beats : :class:`int`
        Of one image and output group in a sweep of the A-Core over the results.
    share : :class:`int`
        As in :class:`~gradloom.host.tiles.tile_inputs.TileInputs`.
    ordered : :class:`bool`
        One tile is finished before the next one begins.
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        layer: str,
        shape: Shape,
        sweep: ConvMapping,
        region: Region,
        outputs: int,
        *,
        transpose: bool,
        beats: int = 0,
        share: int = 2,
        ordered: bool = False,
    ) -> None:
        sweep = dataclasses.replace(sweep, shareable=builder.knobs.split_leftover_rows and sweep.shareable)
        self.builder, self.layer, self.shape, self.sweep = builder, layer, shape, sweep
        self.share, self.beats, self._ordered, self._transpose = share, beats, ordered, transpose
        self.outputs = outputs
        self.weights = TileWeights(builder, layer, shape, sweep, transpose=transpose)
        self.inputs = TileInputs(builder, layer, sweep, region, self.weights, share)
        self.steps = self.weights.steps
        self._begins = not transpose and builder.network.layer(layer).input == INPUT

    @property
    def fits(self) -> bool:
        """Whether partial sums and inputs of a whole image fit; else its rows are taken in tiles."""
        config = self.builder.config
        return self.sweep.addresses(config, 1) <= config.ibuf_depth and psum_words(self.sweep, config, 1) <= config.psum_depth

    def tiles(self) -> list[list[int]]:
        """Output groups of every tile, one for each tap that computes its own (kernel 1), else one. Backward a tile's weights lie
        one behind the other in DRAM."""
        if not self.sweep.k1:
            return [[m] for m in range(self.outputs)]
        count = ceil_div(self.outputs, PE_TAPS)
        if self._transpose:
            return [list(range(PE_TAPS * t, min(PE_TAPS * (t + 1), self.outputs))) for t in range(count)]
        return [list(range(t, self.outputs, count)) for t in range(count)]

    def image_tiles(self, allowed: Callable[[int], bool] | None = None) -> list[tuple[int, int]]:
        """Ranges of images that the array sweeps at once.

        Half of the partial sums holds them, and they are ``allowed``. Among these the smallest
        number of images that costs hardly more than the least: rows that the WPUs cannot share evenly cost array cycles, inputs
        that do not stay on chip are loaded for every set of tiles and weights for every range, and a layer in one piece begins when
        the one before it is finished; but small tiles are loaded sooner. Those of a first layer grow from one image on, as
        everything waits for the first. Few images that are left over join the range before where two ranges would not cost less.
        """
        builder, sweep, config = self.builder, self.sweep, self.builder.config
        low, high = builder.images
        rows = "one image takes {} addresses of each input row bank"
        builder.refuse(self.layer, ((rows, "ibuf_depth", sweep.addresses(config, 1), config.ibuf_depth),))
        key = f"{self.layer} {'BP' if self._transpose else 'FP'}"
        fitting = [
            images
            for images in range(1, min(high - low, config.max_planes) + 1)
            if (images == 1 or self.inputs.size(images) <= self.inputs.half)
            and (allowed is None or allowed(images))
            and psum_words(sweep, config, images) <= config.psum_depth
            and not row_banks_conflict(sweep, config, range(images * sweep.upi))
        ]
        if not fitting:
            self._refuse()
        costs = {images: self._cycles(high - low, images) for images in fitting}
        best = next(images for images, cost in costs.items() if cost <= min(costs.values()) * _TOLERANCE)
        if allowed and high - low in costs:
            # Nothing follows the logits range by range: the backward pass begins after the last image.
            best = high - low
        best = builder.chosen(key, fitting, best)
        if self._begins:
            return growing(low, high, best)
        first = low
        if self._follows and high - low > best > 1:
            low += 1
        edges = list(range(low, high, best))
        rest = high - edges[-1]
        if len(edges) > 1 and 2 * rest <= best and best + rest in costs:
            apart, together = self._cycles(best, best) + self._cycles(rest, rest), self._cycles(best + rest, best + rest)
            if together <= apart or (len(edges) > HALVES and self.inputs.resident(best + rest)):
                edges.pop()
        return list(itertools.pairwise([*range(first, low), *edges, high]))

    def bound(self) -> int:
        """Cycles of the batch in the tiles of :meth:`image_tiles`, as estimated there."""
        low, high = self.builder.images
        return self._cycles(high - low, max(last - first for first, last in self.image_tiles()))

    def cycles(self, images: tuple[int, int]) -> int:
        """Cycles of the array for all output groups of some images."""
        return len(self.tiles()) * self.steps * self._step_cycles(images[1] - images[0])

    def _by_parts(self, images: Range) -> bool:
        """Whether inputs that stay on chip can be taken as they are made: all tiles are one set, and their weights keep up."""
        count = images[1] - images[0]
        one = not self.sweep.k1 and self.inputs.resident(count) and len(self._sets(count)) == 1
        return one and self.weights.beats // self.weights.ways <= self.cycles(images)

    @property
    def _follows(self) -> bool:
        """Whether the tiles of the layer before come between its own."""
        return not self._transpose and self.builder.network.layer(self.layer).input == self.builder.beside_sets

    @property
    def _beside(self) -> bool:
        """Whether its tiles come between those of the next layer."""
        return not self._transpose and self.layer == self.builder.beside_sets

    def _sets(self, images: int, kept: int = 0) -> list[list[list[int]]]:
        """Output tiles whose inputs come once for all of them: as many as the partial sums hold."""
        tiles, config = self.tiles(), self.builder.config
        words = psum_words(self.sweep, config, images)
        depth = config.psum_depth - kept if words + kept <= config.psum_depth else config.psum_depth
        size = 1 if self._ordered else HALVES * (depth // words)
        return [tiles[low:high] for low, high in equal_ranges(0, len(tiles), size)]

    def _step_cycles(self, images: int) -> int:
        """Cycles of the array for a step of a tile."""
        return self.sweep.step_cycles(self.builder.config, images)

    def _chunks(self, images: int, kept: int = 0, *, begins: bool = False) -> list[Range]:
        """Steps whose inputs and weights come together in a set. The first one of some images ``begins`` with few."""
        return self.inputs.chunks(images, self._last_steps(images, kept), begins=begins)

    def _last_steps(self, images: int, kept: int = 0) -> int:
        """Steps of a set's last chunk, at least: the A-Core takes the tile before meanwhile."""
        steps = ceil_div(self._swept(images) + _SWEEP_CYCLES, self._step_cycles(images))
        # Fewer tiles beside those of another layer leave less time for a chunk's loads.
        return min(steps, max(1, self.inputs.turns // self.inputs.size(images) // 2)) if kept else steps

    def _cycles(self, batch: int, images: int) -> int:
        """Cycles of a batch in tiles of ``images``: the most of array, A-Core, input and weight loads, and what begins too late."""
        config, tiles = self.builder.config, len(self.tiles())
        weights = self.weights.beats
        total = 0
        for low in range(0, batch, images):
            count = min(images, batch - low)
            array, loads, waits = self.cycles((low, low + count)), self.inputs.beats(count), 0
            if not self.inputs.resident(count):
                sets = len(self._sets(count))
                first, last = self._chunks(count)[-1]
                waits = (tiles - sets) * max(0, self._swept(count) - (last - first) * self._step_cycles(count))
                loads += (sets - 1) * loads * (self.steps - (last - first)) // self.steps
            elif self.steps * self.inputs.size(count) > self.inputs.half:
                # Its inputs come when the range before is through.
                waits = loads // 2
            moved = channel_cycles(config, loads, weights)
            total += max(array, moved, count * self.beats * self.outputs) + waits + _COMMAND_CYCLES * tiles
        return total + (self.cycles((0, batch)) // tiles + _TURNAROUND if images >= batch > 1 else 0)

    def _refuse(self) -> None:
        config, words = self.builder.config, psum_words(self.sweep, self.builder.config, 1)
        if words > config.psum_depth:
            raise ScheduleError(
                f"layer {self.layer!r}: the partial sums of one image take {words} words of each bank, "
                f"configuration {config.name!r} has {config.psum_depth} (psum_depth): "
                f"raise psum_depth or shrink the layer"
            )
        self.refuse_banks()

    def refuse_banks(self) -> NoReturn:
        """:exc:`~gradloom.host.compilation.fit.ScheduleError`: no number of images avoids a conflict of banks."""
        config = self.builder.config
        raise ScheduleError(
            f"layer {self.layer!r}: the rows that {config.wpus} WPUs of configuration {config.name!r} "
            f"read together fall on one bank: "
            f"choose another stride or padding, or a configuration with one WPU"
        )

    def _swept(self, images: int) -> int:
        """Cycles from the end of a tile until the A-Core has taken its images, about; backward in one pass or two, as chosen.

        Where the stream buffers do not hold the results of two tiles, the second one's sweep waits for the Storers as long again.
        Half of that is enough: both the tile before a turn and the one behind it bridge it.
        """
        beats = images * self.beats
        stored = beats if 2 * beats > self.builder.config.abuf_depth else 0
        if self._transpose:
            return beats + stored // 2 + (beats + _NORM_CYCLES * images if self.builder.knobs.reserve_second_pass else 0)
        return beats + stored // 2 + images * _PLANE_CYCLES * self.builder.config.group
