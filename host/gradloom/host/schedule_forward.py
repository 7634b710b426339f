"""Forward pass: convolution, normalisation and activation by tiles; pools; logits and loss gradient."""

import dataclasses
import itertools
from collections.abc import Callable

from gradloom.host import schedule_logits, schedule_shortcut
from gradloom.host.assembler import Instruction
from gradloom.host.convolution import Convolution
from gradloom.host.cost import pool_cycles
from gradloom.host.forward_tiles import convolved_forward, forward_work, through
from gradloom.host.layer_sizes import Plane
from gradloom.host.layout import ceil_div, equal_ranges
from gradloom.host.pacing import Lane, Part, Piece, Work
from gradloom.host.pool_parts import Windows, pool_parts
from gradloom.host.row_tiles import RowConvolution, RowTile, swept_rows
from gradloom.host.schedule_rounding import plane_rounding, xhat_rounding
from gradloom.host.sums import HALVES, Sums
from gradloom.host.tiling import PARAMETER_ENTRIES, Builder, shifts
from gradloom.models.arith import reciprocal
from gradloom.models.network import INPUT, Conv, FullyConnected, Layer, MaxPool, Subsample
from gradloom.rtl.isa import Dest, Kind, Opcode, Source, XSource

__all__ = ["forward", "forward_zero"]

Range = tuple[int, int]
Parts = tuple[Part, ...]
_POOL_PARTS = 8
"""Works of a pool behind sets of tiles, of some channel groups each."""


def _program(layer: Conv | FullyConnected) -> str:
    """Microprogram of the forward pass of any layer with weights but the last."""
    if layer.norm == "frn":
        if layer.act == "none":
            return "FRN_FWD_LIN"
        return "FRN_FWD_RES" if layer.residual else "FRN_FWD"
    return "RELU_FWD" if layer.act == "relu" else "LIN_FWD"


def forward_zero(builder: Builder, layer: Layer) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Exponent of z at which the converter's shift is 0: constant, tensors added, tensors subtracted."""
    source = builder.tid(layer.input, Kind.Z)
    if isinstance(layer, Conv | FullyConnected):
        return (-20, (), ()) if layer.norm == "frn" else (0, (builder.tid(layer.name, Kind.W), source), ())
    if isinstance(layer, MaxPool):
        return 0, (source,), ()
    return -15 - reciprocal(builder.network.geometry(layer.name).kernel[0] ** 2)[1], (source,), ()


def forward(builder: Builder, layer: Layer, *, dry: bool = False) -> list[Work]:
    """All commands of one layer's forward pass; ``dry`` only gathers the statistics of z."""
    if isinstance(layer, FullyConnected) and layer.name == builder.network.logits.name:
        works = schedule_logits.forward(builder, layer, dry=dry)
    elif isinstance(layer, Conv | FullyConnected):
        works = _conv(builder, layer, dry)
    elif isinstance(layer, Subsample):
        works = [schedule_shortcut.forward(builder, layer)]
    else:
        groups = builder.groups(builder.network.shape(layer.input)[0])
        # The last tiles of sets come at their end: their groups are not to keep those before waiting.
        parts = _POOL_PARTS if (layer.input, False) in builder.by_sets else 1
        works = [_pool(builder, layer, dry, range(*chunk)) for chunk in equal_ranges(0, groups, ceil_div(groups, parts))]
    return [builder.tagged(8 * builder.network.index(layer.name), work) for work in works]


def _beside_sets(builder: Builder, layer: Conv | FullyConnected, work: Convolution) -> bool:
    """Whether a first layer's tiles may come between those of sets of the next one: tiles of one command, which adds to no sums."""
    followers = [other for other, _ in builder.network.consumers(layer.name)]
    if layer.input != INPUT or not (work.steps == len(work.sweep.windows) == 1) or len(followers) != 1:
        return False
    follower = followers[0]
    if not isinstance(follower, Conv) or not work.fits:
        return False
    after, plane = forward_work(builder, follower)
    return after.fits and builder.holds(plane) and any(not after.inputs.resident(high - low) for low, high in after.image_tiles())


def _conv(builder: Builder, layer: Conv | FullyConnected, dry: bool) -> list[Work]:
    name = layer.name
    work, plane = forward_work(builder, layer)
    if _beside_sets(builder, layer, work):
        builder.beside_sets = name

    def needs(images: Range) -> Parts:
        return tuple(builder.part(source, "z", images) for source in (layer.input, layer.residual) if source)

    if not (work.fits and builder.holds(plane)):
        return _RowForward(builder, layer, work, plane, dry).works(
            needs, lambda images: (builder.part(name, "z", images), convolved_forward(builder, layer, images))
        )
    cut = swept_rows(builder, work, plane, bits=layer.act in ("tlu", "relu"))
    limit = builder.planes_at_once(name, plane) if cut == [None] else 1

    def emit(images: Range, tile: list[int], inputs: int | None) -> Work:
        parts = list(itertools.product(equal_ranges(*images, limit), cut))
        (some, rows), frn = parts[0], layer.norm == "frn"
        # What the A-Core needs first is loaded before the array's own operands can hold it up, if two tiles' planes have room.
        early = HALVES * (some[1] - some[0]) * plane.of(rows).nb <= builder.ring["AA"].size
        sides: tuple[int | None, int] = (None, 0)

        def prepare() -> None:
            nonlocal sides, early
            if builder.apart and builder.pool["PARAMETERS"].find(PARAMETER_ENTRIES) is None:
                early = False
                return
            parameters = builder.load_parameters(name, tile[0])
            if builder.apart and layer.residual:
                builder.fetch_planes(Dest.AA, builder.memory[layer.residual, "z"], some, tile[0], cut)
            sides = _load_sides(builder, layer, some, tile[0], parameters, rows) if early else (parameters, 0)

        sums = yield from work.compute(images, tile, inputs, norms=frn, prepare=prepare)
        builder.sweep(sums, lambda made: _sweeps(images, tile, sums, sides, made, early=early))

    def _sweeps(images: Range, tile: list[int], sums: Sums, sides: tuple[int | None, int], made: Part, *, early: bool) -> Work:
        parts, frn, lam = list(itertools.product(equal_ranges(*images, limit), cut)), layer.norm == "frn", 0
        parameters, residual = sides
        for tap, m in enumerate(tile):
            for number, (part, rows) in enumerate(parts):
                slot, swept, fresh = part[0] - images[0], plane.of(rows), not rows or rows[0] == 0
                whole = (builder.part(name, "z", images, (m, m + 1)),) if number == len(parts) - 1 else ()
                if tap and not number:
                    parameters = None
                room = ((builder.pool["PARAMETERS"], PARAMETER_ENTRIES),) if parameters is None else ()
                yield Piece(Lane.ACORE, (part[1] - part[0]) * swept.nb, (made,), whole, room, loads=False)
                if tap or number or not early or parameters is None:
                    parameters, residual = _load_sides(builder, layer, part, m, parameters, rows)
                fields = {
                    "planes": part[1] - part[0],
                    # A dry run leaves lambda for the rows that follow, too; nothing of it reaches the memory.
                    "dry": int(dry and not (rows and fresh)),
                    **swept.fields(),
                    **work.psum_fields(sums, tap, slot, rows[0] if rows else 0),
                    "n": plane.fields()["n"],
                }
                if frn and rows and fresh:
                    lam = builder.ring["PBUF"].take(1)
                shared = (lam, fresh) if frn and rows else None
                _activate(builder, layer, part, m, fields, sums, (parameters, residual), swept, dry, rows, shared)
            assert parameters is not None
            builder.pool["PARAMETERS"].give_back(parameters)

    def gives(images: Range, tile: list[int]) -> Parts:
        groups = [(group, group + 1) for group in tile]
        swept = () if builder.apart else tuple(builder.part(name, "z", images, some) for some in groups)
        return (*swept, *(convolved_forward(builder, layer, images, some) for some in groups))

    def made(images: Range, groups: Range) -> Parts:
        return (builder.part(layer.input, "z", images, groups),)

    if builder.choices.cut and layer.input != INPUT:
        return work.works(work.image_tiles(), needs, gives, emit, made, through(builder, layer, emitted=True))
    return work.works(work.image_tiles(), needs, gives, emit, early=through(builder, layer))


class _RowForward:
    """Forward pass of a layer by tiles of rows of one image after the other (docs/decisions/0007-planes-in-rows.md).

    A normalised plane is scaled by the sum of all its magnitudes, so the array goes over its tiles before the first one is
    swept. Either group by group (:meth:`_by_groups`): the last two tiles stay in the two halves, the others are computed again.
    Or tile by tile (:meth:`_by_tiles`), everything twice, but every input is loaded twice and not once for each output group.
    """

    def __init__(self, builder: Builder, layer: Conv | FullyConnected, work: Convolution, plane: Plane, dry: bool) -> None:
        self.builder, self.layer, self.plane, self.dry = builder, layer, plane, dry
        self.frn = layer.norm == "frn"
        self.lam = 0
        bits = layer.act in ("tlu", "relu")
        self.tiled = RowConvolution(work, plane, bits=bits, kept=False)
        kept = RowConvolution(work, plane, bits=bits, kept=True) if self.frn else self.tiled
        more = sum(tile.last - tile.first for tile in kept.tiles[:-HALVES]) / kept.sweep.upi
        by_groups, by_tiles = kept.bound * (1 + more), 2 * self.tiled.bound
        self.entries = sum(len(outs) for outs in kept.outputs) if self.frn else 0
        cheaper = by_groups <= by_tiles or self.entries > builder.pool["PARAMETERS"].size // 2
        self.by_groups = self.frn and bool(kept.tiles) and cheaper
        if self.by_groups:
            self.tiled = kept

    def works(self, needs: Callable[[Range], Parts], gives: Callable[[Range], Parts]) -> list[Work]:
        """All commands; ``needs``, ``gives``: of some images."""
        if self.by_groups:
            return [self._by_groups(needs, gives)]
        passes = 2 if self.frn else 1
        room = ((self.builder.pool["PARAMETERS"], self.entries),) if self.frn else ()
        return [self.tiled.by_tiles(needs, gives, self._tile, passes=passes, room=room)]

    def _by_groups(self, needs: Callable[[Range], Parts], gives: Callable[[Range], Parts]) -> Work:
        builder, tiled, pool = self.builder, self.tiled, self.builder.pool["PARAMETERS"]
        # The half of the last tile is free first, and the smallest tile, the first one, leaves the A-Core least time.
        kept, again = tiled.tiles[: -HALVES - 1 : -1], tiled.tiles[:-HALVES][::-1]
        for image, outs in itertools.product(range(*builder.images), tiled.outputs):
            images, first, last = (image, image + 1), outs is tiled.outputs[0], outs is tiled.outputs[-1]
            places = dict[RowTile, Sums]()
            left = sum(tiled.tile_cycles(tile) for tile in tiled.tiles)
            for tile in tiled.tiles:
                begins, turns = first and not places, tile is kept[0]
                entries = ((pool, len(outs)),) if not places else ()
                yield Piece(
                    Lane.ARRAY,
                    tiled.tile_cycles(tile),
                    needs(images) if begins else (),
                    gives(images) if last and turns and not again else (),
                    room=(tiled.room, *entries) if begins else entries,
                    lag=left,
                    silent=not turns,
                    inside=bool(places),
                    target=builder.sums.next,
                )
                if begins:
                    tiled.open()
                if entries:
                    lam = pool.take(len(outs))
                places[tile] = tiled.compute(image, outs, tile, norms=True, further=bool(places))
                left -= tiled.tile_cycles(tile)
            if len(kept) == HALVES:
                builder.sums.take()
            for tile in kept:
                self._sweeps(image, outs, tile, places[tile], lam, fresh=tile is kept[0])
            for tile in again:
                yield tiled.swept(tile, outs, gives=gives(images) if last and tile is again[-1] else ())
                self._sweeps(image, outs, tile, tiled.compute(image, outs, tile), lam)
            pool.give_back(lam)
            if last:
                tiled.close()

    def _sweeps(self, image: int, outs: list[int], tile: RowTile, sums: Sums, lam: int, *, fresh: bool = False) -> None:
        """A tile of some output groups. ``lam``: entry of the first one's lambda, which the first sweep finds if ``fresh``."""
        for tap, m in enumerate(outs):
            self._sweep(image, m, tile, sums, tap, lam + tap, fresh=fresh)

    def _tile(self, image: int, tile: RowTile, outs: list[int], inputs: int | None, last: bool) -> None:
        """A tile of some output groups: its sum of magnitudes, or in the last pass its sweeps."""
        tiled, pool = self.tiled, self.builder.pool["PARAMETERS"]
        if self.frn and not last and (tile, outs) == (tiled.tiles[0], tiled.outputs[0]):
            self.lam = pool.take(self.entries)
        sums = tiled.compute(image, outs, tile, inputs, norms=not last)
        for tap, m in enumerate(outs):
            (self._sweep if last else self._add_norm)(image, m, tile, sums, tap, self.lam + m)
        if self.frn and last and (tile, outs) == (tiled.tiles[-1], tiled.outputs[-1]):
            pool.give_back(self.lam)

    def _add_norm(self, image: int, group: int, tile: RowTile, sums: Sums, tap: int, lam: int) -> None:
        """The tile's sum of magnitudes joins the plane's; with the last tile lambda takes its place."""
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
        self, image: int, group: int, tile: RowTile, sums: Sums, tap: int, lam: int, *, fresh: bool = False
    ) -> None:
        """All parts of a tile; the first one finds lambda if it is ``fresh``."""
        images, parameters = (image, image + 1), self.builder.load_parameters(self.layer.name, group)
        for rows in self.tiled.parts(tile):
            first = fresh and rows[0] == self.tiled.first_row(tile)
            part = Plane(rows[1] - rows[0], self.plane.x)
            # A dry run leaves lambda for the rows that follow, too; nothing of it reaches the memory.
            fields = {"planes": 1, "dry": int(self.dry and not first), **part.fields()}
            fields |= self.tiled.place_fields(tile, sums, tap, rows[0]) | {"n": self.plane.fields()["n"]}
            sides = _load_sides(self.builder, self.layer, images, group, parameters, rows)
            shared = (lam, first) if self.frn else None
            _activate(self.builder, self.layer, images, group, fields, sums, sides, part, self.dry, rows, shared)
        self.builder.pool["PARAMETERS"].give_back(parameters)


def _load_sides(
    builder: Builder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    parameters: int | None = None,
    rows: Range | None = None,
) -> tuple[int, int]:
    """Parameters (unless loaded before) and the residual's planes of one output group. Returns their first addresses."""
    start = builder.load_parameters(layer.name, group) if parameters is None else parameters
    residual = 0
    if layer.residual:
        residual = builder.load_planes(Dest.AA, builder.memory[layer.residual, "z"], images, group, rows)
    return start, residual


def _activate(
    builder: Builder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    fields: dict[str, int],
    sums: Sums,
    sides: tuple[int, int],
    plane: Plane,
    dry: bool,
    rows: Range | None = None,
    shared: tuple[int, bool] | None = None,
) -> None:
    """Normalisation and activation of one output group, and its stores.

    ``rows``: only these of every plane. ``shared``: the entry of lambda, and whether this command writes it for others.
    """
    name, count = layer.name, images[1] - images[0]
    parameters, residual = sides
    beats, frn = count * plane.nb, layer.norm == "frn"
    row, fresh = rows[0] if rows else 0, shared is None or shared[1]
    program = _program(layer)
    if not fresh:
        program = program.replace("FRN_FWD", "FRN_ROWS")
    z, w, source = builder.tid(name, Kind.Z), builder.tid(name, Kind.W), builder.tid(layer.input, Kind.Z)
    oa = builder.ring["OA"].take(beats)
    writes = [("OA", oa, beats)]
    fields |= {"oa0": oa, "pb0": parameters}
    fields |= plane_rounding(builder, name, Kind.Z, builder.network.shape(name), images, group, row)
    reads = [*sums.read, ("PBUF", parameters, 6)]
    bits = ob = lam = 0
    if program != "LIN_FWD":
        bits = builder.ring["OM"].take(count * plane.bits)
        writes.append(("OM", bits, count * plane.bits))
        fields["om0"] = bits
    if frn:
        ob, lam = builder.ring["OB"].take(beats), builder.ring["PBUF"].take(count) if shared is None else shared[0]
        writes.append(("OB", ob, beats))
        (writes if fresh else reads).append(("PBUF", lam, count))
        if fresh:
            reads.append(sums.norms)
        fields |= {"ob0": ob, "pl0": lam, **xhat_rounding(builder, name, images, group, row)}
        tail = {"SH0": (-12, (), (w, source)), "SH1": (20, (z,), ())}
        if layer.residual:
            tail["SH2"] = (20, (builder.network.z_tid(layer.residual),), ())
            fields["sa0"] = residual
            reads.append(("AA", residual, beats))
    else:
        tail = {"SH0": (-24, (), (w, source)), "SH1": (0, (z,), (w, source))}
    builder.run(program, fields, shifts(**tail), reads=reads, writes=writes)
    if dry:
        return
    builder.store_planes(Source.OA, builder.memory[name, "z"], images, group, oa, rows)
    if not builder.training:
        return
    if frn:
        builder.store_planes(Source.OB, builder.memory[name, "xhat"], images, group, ob, rows)
    if frn and fresh:
        builder.store_planes(Source.PBUF, builder.memory[name, "reciprocals"], images, group, lam)
    if layer.act in ("tlu", "relu"):
        builder.store_planes(Source.OM, builder.memory[name, "bit"], images, group, bits, rows)


def _pool(builder: Builder, layer: Layer, dry: bool, every: range) -> Work:
    network, name = builder.network, layer.name
    geometry = network.geometry(name)
    (_, yi, xi), (channels, yo, xo) = geometry.in_shape, geometry.out_shape
    big, small = Plane(yi, xi), Plane(yo, xo)
    z, source = builder.tid(name, Kind.Z), builder.tid(layer.input, Kind.Z)
    maximum = isinstance(layer, MaxPool)
    inv, k = reciprocal(geometry.kernel[0] ** 2)
    constant = 0 if maximum else 15 + k
    windows = Windows(geometry.kernel[0], geometry.stride, geometry.pad)
    limit, pieces = pool_parts(builder, name, windows, small, big, backward=False)
    groups = builder.groups(channels)
    pool = {"pool": 1, "pmax": int(maximum), "pkern": geometry.kernel[0], "pstride": geometry.stride, "ppad": geometry.pad}
    for work, images, chosen in builder.sweeps(
        groups,
        limit,
        sum(pool_cycles(Instruction(Opcode.RUN, pool | part.fields())) for part in pieces),
        lambda images, groups: (builder.part(layer.input, "z", images, groups),),
        lambda images, groups: (builder.part(name, "z", images, groups),),
        chosen=every,
    ):
        # Rows of a plane one by one: a whole one would keep others waiting.
        each = dataclasses.replace(work, cycles=work.cycles // (len(pieces) * len(chosen))) if len(pieces) > 1 else work
        yield each
        count = images[1] - images[0]
        for number, (group, part) in enumerate(itertools.product(chosen, pieces)):
            if number and len(pieces) > 1:
                yield Piece(Lane.ACORE, each.cycles, inside=True)
            beats = count * part.out.nb
            aa = builder.load_planes(Dest.AA, builder.memory[layer.input, "z"], images, group, part.stored_rows)
            oa = builder.ring["OA"].take(beats)
            ob = builder.ring["OB"].take(beats) if maximum else 0
            fields = {
                "planes": count,
                "dry": int(dry),
                **part.fields(),
                "xsrc": int(XSource.NONE),
                "sa0": aa,
                "oa0": oa,
                "ob0": ob,
                "inv": inv,
                **plane_rounding(builder, name, Kind.Z, network.shape(name), images, group, part.row),
                **pool,
            }
            builder.run(
                "MAXPOOL_FWD" if maximum else "AVGPOOL_FWD",
                fields,
                shifts(SH1=(constant, (z,), (source,))),
                reads=[("AA", aa, count * part.stored.nb)],
                writes=[("OA", oa, beats), ("OB", ob, beats if maximum else 0)],
            )
            if dry:
                continue
            builder.store_planes(Source.OA, builder.memory[name, "z"], images, group, oa, part.rows)
            if maximum and builder.training:
                builder.store_planes(Source.OB, builder.memory[name, "index"], images, group, ob, part.rows)
