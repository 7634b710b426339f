"""Subsampling shortcuts: planes copied by pooling windows of one position, their errors masked and scattered back."""

import itertools

from gradloom.host.pacing import Work
from gradloom.host.pool_parts import Windows, pool_parts
from gradloom.host.tiling import Builder, Plane, shifts
from gradloom.models.arith import reciprocal
from gradloom.models.network import Subsample
from gradloom.rtl.isa import Dest, Source, XSource

__all__ = ["forward", "scatter"]


def _windows(layer: Subsample) -> dict[str, int]:
    return {"xsrc": int(XSource.NONE), "pkern": 1, "pstride": layer.stride, "inv": reciprocal(1)[0]}


def forward(builder: Builder, layer: Subsample) -> Work:
    """z: the mean of one position is that position's value, so every code is kept.

    Appended channel groups are zeros that are in memory from the start (:meth:`gradloom.host.plan.Plan.write_program`).
    """
    network, name = builder.network, layer.name
    (channels, yi, xi), (_, yo, xo) = network.geometry(name).in_shape, network.shape(name)
    big, small = Plane(yi, xi), Plane(yo, xo)
    limit, pieces = pool_parts(builder, name, Windows(1, layer.stride, 0), small, big, backward=False)
    for work, images, groups in builder.sweeps(
        builder.groups(channels),
        limit,
        2 * small.nb,
        lambda images: (builder.part(layer.input, "z", images),),
        lambda images: (builder.part(name, "z", images),),
    ):
        yield work
        count = images[1] - images[0]
        for group, part in itertools.product(groups, pieces):
            aa = builder.load_planes(Dest.AA, builder.memory[layer.input, "z"], images, group, part.stored_rows)
            oa = builder.ring["OA"].take(count * part.out.nb)
            fields = {"planes": count, **part.fields(), **_windows(layer), "sa0": aa, "oa0": oa}
            builder.run(
                "AVGPOOL_FWD",
                fields | {"pool": 1},
                shifts(SH1=(15, (), ())),
                reads=[("AA", aa, count * part.stored.nb)],
                writes=[("OA", oa, count * part.out.nb)],
            )
            builder.store_planes(Source.OA, builder.memory[name, "z"], images, group, oa, part.rows)


def scatter(builder: Builder, layer: Subsample) -> Work:
    """ds: every code of dz at the position that was kept, 0 elsewhere.

    A constant index names the window's position in the channels of the input, and none in padding channels, which
    in dz may belong to appended channels.
    """
    network, memory, name = builder.network, builder.memory, layer.name
    (channels, yi, xi), (_, yo, xo) = network.geometry(name).in_shape, network.shape(name)
    big, small = Plane(yi, xi), Plane(yo, xo)
    limit, pieces = pool_parts(builder, name, Windows(1, layer.stride, 0), big, small, backward=True)
    for work, images, groups in builder.sweeps(
        builder.groups(channels),
        limit,
        2 * big.nb,
        lambda images: (builder.part(name, "dz", images),),
        lambda images: (builder.part(name, "ds", images),),
    ):
        yield work
        count = images[1] - images[0]
        for group, part in itertools.product(groups, pieces):
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
