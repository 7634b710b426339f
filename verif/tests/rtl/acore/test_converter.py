"""Converter: the shared vectors, rounding boundaries at several shifts, all operand lengths and shifts."""

import itertools
import json
import random

import cocotb
import pytest
from amaranth.sim import Simulator
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from gradloom.rtl.acore.converter import Converter, Rounder
from gradloom.verif.checkout import VECTORS
from gradloom.verif.cocotb_run import run_cocotb

FILE = VECTORS / "encoder.json"
INT64 = (-(1 << 63), (1 << 63) - 1)
_BOUNDS = sorted([*range(-8, 8), *range(-512, 512, 8), *range(-4096, 4096, 64), 4096])
HALVES = sorted({a + b for a, b in itertools.pairwise(_BOUNDS)} | {2 * v for v in _BOUNDS})
"""Twice every representable value, every midpoint between two, and the upper limit."""


def aligned(a: int, sh: int, f: int) -> int:
    n = f + 1 - sh
    return max(INT64[0], min(INT64[1], a << n)) if n >= 0 else a >> -n


def step_of(t: int) -> int:
    """Logarithm of the step of the segment of t."""
    return 0 if -8 <= t < 8 else 3 if -512 <= t < 512 else 6


def code_of(v: int) -> int:
    low, middle, top = v & 127, 128 | v >> 3 & 127, v >> 6 & 127
    return (low, middle, top)[step_of(v) // 3]


def operand(dut, a: int, sh: int) -> None:
    dut.a.value, dut.below.value = a & (1 << 64) - 1, max(-128, min(127, sh - 18)) & 255


def definition(a: int, sh: int, f: int, x24: int | None) -> tuple[int, int, int]:
    """(v, code, bit length of stat) by the rules, in unbounded integers."""
    g = aligned(a, sh, f)
    t = g >> f + 1
    if t >= 4096:
        v = 4032
    elif t < -4096:
        v = -4096
    else:
        s = step_of(t)
        add = 1 << f if x24 is None else 2 * (x24 >> 24 - f) + 1
        v = min(((g >> s) + add >> f + 1) << s, 4032)
    return v, code_of(v), (g ^ g >> 63).bit_length()


def with_feedback(a: int, sh: int, x24: int) -> tuple[int, int, int, int]:
    """(v, code, bit length of stat, rest) with error feedback: eight bits more, rounded, then their nearest value."""
    _, _, stat = definition(a, sh, 16, None)
    g = aligned(a, sh, 16)
    if not -4096 <= g >> 17 < 4096:
        return (4032, 63, stat, 127) if g > 0 else (-4096, 64, stat, 0)
    s = step_of(g >> 17)
    number = min((g >> s) + 2 * (x24 >> 16) + 1 >> 9, 16255 if s == 6 else 1 << 20)
    v = (number + 128 >> 8) << s
    return v, code_of(v), stat, number & 255


async def check(dut, cases: list[tuple]) -> None:
    """Stream (a, sh, f, x24, expected) through the converter, one a cycle."""
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 0
    dut.enable.value = 1
    _off(dut)
    await RisingEdge(dut.clk)
    lengths: list[int] = []
    for cycle in range(len(cases) + Converter.LATENCY):
        if cycle < len(cases):
            a, sh, f, x24, _ = cases[cycle]
            operand(dut, a, sh)
            dut.f16.value = f == 16
            dut.stochastic.value = x24 is not None
            dut.x24.value = x24 or 0
        await FallingEdge(dut.clk)
        if cycle >= Converter.LENGTH_LATENCY:
            lengths.append(int(dut.length.value))
        if cycle >= Converter.LATENCY:
            *case, expected = cases[cycle - Converter.LATENCY]
            length = lengths[cycle - Converter.LATENCY] - (0 if case[2] == 16 else 8)
            got = dut.v.value.to_signed(), int(dut.code.value), max(0, min(63, length))
            assert got == expected, f"{case}: {got}, expected {expected}"
        await RisingEdge(dut.clk)


def _off(dut) -> None:
    for name in ("whole", "feedback"):
        if hasattr(dut, name):
            getattr(dut, name).value = 0


def with_expected(cases: list[tuple]) -> list[tuple]:
    return [(*case, definition(*case)) for case in cases]


@cocotb.test()
async def vectors(dut):
    cases = [(e["A"], e["sh"], e["F"], e["x24"], (e["v"], e["code"], e["stat"].bit_length()))
             for e in json.loads(FILE.read_text()) if e["F"] in (8, 16)]
    assert len(cases) > 1000
    await check(dut, cases)


@cocotb.test()
async def boundaries(dut):
    """Just below, at and above every representable value, every midpoint and both limits of the range."""
    rng = random.Random(2)
    cases = []
    for f in (8, 16):
        for sh in (f + 1, f - 2, f + 4, 40):
            for half in HALVES:
                for around in (-1, 0, 1):
                    g = (half << f) + around
                    n = f + 1 - sh
                    a = g >> n if n >= 0 else (g << -n) + rng.getrandbits(-n)
                    cases.append((a, sh, f, None))
                    cases.append((a, sh, f, rng.choice((0, (1 << 24) - 1, rng.getrandbits(24)))))
    await check(dut, with_expected(cases))


@cocotb.test()
async def whole_range(dut):
    """Operands of every bit length, shifts over all nine bits, saturation on the left."""
    rng = random.Random(3)
    cases = []
    for sh in range(-256, 256):
        for f in (8, 16):
            for a in (*INT64, 0, 1, -1, rng.getrandbits(64) - (1 << 63)):
                cases.append((a, sh, f, rng.choice((None, rng.getrandbits(24)))))
    for _ in range(6000):
        f = rng.choice((8, 16))
        bits = rng.randrange(1, 64)
        a = rng.getrandbits(bits) - rng.choice((0, 1 << bits))
        cases.append((a, rng.randrange(-60, 70), f, rng.choice((None, rng.getrandbits(24)))))
        # One below, at and one above the longest operand that still shifts left without loss.
        n = rng.randrange(1, 63)
        a = rng.choice((1, -1)) * (1 << 63 - n) + rng.choice((-1, 0, 1))
        cases.append((a, f + 1 - n, f, None))
    await check(dut, with_expected(cases))


@cocotb.test()
async def disabled(dut):
    """A value that is not enabled gives code 0 and length 0, whatever its neighbours are."""
    Clock(dut.clk, 10, unit="ns").start()
    rng = random.Random(4)
    dut.below.value, dut.f16.value, dut.stochastic.value = -13, 1, 1
    enabled = [rng.getrandbits(1) for _ in range(200)]
    seen = []
    _off(dut)
    for enable in [*enabled, *[0] * Converter.LATENCY]:
        dut.a.value, dut.x24.value, dut.enable.value = 1 << 40 | rng.getrandbits(40), rng.getrandbits(24), enable
        await FallingEdge(dut.clk)
        seen.append((int(dut.length.value), bool(dut.code.value)))
        await RisingEdge(dut.clk)
    for i, enable in enumerate(enabled[:-Converter.LATENCY]):
        assert (seen[i + Converter.LENGTH_LATENCY][0] != 0, seen[i + Converter.LATENCY][1]) == (enable == 1, enable == 1), i


@cocotb.test()
async def integers(dut):
    """Operands divided by a power of two and saturated to 24 bits, between others that become codes."""
    if not hasattr(dut, "integer"):
        return
    Clock(dut.clk, 10, unit="ns").start()
    _off(dut)
    rng = random.Random(5)
    dut.enable.value, dut.stochastic.value = 1, 0
    cases = [(rng.choice((1, -1)) * (1 << rng.randrange(63)) + rng.choice((-1, 0, 1)), rng.randrange(-40, 60)) for _ in range(4000)]
    cases += [(a, sh) for a in (*INT64, 0, 1, -1) for sh in range(-256, 256)]
    for cycle in range(len(cases) + Converter.LATENCY):
        a, sh = cases[min(cycle, len(cases) - 1)]
        operand(dut, a, sh)
        dut.whole.value, dut.f16.value = cycle % 5 != 0, cycle % 3 != 0
        await FallingEdge(dut.clk)
        then = cycle - Converter.LATENCY
        if then >= 0 and then % 5:
            a, sh = cases[then]
            expected = max(-(1 << 23), min((1 << 23) - 1, a >> sh if sh >= 0 else a << -sh))
            assert dut.integer.value.to_signed() == expected, (a, sh)
        await RisingEdge(dut.clk)


@cocotb.test()
async def neighbours(dut):
    """Every value with settings of its own: number of random bits, rounding, error feedback, shift, whether it counts and whether
    it is wanted as an integer change from cycle to cycle; codes, rests, lengths and integers at the limits of each, one below and
    one beyond, up and down."""
    Clock(dut.clk, 10, unit="ns").start()
    rng = random.Random(6)
    has_whole, has_rests = hasattr(dut, "whole"), hasattr(dut, "feedback")
    limits = [(1 << 23) - 1, 1 << 23, 4032, 4096, 4095, 512, 511, 8, 7, 0]
    cases = []
    for cycle in range(9000):
        sh = rng.randrange(-40, 60) if cycle % 3 else rng.randrange(0, 38)
        a = rng.choice((1, -1)) * (rng.choice(limits) << max(0, sh)) + rng.choice((-1, 0, 1)) * rng.choice((1, 1 << max(0, sh)))
        if cycle % 7 == 0:
            a = rng.getrandbits(64) - (1 << 63) >> rng.randrange(64)
        a, f = max(INT64[0], min(INT64[1], a)), rng.choice((8, 16))
        x24 = rng.choice((None, 0, (1 << 24) - 1, rng.getrandbits(24)))
        feedback = has_rests and x24 is not None and rng.random() < 0.5
        cases.append((a, sh, 16 if feedback else f, x24, rng.random() < 0.8, has_whole and not feedback and rng.random() < 0.5,
                      feedback))
    lengths: list[int] = []
    for cycle in range(len(cases) + Converter.LATENCY):
        a, sh, f, x24, enable, whole, feedback = cases[min(cycle, len(cases) - 1)]
        operand(dut, a, sh)
        dut.f16.value, dut.stochastic.value = f == 16, x24 is not None
        dut.x24.value = rng.getrandbits(24) if x24 is None else x24
        dut.enable.value = enable
        if has_whole:
            dut.whole.value = whole
        if has_rests:
            dut.feedback.value = feedback
        await FallingEdge(dut.clk)
        if cycle >= Converter.LENGTH_LATENCY:
            lengths.append(int(dut.length.value))
        if cycle >= Converter.LATENCY:
            a, sh, f, x24, enable, whole, feedback = case = cases[cycle - Converter.LATENCY]
            v, code, stat, *rest = (with_feedback(a, sh, x24) if feedback else definition(a, sh, f, x24)) if enable else [0] * 4
            length = lengths[cycle - Converter.LATENCY] - (0 if f == 16 else 8)
            assert max(0, min(63, length)) == stat, case
            if whole:
                exact = (a >> sh if sh >= 0 else a << -sh) if enable else 0
                assert dut.integer.value.to_signed() == max(-(1 << 23), min((1 << 23) - 1, exact)), case
            else:
                assert (dut.v.value.to_signed(), int(dut.code.value)) == (v, code), case
            if feedback:
                assert int(dut.rest.value) == rest[0], case
        await RisingEdge(dut.clk)


@cocotb.test()
async def rests(dut):
    """Error feedback at every representable value, every midpoint and both limits of the range, just below, at and above them."""
    if not hasattr(dut, "feedback"):
        return
    Clock(dut.clk, 10, unit="ns").start()
    _off(dut)
    rng = random.Random(8)
    dut.enable.value, dut.stochastic.value, dut.f16.value, dut.feedback.value = 1, 1, 1, 1
    cases = [((half << 16) + around, 17, rng.choice((0, (1 << 24) - 1, rng.getrandbits(24))))
             for half in HALVES for around in (-(1 << 8), -2, -1, 0, 1, 1 << 9)]
    cases += [(rng.getrandbits(64) - (1 << 63) >> rng.randrange(64), rng.randrange(-40, 60), rng.getrandbits(24))
              for _ in range(2000)]
    for cycle in range(len(cases) + Converter.LATENCY):
        a, sh, x24 = cases[min(cycle, len(cases) - 1)]
        operand(dut, a, sh)
        dut.x24.value = x24
        await FallingEdge(dut.clk)
        if cycle >= Converter.LATENCY:
            case = cases[cycle - Converter.LATENCY]
            v, code, _, rest = with_feedback(*case)
            assert (dut.v.value.to_signed(), int(dut.code.value), int(dut.rest.value)) == (v, code, rest), case
        await RisingEdge(dut.clk)


@pytest.mark.parametrize(("whole", "rests"), [(False, False), (False, True), (True, True)])
def test_converter(tmp_path, whole, rests):
    assert run_cocotb(lambda: Converter(whole=whole, rests=rests), __file__, tmp_path) == 7


@pytest.mark.parametrize("width", [22, 43])
def test_rounder(width):
    """Around every bound of a segment and every half between two values, at both ends of the operand, and random ones."""
    dut, rng = Rounder(width), random.Random(width)
    ends = (-1 << width - 1, (1 << width - 1) - 1)
    operands = {(half << 8) + around for half in HALVES for around in (-1, 0, 1)}
    operands |= {sign << k for k in range(width - 1) for sign in (1, -1)}
    operands |= {rng.randint(*ends) >> rng.randrange(width) for _ in range(300)} | {*ends, ends[0] + 1, ends[1] - 1}
    operands = [g for g in sorted(operands) if ends[0] <= g <= ends[1]]
    rng.shuffle(operands)

    async def bench(ctx):
        for number in range(len(operands) + Rounder.LATENCY):
            if number < len(operands):
                ctx.set(dut.g, operands[number])
            if number >= Rounder.LATENCY:
                g = operands[number - Rounder.LATENCY]
                assert ctx.get(dut.v) == definition(g, 9, 8, None)[0], g
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
