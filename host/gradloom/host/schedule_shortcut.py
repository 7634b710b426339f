"""Subsampling shortcuts: planes copied by pooling windows of one position, their errors masked and scattered back."""

from gradloom.host.pacing import Lane, Piece, Work
from gradloom.host.tiling import Builder, Plane, shifts
from gradloom.models.arith import reciprocal
from gradloom.models.network import Subsample
from gradloom.rtl.isa import Dest, Source, XSource

__all__ = ["forward", "scatter"]


def _windows(layer: Subsample) -> dict[str, int]:
    return {"xsrc": int(XSource.NONE), "pkern": 1, "pstride": layer.stride, "inv": reciprocal(1)[0]}


def _groups(builder: Builder, layer: Subsample, small: Plane, big: Plane) -> list[tuple[int, int]]:
    depth = builder.config.abuf_depth
    need = ("one plane takes {} beats of the A-Core's output buffers", "abuf_depth", small.nb, depth)
    cycles = builder.groups(layer.out) * 2 * big.nb
    return builder.ranges(builder.images, builder.planes_at_once(layer.name, big, bits=False, also=(need,)), cycles)


def forward(builder: Builder, layer: Subsample) -> Work:
    """z: the mean of one position is that position's value, so every code is kept.

    Appended channel groups are zeros that are in memory from the start (:meth:`gradloom.host.plan.Plan.write_program`).
    """
    network, name = builder.network, layer.name
    (channels, yi, xi), (_, yo, xo) = network.geometry(name).in_shape, network.shape(name)
    big, small = Plane(yi, xi), Plane(yo, xo)
    for images in _groups(builder, layer, small, big):
        count = images[1] - images[0]
        parts = (builder.part(layer.input, "z", images),), (builder.part(name, "z", images),)
        yield Piece(Lane.ACORE, count * builder.groups(channels) * 2 * small.nb, *parts)
        for group in range(builder.groups(channels)):
            aa = builder.load_planes(Dest.AA, builder.memory[layer.input, "z"], images, group)
            oa = builder.ring["OA"].take(count * small.nb)
            fields = {"planes": count, **small.fields(), **_windows(layer), "sa0": aa, "oa0": oa}
            builder.run(
                "AVGPOOL_FWD",
                fields | {"pool": 1, "pyi": yi, "pxi": xi},
                shifts(SH1=(15, (), ())),
                reads=[("AA", aa, count * big.nb)],
                writes=[("OA", oa, count * small.nb)],
            )
            builder.store_planes(Source.OA, builder.memory[name, "z"], images, group, oa)


def scatter(builder: Builder, layer: Subsample) -> Work:
    """ds: every code of dz at the position that was kept, 0 elsewhere.

    A constant index names the window's position in the channels of the input, and none in padding channels, which
    in dz may belong to appended channels.
    """
    network, memory, name = builder.network, builder.memory, layer.name
    (channels, yi, xi), (_, yo, xo) = network.geometry(name).in_shape, network.shape(name)
    big, small = Plane(yi, xi), Plane(yo, xo)
    for images in _groups(builder, layer, small, big):
        count = images[1] - images[0]
        beats = count * small.nb
        parts = (builder.part(name, "dz", images),), (builder.part(name, "ds", images),)
        yield Piece(Lane.ACORE, count * builder.groups(channels) * 2 * big.nb, *parts)
        for group in range(builder.groups(channels)):
            aa, ab = builder.load_planes(Dest.AA, memory[name, "dz"], images, group), builder.ring["AB"].take(beats)
            index = memory[name, "index"]
            builder.load(
                Dest.AB, index, [((0, 1), (group, group + 1))], index.at(0, group), n0=small.nb, n1=count, addr=ab, length=beats
            )
            oa = builder.ring["OA"].take(count * big.nb)
            fields = {"planes": count, **big.fields(), **_windows(layer), "sa0": aa, "sb0": ab, "oa0": oa}
            builder.run(
                "MAXPOOL_BWD",
                fields | {"pool": 2, "pmax": 1, "pyi": yo, "pxi": xo},
                shifts(SH1=(0, (), ())),
                reads=[("AA", aa, beats), ("AB", ab, beats)],
                writes=[("OA", oa, count * big.nb)],
            )
            builder.store_planes(Source.OA, memory[name, "ds"], images, group, oa)
