"""Backward pass: errors through convolutions and pools, and the exponents that they come with."""

from collections.abc import Sequence

from gradloom.contracts.isa import Dest, Kind, Source
from gradloom.host.backward.conv_backward_tiles import ErrorPart, error_works
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.schedule_rounding import plane_rounding
from gradloom.host.dram.memory_map import Region
from gradloom.host.order.pieces import OPEN, Gate, Work
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.flat_shapes import backward_shape
from gradloom.host.tiles.phase_sweeps import backward_sweep
from gradloom.host.tiles.pool_pass import backward_pass, pool_work
from gradloom.models.network import Conv, FullyConnected, Pool, Subsample

__all__ = [
    "SCALAR_CYCLES",
    "accumulator_zero",
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
    if isinstance(main, Pool):
        return backward_pass(network, main).zero(builder)
    assert isinstance(main, Conv | FullyConnected)
    return ds_zero(builder, main)


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


def output_error(builder: ProgramBuilder, name: str, *, dry: bool = False) -> list[Work]:
    """dz of a layer: what its main consumer sends back, plus the shortcut's error.

    dz of a subsampling shortcut, which is only added, are the masked codes of that addition's error.
    """
    main = builder.network.main_consumer(name)
    tag = 8 * builder.network.index(main.name if main else name) + 1
    if isinstance(main, Pool):
        works = [pool_work(builder, backward_pass(builder.network, main), dry=dry)]
    else:
        assert main is None or isinstance(main, Conv | FullyConnected)
        works = _convolved_error(builder, name, main, dry)
    return [builder.planned(tag, work) for work in works]


def second_error(builder: ProgramBuilder, layer: Conv | FullyConnected, *, dry: bool = False) -> list[Work]:
    """ds: what a layer, the second convolution on its input, sends back, as a tensor of its own.

    Where a kernel of 1 x 1 has stride 2, only every second row is written. The others are zeros that are in memory from the start
    (:meth:`gradloom.host.machine_program.MachineProgram.write_program`).
    """
    work, plane = _backward_work(builder, layer, kept=True)
    every = 2 if work.sweep.kept else 1
    tail = shifts(SH1=relative(builder.tid(layer.name, Kind.DS), ds_zero(builder, layer)))
    shape = builder.network.shape(layer.input)

    def encode(part: ErrorPart) -> None:
        part.fields |= plane_rounding(builder, layer.name, Kind.DS, shape, part.images, part.group, every * part.row)
        _encode(builder, "BP_OUT", tail, part, builder.memory[layer.name, "ds"], dry, every)

    works = error_works(
        builder,
        layer.name,
        work,
        plane,
        shape[0],
        encode,
        lambda images: Gate((builder.region(layer.name, dx_region_name(builder, layer), images),)),
        bits=False,
        masked=False,
    )
    return [builder.planned(8 * builder.network.index(layer.name) + 1, each) for each in works]


def _backward_work(builder: ProgramBuilder, layer: Conv | FullyConnected, *, kept: bool = False) -> tuple[Convolution, Plane]:
    """The backward convolution and the planes of its results, without rows of zeros if only others are to be ``kept``."""
    shape = backward_shape(builder.network, layer, builder.config, builder.images[1] - builder.images[0])
    region = builder.memory[layer.name, dx_region_name(builder, layer)]
    sweep = backward_sweep(shape, kept=kept)
    plane = Plane(sweep.upi if sweep.kept else shape.yi, shape.xi)
    return Convolution(builder, layer.name, shape, sweep, region, shape.cg, transpose=True, beats=plane.nb, share=4), plane


def _encode(
    builder: ProgramBuilder, program: str, tail: tuple, part: ErrorPart, target: Region, dry: bool, every: int = 1
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
        builder.store_planes(Source.OA, target, part.images, part.group, oa, part.rows, every)


def _convolved_error(
    builder: ProgramBuilder, name: str, main: Conv | FullyConnected | None, dry: bool
) -> list[Work]:
    network, memory = builder.network, builder.memory
    channels, y, x = network.shape(name)
    zero = output_zero(builder, name)
    encoded = not isinstance(network.layer(name), Subsample)
    shortcut = network.shortcut(name)
    work, plane = _backward_work(builder, main) if main else (None, Plane(y, x))
    flat = work.shape.flat if work else None
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
            group, (row, column) = part.group, (part.row, 0)
            if flat:
                group, (row, column) = part.group // flat.beats, flat.place(part.group % flat.beats)
            fields |= plane_rounding(builder, name, Kind.DZ, (channels, y, x), part.images, group, row, column)
        if flat:
            part.plane = Plane(1, flat.columns(part.group % flat.beats))
        if shortcut is not None:
            fields["sa0"] = builder.load_planes(Dest.AA, memory[shortcut.layer, added], part.images, part.group, part.rows)
            reads.append(("AA", fields["sa0"], part.beats))
        if added == "dz" and shortcut is not None:
            fields["sm0"] = builder.load_planes(Dest.AM, memory[shortcut.layer, "bit"], part.images, part.group, part.rows)
            reads.append(("AM", fields["sm0"], part.count * part.plane.bits))
        _encode(builder, program, tail, part, memory[name, "dz"].flattened(flat), dry)

    def fetch(images: Range, group: int, rows: Sequence[Range | None]) -> None:
        if shortcut is not None:
            builder.fetch_planes(Dest.AA, memory[shortcut.layer, added], images, group, rows)
            if added == "dz":
                builder.fetch_planes(Dest.AM, memory[shortcut.layer, "bit"], images, group, rows)

    def gate(images: Range) -> Gate:
        errors = (builder.region(main.name, dx_region_name(builder, main), images),) if main else ()
        return Gate(errors + ((builder.region(shortcut.layer, added, images),) if shortcut else ()))

    source = _error_source(builder, main) if main and (builder.knobs.subtile_beats or not shortcut) else None
    early = Gate(summed=(builder.region(source.input, "dz", builder.images),)) if source else OPEN
    if shortcut:
        early = early | Gate((builder.region(shortcut.layer, added, builder.images),))
    slowly = bool(main and source and _slowly_made(builder, main, source))
    return error_works(builder, name, work, plane, channels, encode, gate, bits=True, masked=added == "dz", fetch=fetch,
                       early=early, as_made=slowly)


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
    if builder.knobs.subtile_beats:
        return layer.norm == "frn"
    channels, y, x = builder.network.shape(layer.name)
    images = builder.images[1] - builder.images[0]
    acore = images * builder.groups(channels) * max(SCALAR_CYCLES, Plane(y, x).nb)
    return layer.norm == "frn" and acore > _backward_work(builder, source)[0].cycles(builder.images)
