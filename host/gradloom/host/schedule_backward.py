"""Backward pass: errors through convolutions, normalisations and pools; updates of parameters."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

from gradloom.host.assembler import Instruction
from gradloom.host.convolution import Convolution
from gradloom.host.cost import pool_cycles
from gradloom.host.error_sweeps import ErrorPart, error_works
from gradloom.host.layer_sizes import Plane, shape_of
from gradloom.host.pacing import Lane, Part, Piece, Work
from gradloom.host.pool_parts import Windows, pool_parts
from gradloom.host.row_tiles import cut_rows, fits_beside, row_parts
from gradloom.host.schedule_rounding import plane_rounding
from gradloom.host.tiling import PARAMETER_ENTRIES, Builder, shifts
from gradloom.host.windows import backward_sweep
from gradloom.models.arith import reciprocal
from gradloom.models.network import Conv, FullyConnected, Layer, MaxPool, Subsample
from gradloom.rtl.isa import Dest, Kind, Opcode, Source, XSource

__all__ = [
    "Accumulation",
    "accumulator_zero",
    "convolved",
    "ds_zero",
    "dx_kind",
    "dx_region_name",
    "output_error",
    "output_zero",
    "second_error",
]

_UPDATE_CYCLES, _BIAS_CYCLES = 250, 60
"""Cycles of the A-Core for an update of parameters, and of a bias alone, about."""
_OTHERS = 4
"""Bunches of parameters that nobody but their update waits for, below which a work makes room itself before it needs any."""
_BUNCH = 8
"""Groups for which it is taken together, so that the next ones' parameters come while one is worked at."""
_SCALARS = 22
"""The same for the scalars of one normalised plane of all channels of a group."""
Range = tuple[int, int]
Zero = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Constant, tensors added, tensors subtracted of the exponent at which a converter's shift is 0."""


def dx_kind(layer: Conv | FullyConnected) -> Kind:
    """Tensor whose exponent the error of the accumulators has."""
    return Kind.DX if layer.norm == "frn" else Kind.DZ


def dx_region_name(builder: Builder, layer: Conv | FullyConnected) -> str:
    """Tensor in DRAM that holds the error of the accumulators."""
    if layer.norm == "frn" or layer.act == "relu":
        return "dx"
    return "error" if layer.name == builder.network.logits.name else "dz"


def ds_zero(builder: Builder, layer: Conv | FullyConnected) -> Zero:
    """Exponent of the sums of a layer's backward convolution: e[w] + e[dx]."""
    return 0, (builder.tid(layer.name, Kind.W), builder.tid(layer.name, dx_kind(layer))), ()


def output_zero(builder: Builder, name: str) -> Zero:
    """Exponent of dz of a layer at which its converter's shift is 0."""
    network = builder.network
    main = network.main_consumer(name)
    if main is None:
        shortcut = network.shortcut(name)
        assert shortcut is not None
        source = network.dz_tid if shortcut.kind == "residual" else network.ds_tid
        return 0, (source(shortcut.layer),), ()
    if isinstance(main, Conv | FullyConnected):
        return ds_zero(builder, main)
    constant = (
        0 if isinstance(main, MaxPool) else -15 - reciprocal(network.geometry(main.name).kernel[0] ** 2)[1]
    )
    return constant, (builder.tid(main.name, Kind.DZ),), ()


def accumulator_zero(builder: Builder, layer: Conv | FullyConnected) -> Zero:
    """Exponent of dx of a normalised layer at which its converter's shift (without le) is 0."""
    return (
        0,
        (builder.tid(layer.name, Kind.DZ),),
        (builder.tid(layer.name, Kind.W), builder.tid(layer.input, Kind.Z)),
    )


def _relative(tid: int, zero: Zero) -> Zero:
    """Shift of a converter: e[tid] - zero."""
    constant, plus, minus = zero
    return -constant, (tid, *minus), plus


def convolved(builder: Builder, layer: Layer, images: Range, groups: Range | None = None) -> Part:
    """Says that the backward convolution of a layer has read its weights for the last time for some images, and for some groups of
    its results."""
    channels = builder.network.shape(layer.input)[0]
    return Part(f"{layer.name} backward", images, groups or (0, builder.groups(channels)))


def output_error(builder: Builder, name: str, *, dry: bool = False) -> list[Work]:
    """dz of a layer: what its main consumer sends back, plus the shortcut's error.

    dz of a subsampling shortcut, which is only added, are the masked codes of that addition's error.
    """
    main = builder.network.main_consumer(name)
    if main is None or isinstance(main, Conv | FullyConnected):
        works = _convolved_error(builder, name, main, dry)
    else:
        works = [_pool(builder, name, main, dry)]
    return [builder.tagged(8 * builder.network.index(main.name if main else name) + 1, work) for work in works]


def second_error(builder: Builder, layer: Conv | FullyConnected, *, dry: bool = False) -> list[Work]:
    """ds: what a layer, the second convolution on its input, sends back, as a tensor of its own."""
    work, plane = _backward_work(builder, layer)
    tail = shifts(SH1=_relative(builder.tid(layer.name, Kind.DS), ds_zero(builder, layer)))
    shape = builder.network.shape(layer.input)

    def encode(part: ErrorPart) -> None:
        part.fields |= plane_rounding(builder, layer.name, Kind.DS, shape, part.images, part.group, part.row)
        _encode(builder, "BP_OUT", tail, part, (layer.name, "ds"), dry)

    works = error_works(
        builder,
        layer.name,
        work,
        plane,
        shape[0],
        encode,
        lambda images, _: (builder.part(layer.name, dx_region_name(builder, layer), images),),
        lambda images, groups: (builder.part(layer.name, "ds", images, groups),),
        bits=False,
        masked=False,
        convolved=lambda images, groups: (convolved(builder, layer, images, groups),),
    )
    return [builder.tagged(8 * builder.network.index(layer.name) + 1, each) for each in works]


def _backward_work(builder: Builder, layer: Conv | FullyConnected) -> tuple[Convolution, Plane]:
    shape = shape_of(builder.network, layer, builder.config)
    region = builder.memory[layer.name, dx_region_name(builder, layer)]
    plane = Plane(shape.yi, shape.xi)
    sweep = backward_sweep(shape)
    return Convolution(builder, layer.name, shape, sweep, region, shape.cg, transpose=True, beats=plane.nb, share=4), plane


def _encode(builder: Builder, program: str, tail: tuple, part: ErrorPart, target: tuple[str, str], dry: bool) -> None:
    """RUN that writes output A and its store."""
    oa = builder.ring["OA"].take(part.beats)
    builder.run(
        program,
        {"planes": part.count, "dry": int(dry), **part.plane.fields(), "oa0": oa, **part.fields},
        tail,
        reads=part.reads,
        writes=[("OA", oa, part.beats)],
    )
    if not dry:
        builder.store_planes(Source.OA, builder.memory[target], part.images, part.group, oa, part.rows)


def _convolved_error(
    builder: Builder, name: str, main: Conv | FullyConnected | None, dry: bool
) -> list[Work]:
    network, memory = builder.network, builder.memory
    channels, y, x = network.shape(name)
    plane, zero = Plane(y, x), output_zero(builder, name)
    encoded = not isinstance(network.layer(name), Subsample)
    shortcut = network.shortcut(name)
    work = None if main is None else _backward_work(builder, main)[0]
    program, sums = "BP_OUT", {"SH1": _relative(network.dz_tid(name), zero)}
    added = ""
    if shortcut is not None:
        program = "BP_OUT_RES" if shortcut.kind == "residual" else "BP_OUT_ADD"
        added = "dz" if shortcut.kind == "residual" else "ds"
        tid = network.dz_tid if added == "dz" else network.ds_tid
        sums["SH2"] = _relative(tid(shortcut.layer), zero)
    tail = shifts(**sums)

    def encode(part: ErrorPart) -> None:
        fields, reads = part.fields, part.reads
        if encoded:
            fields |= plane_rounding(builder, name, Kind.DZ, (channels, y, x), part.images, part.group, part.row)
        if shortcut is not None:
            fields["sa0"] = builder.load_planes(Dest.AA, memory[shortcut.layer, added], part.images, part.group, part.rows)
            reads.append(("AA", fields["sa0"], part.beats))
        if added == "dz" and shortcut is not None:
            fields["sm0"] = builder.load_planes(Dest.AM, memory[shortcut.layer, "bit"], part.images, part.group, part.rows)
            reads.append(("AM", fields["sm0"], part.count * part.plane.bits))
        _encode(builder, program, tail, part, (name, "dz"), dry)

    def fetch(images: Range, group: int, rows: Sequence[Range | None]) -> None:
        if shortcut is not None:
            builder.fetch_planes(Dest.AA, memory[shortcut.layer, added], images, group, rows)
            if added == "dz":
                builder.fetch_planes(Dest.AM, memory[shortcut.layer, "bit"], images, group, rows)

    def needs(images: Range, groups: Range | None) -> tuple[Part, ...]:
        others = (builder.part(shortcut.layer, added, images, groups),) if shortcut else ()
        return (builder.part(main.name, dx_region_name(builder, main), images), *others) if main else others

    def gives(images: Range, groups: Range | None) -> tuple[Part, ...]:
        rows = () if main else builder.every_row(name, "dz", images, groups or (0, builder.groups(channels)))
        return (builder.part(name, "dz", images, groups), *rows)

    def used(images: Range, groups: Range | None) -> tuple[Part, ...]:
        return (convolved(builder, main, images, groups),) if main else ()

    def rows_given(image: int, rows: Range, group: int) -> Part:
        return builder.row_part(name, "dz", image, rows, group)

    def made(images: Range, groups: Range) -> tuple[Part, ...]:
        assert main is not None
        return (builder.part(main.name, dx_region_name(builder, main), images, groups),)

    source = _error_source(builder, main) if main and (builder.choices.cut or not shortcut) else None
    early: tuple[Part, ...] = (convolved(builder, source, builder.images),) if source else ()
    if shortcut:
        early += (builder.part(shortcut.layer, added, builder.images),)
    slowly = bool(main and source and _slowly_made(builder, main, source))
    return error_works(
        builder, name, work, plane, channels, encode, needs, gives, bits=True, masked=added == "dz", convolved=used, fetch=fetch,
        rows_given=rows_given if builder.apart else None, early=early,
        made=made if slowly else None,
    )


def _error_source(builder: Builder, layer: Conv | FullyConnected) -> Conv | FullyConnected | None:
    """The layer whose backward convolution makes the error of a layer's outputs, pools aside."""
    source = builder.network.main_consumer(layer.name)
    while source is not None and not isinstance(source, Conv | FullyConnected):
        source = builder.network.main_consumer(source.name)
    return source


def _slowly_made(builder: Builder, layer: Conv | FullyConnected, source: Conv | FullyConnected) -> bool:
    """Whether the A-Core makes dx of a normalised layer more slowly than the array the error of its outputs, and no other half of
    the images keeps the array busy meanwhile."""
    if len(builder.turn) > 1:
        return False
    if builder.choices.cut:
        return layer.norm == "frn"
    channels, y, x = builder.network.shape(layer.name)
    images = builder.images[1] - builder.images[0]
    acore = images * builder.groups(channels) * max(_SCALARS, Plane(y, x).nb)
    return layer.norm == "frn" and acore > _backward_work(builder, source)[0].cycles(builder.images)


def _pool(builder: Builder, name: str, pool: Layer, dry: bool) -> Work:
    """dz of a pool's input; planes of the pooled size come in, planes of the input's size go out."""
    network, memory = builder.network, builder.memory
    geometry = network.geometry(pool.name)
    (channels, yi, xi), (_, yo, xo) = geometry.in_shape, geometry.out_shape
    big, small = Plane(yi, xi), Plane(yo, xo)
    maximum = isinstance(pool, MaxPool)
    tail = shifts(SH1=_relative(builder.tid(name, Kind.DZ), output_zero(builder, name)))
    windows = Windows(geometry.kernel[0], geometry.stride, geometry.pad)
    limit, pieces = pool_parts(builder, pool.name, windows, big, small, backward=True)
    fixed = {
        "xsrc": int(XSource.NONE),
        "pool": 2,
        "pmax": int(maximum),
        "pkern": geometry.kernel[0],
        "pstride": geometry.stride,
        "ppad": geometry.pad,
        "inv": reciprocal(geometry.kernel[0] ** 2)[0],
    }
    cycles = sum(pool_cycles(Instruction(Opcode.RUN, fixed | piece.fields())) for piece in pieces)
    for work, images, chosen in builder.sweeps(
        builder.groups(channels),
        limit,
        cycles,
        lambda images, groups: (builder.part(pool.name, "dz", images, groups),),
        lambda images, groups: (builder.part(name, "dz", images, groups), *builder.every_row(name, "dz", images, groups)),
    ):
        # Rows of a plane one by one: a whole one would keep others waiting.
        each = dataclasses.replace(work, cycles=work.cycles // (len(pieces) * len(chosen))) if len(pieces) > 1 else work
        yield each
        count = images[1] - images[0]
        for number, (group, piece) in enumerate(itertools.product(chosen, pieces)):
            if number and len(pieces) > 1:
                yield Piece(Lane.ACORE, each.cycles, inside=True)
            beats = count * piece.stored.nb
            aa = builder.load_planes(Dest.AA, memory[pool.name, "dz"], images, group, piece.stored_rows)
            part = ErrorPart(images, group, piece.out, piece.rows, fixed | piece.fields() | {"sa0": aa}, [("AA", aa, beats)])
            part.fields |= plane_rounding(builder, name, Kind.DZ, (channels, yi, xi), images, group, part.row)
            if maximum:
                index = builder.load_planes(Dest.AB, memory[pool.name, "index"], images, group, piece.stored_rows)
                part.fields["sb0"] = index
                part.reads.append(("AB", index, beats))
            _encode(builder, "MAXPOOL_BWD" if maximum else "AVGPOOL_BWD", tail, part, (name, "dz"), dry)


class Accumulation:
    """dx of a layer, sums of its parameters' gradients and, after the batch's last part, their update.

    By images it takes range after range of images, and the sums of all channel groups are on chip meanwhile. Where they do
    not fit, it takes one channel group after the other.
    """

    def __init__(
        self, builder: Builder, layer: Conv | FullyConnected, *, dry: bool = False, first: bool = True, last: bool = True
    ) -> None:
        self.builder, self.layer = builder, layer
        self.dry, self.first, self.last = dry, first, last
        channels, y, x = builder.network.shape(layer.name)
        self.plane, self.groups = Plane(y, x), builder.groups(channels)
        self._tag = 8 * builder.network.index(layer.name) + 2
        self._rows: list[Range] = []
        frn, bits = layer.norm == "frn", layer.act in ("tlu", "relu")
        self._together = builder.holds(self.plane) and (not frn or fits_beside(builder, self.plane))
        """Whether all rows of a plane are on chip at once."""
        if self._together:
            one = frn and builder.images[1] - builder.images[0] == 1
            self._rows = cut_rows(builder, self.plane, bits=bits) if one else []
        else:
            self._rows = row_parts(builder, layer.name, self.plane, (0, y), bits=bits)
        # Rows have one more entry, the sum of products of their plane.
        self._entries = PARAMETER_ENTRIES + bool(self._rows)
        self._fits = self.groups * self._entries <= builder.pool["PARAMETERS"].size
        self._limit = 1 if self._rows else builder.planes_at_once(layer.name, self.plane)

    def _start(self, group: int, place: int | None = None) -> int:
        """Load a group's parameters and sums, to a place that has been taken before or to a new one."""
        memory = self.builder.memory
        sums = memory["", "zeros"] if self.first else memory[self.layer.name, "sums"]
        return self.builder.load_parameters(self.layer.name, group, sums=sums, entries=self._entries, place=place)

    def _part(self, images: Range, groups: Range) -> Part:
        name = self.layer.name
        return self.builder.part(name, _error_name(self.builder, self.layer), images, groups)

    def _forward(self) -> tuple[Part, ...]:
        """The end of the forward pass, whose parameter sets are no longer on chip then; the last layers leave room for it."""
        if self.layer in self.builder.last_layers:
            return ()
        return (self.builder.part(self.builder.network.logits.name, "error", self.builder.images),)

    def emit(self) -> list[Work]:
        """All commands."""
        low, high = self.builder.images
        if self.builder.apart and self._fits and self._together and self.layer.norm == "frn" and high - low <= self._limit:
            works = [self._one_group(group) for group in range(self.groups)]
        else:
            works = [self._by_images() if self._fits else self._by_groups()]
        return [self.builder.tagged(self._tag, work) for work in works]

    def _one_group(self, group: int) -> Work:
        """One channel group of all images, which others of the A-Core's pieces may come between."""
        builder, layer, images = self.builder, self.layer, self.builder.images
        room, gives = ((builder.pool["PARAMETERS"], self._entries),), self._gives(images, (group, group + 1))
        if not self._rows:
            cycles = (images[1] - images[0]) * max(self.plane.nb, _SCALARS)
            yield Piece(Lane.ACORE, cycles, (self._part(images, (group, group + 1)), *self._forward()), gives, room)
            place = builder.pool["PARAMETERS"].take(self._entries)
            self._start(group, place)
            _accumulate(builder, layer, images, group, place, self.plane, self.dry)
        else:
            place, streams = 0, _Streams(builder, layer, group, self._rows)
            for number, rows in enumerate(self._rows):
                needs = (builder.row_part(layer.name, "dz", images[0], rows, group), *self._forward())
                cycles = Plane(rows[1] - rows[0], self.plane.x).nb
                yield Piece(Lane.ACORE, cycles, needs, room=() if number else room, passes_first=True)
                if not number:
                    place = builder.pool["PARAMETERS"].take(self._entries)
                    self._start(group, place)
                streams.load(images, rows)
                _accumulate(
                    builder, layer, images, group, place, self.plane, self.dry, rows, "FRN_ADD" if number else "FRN_SUM", streams
                )
            for rows in self._rows:
                last = rows is self._rows[-1]
                yield Piece(Lane.ACORE, Plane(rows[1] - rows[0], self.plane.x).nb, gives=gives if last else (), loads=False)
                _accumulate(builder, layer, images, group, place, self.plane, self.dry, rows, "FRN_ERR", streams)
        yield Piece(Lane.ACORE, _UPDATE_CYCLES, late=True)
        self._end(group, place)

    def _by_images(self) -> Work:
        pool, places = self.builder.pool["PARAMETERS"], dict[int, int]()

        def needs(images: Range, groups: Range) -> tuple[Part, ...]:
            return self._part(images, groups), *self._forward()

        for piece, images, groups in self.builder.sweeps(
            self.groups, self._limit, self.plane.nb, needs, self._gives, _SCALARS
        ):
            piece = dataclasses.replace(piece, cycles=piece.cycles // max(1, len(self._rows)))
            once = images == self.builder.images
            """Each group has its turn once, with all images."""
            wanted = max(_BUNCH // len(groups), 1) * len(groups) if once else self.groups
            fresh = range(groups.start, min(groups.start + wanted, self.groups)) if groups.start not in places else range(0)
            room = ((pool, self._entries * len(fresh)),) if fresh else ()
            makes_room = functools.partial(self._make_room, places, groups.start, len(fresh) if once else 0)
            if once and self.builder.late_sets < _OTHERS * len(fresh) and pool.find(self._entries * len(fresh)) is None:
                # Hardly anybody else will.
                makes_room()
            yield dataclasses.replace(piece, room=room, yields=makes_room)
            places |= {group: pool.take(self._entries) for group in fresh}
            for group in groups:
                if images[0] == self.builder.images[0]:
                    # Not those of all groups at once, which would keep the Sequencer busy.
                    self._start(group, places[group])
                yield from self._accumulate(images, group, places[group])
        self.builder.late_sets += len(places)
        for group, place in places.items():
            yield Piece(Lane.ACORE, _UPDATE_CYCLES if self.layer.norm == "frn" else _BIAS_CYCLES, late=True)
            self._end(group, place)
            self.builder.late_sets -= 1

    def _make_room(self, places: dict[int, int], before: int, count: int) -> bool:
        """End the oldest of the groups ``before`` one, each of which has had its turn; whether there were any."""
        oldest = [group for group in places if group < before][:count]
        self.builder.recorder.tag = self._tag
        for group in oldest:
            self._end(group, places.pop(group))
        return bool(oldest)

    def _by_groups(self) -> Work:
        every, place = self.builder.images, 0
        for group in range(self.groups):
            for images in self.builder.ranges(every, self._limit, self.plane.nb):
                first, last = images[0] == every[0], images[1] == every[1]
                room = ((self.builder.pool["PARAMETERS"], self._entries),) if first else ()
                gives = self._gives(every, (group, group + 1)) if last else ()
                needs = (self._part(every, (group, group + 1)), *self._forward())
                cycles = (images[1] - images[0]) * self.plane.nb // max(1, len(self._rows))
                yield Piece(Lane.ACORE, cycles, needs, gives, room)
                place = self._start(group) if first else place
                yield from self._accumulate(images, group, place)
                if last:
                    self._end(group, place)

    def _gives(self, images: Range, groups: Range) -> tuple[Part, ...]:
        region = dx_region_name(self.builder, self.layer)
        return (self.builder.part(self.layer.name, region, images, groups),) if region == "dx" else ()

    def _accumulate(self, images: Range, group: int, place: int) -> Work:
        """One channel group of some images; of a plane in rows all sums come first, then all errors, piece by piece."""
        builder, layer = self.builder, self.layer
        if not self._rows:
            _accumulate(builder, layer, images, group, place, self.plane, self.dry)
            return
        parts = [(rows, self.dry, "FRN_ERR") for rows in self._rows]
        if layer.norm == "frn":
            parts = [(rows, False, "FRN_ADD" if number else "FRN_SUM") for number, rows in enumerate(self._rows)] + parts
        for number, (rows, dry, program) in enumerate(parts):
            if number:
                yield Piece(Lane.ACORE, Plane(rows[1] - rows[0], self.plane.x).nb, inside=True)
            _accumulate(builder, layer, images, group, place, self.plane, dry, rows, program)

    def _end(self, group: int, place: int) -> None:
        self.builder.pool["PARAMETERS"].give_back(place)
        if self.dry:
            return
        if self.last:
            _update_parameters(self.builder, self.layer, group, place)
            return
        region = self.builder.memory[self.layer.name, "sums"]
        box = [((group, group + 1), (0, 1))]
        self.builder.store(Source.PBUF, region, box, region.at(group), n0=12, addr=place + 3, length=3)


def _error_name(builder: Builder, layer: Conv | FullyConnected) -> str:
    """The error of a layer's output in memory."""
    return "error" if layer.name == builder.network.logits.name else "dz"


class _Streams:
    """What the A-Core reads of one channel group, loaded rows by rows, so that a first pass follows them, and on chip until the
    sweep is through: first addresses of A, B and the bitmap by first row."""

    def __init__(self, builder: Builder, layer: Conv | FullyConnected, group: int, rows: list[Range]) -> None:
        memory, name = builder.memory, layer.name
        self._builder, self._group, self._rows = builder, group, rows
        self._regions = {Dest.AA: memory[name, "dz"], Dest.AB: memory[name, "xhat"]}
        if layer.act in ("tlu", "relu"):
            self._regions[Dest.AM] = memory[name, "bit"]
        self._places = dict[tuple[Dest, int], int]()

    def load(self, images: Range, rows: Range) -> None:
        """Some rows of A; with the first ones all of what has been there for long."""
        builder, first = self._builder, rows is self._rows[0]
        for dest, region in self._regions.items():
            if first:
                start = builder.ring[dest.name].take(region.unit // builder.config.beat_bytes)
                self._places |= {(dest, part[0]): start + region.rows(*part)[0] for part in self._rows}
            for part in self._rows if first and dest != Dest.AA else [rows] if dest == Dest.AA else []:
                builder.load_planes(dest, region, images, self._group, part, self._places[dest, part[0]])

    def __call__(self, dest: Dest, rows: Range) -> int:
        return self._places[dest, rows[0]]


def _accumulate(
    builder: Builder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    start: int,
    whole: Plane,
    dry: bool,
    rows: Range | None = None,
    by_rows: str = "",
    streams: _Streams | None = None,
) -> None:
    """One channel group of some images: dz to dx, sums in the parameter buffer.

    ``rows``: only these of every plane; then ``by_rows`` takes the place of FRN_BWD. ``streams``: what has been loaded of them.
    """

    def loaded(dest: Dest, tensor: str) -> int:
        return streams(dest, rows) if streams and rows else builder.load_planes(dest, memory[name, tensor], images, group, rows)

    memory, name, count = builder.memory, layer.name, images[1] - images[0]
    plane = Plane(rows[1] - rows[0], whole.x) if rows else whole
    beats = count * plane.nb
    inv, k = reciprocal(whole.y * whole.x)
    aa = loaded(Dest.AA, _error_name(builder, layer))
    fields = {
        "planes": count,
        "dry": int(dry),
        **plane.fields(),
        "xsrc": int(XSource.NONE),
        "sa0": aa,
        "pb0": start,
        "inv": inv,
        "n": whole.fields()["n"],
    }
    entries = 7 if by_rows else 6
    reads, writes = [("AA", aa, beats), ("PBUF", start, entries)], [("PBUF", start + 3, entries - 3)]
    if layer.act in ("tlu", "relu"):
        fields["sm0"] = loaded(Dest.AM, "bit")
        reads.append(("AM", fields["sm0"], count * plane.bits))
    tail = shifts(SH1=(0, (), ()))
    program = "RELU_BWD" if layer.act == "relu" else "LIN_BWD"
    if layer.norm == "frn":
        program = (by_rows or "FRN_BWD") + ("" if layer.act == "tlu" else "_LIN")
    only_sums = program == "LIN_BWD" or by_rows in ("FRN_SUM", "FRN_ADD")
    if layer.norm == "frn":
        fields["sb0"] = loaded(Dest.AB, "xhat")
        reads.append(("AB", fields["sb0"], beats))
    if layer.norm == "frn" and not only_sums:
        fields["pl0"] = builder.load_planes(Dest.PBUF, memory[name, "reciprocals"], images, group)
        fields |= plane_rounding(builder, name, Kind.DX, builder.network.shape(name), images, group, rows[0] if rows else 0)
        reads.append(("PBUF", fields["pl0"], count))
        tail = shifts(
            SH1=_relative(builder.tid(name, Kind.DX), accumulator_zero(builder, layer)), SH3=(19 + k, (), ())
        )
    if not only_sums:
        fields["oa0"] = builder.ring["OA"].take(beats)
        writes.append(("OA", fields["oa0"], beats))
    builder.run(program, fields, tail, reads=reads, writes=writes)
    if not dry and not only_sums:
        builder.store_planes(Source.OA, memory[name, "dx"], images, group, fields["oa0"], rows)


def _update_parameters(builder: Builder, layer: Conv | FullyConnected, group: int, start: int) -> None:
    region = builder.memory[layer.name, "parameters"]
    count, dz = region.shape[1], builder.tid(layer.name, Kind.DZ)
    inv, k = reciprocal(builder.batch)
    builder.run(
        "PARAM_UPD" if count == 3 else "BIAS_UPD",
        {
            "planes": 1,
            "nb": 1,
            "xe": 1,
            "py": 1,
            "xodd": 1,
            "n": 1,
            "xsrc": int(XSource.NONE),
            "pb0": start,
            "inv": inv,
        },
        shifts(SH0=(1 - k, (dz,), ()), SH1=(9 - k, (dz,), ()), SH2=(0, (), (1,))),
        reads=[("PBUF", start, 6)],
        writes=[("PBUF", start, 3)],
    )
    first = start if count == 3 else start + 1
    builder.store(
        Source.PBUF,
        region,
        [((group, group + 1), (0, 1))],
        region.at(group),
        n0=4 * count,
        addr=first,
        length=count,
    )
