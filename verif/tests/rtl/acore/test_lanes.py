"""Lanes: where the wide operand of a command comes from, and what is added to it."""

import dataclasses
import itertools
import random

from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode, XSource
from gradloom.contracts.microcode import Operand
from gradloom.rtl.acore.lanes import LANES, Lanes
from gradloom.rtl.acore.sweep import FETCH
from gradloom.verif.acore.acore_commands import command
from gradloom.verif.plain_arith import MASK64

_XIN_DELAY = FETCH - 1
"""Cycles from the issue of a beat to its bytes and its XIN."""
_BETWEEN = 40
"""Cycles from one command to the next, which is more than the sweep keeps."""


@dataclasses.dataclass
class Operands:
    """What memories give for a beat, lane by lane, and the lanes whose partial sum is nowhere stored."""

    psum: list[int]
    dw: list[int]
    xin: list[int]
    zeros: list[int]


def test_wide_operands():
    """Partial sums or weight gradients, as ``xsrc`` says; XIN is added to weight gradients alone, and only with ``xin``. All bits
    of a sum in 64 bits arrive at XOUT, a beat an address."""
    config = PRESETS["nano"]
    dut, rng = Lanes(config), random.Random(1)
    commands = [(xsrc, xin, rng.getrandbits(16)) for xsrc, xin in itertools.product(XSource, range(2))]
    beats: list[Operands | None] = []
    expected = []
    starts = {}
    for xsrc, xin, first in commands:
        starts[len(beats)] = xsrc, xin, first
        beats.append(None)
        for number in range(12):
            while rng.random() < 0.3:
                beats.append(None)
            given = Operands(*([rng.getrandbits(width) - (1 << width - 1) for _ in range(LANES)]
                               for width in (config.psum_width, config.wg_width, 64)),
                             [int(xsrc == XSource.PSUM and rng.random() < 0.3) for _ in range(LANES)])
            beats.append(given)
            sums = {XSource.PSUM: [0 if zero else psum for psum, zero in zip(given.psum, given.zeros, strict=True)],
                    XSource.DW: [dw + xin * other for dw, other in zip(given.dw, given.xin, strict=True)],
                    XSource.NONE: [0] * LANES}
            values = sums[xsrc]
            expected.append((first + number & 0xFFFF, sum((value & MASK64) << 64 * lane for lane, value in enumerate(values))))
        beats += [None] * _BETWEEN

    async def bench(ctx):
        found = []
        for cycle, beat in enumerate(beats):
            ctx.set(dut.go, cycle in starts)
            if cycle in starts:
                xsrc, xin, first = starts[cycle]
                words = command(Opcode.RUN, xsrc=xsrc, xin=xin, dwbase=first)
                ctx.set(dut.present.cmd, sum(word << 32 * i for i, word in enumerate(words)))
                ctx.set(dut.present.op, {"x": Operand.IN, "wx": 1})
            ctx.set(dut.issue.beat, {"v": int(beat is not None), "v0": 1, "v1": 1})
            late = beats[cycle - _XIN_DELAY] if cycle >= _XIN_DELAY else None
            if late is not None:
                ctx.set(dut.xin_data, sum((value & MASK64) << 64 * lane for lane, value in enumerate(late.xin)))
            ctx.set(dut.issue.zeros, sum(zero << lane for lane, zero in enumerate(beat.zeros)) if beat is not None else 0)
            fetched = beats[cycle - FETCH] if cycle >= FETCH else None
            if fetched is not None:
                for lane in range(LANES):
                    ctx.set(dut.prd_data[lane][0], fetched.psum[lane])
                    ctx.set(dut.drd_data[lane][0], fetched.dw[lane])
            if ctx.get(dut.xout_we):
                found.append((ctx.get(dut.xout_waddr), ctx.get(dut.xout_wdata)))
            await ctx.tick()
        assert found == expected

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
