"""Convolution tiles on the array: which images and output groups, commands in order, and where the sums lie."""

import copy
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import NoReturn

from gradloom.host.layer_sizes import channel_cycles
from gradloom.host.layout import ceil_div, equal_ranges
from gradloom.host.memory import Region
from gradloom.host.pacing import Lane, Part, Piece, Work
from gradloom.host.tile_inputs import TileInputs
from gradloom.host.tile_sets import HALVES, TURN, Sums, TileSet, in_turn, norm_access, port_access
from gradloom.host.tile_weights import TileWeights
from gradloom.host.tiling import Builder, Needs, ScheduleError
from gradloom.host.tokens import Access, Ring, row_access
from gradloom.host.windows import Shape, Sweep, psum_words, row_banks_conflict
from gradloom.models.network import INPUT
from gradloom.rtl.config import PE_TAPS
from gradloom.rtl.isa import Opcode, XSource

__all__ = ["Convolution"]

Range = tuple[int, int]
Parts = tuple[Part, ...]
Tile = Generator[Piece, None, Sums]
"""A tile under way; in the end where its sums lie."""

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
        self._set: TileSet | None = None
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
        found._between, found._set = lambda: False, None
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
        stay on chip are loaded for every set of tiles and weights for every range, and a layer in one piece begins when the one
        before it is finished; but small tiles are loaded sooner. Those of a first layer grow from one image on, as everything
        waits for the first. Few images that are left over join the range before where two ranges would not cost less.
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
        rest = high - edges[-1]
        if len(edges) > 1 and 2 * rest <= best and best + rest in costs:
            apart, together = self._cycles(best, best) + self._cycles(rest, rest), self._cycles(best + rest, best + rest)
            if together <= apart or (len(edges) > HALVES and self.inputs.resident(best + rest)):
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
            if not self.inputs.resident(count):
                # Its sets take their room themselves: those behind must not be there first.
                before = (loaded(n),)
                continue
            beats, room = self.inputs.beats(count), self.steps * self.inputs.size(count)
            yield Piece(Lane.LOAD, beats, (*needs(images), *before), (loaded(n),), room=((pool, room),), opens="tiles")
            places[n] = pool.take(room)
            self.inputs.load(images, (0, self.steps), places[n], self.cycles(images))

    def _computes(
        self,
        tiles: Sequence[Range],
        needs: Callable[[Range], Parts],
        gives: Callable[[Range, list[int]], Parts],
        emit: Callable[[Range, list[int], int | None], Work],
        loaded: Callable[[int], Part],
        places: dict[int, int],
    ) -> Work:
        pool, outputs = self.builder.pool["IBUF"], self.tiles()
        for n, images in enumerate(tiles):
            count = images[1] - images[0]
            if not self.inputs.resident(count):
                yield from self._by_sets(images, needs(images), loaded(n), gives, emit)
                continue
            for tile in outputs:
                last = tile is outputs[-1]
                yield self._piece(tile, images, (*needs(images), loaded(n)), gives(images, tile), last=last)
                yield from emit(images, tile, places[n])
                if last:
                    pool.give_back(places[n])

    def _piece(self, tile: list[int], images: Range, needs: Parts, gives: Parts, *, last: bool) -> Piece:
        """A tile with all its commands; the ``last`` one that uses the images' inputs."""
        count = images[1] - images[0]
        cycles, swept = self.cycles(images) // len(self.tiles()), count * self.beats
        weights = self.weights.waited(tile, self.inputs.chunks(count)[0])
        return Piece(
            Lane.ARRAY,
            cycles,
            needs,
            gives,
            closes="tiles" if last else "",
            lag=max(0, 2 * cycles - swept),
            weights=weights,
            sweeps=swept * len(tile),
            target=self.builder.next_sums,
        )

    def _by_sets(
        self,
        images: Range,
        needs: Parts,
        loaded: Part,
        gives: Callable[[Range, list[int]], Parts],
        emit: Callable[[Range, list[int], int | None], Work],
    ) -> Work:
        """All tiles of some images whose inputs come chunk by chunk, set by set."""
        pool, count = self.builder.pool["IBUF"], images[1] - images[0]
        room, sets = self.inputs.region(count, self._last_steps(count)), self._sets(count)
        words = psum_words(self.sweep, self.builder.config, count)
        start = -1
        for number, tiles in enumerate(sets):
            begins, ends = number == 0, number == len(sets) - 1
            chunks = self._chunks(count, begins=begins)
            if number % 2:
                chunks.reverse()
            chunk = chunks[0]
            yield Piece(
                Lane.ARRAY,
                (chunk[1] - chunk[0]) * self._step_cycles(count),
                needs,
                (loaded,) if ends else (),
                room=((pool, room),) if begins else (),
                silent=True,
                weights=self.weights.waited(tiles[0], chunk),
                target=self.builder.next_sums,
            )
            if begins:
                start = pool.take(room)
                if self._region is None or (self._region.first, self._region.size) != (start, room):
                    self._region = Ring(room, first=start)
            there = self._set.there if self._set and not begins else {}
            self._set = TileSet(self.builder, words, len(tiles), chunks, there)
            yield from in_turn([(emit(images, tile, None), gives(images, tile)) for tile in tiles])
        self._set = None
        pool.give_back(start)

    def _sets(self, images: int) -> list[list[list[int]]]:
        """Output tiles whose inputs come once for all of them: as many as the partial sums hold."""
        tiles, config = self.tiles(), self.builder.config
        size = 1 if self._ordered else HALVES * (config.psum_depth // psum_words(self.sweep, config, images))
        return [tiles[low:high] for low, high in equal_ranges(0, len(tiles), size)]

    def _step_cycles(self, images: int) -> int:
        """Cycles of the array for a step of a tile."""
        return len(self.sweep.windows) * self.sweep.cycles(self.builder.config, images)

    def _chunks(self, images: int, *, begins: bool = False) -> list[Range]:
        """Steps whose inputs and weights come together in a set. The first one of some images ``begins`` with few."""
        return self.inputs.chunks(images, self._last_steps(images), begins=begins)

    def _last_steps(self, images: int) -> int:
        """Steps of a set's last chunk, at least: the A-Core takes the tile before meanwhile."""
        return ceil_div(self._swept(images) + _SWEEP_CYCLES, self._step_cycles(images))

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
        sums: Sums | None = None,
        offset: int = 0,
        further: bool = False,
        prepare: Callable[[], None] = lambda: None,
    ) -> Tile:
        """All CONV commands of a tile, with pieces where tiles of gradients may come between them.

        Parameters
        ----------
        inputs : :class:`int`, optional
            Address of inputs that stay on chip (:meth:`~gradloom.host.tile_inputs.TileInputs.resident`).
        norms : :class:`bool`
            The last command gathers the sum of magnitudes of every plane.
        sums : :class:`~gradloom.host.tile_sets.Sums`
            Where the sums go; by default the next half, or where the tile's set says.
        offset : :class:`int`
            From which of their addresses on.
        further : :class:`bool`
            The sums of magnitudes go on with those of the commands before.
        prepare : callable
            Emits what the A-Core needs beside the sums, before the array's last commands.

        Returns
        -------
        :class:`~gradloom.host.tile_sets.Sums`
        """
        builder, sweep, tiles = self.builder, self.sweep, self._set
        count = images[1] - images[0]
        step, cycles, acc = self.inputs.size(count), sweep.cycles(builder.config, count), 0
        if sums is None:
            sums = tiles.place() if tiles else Sums(builder.next_half(), 0, psum_words(sweep, builder.config, count))
        chunks = tiles.chunks if tiles else self.inputs.chunks(count, int(inputs is None))
        for chunk in chunks:
            size, last = chunk[1] - chunk[0], chunk is chunks[-1]
            if tiles and tiles.begun:
                yield self._further(outputs, images, chunk, sums, last=last)
            elif tiles:
                tiles.begun = True
            if last:
                prepare()
            runs = self._runs(images, chunk, inputs)
            weights = self.weights.load(outputs, chunk, size * cycles * len(sweep.windows))
            reads = Access("WBUF", ((weights - 1, weights + size * self.weights.per_step),))
            commands = [
                (window, part, base + (part[0] - run[0]) * step)
                for window in range(len(sweep.windows))
                for run, base in runs
                for part in self._divided(run, cycles)
            ]
            for number, (window, part, base) in enumerate(commands):
                if acc and number and self._open(cycles):
                    yield Piece(Lane.ARRAY, (part[1] - part[0]) * cycles, inside=True)
                fields = sweep.row_fields(builder.config, window, base, count) | self.weights.fields(window, chunk, part, weights)
                fields |= {"half": sums.half, "acc": acc, "pbase": sums.base + offset, "steps": part[1] - part[0], "istep": step}
                writes = sums.written(added=bool(acc) or part[1] - part[0] > 1)
                if sweep.k1:
                    fields["nk"] = len(outputs)
                if norms and last and number == len(commands) - 1:
                    fields |= {"sums": 1, "sacc": int(further)}
                    writes.append(norm_access(sums.half))
                inside = row_access("IBUF", base, (part[1] - part[0]) * step)
                builder.recorder.emit(Opcode.CONV, fields, reads=[inside, reads], writes=writes)
                acc = 1
            if tiles and not last:
                yield TURN
        return sums

    def _runs(self, images: Range, chunk: Range, inputs: int | None) -> list[tuple[Range, int]]:
        """Steps of a chunk whose inputs lie behind each other, and their first address; they are loaded unless they are there."""
        count, tiles = images[1] - images[0], self._set
        step, windows = self.inputs.size(count), (chunk[1] - chunk[0]) * self._step_cycles(count)
        if inputs is not None:
            return [(chunk, inputs + chunk[0] * step)]
        assert self._region is not None
        if not tiles:
            base = self._region.take((chunk[1] - chunk[0]) * step)
            self.inputs.load(images, chunk, base, windows)
            return [(chunk, base)]
        if chunk[0] not in tiles.there:
            tiles.there = {number: self._region.take(step) for number in range(*chunk)}
            for run, base in tiles.runs(chunk, step):
                self.inputs.load(images, run, base, windows * tiles.size * (run[1] - run[0]) // (chunk[1] - chunk[0]))
        return tiles.runs(chunk, step)

    def _further(self, outputs: list[int], images: Range, chunk: Range, sums: Sums, *, last: bool) -> Piece:
        """A chunk of a set that is under way. The A-Core gets nothing to do but by the last one."""
        count = images[1] - images[0]
        cycles, swept = (chunk[1] - chunk[0]) * self._step_cycles(count), count * self.beats
        if not last:
            return Piece(Lane.ARRAY, cycles, inside=True, silent=True)
        return Piece(
            Lane.ARRAY,
            cycles,
            inside=True,
            lag=max(0, 2 * cycles - swept),
            sweeps=swept * len(outputs),
            target=lambda: port_access(sums.half),
        )

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

    def psum_fields(self, sums: Sums, tap: int, slot: int) -> dict[str, int]:
        """Fields of RUN that say where the sums of a tile's output group lie, from the tile's image number ``slot`` on."""
        return self.place_fields(sums, tap, slot * self.sweep.upi) | {"ps0": slot}

    def place_fields(self, sums: Sums, tap: int, unit: int) -> dict[str, int]:
        """The same from a unit of the tile on."""
        sweep, wpus = self.sweep, self.builder.config.wpus
        return {
            "xsrc": int(XSource.PSUM),
            "half": sums.half,
            "pbase": sums.base,
            "layout": int(sweep.layout),
            "pk": tap if sweep.k1 else 0,
            "pj": sweep.cols,
            "psr": sweep.psr,
            "psc": sweep.psc,
            "pw0": unit % wpus,
            "prg0": unit // wpus,
        }
