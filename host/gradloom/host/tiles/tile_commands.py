"""Commands of a convolution tile: CONV for every chunk of its steps, the loads of what it reads, and where its sums lie for RUN."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

from gradloom.contracts.config import PE_TAPS
from gradloom.contracts.isa import Opcode, XSource
from gradloom.host.compilation.sums import AddedSums, PsumRegion, TileSums, norm_access
from gradloom.host.dram.layout import ceil_div
from gradloom.host.order.accesses import Access, row_access
from gradloom.host.order.pieces import BoundEngine, Piece
from gradloom.host.order.tasks import Address, Emitter, Place, Region, Uses
from gradloom.host.tiles.conv_mapping import psum_words
from gradloom.host.tiles.convolution_tiles import ConvolutionTiles
from gradloom.host.tiles.shared_input_tiles import TURN, TileSet, runs_of
from gradloom.host.tiles.tile_inputs import InputLayout

__all__ = ["TileCommands"]

Range = tuple[int, int]
Tile = Generator[Piece, None, TileSums]
"""The pieces of a tile, whose steps come behind each; in the end where its sums lie."""

_PARTS = 4
"""Commands of the tile that waits for the inputs of some images, and of the one that makes room for the next ones."""
_LAST_STEPS = 8
"""Steps from which on that is done: where there are fewer, more commands cost more than loads gain that begin earlier."""
_BETWEEN = 80
"""Array cycles of a tile from one place to the next where tiles of gradients may come between, at least."""


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """A chunk of a tile's steps: its weights, unless they are on chip, inputs of a strip, and the array's commands.

    Parameters
    ----------
    inputs : where they lie that stay on chip
    places : where they lie that came chunk by chunk, by step
    adds : whether other chunks of the tile came before
    norms, further : as for :meth:`TileCommands.compute`; norms only of the last chunk
    last : whether it is the tile's last one
    """

    tile: "TileCommands"
    images: Range
    outputs: list[int]
    chunk: Range
    inputs: Address | None
    places: dict[int, Address]
    sums: TileSums
    offset: int
    adds: bool
    norms: bool
    further: bool
    last: bool
    tag: int

    def perform(self, emitter: Emitter) -> Iterator[Piece]:
        return self.tile.emit_chunk(self, emitter)

    def uses(self) -> Uses:
        places = [address.place for address in (*self.places.values(), *([self.inputs] if self.inputs else []))]
        reads = list(self.tile.weights.reads(self.outputs, self.chunk))
        if not places or self.tile.as_made:
            reads += self.tile.inputs.reads(self.images, self.chunk)
        return Uses(reads, (), places, (self.sums,))


@dataclasses.dataclass(frozen=True)
class _Fetch:
    """Inputs of a set's chunk on their way: steps at places of the region, for so many windows of the array."""

    tile: "TileCommands"
    region: Region
    images: Range
    chunk: Range
    places: dict[int, Address]
    windows: int
    tag: int

    def perform(self, emitter: Emitter) -> None:
        tile = self.tile
        step, size = tile.inputs.size(self.images[1] - self.images[0]), self.chunk[1] - self.chunk[0]
        emitter.set_tag(self.tag)
        for number in range(*self.chunk):
            self.places[number].place.start = self.region.take(step)
        for run, base in runs_of(self.places, self.chunk, step):
            tile.inputs.load(self.images, run, base, self.windows * (run[1] - run[0]) // size)

    def uses(self) -> Uses:
        return Uses(self.tile.inputs.reads(self.images, self.chunk), (), (), [address.place for address in self.places.values()])


class TileCommands(ConvolutionTiles):
    """What the tiles of one layer's convolution are computed with; :class:`~gradloom.host.tiles.convolution.Convolution` says when.

    Attributes
    ----------
    region : :class:`~gradloom.host.order.tasks.Region`, optional
        Where inputs that come chunk by chunk go.
    _set : :class:`~gradloom.host.tiles.shared_input_tiles.TileSet`, optional
        The set under way.
    as_made : :class:`bool`
        The array takes inputs as they are made: those of the first groups before the others are there.
    _divisible : :class:`bool`
        Whether gradients may come between the commands of a tile.
    """

    region: Region | None = None
    _set: TileSet | None = None
    as_made = False
    _divisible = True

    def strip(self, first: int, last: int, region: Region) -> Self:
        """The same for the units ``first`` to ``last`` of an image, in one piece, with inputs in a region of the input buffer."""
        found = copy.copy(self)
        found.sweep, found.region = self.sweep.strip(first, last), region
        found.inputs = self.inputs.of(found.sweep, region.size)
        found._divisible, found._set = False, None
        return found

    def compute(
        self,
        images: tuple[int, int],
        outputs: list[int],
        inputs: Address | None,
        *,
        norms: bool = False,
        sums: TileSums | None = None,
        offset: int = 0,
        further: bool = False,
        prepare: Callable[[], None] = lambda: None,
    ) -> Tile:
        """All CONV commands of a tile, with pieces where tiles of gradients may come between them.

        Parameters
        ----------
        inputs : :class:`~gradloom.host.order.tasks.Address`, optional
            Of inputs that stay on chip (:meth:`~gradloom.host.tiles.tile_inputs.TileInputs.resident`).
        norms : :class:`bool`
            The last command gathers the sum of magnitudes of every plane.
        sums : :class:`~gradloom.host.compilation.sums.TileSums`
            Where the sums go; by default the next half, or where the tile's set says.
        offset : :class:`int`
            From which of their addresses on.
        further : :class:`bool`
            The sums of magnitudes go on with those of the commands before.
        prepare : callable
            Emits what the A-Core needs beside the sums, before the array's last commands.

        Returns
        -------
        :class:`~gradloom.host.compilation.sums.TileSums`
        """
        builder, tiles = self.builder, self._set
        count = images[1] - images[0]
        if sums is None:
            words = psum_words(self.sweep, builder.config, count)
            sums = tiles.place() if tiles else builder.take_sums(words, beside=lambda: self._beside_set(count))
        chunks = tiles.chunks if tiles else self.inputs.chunks(count, int(inputs is None))
        for chunk in chunks:
            last = chunk is chunks[-1]
            if tiles and tiles.begun:
                yield self._further(outputs, images, chunk, sums, last=last, norms=norms)
            elif tiles:
                tiles.begun = True
            if last:
                prepare()
            places = self._come(images, chunk) if tiles else {}
            builder.collector.add(_Chunk(
                self, images, outputs, chunk, inputs, places, sums, offset, chunk is not chunks[0], norms and last, further, last,
                builder.tag))
            if tiles and not last:
                size, following = chunk[1] - chunk[0], chunks[chunks.index(chunk) + 1]
                room = self.region.size // self.inputs.size(count) if self.region else 0
                if not self._transpose and not self.as_made and size + following[1] - following[0] <= room:
                    # Behind the first of the tiles, as there is room beside this chunk.
                    self._fetch(images, following, size)
                if not self._at_once(chunks):
                    yield TURN
        return sums

    def emit_chunk(self, part: _Chunk, emitter: Emitter) -> Iterator[Piece]:
        """The commands of a chunk, with pieces where tiles of gradients may come between them."""
        builder, sweep, chunk, sums = self.builder, self.sweep, part.chunk, part.sums.known()
        count, size = part.images[1] - part.images[0], chunk[1] - chunk[0]
        step, cycles, adds = self.inputs.size(count), sweep.cycles(builder.config, count), part.adds
        inputs = None if part.inputs is None else int(part.inputs)
        layout = self.inputs.layout(step, self.steps) if inputs is not None else InputLayout(step, sweep.xe, 0)
        emitter.set_tag(part.tag)
        runs = runs_of(part.places, chunk, step) if part.places else [(chunk, self._resident(part, layout))]
        weights = self.weights.load(part.outputs, chunk, size * self._step_cycles(count))
        reads = Access("WBUF", ((weights - 1, weights + size * self.weights.per_step),))
        strips = self._strips_as_made(part.images, part.outputs)
        commands = [
            (window, steps, base + (steps[0] - run[0]) * layout.step_pitch)
            for window in range(len(sweep.windows))
            for run, base in runs
            for steps in self._divided(run, cycles, parted=self._parted(part.outputs, inputs, last=part.last))
        ]
        for number, (window, steps, base) in enumerate(commands):
            if adds and number and self._open(cycles):
                yield Piece(BoundEngine.ARRAY, (steps[1] - steps[0]) * cycles, inside=True)
                emitter.set_tag(part.tag)
            fields = sweep.row_fields(builder.config, window, base, count, layout.entries)
            fields |= self.weights.fields(window, chunk, steps, weights)
            fields |= {"half": sums.half, "acc": int(adds), "pbase": sums.base + part.offset, "steps": steps[1] - steps[0]}
            fields["istep"] = layout.step_pitch
            writes = sums.written(added=adds or steps[1] - steps[0] > 1)
            if sweep.k1:
                fields["nk"] = len(part.outputs)
            if part.norms and number == len(commands) - 1:
                fields |= {"sums": 1, "sacc": int(part.further)}
                writes.append(norm_access(sums.half))
            place = layout.read(inputs or 0, base, (steps[1] - steps[0]) * step)
            if strips:
                self._emit_strips(strips, fields, window, base, steps, reads, writes)
            else:
                builder.put(Opcode.CONV, fields, reads=[row_access("IBUF", *place), reads], writes=writes)
            adds = True
        builder.sums.used = sums.half

    def _at_once(self, chunks: list[Range]) -> bool:
        """Whether each tile of a set takes all chunks without a turn of others: two that come in rows. So the A-Core, on which
        the next layer waits, begins with the first tile while the array computes the second one."""
        return self.as_made and bool(self.builder.knobs.subtile_beats) and len(chunks) == 2

    def _strips_as_made(self, images: Range, outputs: list[int]) -> list[Range]:
        """Units of the one image in which the first tile, which waits for inputs that are made in rows, takes them; else none."""
        if not self.as_made or images[1] - images[0] > 1 or outputs != self.tiles()[0]:
            return []
        found = self.inputs.strips(images)
        return found if len(found) > 1 else []

    def _emit_strips(
        self,
        strips: list[Range],
        fields: dict[str, int],
        window: int,
        base: int,
        part: Range,
        weights: Access,
        writes: list[Access],
    ) -> None:
        """The command with ``fields`` strip by strip: each waits for the inputs of its rows only."""
        sweep, config = self.sweep, self.builder.config
        for strip in strips:
            own = fields | sweep.some_units(config, window, base, strip)
            if strip is not strips[-1]:
                own["shared"] = 0
            own["pbase"] += sweep.strip_address(config, strip[0])
            if own.get("sums") and strip is not strips[0]:
                own["sacc"] = 1
            first, last = self.inputs.addresses_of(strip)
            size = self.inputs.size(1)
            places = [(base + step * size + first, last - first) for step in range(part[1] - part[0])]
            reads = [*(row_access("IBUF", *place) for place in places), weights]
            self.builder.put(Opcode.CONV, own, reads=reads, writes=writes)

    def _resident(self, part: _Chunk, layout: InputLayout) -> int:
        """First address of a chunk's inputs: of those that stay on chip, or of a strip's, loaded unless they are there."""
        if part.inputs is not None:
            return int(part.inputs) + part.chunk[0] * layout.step_pitch
        assert self.region is not None
        count, size = part.images[1] - part.images[0], part.chunk[1] - part.chunk[0]
        key = part.images, part.chunk, self.sweep.row0, self.sweep.rows
        base = self.region.held(key)
        if base is None:
            base = self.region.take_for(key, size * self.inputs.size(count))
            self.inputs.load(part.images, part.chunk, base, size * self._step_cycles(count))
        return base

    def _come(self, images: Range, chunk: Range) -> dict[int, Address]:
        """Where the inputs of a chunk of a set lie; they are loaded unless that has been done."""
        tiles = self._set
        assert tiles is not None
        if chunk[0] not in tiles.there:
            self._fetch(images, chunk, chunk[1] - chunk[0])
            # Inputs that are taken as they are made have room for all of them.
            tiles.there, tiles.ahead = (tiles.there if self.as_made else {}) | tiles.ahead, {}
        return {number: tiles.there[number] for number in range(*chunk)}

    def _fetch(self, images: Range, chunk: Range, before: int) -> None:
        """Load the inputs of a chunk of a set, unless that has been done, while the array takes the ``before`` steps of another."""
        tiles = self._set
        assert tiles is not None and self.region is not None
        if tiles.ahead:
            return
        count, size = images[1] - images[0], chunk[1] - chunk[0]
        step, cycles = self.inputs.size(count), self._step_cycles(count)
        # In other channels an input group keeps the weights waiting. Where that is for longer than a tile takes for a chunk, the
        # chunk is no more urgent than those of equal length are.
        slack = self.inputs.beats(count) <= self.sweep.groups_in * before * cycles
        windows = tiles.size * cycles * (min(size, before) if slack else size)
        tiles.ahead = {number: Address(Place(step)) for number in range(*chunk)}
        self.builder.collector.add(_Fetch(self, self.region, images, chunk, tiles.ahead, windows, self.builder.tag))

    def _further(self, outputs: list[int], images: Range, chunk: Range, planned: TileSums, *, last: bool, norms: bool) -> Piece:
        """A chunk of a set that is under way. The A-Core gets nothing to do but by the last one, which may take the place of a
        half's sums of magnitudes (``norms``)."""
        count = images[1] - images[0]
        cycles, swept = (chunk[1] - chunk[0]) * self._step_cycles(count), count * self.beats
        idle = not self._slow_weights(self._step_cycles(count))
        results = AddedSums(self.builder.sums, planned, last, last and norms)
        if not last:
            return Piece(BoundEngine.ARRAY, cycles, inside=True, idle=idle, silent=True, results=results)
        return Piece(
            BoundEngine.ARRAY,
            cycles,
            inside=True,
            idle=idle,
            lag=max(0, 2 * cycles - swept),
            sweeps=swept * len(outputs),
            results=results,
        )

    def _slow_weights(self, step: int) -> bool:
        """Whether weights take longer than the array for a step of so many cycles, so that they need more than one channel. They
        leave none to gradients, whose errors come through one of them."""
        config = self.builder.config
        return config.load_channels >= 3 and self.weights.per_step * PE_TAPS * config.block_beats > step

    def _open(self, cycles: int) -> bool:
        """Whether gradients may come between commands of so many cycles a step."""
        return self._divisible and not self._slow_weights(cycles * len(self.sweep.windows)) and self.builder.may_interleave_wgrad()

    def _parted(self, outputs: list[int], inputs: int | None, *, last: bool) -> bool:
        """Whether a tile (of a set, its ``last`` chunk) is the first one of some images, which waits for their inputs, or the last
        one, whose inputs make room for the next ones bit by bit."""
        every, whole = self.tiles(), inputs is not None
        if whole and outputs == every[0]:
            return True
        return outputs == every[-1] and (whole or last) and self.steps >= _LAST_STEPS

    def _divided(self, chunk: Range, cycles: int, *, parted: bool) -> list[Range]:
        """Parts of a chunk of so many array cycles a step: one, unless something may come between them or loads are to begin or to
        be waited for part by part."""
        size = chunk[1] - chunk[0]
        if self._open(cycles):
            size = max(1, ceil_div(_BETWEEN, cycles))
        elif parted:
            size = max(ceil_div(_BETWEEN, cycles), ceil_div(size, _PARTS))
        edges = [*range(*chunk, size), chunk[1]]
        return list(itertools.pairwise(edges))

    def psum_fields(self, sums: TileSums, tap: int, tile: Range, part: Range, rows: Range | None = None) -> dict[str, Any]:
        """Fields of RUN that say where the sums of an output group lie, of some images of a tile or of some ``rows`` of one."""
        sweep, slot = self.sweep, part[0] - tile[0]
        row, units = rows[0] if rows else 0, (tile[1] - tile[0]) * sweep.upi
        first = slot * sweep.upi + sweep.unit(row)
        found = self.place_fields(sums, tap, first, row) | {"ps0": slot}
        shared = sweep.shared(self.builder.config, tile[1] - tile[0])
        if not shared:
            return found
        own, end = units - shared.units, first + (rows[1] - rows[0] if rows else (part[1] - part[0]) * sweep.upi)
        if first > own:
            # Each shared row is a row group.
            found |= {"pw0": 0, "prg0": own // self.builder.config.wpus + first - own}
        return found | {"shared": max(0, end - max(first, own)), "sbeats": shared.beats}

    def place_fields(self, sums: TileSums, tap: int, unit: int, row: int) -> dict[str, Any]:
        """The same from a unit of the tile on, which gives a ``row`` of the plane."""
        sweep, wpus = self.sweep, self.builder.config.wpus
        return {
            "xsrc": int(XSource.PSUM),
            "half": sums.half,
            "pbase": sums.base,
            "layout": int(sweep.layout),
            "pk": tap if sweep.k1 else 0,
            "pj": sweep.cols,
            "psr": sweep.sub_row(row),
            "psc": sweep.psc,
            "pw0": unit % wpus,
            "prg0": unit // wpus,
        }

    def _beside_set(self, images: int) -> PsumRegion | None:
        """Where the sums of a tile of its own go if they lie beside those of the set under way."""
        return self.builder.sums.beside(psum_words(self.sweep, self.builder.config, images)) if self._beside else None
