"""Subsampling shortcuts: planes copied by pooling windows of one position, their errors masked and scattered back."""

import itertools

from gradloom.contracts.isa import Dest, Opcode, Source, XSource
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.stream_fit import STREAM_SHARES
from gradloom.host.cost_model.pool_walk import pool_cycles
from gradloom.host.dram.layout import equal_ranges
from gradloom.host.order.pieces import BoundEngine, Piece, Work
from gradloom.host.program.assembler import Instruction
from gradloom.host.tiles.pool_parts import Windows, pool_parts
from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.network import Subsample

__all__ = ["forward", "scatter"]

Range = tuple[int, int]


def _windows(layer: Subsample) -> dict[str, int]:
    return {"xsrc": int(XSource.NONE), "pkern": 1, "pstride": layer.stride, "inv": reciprocal(1)[0]}


def forward(builder: ProgramBuilder, layer: Subsample) -> Work:
    """z: the mean of one position is that position's value, so every code is kept.

    Only the rows that are kept are loaded, each of them a plane of one row to the A-Core. Appended channel groups are zeros that
    are in memory from the start (:meth:`gradloom.host.machine_program.MachineProgram.write_program`).
    """
    network, name, config = builder.network, layer.name, builder.config
    (channels, _, xi), (_, yo, xo) = network.geometry(name).in_shape, network.shape(name)
    source, stored, out = builder.memory[layer.input, "z"], Plane(1, xi), Plane(1, xo)
    builder.refuse(name, (("one row takes {} beats of the A-Core's stream buffers", "abuf_depth", stored.nb, config.abuf_depth),))
    most = max(1, min(config.max_planes, config.abuf_depth // STREAM_SHARES // stored.nb))
    parts = equal_ranges(0, yo, most)

    fields = {**_windows(layer), **out.fields(), "pyi": 1, "pxi": xi, "pool": 1}
    for work, images, groups in builder.sweeps(
        builder.groups(channels),
        max(1, most // yo),
        yo * pool_cycles(Instruction(Opcode.RUN, fields)),
    ):
        yield work
        for group, rows in itertools.product(groups, parts):
            planes = (images[1] - images[0]) * (rows[1] - rows[0])
            aa, oa = builder.ring["AA"].take(planes * stored.nb), builder.ring["OA"].take(planes * out.nb)
            row_bytes = stored.nb * config.beat_bytes
            builder.load(
                Dest.AA,
                source,
                [(images, (group, group + 1))],
                source.at(images[0], group) + rows[0] * layer.stride * row_bytes,
                n0=stored.nb,
                n1=rows[1] - rows[0],
                stride1=layer.stride * row_bytes,
                n2=images[1] - images[0],
                stride2=source.outer_bytes,
                addr=aa,
                length=planes * stored.nb,
            )
            builder.run(
                "AVGPOOL_FWD",
                {"planes": planes, **fields, "sa0": aa, "oa0": oa},
                shifts(SH1=(15, (), ())),
                reads=[("AA", aa, planes * stored.nb)],
                writes=[("OA", oa, planes * out.nb)],
            )
            builder.store_planes(Source.OA, builder.memory[name, "z"], images, group, oa, rows)


def scatter(builder: ProgramBuilder, layer: Subsample) -> Work:
    """ds: every code of dz at the position that was kept, 0 elsewhere.

    A constant index names the window's position in the channels of the input, and none in padding channels, which
    in dz may belong to appended channels.
    """
    network, memory, name = builder.network, builder.memory, layer.name
    (channels, yi, xi), (_, yo, xo) = network.geometry(name).in_shape, network.shape(name)
    big, small = Plane(yi, xi), Plane(yo, xo)
    limit, pieces = pool_parts(builder, name, Windows(1, layer.stride, 0), big, small, spread=True, backward=True)
    for work, images, groups in builder.sweeps(
        builder.groups(channels),
        limit,
        2 * big.nb,
    ):
        # Those who wait for it have other things to do first.
        each = work._replace(cycles=work.cycles // (len(pieces) * len(groups)), update=True)
        yield each
        count = images[1] - images[0]
        for number, (group, part) in enumerate(itertools.product(groups, pieces)):
            if number and len(pieces) > 1:
                yield Piece(BoundEngine.ACORE, each.cycles, inside=True, update=True)
            beats, index = count * part.stored.nb, memory[name, "index"]
            aa = builder.load_planes(Dest.AA, memory[name, "dz"], images, group, part.stored_rows)
            ab = builder.ring["AB"].take(beats)
            # The index is the same everywhere, so every part may take it from the plane's begin.
            builder.load(
                Dest.AB,
                index,
                [((0, 1), (group, group + 1))],
                index.at(0, group),
                n0=part.stored.nb,
                n1=count,
                addr=ab,
                length=beats,
            )
            oa = builder.ring["OA"].take(count * part.out.nb)
            fields = {"planes": count, **part.fields(), **_windows(layer), "sa0": aa, "sb0": ab, "oa0": oa}
            builder.run(
                "MAXPOOL_BWD",
                fields | {"pool": 2, "pmax": 1},
                shifts(SH1=(0, (), ())),
                reads=[("AA", aa, beats), ("AB", ab, beats)],
                writes=[("OA", oa, count * part.out.nb)],
            )
            builder.store_planes(Source.OA, memory[name, "ds"], images, group, oa, part.rows)
