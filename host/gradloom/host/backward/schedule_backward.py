"""Backward pass: errors through convolutions and pools, and the exponents that they come with."""

import itertools
from collections.abc import Sequence
from typing import Any

from gradloom.contracts.isa import Dest, Kind, Opcode, Source, XSource
from gradloom.host.backward.conv_backward_tiles import ErrorPart, error_works
from gradloom.host.compilation.layer_sizes import Plane, shape_of
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.schedule_rounding import plane_rounding
from gradloom.host.cost_model.pool_walk import pool_cycles
from gradloom.host.order.pieces import BoundEngine, DataRegion, Piece, Work
from gradloom.host.program.assembler import Instruction
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.phase_sweeps import backward_sweep
from gradloom.host.tiles.pool_parts import Windows, pool_parts
from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.network import Conv, FullyConnected, Layer, MaxPool, Subsample

__all__ = [
    "SCALAR_CYCLES",
    "accumulator_zero",
    "convolved",
    "ds_zero",
    "dx_kind",
    "dx_region_name",
    "output_error",
    "output_zero",
    "relative",
    "second_error",
]

SCALAR_CYCLES = 22
"""Cycles of the A-Core for the scalars of one normalised plane of all channels of a group, about."""
Range = tuple[int, int]
Zero = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Constant, tensors added, tensors subtracted of the exponent at which a converter's shift is 0."""


def dx_kind(layer: Conv | FullyConnected) -> Kind:
    """Tensor whose exponent the error of the accumulators has."""
    return Kind.DX if layer.norm == "frn" else Kind.DZ


def dx_region_name(builder: ProgramBuilder, layer: Conv | FullyConnected) -> str:
    """Tensor in DRAM that holds the error of the accumulators."""
    if layer.norm == "frn" or layer.act == "relu":
        return "dx"
    return "error" if layer.name == builder.network.logits.name else "dz"


def ds_zero(builder: ProgramBuilder, layer: Conv | FullyConnected) -> Zero:
    """Exponent of the sums of a layer's backward convolution: e[w] + e[dx]."""
    return 0, (builder.tid(layer.name, Kind.W), builder.tid(layer.name, dx_kind(layer))), ()


def output_zero(builder: ProgramBuilder, name: str) -> Zero:
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


def accumulator_zero(builder: ProgramBuilder, layer: Conv | FullyConnected) -> Zero:
    """Exponent of dx of a normalised layer at which its converter's shift (without le) is 0."""
    return (
        0,
        (builder.tid(layer.name, Kind.DZ),),
        (builder.tid(layer.name, Kind.W), builder.tid(layer.input, Kind.Z)),
    )


def relative(tid: int, zero: Zero) -> Zero:
    """Shift of a converter: e[tid] - zero."""
    constant, plus, minus = zero
    return -constant, (tid, *minus), plus


def convolved(builder: ProgramBuilder, layer: Layer, images: Range, groups: Range | None = None) -> DataRegion:
    """Says that the backward convolution of a layer has read its weights for the last time for some images, and for some groups of
    its results."""
    channels = builder.network.shape(layer.input)[0]
    return DataRegion(f"{layer.name} backward", images, groups or (0, builder.groups(channels)))


def output_error(builder: ProgramBuilder, name: str, *, dry: bool = False) -> list[Work]:
    """dz of a layer: what its main consumer sends back, plus the shortcut's error.

    dz of a subsampling shortcut, which is only added, are the masked codes of that addition's error.
    """
    main = builder.network.main_consumer(name)
    tag = 8 * builder.network.index(main.name if main else name) + 1
    if main is None or isinstance(main, Conv | FullyConnected):
        works = _convolved_error(builder, name, main, dry)
    else:
        works = [_pool(builder, name, main, dry)]
    return [builder.planned(tag, work) for work in works]


def second_error(builder: ProgramBuilder, layer: Conv | FullyConnected, *, dry: bool = False) -> list[Work]:
    """ds: what a layer, the second convolution on its input, sends back, as a tensor of its own.

    Where a kernel of 1 x 1 has stride 2, only every second row is written. The others are zeros that are in memory from the start
    (:meth:`gradloom.host.plan.Plan.write_program`).
    """
    work, plane = _backward_work(builder, layer, kept=True)
    every = 2 if work.sweep.kept else 1
    tail = shifts(SH1=relative(builder.tid(layer.name, Kind.DS), ds_zero(builder, layer)))
    shape = builder.network.shape(layer.input)

    def encode(part: ErrorPart) -> None:
        part.fields |= plane_rounding(builder, layer.name, Kind.DS, shape, part.images, part.group, every * part.row)
        _encode(builder, "BP_OUT", tail, part, (layer.name, "ds"), dry, every)

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
    return [builder.planned(8 * builder.network.index(layer.name) + 1, each) for each in works]


def _backward_work(builder: ProgramBuilder, layer: Conv | FullyConnected, *, kept: bool = False) -> tuple[Convolution, Plane]:
    """The backward convolution and the planes of its results, without rows of zeros if only others are to be ``kept``."""
    shape = shape_of(builder.network, layer, builder.config)
    region = builder.memory[layer.name, dx_region_name(builder, layer)]
    sweep = backward_sweep(shape, kept=kept)
    plane = Plane(sweep.upi if sweep.kept else shape.yi, shape.xi)
    return Convolution(builder, layer.name, shape, sweep, region, shape.cg, transpose=True, beats=plane.nb, share=4), plane


def _encode(
    builder: ProgramBuilder, program: str, tail: tuple, part: ErrorPart, target: tuple[str, str], dry: bool, every: int = 1
) -> None:
    """RUN that writes output A and its store, to every row or every second one."""
    oa = builder.ring["OA"].take(part.beats)
    builder.run(
        program,
        {"planes": part.count, "dry": int(dry), **part.plane.fields(), "oa0": oa, **part.fields},
        tail,
        reads=part.reads,
        writes=[("OA", oa, part.beats)],
    )
    if not dry:
        builder.store_planes(Source.OA, builder.memory[target], part.images, part.group, oa, part.rows, every)


def _convolved_error(
    builder: ProgramBuilder, name: str, main: Conv | FullyConnected | None, dry: bool
) -> list[Work]:
    network, memory = builder.network, builder.memory
    channels, y, x = network.shape(name)
    plane, zero = Plane(y, x), output_zero(builder, name)
    encoded = not isinstance(network.layer(name), Subsample)
    shortcut = network.shortcut(name)
    work = None if main is None else _backward_work(builder, main)[0]
    program, sums = "BP_OUT", {"SH1": relative(network.dz_tid(name), zero)}
    added = ""
    if shortcut is not None:
        program = "BP_OUT_RES" if shortcut.kind == "residual" else "BP_OUT_ADD"
        added = "dz" if shortcut.kind == "residual" else "ds"
        tid = network.dz_tid if added == "dz" else network.ds_tid
        sums["SH2"] = relative(tid(shortcut.layer), zero)
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

    def needs(images: Range, groups: Range | None) -> tuple[DataRegion, ...]:
        others = (builder.part(shortcut.layer, added, images, groups),) if shortcut else ()
        return (builder.part(main.name, dx_region_name(builder, main), images), *others) if main else others

    def gives(images: Range, groups: Range | None) -> tuple[DataRegion, ...]:
        rows = () if main else builder.every_row(name, "dz", images, groups or (0, builder.groups(channels)))
        return (builder.part(name, "dz", images, groups), *rows)

    def used(images: Range, groups: Range | None) -> tuple[DataRegion, ...]:
        return (convolved(builder, main, images, groups),) if main else ()

    def rows_given(image: int, rows: Range, group: int) -> DataRegion:
        return builder.row_part(name, "dz", image, rows, group)

    def made(images: Range, groups: Range) -> tuple[DataRegion, ...]:
        assert main is not None
        return (builder.part(main.name, dx_region_name(builder, main), images, groups),)

    source = _error_source(builder, main) if main and (builder.choices.cut or not shortcut) else None
    early: tuple[DataRegion, ...] = (convolved(builder, source, builder.images),) if source else ()
    if shortcut:
        early += (builder.part(shortcut.layer, added, builder.images),)
    slowly = bool(main and source and _slowly_made(builder, main, source))
    return error_works(
        builder, name, work, plane, channels, encode, needs, gives, bits=True, masked=added == "dz", convolved=used, fetch=fetch,
        rows_given=rows_given if builder.apart else None, early=early,
        made=made if slowly else None,
    )


def _error_source(builder: ProgramBuilder, layer: Conv | FullyConnected) -> Conv | FullyConnected | None:
    """The layer whose backward convolution makes the error of a layer's outputs, pools aside."""
    source = builder.network.main_consumer(layer.name)
    while source is not None and not isinstance(source, Conv | FullyConnected):
        source = builder.network.main_consumer(source.name)
    return source


def _slowly_made(builder: ProgramBuilder, layer: Conv | FullyConnected, source: Conv | FullyConnected) -> bool:
    """Whether the A-Core makes dx of a normalised layer more slowly than the array the error of its outputs, and no other half of
    the images keeps the array busy meanwhile."""
    if len(builder.turn) > 1:
        return False
    if builder.choices.cut:
        return layer.norm == "frn"
    channels, y, x = builder.network.shape(layer.name)
    images = builder.images[1] - builder.images[0]
    acore = images * builder.groups(channels) * max(SCALAR_CYCLES, Plane(y, x).nb)
    return layer.norm == "frn" and acore > _backward_work(builder, source)[0].cycles(builder.images)


def _pool(builder: ProgramBuilder, name: str, pool: Layer, dry: bool) -> Work:
    """dz of a pool's input; planes of the pooled size come in, planes of the input's size go out."""
    network, memory = builder.network, builder.memory
    geometry = network.geometry(pool.name)
    (channels, yi, xi), (_, yo, xo) = geometry.in_shape, geometry.out_shape
    big, small = Plane(yi, xi), Plane(yo, xo)
    maximum = isinstance(pool, MaxPool)
    tail = shifts(SH1=relative(builder.tid(name, Kind.DZ), output_zero(builder, name)))
    windows = Windows(geometry.kernel[0], geometry.stride, geometry.pad)
    limit, pieces = pool_parts(builder, pool.name, windows, big, small, backward=True)
    fixed: dict[str, Any] = {
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
        each = work._replace(cycles=work.cycles // (len(pieces) * len(chosen))) if len(pieces) > 1 else work
        yield each
        count = images[1] - images[0]
        for number, (group, piece) in enumerate(itertools.product(chosen, pieces)):
            if number and len(pieces) > 1:
                yield Piece(BoundEngine.ACORE, each.cycles, inside=True)
            beats = count * piece.stored.nb
            aa = builder.load_planes(Dest.AA, memory[pool.name, "dz"], images, group, piece.stored_rows)
            part = ErrorPart(images, group, piece.out, piece.rows, fixed | piece.fields() | {"sa0": aa}, [("AA", aa, beats)])
            part.fields |= plane_rounding(builder, name, Kind.DZ, (channels, yi, xi), images, group, part.row)
            if maximum:
                index = builder.load_planes(Dest.AB, memory[pool.name, "index"], images, group, piece.stored_rows)
                part.fields["sb0"] = index
                part.reads.append(("AB", index, beats))
            _encode(builder, "MAXPOOL_BWD" if maximum else "AVGPOOL_BWD", tail, part, (name, "dz"), dry)
