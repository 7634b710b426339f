"""Forward pass of layers whose planes the machine's buffers do not hold: tiles of rows of one image after the other."""

import itertools
from collections.abc import Callable, Iterator, Sequence

from gradloom.contracts.isa import Kind, Source, XSource
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.sums import HALVES, NextSums, TileSums
from gradloom.host.forward.forward_kept import KeptForward, KeptGroup
from gradloom.host.forward.forward_sweeps import activate, load_sides
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate, Piece, Work
from gradloom.host.order.tasks import Address
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.resident_planes import KeptTile, ResidentPlane
from gradloom.host.tiles.row_convolution import RowConvolution
from gradloom.host.tiles.row_tiles import RowTile
from gradloom.models.network import Conv, FullyConnected

__all__ = ["RowForward"]

Range = tuple[int, int]


class RowForward:
    """Forward pass of a layer by tiles of rows of one image after the other (docs/decisions/0006-tiles-of-rows.md).

    A normalised plane is scaled by the sum of all its magnitudes, so the array goes over its tiles before the first one is
    swept. Group by group they stay in the two halves of the partial sums: nearly all of them
    (:class:`~gradloom.host.forward.forward_kept.KeptForward`), or the last two, and the others are computed again
    (:meth:`_by_groups`). Or tile by tile (:meth:`_tile`), everything twice, but every input is loaded twice and not once for each
    output group. Whichever takes the least cycles, as estimated.

    Parameters
    ----------
    works : ways to convolve the layer
    """

    def __init__(
        self, builder: ProgramBuilder, layer: Conv | FullyConnected, works: Sequence[Convolution], plane: Plane, dry: bool
    ) -> None:
        self.builder, self.layer, self.plane, self.dry = builder, layer, plane, dry
        self.frn = layer.norm == "frn"
        self.lam: Address | None = None
        self.entries = sum(len(outs) for outs in works[0].tiles()) if self.frn else 0
        self.tiled = self._choose(works)

    def _choose(self, works: Sequence[Convolution]) -> RowConvolution:
        """The order of tiles that takes the least cycles; :exc:`~gradloom.host.compilation.fit.ScheduleError` if there is none."""
        found, refused = list[tuple[float, RowConvolution]](), list[ScheduleError]()
        for work in works:
            try:
                found += self._orders(work)
            except ScheduleError as error:
                refused.append(error)
        if not found:
            raise refused[0]
        return min(found, key=lambda order: order[0])[1]

    def _orders(self, work: Convolution) -> Iterator[tuple[float, RowConvolution]]:
        """Orders of tiles with the cycles of an image."""
        bits = self.layer.act in ("tlu", "relu")
        tiled = RowConvolution(work, self.plane, bits=bits, kept=False)
        if not self.frn:
            yield tiled.bound, tiled
            return
        kept, turned = RowConvolution(work, self.plane, bits=bits, kept=True), ResidentPlane(work, self.plane, bits=bits)
        if turned.stages:
            yield turned.bound, turned
        if kept.tiles:
            more = sum(tile.last - tile.first for tile in kept.tiles[:-HALVES]) / kept.sweep.upi
            waits = sum(kept.swept_cycles(kept.tiles[-1], outs) for outs in kept.outputs)
            yield kept.bound * (1 + more) + waits, kept
        if self.entries <= self.builder.pool["PARAMETERS"].size // 2 or not kept.tiles:
            yield 2 * tiled.bound, tiled

    def works(self, gate: Callable[[Range], Gate]) -> list[Work]:
        """All commands; ``gate``: of some images."""
        if isinstance(self.tiled, ResidentPlane):
            return [KeptForward(self.builder, self.layer.name, self.tiled, self._sweep_kept).work(gate)]
        if self.frn and self.tiled.kept:
            return [self._by_groups(gate)]
        passes = 2 if self.frn else 1
        room = ((self.builder.pools["PARAMETERS"], self.entries),) if self.frn else ()
        return [self.tiled.by_tiles(gate, self._tile, passes=passes, room=room)]

    def _sweep_kept(self, group: KeptGroup, piece: KeptTile, fresh: bool) -> None:
        assert group.lam is not None
        self._sweeps(group.image, group.outs, piece.tile, piece.sums, group.lam, group.parameters, fresh=fresh)

    def _by_groups(self, gate: Callable[[Range], Gate]) -> Work:
        builder, tiled, pool = self.builder, self.tiled, self.builder.pool["PARAMETERS"]
        # The half of the last tile is free first, and the smallest tile, the first one, leaves the A-Core least time.
        kept, again = tiled.tiles[: -HALVES - 1 : -1], tiled.tiles[:-HALVES][::-1]
        for image, outs in itertools.product(range(*builder.images), tiled.outputs):
            images, first, last = (image, image + 1), outs is tiled.outputs[0], outs is tiled.outputs[-1]
            places = dict[RowTile, TileSums]()
            left = sum(tiled.tile_cycles(tile) for tile in tiled.tiles)
            for tile in tiled.tiles:
                begins, turns = first and not places, tile is kept[0]
                entries = ((pool.real, len(outs)),) if not places else ()
                yield Piece(
                    BoundEngine.ARRAY,
                    tiled.tile_cycles(tile),
                    gate(images) if begins else OPEN,
                    room=(tiled.room, *entries) if begins else entries,
                    lag=left,
                    silent=not turns,
                    inside=bool(places),
                    results=NextSums(builder.sums),
                )
                if begins:
                    tiled.open()
                if entries:
                    lam = pool.take(len(outs))
                places[tile] = tiled.compute(image, outs, tile, norms=True, further=bool(places))
                left -= tiled.tile_cycles(tile)
            if len(kept) == HALVES:
                builder.take_sums()
            for tile in kept:
                self._sweeps(image, outs, tile, places[tile], lam, fresh=tile is kept[0])
            for tile in again:
                yield tiled.swept(tile, outs)
                self._sweeps(image, outs, tile, tiled.compute(image, outs, tile), lam)
            pool.give_back(lam)
            if last:
                tiled.close()

    def _sweeps(
        self, image: int, outs: list[int], tile: RowTile, sums: TileSums, lam: Address, parameters: Sequence[Address] = (), *,
        fresh: bool = False,
    ) -> None:
        """A tile of some output groups. ``lam``: entry of the first one's lambda, which the first sweep finds if ``fresh``;
        ``parameters``: their entries, if they are on chip."""
        for tap, m in enumerate(outs):
            self._sweep(image, m, tile, sums, tap, lam + tap, parameters[tap] if parameters else None, fresh=fresh)

    def _tile(self, image: int, tile: RowTile, outs: list[int], inputs: Address | None, last: bool) -> None:
        """A tile of some output groups: its sum of magnitudes, or in the last pass its sweeps."""
        tiled, pool = self.tiled, self.builder.pool["PARAMETERS"]
        if self.frn and not last and (tile, outs) == (tiled.tiles[0], tiled.outputs[0]):
            self.lam = pool.take(self.entries)
        sums = tiled.compute(image, outs, tile, inputs, norms=not last)
        for tap, m in enumerate(outs):
            lam = None if self.lam is None else self.lam + m
            (self._sweep if last else self._add_norm)(image, m, tile, sums, tap, lam)
        if self.lam is not None and last and (tile, outs) == (tiled.tiles[-1], tiled.outputs[-1]):
            pool.give_back(self.lam)

    def _add_norm(self, image: int, group: int, tile: RowTile, sums: TileSums, tap: int, lam: Address | None) -> None:
        """The tile's sum of magnitudes joins the plane's; with the last tile lambda takes its place."""
        assert lam is not None
        builder, tiled, (z, source) = self.builder, self.tiled, (Kind.W, self.layer.input)
        fields = {"planes": 1, "nb": 1, "xe": 1, "py": 1, "xodd": 1, "xsrc": int(XSource.NONE), "half": sums.half, "pl0": lam}
        fields |= {"pk": tiled.place_fields(tile, sums, tap, tiled.first_row(tile))["pk"], "n": self.plane.fields()["n"]}
        entry = [("PBUF", lam, 1)]
        first = tile is tiled.tiles[0]
        builder.run("FRN_NORM" if first else "FRN_NORM_ADD", fields, (), reads=[sums.norms], writes=entry)
        if tile is not tiled.tiles[-1]:
            return
        epsilon = shifts(SH0=(-12, (), (builder.tid(self.layer.name, z), builder.tid(source, Kind.Z))))
        builder.run("FRN_LAM", fields, epsilon, reads=entry, writes=entry)
        if not self.dry and builder.training:
            builder.store_planes(Source.PBUF, builder.memory[self.layer.name, "reciprocals"], (image, image + 1), group, lam)

    def _sweep(
        self, image: int, group: int, tile: RowTile, sums: TileSums, tap: int, lam: Address | None,
        parameters: Address | None = None, *, fresh: bool = False,
    ) -> None:
        """All parts of a tile; the first one finds lambda if it is ``fresh``."""
        images, loaded = (image, image + 1), parameters is None
        if parameters is None:
            parameters = self.builder.load_parameters(self.layer.name, group)
        for rows in self.tiled.parts(tile):
            first = fresh and rows[0] == self.tiled.first_row(tile)
            part = Plane(rows[1] - rows[0], self.plane.x)
            # A dry run leaves lambda for the rows that follow, too; nothing of it reaches the memory.
            fields = {"planes": 1, "dry": int(self.dry and not first), **part.fields()}
            fields |= self.tiled.place_fields(tile, sums, tap, rows[0]) | {"n": self.plane.fields()["n"]}
            sides = load_sides(self.builder, self.layer, images, group, parameters, rows)
            shared = (lam, first) if lam is not None else None
            activate(self.builder, self.layer, images, group, fields, sums, sides, part, self.dry, rows, shared)
        if loaded:
            self.builder.pool["PARAMETERS"].give_back(parameters)
