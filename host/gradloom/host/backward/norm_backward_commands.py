"""The A-Core's commands of a normalisation's backward pass: one channel group's errors and sums, and its parameters' update."""

from typing import Any

from gradloom.contracts.isa import Dest, Kind, Source, XSource
from gradloom.host.backward.schedule_backward import accumulator_zero, relative
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.schedule_rounding import plane_rounding
from gradloom.host.order.tasks import Address, Number
from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.network import Conv, FullyConnected

__all__ = ["Streams", "accumulate", "error_name", "update_parameters"]

Range = tuple[int, int]


def error_name(builder: ProgramBuilder, layer: Conv | FullyConnected) -> str:
    """The error of a layer's output in memory."""
    return "error" if layer.name == builder.network.logits.name else "dz"


class Streams:
    """What the A-Core reads of one channel group, loaded rows by rows, so that a first pass follows them, and on chip until the
    sweep is through: first addresses of A, B and the bitmap by first row."""

    def __init__(self, builder: ProgramBuilder, layer: Conv | FullyConnected, group: int, rows: list[Range]) -> None:
        memory, name = builder.memory, layer.name
        self._builder, self._group, self._rows = builder, group, rows
        self._regions = {Dest.AA: memory[name, "dz"], Dest.AB: memory[name, "xhat"]}
        if layer.act in ("tlu", "relu"):
            self._regions[Dest.AM] = memory[name, "bit"]
        self._places = dict[tuple[Dest, int], Address]()

    def load(self, images: Range, rows: Range) -> None:
        """Some rows of A; with the first ones all of what has been there for long."""
        builder, first = self._builder, rows is self._rows[0]
        for dest, region in self._regions.items():
            if first:
                start = builder.ring[dest.name].take(region.unit // builder.config.beat_bytes)
                self._places |= {(dest, part[0]): start + region.rows(*part)[0] for part in self._rows}
            for part in self._rows if first and dest != Dest.AA else [rows] if dest == Dest.AA else []:
                builder.load_planes(dest, region, images, self._group, part, self._places[dest, part[0]])

    def __call__(self, dest: Dest, rows: Range) -> Address:
        """First address of some rows in a stream buffer."""
        return self._places[dest, rows[0]]


def accumulate(
    builder: ProgramBuilder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    start: Address,
    whole: Plane,
    dry: bool,
    rows: Range | None = None,
    by_rows: str = "",
    streams: Streams | None = None,
) -> None:
    """One channel group of some images: dz to dx, sums in the parameter buffer.

    ``rows``: only these of every plane; then ``by_rows`` takes the place of FRN_BWD. ``streams``: what has been loaded of them.
    """

    def loaded(dest: Dest, tensor: str) -> Address:
        return streams(dest, rows) if streams and rows else builder.load_planes(dest, memory[name, tensor], images, group, rows)

    memory, name, count = builder.memory, layer.name, images[1] - images[0]
    plane = Plane(rows[1] - rows[0], whole.x) if rows else whole
    beats = count * plane.nb
    inv, k = reciprocal(whole.y * whole.x)
    aa = loaded(Dest.AA, error_name(builder, layer))
    fields: dict[str, Any] = {
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
    reads: list[tuple[str, Number, int]] = [("AA", aa, beats), ("PBUF", start, entries)]
    writes: list[tuple[str, Number, int]] = [("PBUF", start + 3, entries - 3)]
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
            SH1=relative(builder.tid(name, Kind.DX), accumulator_zero(builder, layer)), SH3=(18 + k, (), ())
        )
    if not only_sums:
        fields["oa0"] = builder.ring["OA"].take(beats)
        writes.append(("OA", fields["oa0"], beats))
    builder.run(program, fields, tail, reads=reads, writes=writes, again=bool(streams) and only_sums)
    if not dry and not only_sums:
        builder.store_planes(Source.OA, memory[name, "dx"], images, group, fields["oa0"], rows)


def update_parameters(builder: ProgramBuilder, layer: Conv | FullyConnected, group: int, start: Address) -> None:
    """Update of a channel group's parameters, at entry ``start`` of the parameter buffer, by the batch's sums behind them, and
    their store."""
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
