"""Commands of a convolution tile: CONV for every chunk of its steps, the loads of what it reads, and where its sums lie for RUN."""

import copy
import itertools
from collections.abc import Callable, Generator
from typing import Self

from gradloom.contracts.config import PE_TAPS
from gradloom.contracts.isa import Opcode, XSource
from gradloom.host.compilation.sums import Sums, norm_access, port_access
from gradloom.host.dram.layout import ceil_div
from gradloom.host.order.accesses import Access, row_access
from gradloom.host.order.pieces import Lane, Part, Piece
from gradloom.host.order.places import Ring
from gradloom.host.tiles.array_sweep import psum_words
from gradloom.host.tiles.convolution_tiles import ConvolutionTiles
from gradloom.host.tiles.tile_inputs import InputLayout
from gradloom.host.tiles.tile_sets import TURN, TileSet, runs_of

__all__ = ["TileCommands"]

Range = tuple[int, int]
Parts = tuple[Part, ...]
Tile = Generator[Piece, None, Sums]
"""A tile under way; in the end where its sums lie."""

_PARTS = 4
"""Commands of the tile that waits for the inputs of some images, and of the one that makes room for the next ones."""
_LAST_STEPS = 8
"""Steps from which on that is done: where there are fewer, more commands cost more than loads gain that begin earlier."""
_BETWEEN = 80
"""Array cycles of a tile from one place to the next where tiles of gradients may come between, at least."""


class TileCommands(ConvolutionTiles):
    """What the tiles of one layer's convolution are computed with; :class:`~gradloom.host.tiles.convolution.Convolution` says when.

    Attributes
    ----------
    _region : :class:`~gradloom.host.order.places.Ring`, optional
        Where inputs that come chunk by chunk go.
    _set : :class:`~gradloom.host.tiles.tile_sets.TileSet`, optional
        The set under way.
    _made : callable, optional
        What some input groups of a range of images need, if the array takes them as they are made.
    _divisible : :class:`bool`
        Whether gradients may come between the commands of a tile.
    """

    _region: Ring | None = None
    _set: TileSet | None = None
    _made: Callable[[Range, Range], Parts] | None = None
    _divisible = True

    def strip(self, first: int, last: int, region: Ring) -> Self:
        """The same for the units ``first`` to ``last`` of an image, in one piece, with inputs in a region of the input buffer."""
        found = copy.copy(self)
        found.sweep, found._region = self.sweep.strip(first, last), region
        found.inputs = self.inputs.of(found.sweep, region.size)
        found._divisible, found._set = False, None
        return found

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
            Address of inputs that stay on chip (:meth:`~gradloom.host.tiles.tile_inputs.TileInputs.resident`).
        norms : :class:`bool`
            The last command gathers the sum of magnitudes of every plane.
        sums : :class:`~gradloom.host.tiles.tile_sets.Sums`
            Where the sums go; by default the next half, or where the tile's set says.
        offset : :class:`int`
            From which of their addresses on.
        further : :class:`bool`
            The sums of magnitudes go on with those of the commands before.
        prepare : callable
            Emits what the A-Core needs beside the sums, before the array's last commands.

        Returns
        -------
        :class:`~gradloom.host.tiles.tile_sets.Sums`
        """
        builder, sweep, tiles = self.builder, self.sweep, self._set
        count = images[1] - images[0]
        step, cycles, acc = self.inputs.size(count), sweep.cycles(builder.config, count), 0
        layout = self.inputs.layout(step, self.steps) if inputs is not None else InputLayout(step, sweep.xe, 0)
        if sums is None:
            words = psum_words(sweep, builder.config, count)
            sums = tiles.place() if tiles else self._beside_set(count) or builder.sums.take(words)
        chunks = tiles.chunks if tiles else self.inputs.chunks(count, int(inputs is None))
        for chunk in chunks:
            size, last = chunk[1] - chunk[0], chunk is chunks[-1]
            if tiles and tiles.begun:
                yield self._further(outputs, images, chunk, sums, last=last, norms=norms)
            elif tiles:
                tiles.begun = True
            if last:
                prepare()
            runs = self._runs(images, chunk, inputs)
            weights = self.weights.load(outputs, chunk, size * self._step_cycles(count))
            reads = Access("WBUF", ((weights - 1, weights + size * self.weights.per_step),))
            strips = self._strips_as_made(images, outputs)
            commands = [
                (window, part, base + (part[0] - run[0]) * layout.apart)
                for window in range(len(sweep.windows))
                for run, base in runs
                for part in self._divided(run, cycles, parted=self._parted(outputs, inputs, last=last))
            ]
            for number, (window, part, base) in enumerate(commands):
                if acc and number and self._open(cycles):
                    yield Piece(Lane.ARRAY, (part[1] - part[0]) * cycles, inside=True)
                fields = sweep.row_fields(builder.config, window, base, count, layout.entries)
                fields |= self.weights.fields(window, chunk, part, weights)
                fields |= {"half": sums.half, "acc": acc, "pbase": sums.base + offset, "steps": part[1] - part[0]}
                fields["istep"] = layout.apart
                writes = sums.written(added=bool(acc) or part[1] - part[0] > 1)
                if sweep.k1:
                    fields["nk"] = len(outputs)
                if norms and last and number == len(commands) - 1:
                    fields |= {"sums": 1, "sacc": int(further)}
                    writes.append(norm_access(sums.half))
                place = layout.read(inputs or 0, base, (part[1] - part[0]) * step)
                if strips:
                    self._emit_strips(strips, fields, window, base, part, reads, writes)
                else:
                    builder.recorder.emit(Opcode.CONV, fields, reads=[row_access("IBUF", *place), reads], writes=writes)
                acc = 1
            builder.sums.used = sums.half
            if tiles and not last:
                following = chunks[chunks.index(chunk) + 1]
                room = self._region.size // step if self._region else 0
                if not self._transpose and not self._made and size + following[1] - following[0] <= room:
                    # Behind the first of the tiles, as there is room beside this chunk.
                    self._fetch(images, following, size)
                if not self._at_once(chunks):
                    yield TURN
        return sums

    def _at_once(self, chunks: list[Range]) -> bool:
        """Whether each tile of a set takes all chunks without a turn of others: two that come in rows. So the A-Core, on which
        the next layer waits, begins with the first tile while the array computes the second one."""
        return self._made is not None and bool(self.builder.choices.cut) and len(chunks) == 2

    def _strips_as_made(self, images: Range, outputs: list[int]) -> list[Range]:
        """Units of the one image in which the first tile, which waits for inputs that are made in rows, takes them; else none."""
        if not self._made or images[1] - images[0] > 1 or outputs != self.tiles()[0]:
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
            self.builder.recorder.emit(Opcode.CONV, own, reads=reads, writes=writes)

    def _runs(self, images: Range, chunk: Range, inputs: int | None) -> list[tuple[Range, int]]:
        """Steps of a chunk whose inputs lie behind each other, and their first address; they are loaded unless they are there."""
        count, tiles = images[1] - images[0], self._set
        step, windows = self.inputs.size(count), (chunk[1] - chunk[0]) * self._step_cycles(count)
        if inputs is not None:
            return [(chunk, inputs + chunk[0] * self.inputs.layout(step, self.steps).apart)]
        assert self._region is not None
        if not tiles:
            key = images, chunk, self.sweep.row0, self.sweep.rows
            base = self._region.held(key)
            if base is None:
                base = self._region.take_for(key, (chunk[1] - chunk[0]) * step)
                self.inputs.load(images, chunk, base, windows)
            return [(chunk, base)]
        if chunk[0] not in tiles.there:
            self._fetch(images, chunk, chunk[1] - chunk[0])
            # Inputs that are taken as they are made have room for all of them.
            tiles.there, tiles.ahead = (tiles.there if self._made else {}) | tiles.ahead, {}
        return runs_of(tiles.there, chunk, step)

    def _fetch(self, images: Range, chunk: Range, before: int) -> None:
        """Load the inputs of a chunk of a set, unless that has been done, while the array takes the ``before`` steps of another."""
        tiles, region = self._set, self._region
        assert tiles is not None and region is not None
        if tiles.ahead:
            return
        count, size = images[1] - images[0], chunk[1] - chunk[0]
        step, cycles = self.inputs.size(count), self._step_cycles(count)
        # In other channels an input group keeps the weights waiting. Where that is for longer than a tile takes for a chunk, the
        # chunk is no more urgent than those of equal length are.
        slack = self.inputs.beats(count) <= self.sweep.groups_in * before * cycles
        windows = tiles.size * cycles * (min(size, before) if slack else size)
        tiles.ahead = {number: region.take(step) for number in range(*chunk)}
        for run, base in runs_of(tiles.ahead, chunk, step):
            self.inputs.load(images, run, base, windows * (run[1] - run[0]) // size)

    def _further(self, outputs: list[int], images: Range, chunk: Range, sums: Sums, *, last: bool, norms: bool) -> Piece:
        """A chunk of a set that is under way. The A-Core gets nothing to do but by the last one, which may take the place of a
        half's sums of magnitudes (``norms``)."""
        count = images[1] - images[0]
        cycles, swept = (chunk[1] - chunk[0]) * self._step_cycles(count), count * self.beats
        needs, idle = self._groups_made(images, chunk), not self._slow_weights(self._step_cycles(count))
        if not last:
            return Piece(
                Lane.ARRAY, cycles, needs, inside=True, idle=idle, silent=True, behind=lambda: self.builder.sums.unread(sums)
            )
        return Piece(
            Lane.ARRAY,
            cycles,
            needs,
            inside=True,
            idle=idle,
            lag=max(0, 2 * cycles - swept),
            sweeps=swept * len(outputs),
            target=lambda: port_access(sums.half),
            behind=lambda: self.builder.sums.unread(sums, half=norms),
        )

    def _slow_weights(self, step: int) -> bool:
        """Whether weights take longer than the array for a step of so many cycles, so that they need more than one channel. They
        leave none to gradients, whose errors come through one of them."""
        config = self.builder.config
        return config.load_channels >= 3 and self.weights.per_step * PE_TAPS * config.block_beats > step

    def _open(self, cycles: int) -> bool:
        """Whether gradients may come between commands of so many cycles a step."""
        return self._divisible and not self._slow_weights(cycles * len(self.sweep.windows)) and self.builder.between()

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

    def psum_fields(self, sums: Sums, tap: int, tile: Range, part: Range, rows: Range | None = None) -> dict[str, int]:
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

    def place_fields(self, sums: Sums, tap: int, unit: int, row: int) -> dict[str, int]:
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

    def _beside_set(self, images: int) -> Sums | None:
        """Where the sums of a tile of its own go if they lie beside those of the set under way."""
        return self.builder.sums.beside(psum_words(self.sweep, self.builder.config, images)) if self._beside else None

    def _groups_made(self, images: Range, chunk: Range) -> Parts:
        return self._made(images, chunk) if self._made else ()
