"""What the A-Core makes of partial sums in the forward pass: normalisation and activation, with their loads and stores."""

from typing import Any

from gradloom.contracts.isa import Dest, Kind, Source
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.schedule_rounding import plane_rounding, xhat_rounding
from gradloom.host.compilation.sums import TileSums
from gradloom.host.order.tasks import Address, Later, Number
from gradloom.models.network import Conv, FullyConnected

__all__ = ["activate", "load_sides"]

Range = tuple[int, int]


def _program(layer: Conv | FullyConnected) -> str:
    """Microprogram of the forward pass of any layer with weights but the last."""
    if layer.norm == "frn":
        if layer.act == "none":
            return "FRN_FWD_LIN"
        return "FRN_FWD_RES" if layer.residual else "FRN_FWD"
    return "RELU_FWD" if layer.act == "relu" else "LIN_FWD"


def load_sides(
    builder: ProgramBuilder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    parameters: Address | None = None,
    rows: Range | None = None,
) -> tuple[Address, Address | int]:
    """Parameters (unless loaded before) and the residual's planes of one output group. Returns their first addresses."""
    start = builder.load_parameters(layer.name, group) if parameters is None else parameters
    residual: Address | int = 0
    if layer.residual:
        residual = builder.load_planes(Dest.AA, builder.memory[layer.residual, "z"], images, group, rows)
    return start, residual


def activate(
    builder: ProgramBuilder,
    layer: Conv | FullyConnected,
    images: tuple[int, int],
    group: int,
    fields: dict[str, Any],
    sums: TileSums,
    sides: tuple[Address, Address | int],
    plane: Plane,
    dry: bool,
    rows: Range | None = None,
    shared: tuple[Address, bool] | None = None,
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
    writes: list[tuple[str, Number, int]] = [("OA", oa, beats)]
    fields |= {"oa0": oa, "pb0": parameters}
    fields |= plane_rounding(builder, name, Kind.Z, builder.network.shape(name), images, group, row)
    reads: list[tuple[str | Later, Number, int]] = [*sums.read, ("PBUF", parameters, 6)]
    bits: Number = 0
    ob: Number = 0
    lam: Number = 0
    if program != "LIN_FWD":
        bits = builder.ring["OM"].take(count * plane.bits)
        writes.append(("OM", bits, count * plane.bits))
        fields["om0"] = bits
    if frn:
        ob, lam = builder.ring["OB"].take(beats), builder.ring["PBUF"].take(count) if shared is None else shared[0]
        writes.append(("OB", ob, beats))
        if fresh:
            writes.append(("PBUF", lam, count))
        else:
            reads.append(("PBUF", lam, count))
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
