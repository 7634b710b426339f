"""Lanes: where the wide operand of a command comes from, and what is added to it."""

import dataclasses
import itertools
import random

from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode, XSource
from gradloom.contracts.microcode import Operand
from gradloom.contracts.regmap import ErrorCode
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
                ctx.set(dut.streams.xin, sum((value & MASK64) << 64 * lane for lane, value in enumerate(late.xin)))
            ctx.set(dut.issue.zeros, sum(zero << lane for lane, zero in enumerate(beat.zeros)) if beat is not None else 0)
            fetched = beats[cycle - FETCH] if cycle >= FETCH else None
            if fetched is not None:
                for lane in range(LANES):
                    ctx.set(dut.psums[lane][0], fetched.psum[lane])
                    ctx.set(dut.gradients[lane][0], fetched.dw[lane])
            if ctx.get(dut.results.xout.we):
                found.append((ctx.get(dut.results.xout.addr), ctx.get(dut.results.xout.data)))
            await ctx.tick()
        assert found == expected

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@dataclasses.dataclass
class Told:
    """What the lanes say of commands: tensor numbers and bit lengths of statistics, done with its fault, addresses of
    logits."""

    statistics: list[int] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    faults: list[int] = dataclasses.field(default_factory=list)
    logits: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Given:
    """A command of ``_LONG`` beats: fields of RUN, what its microinstruction says, XIN of its last beat (of all others 1), and
    shifts of the converters."""

    fields: dict[str, int]
    operation: dict[str, int]
    last: int = 1
    shifts: tuple[int, int] = (0, 0)


_LONG = 48
"""Beats after which the next command may follow as soon as the last one is issued (Sweep: 35 cycles and more)."""


def _follow(commands: list[Given]) -> Told:
    """Commands as closely as the sweep lets them follow each other: present and go two cycles after the last beat."""
    dut, told = Lanes(PRESETS["nano"]), Told()
    schedule: list[tuple[Given, int] | None] = []
    for given in commands:
        schedule += [(given, beat) for beat in range(-1, _LONG)] + [None]
    schedule += [None] * _BETWEEN

    async def bench(ctx):
        for cycle, entry in enumerate(schedule):
            given, beat = entry if entry is not None else (None, 0)
            ctx.set(dut.go, given is not None and beat < 0)
            if given is not None and beat < 0:
                words = command(Opcode.RUN, **given.fields)
                ctx.set(dut.present.cmd, sum(word << 32 * i for i, word in enumerate(words)))
                ctx.set(dut.present.op, given.operation)
                for name, shift in zip(("c1", "c2"), given.shifts, strict=True):
                    ctx.set(dut.present[name], shift)
            ctx.set(dut.issue.beat, {"v": int(given is not None and beat >= 0), "v0": 1, "v1": 1,
                                     "first": int(beat % 16 == 0), "final": int(beat == _LONG - 1)})
            late = schedule[cycle - _XIN_DELAY] if cycle >= _XIN_DELAY else None
            wide = late[0].last if late is not None and late[1] == _LONG - 1 else 1
            ctx.set(dut.streams.xin, sum((wide & MASK64) << 64 * lane for lane in range(LANES)))
            if ctx.get(dut.statistics.valid):
                told.statistics.append(ctx.get(dut.statistics.tid))
                told.lengths.append(ctx.get(dut.statistics.value).bit_length())
            if ctx.get(dut.done):
                told.faults.append(ctx.get(dut.fault))
            if ctx.get(dut.results.logit.we):
                told.logits.append(ctx.get(dut.results.logit.addr))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return told


_XIN = {"xsrc": XSource.DW, "xin": 1}


def test_a_wide_operand_counts_for_its_own_command():
    """A last operand that leaves 48 bits is a fault of a command that multiplies it, and none of one that only exports it,
    whichever kind the next command is."""
    kinds = [(writes, wide) for writes in ("wa", "wx") for wide in (1, 1 << 47, -(1 << 47), -(1 << 47) - 1)]
    given = [Given(_XIN, {"x": Operand.IN, writes: 1}, wide) for pair in itertools.product(kinds, kinds) for writes, wide in pair]
    assert _follow(given).faults == [
        ErrorCode.GRADIENT_SUM_OVERFLOW if "wa" in one.operation and one.last in (1 << 47, -(1 << 47) - 1) else 0 for one in given]


def test_statistics_name_their_tensors():
    """All bits of the numbers of both tensors, the first one first; a tensor of number 0 has none."""
    pairs = [(t1, t2) for bit in range(11) for t1, t2 in ((1 << bit, 0x7FF ^ 1 << bit), (0, 1 << bit), (1 << bit, 0))]
    told = _follow([Given(_XIN | {"t1": t1, "t2": t2}, {"x": Operand.IN, "wa": 1}) for t1, t2 in pairs])
    assert told.statistics == [tid for pair in pairs for tid in pair if tid]
    assert told.faults == [0] * len(pairs)


def test_statistics_of_far_shifts():
    """Of ones with exponents far above or below that of the code: the length of their fraction, from 0 to 63 bits."""
    shifts = [-2048, -129, -128, -111, -110, *range(-70, -40), -1, 0, 1, 25, 26, 63, 64, 81, 82, 145, 146, 2047]
    told = _follow([Given(_XIN | {"t1": 1, "t2": 2, "f1": 8, "f2": 8}, {"x": Operand.IN, "wa": 1, "wb": 1}, shifts=(one, two))
                    for one, two in zip(shifts, reversed(shifts), strict=True)])
    lengths = [max(0, min(63, 10 - shift)) for shift in shifts]
    assert told.lengths == [length for pair in zip(lengths, reversed(lengths), strict=True) for length in pair]


def test_addresses_of_logits():
    """A plane's logit lies the step of the command behind that of the plane before it, modulo 2^16."""
    steps = [0, 0xFFFF, *(1 << bit for bit in range(16))]
    told = _follow([Given(_XIN | {"ob0": first, "om0": step}, {"x": Operand.IN, "wl": 1})
                    for first, step in enumerate(steps)])
    # The address goes on with a plane's first beat, and every beat of the plane is written.
    planes = _LONG // 16
    assert told.logits == [first + plane * step & 0xFFFF for first, step in enumerate(steps) for plane in range(planes)]
