"""Converter: the shared vectors, rounding boundaries at several shifts, all operand lengths and shifts."""

import itertools
import json
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from gradloom.rtl.converter import Converter
from gradloom.verif.cocotb_run import run_cocotb

VECTORS = Path(__file__).parents[1] / "models" / "vectors" / "encoder.json"
INT64 = (-(1 << 63), (1 << 63) - 1)


def definition(a: int, sh: int, f: int, x24: int | None) -> tuple[int, int, int]:
    """(v, code, stat) by the rules, in unbounded integers."""
    n = f + 1 - sh
    g = max(INT64[0], min(INT64[1], a << n)) if n >= 0 else a >> -n
    t = g >> f + 1
    if t >= 4096:
        v = 4032
    elif t < -4096:
        v = -4096
    else:
        s = 0 if -8 <= t < 8 else 3 if -512 <= t < 512 else 6
        add = 1 << f if x24 is None else 2 * (x24 >> 24 - f) + 1
        v = min(((g >> s) + add >> f + 1) << s, 4032)
    low, middle, top = v & 127, 128 | v >> 3 & 127, v >> 6 & 127
    return v, low if -8 <= v < 8 else middle if -512 <= v < 512 else top, g ^ g >> 63


async def check(dut, cases: list[tuple]) -> None:
    """Stream (a, sh, f, x24, expected) through the converter, one a cycle."""
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 0
    dut.enable.value = 1
    await RisingEdge(dut.clk)
    statistics: list[int] = []
    for cycle in range(len(cases) + Converter.LATENCY):
        if cycle < len(cases):
            a, sh, f, x24, _ = cases[cycle]
            dut.a.value = a & (1 << 64) - 1
            dut.sh.value = sh & 511
            dut.f16.value = f == 16
            dut.stochastic.value = x24 is not None
            dut.x24.value = x24 or 0
        await FallingEdge(dut.clk)
        if cycle >= Converter.ALIGN_LATENCY:
            beyond, negative = (bool(port.value) for port in (dut.beyond, dut.negative))
            statistics.append((1 << 63) - 1 if beyond else (int(dut.y.value) ^ -negative) & (1 << 63) - 1)
        if cycle >= Converter.LATENCY:
            *case, expected = cases[cycle - Converter.LATENCY]
            got = dut.v.value.to_signed(), int(dut.code.value), statistics[cycle - Converter.LATENCY]
            assert got == expected, f"{case}: {got}, expected {expected}"
        await RisingEdge(dut.clk)


def with_expected(cases: list[tuple]) -> list[tuple]:
    return [(*case, definition(*case)) for case in cases]


@cocotb.test()
async def vectors(dut):
    cases = [(e["A"], e["sh"], e["F"], e["x24"], (e["v"], e["code"], e["stat"]))
             for e in json.loads(VECTORS.read_text()) if e["F"] in (8, 16)]
    assert len(cases) > 1000
    await check(dut, cases)


@cocotb.test()
async def boundaries(dut):
    """Just below, at and above every representable value, every midpoint and both limits of the range."""
    rng = random.Random(2)
    values = sorted([*range(-8, 8), *range(-512, 512, 8), *range(-4096, 4096, 64), 4096])
    halves = sorted({a + b for a, b in itertools.pairwise(values)} | {2 * v for v in values})
    cases = []
    for f in (8, 16):
        for sh in (f + 1, f - 2, f + 4, 40):
            for half in halves:
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
    """A value that is not enabled gives code 0 and no statistic, whatever its neighbours are."""
    Clock(dut.clk, 10, unit="ns").start()
    rng = random.Random(4)
    dut.sh.value, dut.f16.value, dut.stochastic.value = 5, 1, 1
    enabled = [rng.getrandbits(1) for _ in range(200)]
    seen = []
    for enable in [*enabled, *[0] * Converter.LATENCY]:
        dut.a.value, dut.x24.value, dut.enable.value = 1 << 40 | rng.getrandbits(40), rng.getrandbits(24), enable
        await FallingEdge(dut.clk)
        seen.append((int(dut.y.value), bool(dut.code.value)))
        await RisingEdge(dut.clk)
    for i, enable in enumerate(enabled[:-Converter.LATENCY]):
        assert (seen[i + Converter.ALIGN_LATENCY][0] != 0, seen[i + Converter.LATENCY][1]) == (enable == 1, enable == 1), i


def test_converter(tmp_path):
    assert run_cocotb(Converter, __file__, tmp_path) == 4
