"""Convolution tiles on the array: chunks of input groups, weights, windows, and where the sums lie."""

import copy
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import NoReturn

from gradloom.host.layout import ceil_div
from gradloom.host.memory import Region
from gradloom.host.pacing import Lane, Part, Piece, Work
from gradloom.host.tile_weights import TileWeights
from gradloom.host.tiling import Builder, Needs, ScheduleError
from gradloom.host.tokens import Access, Ring
from gradloom.host.windows import Shape, Sweep, psum_words, row_banks_conflict
from gradloom.rtl.config import PE_ROWS, PE_TAPS
from gradloom.rtl.isa import Dest, Opcode, XSource

__all__ = ["Convolution"]

Range = tuple[int, int]
Parts = tuple[Part, ...]
Tile = Generator[Piece, None, int]
"""A tile under way; in the end the half that holds its sums."""

_COMMAND_CYCLES = 10
"""What the commands of one more tile cost beside their data."""
_TURNAROUND = 800
"""From the last partial sum of a layer to the next one's first operand, about."""
_LOAD_BEATS = 256
"""Beats of a load of inputs, at least, where it can be divided."""
_TOLERANCE = 1.005
"""Cost of smaller tiles that is paid for their shorter loads."""
_BETWEEN = 80
"""Array cycles of a tile from one place to the next where tiles of gradients may come between, at least."""


class Convolution:
    """Forward or backward convolution of one layer in tiles of images x output groups.

    Parameters
    ----------
    inputs : :class:`~gradloom.host.memory.Region`
        What is swept over: the layer's input, or its error dx.
    outputs : :class:`int`
        Output groups of this phase.
    transpose : :class:`bool`
        Backward: weight blocks are exchanged.
    beats : :class:`int`
        Of one image and output group in a sweep of the A-Core over the results.
    share : :class:`int`
        Tiles whose inputs fit side by side, if the layer allows: 2, or 4 if two works run side by side.

    Attributes
    ----------
    half : :class:`int`
        Addresses that a tile may take so that the next one's inputs fit beside it.
    whole : :class:`int`
        Addresses that it may take at all.
    """

    def __init__(
        self,
        builder: Builder,
        layer: str,
        shape: Shape,
        sweep: Sweep,
        inputs: Region,
        outputs: int,
        *,
        transpose: bool,
        beats: int = 0,
        share: int = 2,
    ) -> None:
        self.builder, self.layer, self.shape, self.sweep = builder, layer, shape, sweep
        depth = builder.config.ibuf_depth
        self.share, self.beats = share, beats
        self.half, self.whole = (depth // 2, depth) if share == 2 else (depth * 3 // 8, depth * 3 // 4)
        if sweep.addresses(builder.config, 1) > self.whole:
            self.half, self.whole = depth // 2, depth
        self._region: Ring | None = None
        self._held = 0
        self._between = builder.between
        self.inputs, self.outputs = inputs, outputs
        self.weights = TileWeights(builder, layer, shape, sweep, transpose=transpose)
        self.steps = self.weights.steps

    @property
    def fits(self) -> bool:
        """Whether partial sums and inputs of a whole image fit; else its rows are taken in tiles."""
        config = self.builder.config
        return self.sweep.addresses(config, 1) <= config.ibuf_depth and psum_words(self.sweep, config, 1) <= config.psum_depth

    def strip(self, first: int, last: int, region: Ring) -> "Convolution":
        """The same for the units ``first`` to ``last`` of an image, in one piece, with inputs in a region of the input buffer."""
        found = copy.copy(self)
        found.sweep, found.whole, found._region = self.sweep.strip(first, last), region.size, region
        found._held, found._between = found.steps, lambda: False
        return found

    def tiles(self) -> list[list[int]]:
        """Output groups of every tile, one for each tap that computes its own (kernel 1), else one."""
        if not self.sweep.k1:
            return [[m] for m in range(self.outputs)]
        count = ceil_div(self.outputs, PE_TAPS)
        return [
            [m for m in (k * count + t for k in range(PE_TAPS)) if m < self.outputs] for t in range(count)
        ]

    def image_tiles(self, also: Needs = ()) -> list[tuple[int, int]]:
        """Ranges of images that the array sweeps at once.

        Half of the partial sums and of the buffers in ``also`` holds them. Among these the smallest number of images that
        costs hardly more than the least: rows that the WPUs cannot share evenly cost array cycles, inputs that do not
        stay on chip are loaded for every output group and weights for every range, and a layer in one piece begins when the one
        before it is finished; but small tiles are loaded sooner.
        """
        builder, sweep, config = self.builder, self.sweep, self.builder.config
        low, high = builder.images
        needs = (
            ("one image takes {} addresses of each input row bank", "ibuf_depth", sweep.addresses(config, 1), config.ibuf_depth),
            *also,
        )
        builder.refuse(self.layer, needs)
        fitting = [
            images
            for images in range(1, min(high - low, config.max_planes) + 1)
            if (images == 1 or sweep.addresses(config, images) <= self.half)
            and (images == 1 or all(unit * images <= size // 2 for _, _, unit, size in also))
            and psum_words(sweep, config, images) <= config.psum_depth
            and not row_banks_conflict(sweep, config, images)
        ]
        if not fitting:
            self._refuse()
        costs = {images: self._cycles(high - low, images) for images in fitting}
        best = next(images for images, cost in costs.items() if cost <= min(costs.values()) * _TOLERANCE)
        if also and high - low in costs:
            # Nothing follows the logits range by range: the backward pass begins after the last image.
            best = high - low
        edges = list(range(low, high, best))
        if len(edges) > 1 and 2 * (high - edges[-1]) <= best and best + high - edges[-1] in costs:
            edges.pop()
        return list(itertools.pairwise([*edges, high]))

    def bound(self) -> int:
        """Cycles of the batch in the tiles of :meth:`image_tiles`, as estimated there."""
        tiles = self.image_tiles()
        (low, high), (first, last) = self.builder.images, tiles[0]
        return self._cycles(high - low, last - first)

    def cycles(self, images: tuple[int, int]) -> int:
        """Cycles of the array for all output groups of some images."""
        sweep, count = self.sweep, images[1] - images[0]
        groups = ceil_div(count * sweep.upi, self.builder.config.wpus)
        return len(self.tiles()) * self.steps * len(sweep.windows) * groups * sweep.cols

    def works(
        self,
        tiles: Sequence[Range],
        needs: Callable[[Range], Parts],
        gives: Callable[[Range, list[int]], Parts],
        emit: Callable[[Range, list[int], int | None], Work],
    ) -> list[Work]:
        """The loads of inputs that stay on chip for all output groups, and everything else.

        Parameters
        ----------
        tiles : ranges of images, as from :meth:`image_tiles`
        needs : what a range needs; nothing is loaded before all of it is there, as its place on chip is freed by its end only
        gives : what is there once some output groups of a range are done
        emit : emits an output tile of a range; last argument: where its inputs are, or ``None``
        """
        loaded, places = self.builder.step(), dict[int, int]()
        return [
            self._loads(tiles, needs, loaded, places),
            self._computes(tiles, needs, gives, emit, loaded, places),
        ]

    def _size(self, images: Range) -> int:
        """Addresses that a range's inputs take on chip."""
        need = self.steps * self.sweep.addresses(self.builder.config, images[1] - images[0])
        return min(need, self.whole)

    def _loads(
        self, tiles: Sequence[Range], needs: Callable[[Range], Parts], loaded: Callable[[int], Part], places: dict[int, int]
    ) -> Work:
        pool = self.builder.pool["IBUF"]
        for n, images in enumerate(tiles):
            count = images[1] - images[0]
            held = self.held(count)
            if not held:
                continue
            beats = count * self.sweep.groups_in * self.sweep.rows * self.sweep.xe * held // self.steps
            yield Piece(
                Lane.LOAD, beats, needs(images), (loaded(n),), room=((pool, self._size(images)),), opens="tiles"
            )
            places[n] = pool.take(self._size(images))
            self.load_inputs(images, (0, held), places[n])

    def _computes(
        self,
        tiles: Sequence[Range],
        needs: Callable[[Range], Parts],
        gives: Callable[[Range, list[int]], Parts],
        emit: Callable[[Range, list[int], int | None], Work],
        loaded: Callable[[int], Part],
        places: dict[int, int],
    ) -> Work:
        outputs, pool = self.tiles(), self.builder.pool["IBUF"]
        for n, images in enumerate(tiles):
            count = images[1] - images[0]
            held, cycles = self.held(count), self.cycles(images) // len(outputs)
            lag = max(0, 2 * cycles - count * self.beats)
            first, end = self._chunks(count, held)[0]
            weights = (end - first) * self.weights.per_step * PE_TAPS * self.builder.config.block_beats
            for tile in outputs:
                last = tile is outputs[-1]
                yield Piece(
                    Lane.ARRAY,
                    cycles,
                    (*needs(images), loaded(n)) if held else needs(images),
                    gives(images, tile),
                    room=() if held else ((pool, self._size(images)),),
                    closes="tiles" if last and held else "",
                    lag=lag,
                    weights=weights,
                    sweeps=count * self.beats * len(tile),
                    target=self.builder.next_sums,
                )
                start = places[n] if held else pool.take(self._size(images))
                if tile is outputs[0] or not held:
                    kept = held * self.sweep.addresses(self.builder.config, count)
                    self._held, self._region = held, Ring(self._size(images) - kept, first=start + kept)
                yield from emit(images, tile, start if held else None)
                if last or not held:
                    pool.give_back(start)

    def _cycles(self, batch: int, images: int) -> int:
        """Cycles of a batch in tiles of ``images``: the most of array, A-Core, input and weight loads, and what begins too late."""
        config, sweep, tiles = self.builder.config, self.sweep, len(self.tiles())
        weights = self.weights.beats
        total = 0
        for low in range(0, batch, images):
            count = min(images, batch - low)
            array = self.cycles((low, low + count))
            held = self.held(count)
            loads = count * sweep.groups_in * sweep.rows * sweep.xe * (held + (self.steps - held) * tiles) // self.steps
            half = self.steps * sweep.addresses(config, count) <= self.half
            moved = max(loads, weights) if config.load_channels >= 3 else loads + weights
            total += max(array, moved, count * self.beats * self.outputs) + (0 if half else loads // 2) + _COMMAND_CYCLES * tiles
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
        """:exc:`~gradloom.host.tiling.ScheduleError`: no number of images avoids a conflict of banks."""
        config = self.builder.config
        raise ScheduleError(
            f"layer {self.layer!r}: the rows that {config.wpus} WPUs of configuration {config.name!r} "
            f"read together fall on one bank: "
            f"choose another stride or padding, or a configuration with one WPU"
        )

    def resident(self, images: int) -> bool:
        """Whether all input groups of a tile fit at once."""
        return self.steps * self.sweep.addresses(self.builder.config, images) <= self.whole

    def held(self, images: int) -> int:
        """Steps whose inputs stay on chip for all output groups: all, or as many as leave room for two more, which take turns."""
        return self.steps if self.resident(images) else max(0, self.whole // self.sweep.addresses(self.builder.config, images) - 2)

    def _chunks(self, images: int, held: int) -> list[tuple[int, int]]:
        config = self.builder.config
        if self.weights.per_step + 1 > config.wbuf_depth:
            raise ScheduleError(
                f"layer {self.layer!r}: one weight tile takes {self.weights.per_step + 1} blocks of each bank, "
                f"configuration {config.name!r} has {config.wbuf_depth} (wbuf_depth): "
                f"raise wbuf_depth or shrink the kernel"
            )
        limit = max(1, (config.wbuf_depth // 2 - 1) // self.weights.per_step)
        size = self.sweep.addresses(config, images)
        rest = min(limit, max(1, (self.whole - held * size) // 2 // size))
        edges = [0]
        for first, last, most in ((0, held, limit), (held, self.steps, rest)):
            count = ceil_div(last - first, most)
            edges += [first + (last - first) * i // count for i in range(1, count + 1)]
        return list(itertools.pairwise(edges))

    def load_inputs(self, images: tuple[int, int], chunk: tuple[int, int], addr: int) -> None:
        """Rows of the input groups of a chunk of steps to the addresses from ``addr`` on."""
        builder, sweep, region = self.builder, self.sweep, self.inputs
        count = images[1] - images[0]
        step = sweep.addresses(builder.config, count)
        # The groups of the layer before are finished one after the other, so some can be loaded before the last ones are there.
        size = max(1, _LOAD_BEATS // (count * sweep.rows * sweep.xe))
        places = [(0, low, min(low + size, chunk[1]), addr + (low - chunk[0]) * step) for low in range(*chunk, size)]
        if sweep.k1:
            places = [(row, *self.weights.row_groups(row, chunk), addr) for row in range(PE_ROWS)]
        for bank, first, last, start in places:
            if first < last:
                builder.load(
                    Dest.IBUF,
                    region,
                    [(images, (first, last))],
                    region.at(images[0], first) + sweep.row0 * sweep.xe * builder.config.beat_bytes,
                    n0=sweep.rows * sweep.xe,
                    n1=count,
                    stride1=region.outer_bytes,
                    n2=last - first,
                    stride2=region.unit,
                    addr=start,
                    length=(last - first) * step,
                    bank0=bank,
                    bstep=PE_ROWS if sweep.k1 else 1,
                    xe=sweep.xe,
                    xb=sweep.xe,
                    ostep=step,
                )

    def compute(
        self,
        images: tuple[int, int],
        outputs: list[int],
        inputs: int | None,
        *,
        norms: bool = False,
        half: int | None = None,
        pbase: int = 0,
        further: bool = False,
    ) -> Tile:
        """All CONV commands of a tile, with pieces where tiles of gradients may come between them.

        Parameters
        ----------
        inputs : :class:`int`, optional
            Address of inputs that stay on chip (:meth:`held`).
        norms : :class:`bool`
            The last command gathers the sum of magnitudes of every plane.
        half, pbase : :class:`int`
            Where the sums go; by default the next half, from its first address on.
        further : :class:`bool`
            The sums of magnitudes go on with those of the commands before.

        Returns
        -------
        :class:`int`
            The half that holds the sums.
        """
        builder, sweep = self.builder, self.sweep
        count = images[1] - images[0]
        step = sweep.addresses(builder.config, count)
        half, acc = builder.next_half() if half is None else half, 0
        held = 0 if inputs is None else self._held
        chunks = self._chunks(count, held)
        for chunk in chunks:
            size = chunk[1] - chunk[0]
            if inputs is not None and chunk[1] <= held:
                base = inputs + chunk[0] * step
            else:
                assert self._region is not None
                base = self._region.take(size * step)
                self.load_inputs(images, chunk, base)
            cycles = self.cycles(images) // (self.steps * len(self.tiles()) * len(sweep.windows))
            weights = self.weights.load(outputs, chunk, size * cycles * len(sweep.windows))
            reads = Access("WBUF", ((weights - 1, weights + size * self.weights.per_step),))
            for window, part in itertools.product(range(len(sweep.windows)), self._divided(chunk, cycles)):
                if acc and self._between():
                    yield Piece(Lane.ARRAY, (part[1] - part[0]) * cycles, inside=True)
                first = base + (part[0] - chunk[0]) * step
                fields = sweep.row_fields(builder.config, window, first, count) | self.weights.fields(window, chunk, part, weights)
                fields |= {"half": half, "acc": acc, "pbase": pbase, "steps": part[1] - part[0], "istep": step}
                if sweep.k1:
                    fields["nk"] = len(outputs)
                if norms and part[1] == chunks[-1][1] and window == len(sweep.windows) - 1:
                    fields |= {"sums": 1, "sacc": int(further)}
                builder.recorder.emit(
                    Opcode.CONV,
                    fields,
                    reads=[Access("IBUF", ((base, base + size * step),)), reads],
                    writes=[Access(f"PSUM{half}", ((0, 1),))],
                )
                acc = 1
        return half

    def _divided(self, chunk: Range, cycles: int) -> list[Range]:
        """Parts of a chunk of so many array cycles a step: one, unless something may come between them."""
        size = max(1, ceil_div(_BETWEEN, cycles)) if self._between() else chunk[1] - chunk[0]
        edges = [*range(*chunk, size), chunk[1]]
        return list(itertools.pairwise(edges))

    def psum_fields(self, half: int, tap: int, slot: int) -> dict[str, int]:
        """Fields of RUN that say where the sums of a tile's output group lie, from the tile's image number ``slot`` on."""
        return self.place_fields(half, tap, slot * self.sweep.upi) | {"ps0": slot}

    def place_fields(self, half: int, tap: int, unit: int) -> dict[str, int]:
        """The same from a unit of the tile on."""
        sweep, wpus = self.sweep, self.builder.config.wpus
        return {
            "xsrc": int(XSource.PSUM),
            "half": half,
            "layout": int(sweep.layout),
            "pk": tap if sweep.k1 else 0,
            "pj": sweep.cols,
            "psr": sweep.psr,
            "psc": sweep.psc,
            "pw0": unit % wpus,
            "prg0": unit // wpus,
        }
