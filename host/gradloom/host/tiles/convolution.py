"""A convolution on the array: the works of its tiles, whose inputs stay on chip for all of them or come set by set."""

import functools
import itertools
from collections.abc import Callable, Sequence

from gradloom.host.compilation.sums import NextSums
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate, Piece, Work
from gradloom.host.order.tasks import Address, PlannedPool, Uses
from gradloom.host.tiles.conv_mapping import psum_words
from gradloom.host.tiles.convolution_tiles import growing
from gradloom.host.tiles.shared_input_tiles import TileSet, in_turn
from gradloom.host.tiles.tile_commands import TileCommands

__all__ = ["Convolution"]

Range = tuple[int, int]

_FIRST_STEPS = 4
"""Of inputs that the array takes as they are made, at least: fewer would be mere commands."""


class Convolution(TileCommands):
    """Forward or backward convolution of one layer: its tiles in order, tile by tile or set by set."""

    def works(
        self,
        tiles: Sequence[Range],
        gate: Callable[[Range], Gate],
        emit: Callable[[Range, list[int], Address | None], Work],
        *,
        early: Gate = OPEN,
        as_made: bool = False,
    ) -> list[Work]:
        """The loads of inputs that stay on chip for all output groups, and everything else.

        Parameters
        ----------
        tiles : ranges of images, as from :meth:`image_tiles`
        gate : of a range: nothing is loaded before all of its inputs are there, as its place on chip is freed by its end only
        emit : emits an output tile of a range; last argument: where its inputs are, or ``None``
        early : open when the array is finished with the layer before
        as_made : whether inputs are made so slowly that the array had better take the first ones before the others are there:
            then ``early`` is the gate, where that is possible
        """
        if as_made and len(tiles) == 1 and self._by_parts(tiles[0]):
            self.as_made, gate = True, lambda _: early
        # Decided once: what loads and what computes must agree.
        self._wholes = {images: self._whole(images[1] - images[0]) for images in tiles}
        if not all(self._wholes.values()):
            self.builder.by_sets.add((self.layer, self._transpose))
        places = dict[int, Address]()
        return [
            self._loads(tiles, gate, places, early if len(tiles) == 1 and self.sweep.k1 else OPEN),
            self._computes(tiles, gate, emit, places),
        ]

    def _loads(self, tiles: Sequence[Range], gate: Callable[[Range], Gate], places: dict[int, Address], early: Gate) -> Work:
        """Those of inputs that are loaded ahead of their tiles: before any set, which takes its room itself."""
        if early != OPEN:
            chunk = self.inputs.chunks(tiles[0][1] - tiles[0][0])[0]
            words = (chunk[1] - chunk[0]) * self.weights.per_step + 1
            first = self.tiles()[: self.builder.config.wbuf_depth * 3 // 4 // words]
            if first:
                yield Piece(BoundEngine.LOAD, 0, early, weights=len(first) * words)
            for outputs in first:
                uses = Uses(self.weights.reads(outputs, chunk))
                self.builder.call(functools.partial(self.weights.preload, outputs, chunk), uses=uses)
        for n, images in enumerate(itertools.takewhile(self._wholes.__getitem__, tiles)):
            yield from self._load(n, images, gate(images), places)

    def _load(self, number: int, images: Range, gate: Gate, places: dict[int, Address]) -> Work:
        count, pool = images[1] - images[0], self._pool
        beats, room = self.inputs.beats(count), self.steps * self.inputs.size(count)
        ahead = 1 if self._beside else None
        yield Piece(BoundEngine.LOAD, beats, gate, room=((pool.real, room),), opens=self._queue, ahead=ahead)
        places[number] = pool.take(room)
        self.inputs.load(images, (0, self.steps), places[number], self.cycles(images), together=True)

    def _computes(
        self,
        tiles: Sequence[Range],
        gate: Callable[[Range], Gate],
        emit: Callable[[Range, list[int], Address | None], Work],
        places: dict[int, Address],
    ) -> Work:
        pool, outputs = self._pool, self.tiles()
        if self._beside:
            self.builder.sums.kept = max(psum_words(self.sweep, self.builder.config, last - first) for first, last in tiles)
        for n, images in enumerate(tiles):
            if not self._wholes[images]:
                yield from self._by_sets(images, gate(images), emit)
                continue
            if n not in places:
                yield from self._load(n, images, gate(images), places)
            for tile in outputs:
                last = tile is outputs[-1]
                yield self._piece(tile, images, gate(images), last=last)
                yield from emit(images, tile, places[n])
                if last:
                    pool.give_back(places[n])
        if self._beside:
            self.builder.call(functools.partial(setattr, self.builder.sums, "kept", 0))

    def _whole(self, images: int) -> bool:
        """Whether the array takes all inputs of a tile at once: they fit and those of the next images beside them, or else they
        would be loaded more than once in sets."""
        ahead = self._transpose or self.steps * self.inputs.size(images) <= self.inputs.half
        return not self.as_made and self.inputs.resident(images) and (ahead or len(self._sets(images)) > 1)

    def _piece(self, tile: list[int], images: Range, gate: Gate, *, last: bool) -> Piece:
        """A tile with all its commands; the ``last`` one that uses the images' inputs."""
        count = images[1] - images[0]
        cycles, swept = self.cycles(images) // len(self.tiles()), count * self.beats
        chunk = self.inputs.chunks(count)[0]
        beside = psum_words(self.sweep, self.builder.config, count) if self._beside else 0
        return Piece(
            BoundEngine.ARRAY,
            cycles,
            gate,
            closes=self._queue if last else "",
            lag=max(0, 2 * cycles - swept),
            weights=self.weights.beats_before(chunk, (chunk[1] - chunk[0]) * self._step_cycles(count)),
            kept=self.weights.kept(tile, chunk),
            sweeps=swept * len(tile),
            results=NextSums(self.builder.sums, beside),
        )

    @property
    def _queue(self) -> str:
        return "tiles beside sets" if self._beside else "tiles"

    @property
    def _pool(self) -> PlannedPool:
        """Of the input buffer; a layer whose tiles come between those of sets takes places at its end."""
        pool = self.builder.pool["IBUF"]
        return pool.from_end() if self._beside else pool

    def _by_sets(self, images: Range, gate: Gate, emit: Callable[[Range, list[int], Address | None], Work]) -> Work:
        """All tiles of some images whose inputs come chunk by chunk, set by set."""
        pool, count = self.builder.pool["IBUF"], images[1] - images[0]
        # The first layer is finished before the last images begin.
        kept = self.builder.sums.kept if self._follows and images[1] < self.builder.images[1] else 0
        room, sets = self.inputs.region(count, self._last_steps(count, kept)), self._sets(count, kept)
        if self.as_made:
            room = self.steps * self.inputs.size(count)
        words = psum_words(self.sweep, self.builder.config, count)
        start: Address | None = None
        sums = self.builder.sums
        for number, tiles in enumerate(sets):
            begins = number == 0
            chunks = self._chunks(count, kept, begins=begins)
            if number % 2:
                chunks.reverse()
            chunk = chunks[0]
            yield Piece(
                BoundEngine.ARRAY,
                (chunk[1] - chunk[0]) * self._step_cycles(count),
                gate,
                room=((pool.real, room),) if begins else (),
                silent=True,
                weights=self.weights.beats_before(chunk, (chunk[1] - chunk[0]) * self._step_cycles(count)),
                kept=self.weights.kept(tiles[0], chunk),
                results=NextSums(self.builder.sums),
            )
            if begins:
                start = pool.take(room)
                self.region = self.builder.set_region(start, room, self.inputs.size(count))
            there = self._set.there if self._set and not begins else {}
            self._set = TileSet(self.builder.take_sums, words, len(tiles), chunks, there)
            self.builder.call(functools.partial(sums.begin_set, len(tiles), words))
            yield from in_turn([emit(images, tile, None) for tile in tiles])
        self._set = None
        self.builder.call(sums.end_set)
        assert start is not None
        pool.give_back(start)

    def _chunks(self, images: int, kept: int = 0, *, begins: bool = False) -> list[Range]:
        """Steps whose inputs and weights come together in a set. The first one of some images ``begins`` with few."""
        if self.as_made:
            return growing(0, self.steps, self.inputs.chunks(images)[0][1], 1 if self.builder.knobs.subtile_beats else _FIRST_STEPS)
        return super()._chunks(images, kept, begins=begins)
