"""Passes of pools on the A-Core, forward and backward: planes, or tiles of their rows, come in, are walked, and go out."""

import dataclasses
import itertools
from typing import Any

from gradloom.contracts.isa import Dest, Opcode, Source, XSource
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.schedule_rounding import plane_rounding
from gradloom.host.cost_model.pool_walk import pool_cycles
from gradloom.host.order.pieces import BoundEngine, Piece, Work
from gradloom.host.program.assembler import Instruction
from gradloom.host.tiles.pool_parts import Windows, pool_parts
from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.arithmetic.pool import PoolWalk
from gradloom.models.network import Kind, Network, Pool

__all__ = ["PoolPass", "backward_pass", "forward_pass", "pool_work"]


@dataclasses.dataclass(frozen=True)
class PoolPass:
    """What one pass of a pool does.

    Parameters
    ----------
    layer : the pool's name
    walk : over windows
    kind : of the tensors that are read and written: :attr:`Kind.Z` forward, :attr:`Kind.DZ` backward
    source, target : layers whose tensors these are
    """

    layer: str
    walk: PoolWalk
    kind: Kind
    source: str
    target: str

    @property
    def tensor(self) -> str:
        """Name of the tensors in DRAM."""
        return self.kind.name.lower()

    def zero(self, builder: ProgramBuilder) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Exponent of the target at which the converter's shift is 0: constant, tensors added, tensors subtracted."""
        return -self.walk.fraction, (builder.tid(self.source, self.kind),), ()


def forward_pass(network: Network, layer: Pool) -> PoolPass:
    """z of the pool from that of its input."""
    return PoolPass(layer.name, layer.walk(network.geometry(layer.name)), Kind.Z, layer.input, layer.name)


def backward_pass(network: Network, layer: Pool) -> PoolPass:
    """dz of the pool's input from that of the pool."""
    return PoolPass(layer.name, layer.walk(network.geometry(layer.name)).adjoint, Kind.DZ, layer.name, layer.input)


def _fields(walk: PoolWalk) -> dict[str, int]:
    """Fields of RUN; what divides sums is there for maxima, too, which do not look at it."""
    return {
        "xsrc": int(XSource.NONE),
        "pool": 2 if walk.spread else 1,
        "pmax": int(walk.maximum),
        "pkern": walk.kernel[0],
        "pstride": walk.stride,
        "ppad": walk.pad,
        "inv": reciprocal(walk.divisor)[0],
    }


def pool_work(builder: ProgramBuilder, one: PoolPass, *, dry: bool, chosen: range | None = None) -> Work:
    """All commands of a pass, of the ``chosen`` channel groups or of all; ``dry`` only gathers the target's statistics."""
    network, memory, walk, tensor = builder.network, builder.memory, one.walk, one.tensor
    shape, backward = network.shape(one.target), one.kind == Kind.DZ
    windows = Windows(walk.kernel[0], walk.stride, walk.pad)
    out, stored = Plane(*shape[1:]), Plane(*network.shape(one.source)[1:])
    limit, parts = pool_parts(builder, one.layer, windows, out, stored, spread=walk.spread, backward=backward)
    program = f"{'MAX' if walk.maximum else 'AVG'}POOL_{'BWD' if walk.spread else 'FWD'}"
    reads_index, writes_index = walk.maximum and walk.spread, walk.maximum and not walk.spread
    constant, plus, minus = one.zero(builder)
    tail = shifts(SH1=(-constant, (builder.tid(one.target, one.kind), *minus), plus))
    fixed = _fields(walk)
    for work, images, groups in builder.sweeps(
        builder.groups(shape[0]),
        limit,
        sum(pool_cycles(Instruction(Opcode.RUN, fixed | part.fields())) for part in parts),
        chosen=chosen,
    ):
        # Rows of a plane one by one: a whole one would keep others waiting.
        each = work._replace(cycles=work.cycles // (len(parts) * len(groups))) if len(parts) > 1 else work
        yield each
        count = images[1] - images[0]
        for number, (group, part) in enumerate(itertools.product(groups, parts)):
            if number and len(parts) > 1:
                yield Piece(BoundEngine.ACORE, each.cycles, inside=True)
            beats, stored_beats = count * part.out.nb, count * part.stored.nb
            fields: dict[str, Any] = fixed | part.fields() | {"planes": count, "dry": int(dry)}
            fields |= plane_rounding(builder, one.target, one.kind, shape, images, group, part.row)
            fields["sa0"] = builder.load_planes(Dest.AA, memory[one.source, tensor], images, group, part.stored_rows)
            reads = [("AA", fields["sa0"], stored_beats)]
            if reads_index:
                fields["sb0"] = builder.load_planes(Dest.AB, memory[one.layer, "index"], images, group, part.stored_rows)
                reads.append(("AB", fields["sb0"], stored_beats))
            fields["oa0"] = builder.ring["OA"].take(beats)
            writes = [("OA", fields["oa0"], beats)]
            if writes_index:
                fields["ob0"] = builder.ring["OB"].take(beats)
                writes.append(("OB", fields["ob0"], beats))
            builder.run(program, fields, tail, reads=reads, writes=writes)
            if dry:
                continue
            builder.store_planes(Source.OA, memory[one.target, tensor], images, group, fields["oa0"], part.rows)
            if writes_index and builder.training:
                builder.store_planes(Source.OB, memory[one.layer, "index"], images, group, fields["ob0"], part.rows)
