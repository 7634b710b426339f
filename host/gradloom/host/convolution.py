"""Convolution tiles on the array: which images and output groups, commands in order, and where the sums lie."""

import copy
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import NoReturn

from gradloom.host.layout import ceil_div
from gradloom.host.memory import Region
from gradloom.host.pacing import Lane, Part, Piece, Work
from gradloom.host.tile_inputs import TileInputs
from gradloom.host.tile_weights import TileWeights
from gradloom.host.tiling import Builder, Needs, ScheduleError, channel_cycles
from gradloom.host.tokens import Access, Ring, row_access
from gradloom.host.windows import Shape, Sweep, psum_words, row_banks_conflict
from gradloom.models.network import INPUT
from gradloom.rtl.config import PE_TAPS
from gradloom.rtl.isa import Opcode, XSource

__all__ = ["HALVES", "Convolution"]

Range = tuple[int, int]
Parts = tuple[Part, ...]
Tile = Generator[Piece, None, int]
"""A tile under way; in the end the half that holds its sums."""

_COMMAND_CYCLES = 10
"""What the commands of one more tile cost beside their data."""
_TURNAROUND = 800
"""From the last partial sum of a layer to the next one's first operand, about."""
_TOLERANCE = 1.005
"""Cost of smaller tiles that is paid for their shorter loads."""
_SWEEP_CYCLES = 100
"""Of a sweep of the A-Core beside its beats, about."""
_PLANE_CYCLES = 7
"""For every channel of a group, in which the A-Core prepares a plane's normalisation before its sweep, about."""
HALVES = 2
"""Of the partial sums: tiles that can be under way at once."""
_TURN = Piece(Lane.ARRAY, 0)
"""Where one of two tiles that share their inputs gives way to the other."""
_BETWEEN = 80
"""Array cycles of a tile from one place to the next where tiles of gradients may come between, at least."""


def _growing(low: int, high: int, most: int) -> list[Range]:
    """Ranges of at most ``most``, each at most as large as all before it."""
    edges = [low]
    while edges[-1] < high:
        edges.append(min(high, edges[-1] + min(most, max(1, edges[-1] - low))))
    return list(itertools.pairwise(edges))


class Convolution:
    """Forward or backward convolution of one layer in tiles of images x output groups.

    Parameters
    ----------
    region : :class:`~gradloom.host.memory.Region`
        What is swept over: the layer's input, or its error dx.
    outputs : :class:`int`
        Output groups of this phase.
    transpose : :class:`bool`
        Backward: weight blocks are exchanged.
    beats : :class:`int`
        Of one image and output group in a sweep of the A-Core over the results.
    share : :class:`int`
        As in :class:`~gradloom.host.tile_inputs.TileInputs`.
    ordered : :class:`bool`
        One tile is finished before the next one begins.
    """

    def __init__(
        self,
        builder: Builder,
        layer: str,
        shape: Shape,
        sweep: Sweep,
        region: Region,
        outputs: int,
        *,
        transpose: bool,
        beats: int = 0,
        share: int = 2,
        ordered: bool = False,
    ) -> None:
        self.builder, self.layer, self.shape, self.sweep = builder, layer, shape, sweep
        self.share, self.beats, self._ordered, self._transpose = share, beats, ordered, transpose
        self._region: Ring | None = None
        self._held = 0
        self._pair: dict[Range, int] | None = None
        self._between = builder.between
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

    def strip(self, first: int, last: int, region: Ring) -> "Convolution":
        """The same for the units ``first`` to ``last`` of an image, in one piece, with inputs in a region of the input buffer."""
        found = copy.copy(self)
        found.sweep, found._region = self.sweep.strip(first, last), region
        found.inputs = self.inputs.of(found.sweep, region.size)
        found._held, found._between, found._pair = found.steps, lambda: False, None
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

        Half of the partial sums and the whole of the buffers in ``also`` hold them. Among these the smallest number of images that
        costs hardly more than the least: rows that the WPUs cannot share evenly cost array cycles, inputs that do not
        stay on chip are loaded for every output group and weights for every range, and a layer in one piece begins when the one
        before it is finished; but small tiles are loaded sooner. Those of a first layer grow from one image on, as everything
        waits for the first.
        """
        builder, sweep, config = self.builder, self.sweep, self.builder.config
        low, high = builder.images
        needs = (
            ("one image takes {} addresses of each input row bank", "ibuf_depth", sweep.addresses(config, 1), config.ibuf_depth),
            *also,
        )
        builder.refuse(self.layer, needs)
        key = f"{self.layer} {'BP' if self._transpose else 'FP'}"
        fitting = [
            images
            for images in range(1, min(high - low, config.max_planes) + 1)
            if (images == 1 or self.inputs.size(images) <= self.inputs.half)
            and all(unit * images <= size for _, _, unit, size in also)
            and psum_words(sweep, config, images) <= config.psum_depth
            and not row_banks_conflict(sweep, config, range(images * sweep.upi))
        ]
        if not fitting:
            self._refuse()
        costs = {images: self._cycles(high - low, images) for images in fitting}
        best = next(images for images, cost in costs.items() if cost <= min(costs.values()) * _TOLERANCE)
        if also and high - low in costs:
            # Nothing follows the logits range by range: the backward pass begins after the last image.
            best = high - low
        best = builder.chosen(key, fitting, best)
        if self._begins:
            return _growing(low, high, best)
        edges = list(range(low, high, best))
        if len(edges) > 1 and 2 * (high - edges[-1]) <= best and best + high - edges[-1] in costs:
            edges.pop()
        return list(itertools.pairwise([*edges, high]))

    def bound(self) -> int:
        """Cycles of the batch in the tiles of :meth:`image_tiles`, as estimated there."""
        low, high = self.builder.images
        return self._cycles(high - low, max(last - first for first, last in self.image_tiles()))

    def cycles(self, images: tuple[int, int]) -> int:
        """Cycles of the array for all output groups of some images."""
        sweep, count = self.sweep, images[1] - images[0]
        return len(self.tiles()) * self.steps * len(sweep.windows) * sweep.cycles(self.builder.config, count)

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

    def _loads(
        self, tiles: Sequence[Range], needs: Callable[[Range], Parts], loaded: Callable[[int], Part], places: dict[int, int]
    ) -> Work:
        pool = self.builder.pool["IBUF"]
        before: Parts = ()
        for n, images in enumerate(tiles):
            count = images[1] - images[0]
            held = self.inputs.held(count)
            if not held:
                # Its tiles take their room one by one: those behind must not be there first.
                before = (loaded(n),)
                continue
            beats = self.inputs.beats(count) * held // self.steps
            yield Piece(
                Lane.LOAD, beats, (*needs(images), *before), (loaded(n),), room=((pool, self.inputs.room(count)),), opens="tiles"
            )
            places[n] = pool.take(self.inputs.room(count))
            self.inputs.load(images, (0, held), places[n], self.cycles(images))

    def _computes(
        self,
        tiles: Sequence[Range],
        needs: Callable[[Range], Parts],
        gives: Callable[[Range, list[int]], Parts],
        emit: Callable[[Range, list[int], int | None], Work],
        loaded: Callable[[int], Part],
        places: dict[int, int],
    ) -> Work:
        pool = self.builder.pool["IBUF"]
        for n, images in enumerate(tiles):
            count = images[1] - images[0]
            outputs = self._together(count)
            held, cycles = self.inputs.held(count), self.cycles(images) // len(self.tiles())
            for together in outputs:
                weights = self.weights.waited(together[0], self.inputs.chunks(count, held)[0])
                last = together is outputs[-1]
                yield Piece(
                    Lane.ARRAY,
                    len(together) * cycles,
                    (*needs(images), loaded(n)) if held else needs(images),
                    (*(part for tile in together for part in gives(images, tile)), *((loaded(n),) if last and not held else ())),
                    room=() if held else ((pool, self.inputs.room(count)),),
                    closes="tiles" if last and held else "",
                    lag=max(0, 2 * cycles - count * self.beats),
                    weights=weights,
                    sweeps=count * self.beats * sum(map(len, together)),
                    target=self.builder.next_sums,
                )
                start = places[n] if held else pool.take(self.inputs.room(count))
                if together is outputs[0] or not held:
                    kept = held * self.inputs.size(count)
                    self._held, self._region = held, Ring(self.inputs.room(count) - kept, first=start + kept)
                self._pair = {} if len(together) > 1 else None
                yield from self._in_turn([emit(images, tile, start if held else None) for tile in together])
                if last or not held:
                    pool.give_back(start)

    def _together(self, images: int) -> list[list[list[int]]]:
        """Output tiles that are computed together: two, one in each half of the partial sums, where inputs come again for each."""
        tiles, size = self.tiles(), 1 if self._ordered or self.inputs.resident(images) else HALVES
        return [tiles[low : low + size] for low in range(0, len(tiles), size)]

    @staticmethod
    def _in_turn(works: list[Work]) -> Work:
        """Works side by side, each up to its next turn."""
        while works:
            for work in list(works):
                for piece in work:
                    if piece is _TURN:
                        break
                    yield piece
                else:
                    works.remove(work)

    def _cycles(self, batch: int, images: int) -> int:
        """Cycles of a batch in tiles of ``images``: the most of array, A-Core, input and weight loads, and what begins too late."""
        config, tiles = self.builder.config, len(self.tiles())
        weights = self.weights.beats
        total = 0
        for low in range(0, batch, images):
            count = min(images, batch - low)
            array = self.cycles((low, low + count))
            held = self.inputs.held(count)
            again = len(self._together(count))
            loads = self.inputs.beats(count) * (held + (self.steps - held) * again) // self.steps
            half = self.steps * self.inputs.size(count) <= self.inputs.half
            moved = channel_cycles(config, loads, weights)
            waits = 0 if half else self._waits(loads, held)
            total += max(array, moved, count * self.beats * self.outputs) + waits + _COMMAND_CYCLES * tiles
        return total + (self.cycles((0, batch)) // tiles + _TURNAROUND if images >= batch > 1 else 0)

    def _waits(self, loads: int, held: int) -> int:
        """Cycles that the array waits for loads, about, if the next range's inputs do not fit beside a range's.

        Inputs that take turns are loaded all the time, those that stay only when the range before is through. Where two works run
        side by side, the layer after waits for ranges that are long.
        """
        if held == self.steps:
            return loads // 2
        return loads // (8 if self.share == 2 else 3)

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
            Address of inputs that stay on chip (:meth:`~gradloom.host.tile_inputs.TileInputs.held`).
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
        step = self.inputs.size(count)
        half, acc = builder.next_half() if half is None else half, 0
        held = 0 if inputs is None else self._held
        chunks, done, least = self.inputs.chunks(count, held), 0, self._swept(count) + _SWEEP_CYCLES
        most = max(last - first for first, last in chunks) * step
        slots = self._region.size // most if self._region else 0
        for chunk in chunks:
            size = chunk[1] - chunk[0]
            cycles = self.cycles(images) // (self.steps * len(self.tiles()) * len(sweep.windows))
            if self._pair and chunk not in self._pair and chunk[1] > held and len(self._pair) >= slots:
                # The other tile has not used yet what is there.
                yield _TURN
            if inputs is not None and chunk[1] <= held:
                base = inputs + chunk[0] * step
            elif self._pair and chunk in self._pair:
                base = self._pair.pop(chunk)
            else:
                assert self._region is not None
                base = self._region.take(size * step if self._pair is None else most)
                self.inputs.load(images, chunk, base, size * cycles * len(sweep.windows) * (1 if self._pair is None else HALVES))
                if self._pair is not None:
                    self._pair[chunk] = base
            weights = self.weights.load(outputs, chunk, size * cycles * len(sweep.windows))
            reads = Access("WBUF", ((weights - 1, weights + size * self.weights.per_step),))
            for window, part in itertools.product(range(len(sweep.windows)), self._divided(chunk, cycles)):
                if acc and self._open(cycles):
                    yield Piece(Lane.ARRAY, (part[1] - part[0]) * cycles, inside=True)
                first = base + (part[0] - chunk[0]) * step
                fields = sweep.row_fields(builder.config, window, first, count) | self.weights.fields(window, chunk, part, weights)
                fields |= {"half": half, "acc": acc, "pbase": pbase, "steps": part[1] - part[0], "istep": step}
                if sweep.k1:
                    fields["nk"] = len(outputs)
                if norms and chunk is chunks[-1] and part[1] == chunk[1] and window == len(sweep.windows) - 1:
                    fields |= {"sums": 1, "sacc": int(further)}
                builder.recorder.emit(
                    Opcode.CONV,
                    fields,
                    reads=[row_access("IBUF", base, size * step), reads],
                    writes=[Access(f"PSUM{half}", ((0, 1),))],
                )
                acc = 1
            done += size * cycles * len(sweep.windows)
            # Until the first turn, and after the last one, the A-Core takes the other half's sums.
            if self._pair is not None and least <= done <= self.steps * cycles * len(sweep.windows) - least:
                yield _TURN
        return half

    def _swept(self, images: int) -> int:
        """Cycles from the end of a tile until the A-Core has taken its images, about.

        Where the stream buffers do not hold the results of two tiles, the second one's sweep waits for the Storers as long again.
        Half of that is enough: both the tile before a turn and the one behind it bridge it.
        """
        beats = images * self.beats
        stored = beats if 2 * beats > self.builder.config.abuf_depth else 0
        return beats + stored // 2 + (0 if self._transpose else images * _PLANE_CYCLES * self.builder.config.group)

    def _open(self, cycles: int) -> bool:
        """Whether gradients may come between commands of so many cycles a step: not where weights need both of their channels, as
        the gradients' errors come through one of them."""
        config = self.builder.config
        beats = self.weights.per_step * PE_TAPS * config.block_beats
        shared = config.load_channels >= 3 and beats > cycles * len(self.sweep.windows)
        return not shared and self._between()

    def _divided(self, chunk: Range, cycles: int) -> list[Range]:
        """Parts of a chunk of so many array cycles a step: one, unless something may come between them."""
        size = max(1, ceil_div(_BETWEEN, cycles)) if self._open(cycles) else chunk[1] - chunk[0]
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
