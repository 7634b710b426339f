"""Division block: every quotient bit, the normalisation and the fixed latency."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.acore.divider import Divider, SerialDivider


def expected(n: int, s: int) -> tuple[int, int]:
    le = 0
    while (n << le) // s < 1 << 15:
        le += 1
    return (n << le) // s, le


def divide(cases: list[tuple[int, int]], divider: type[Divider] | type[SerialDivider]) -> list[tuple[int, int]]:
    dut, results = divider(), []

    async def bench(ctx):
        for n, s in cases:
            ctx.set(dut.n, n)
            ctx.set(dut.s, s)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for _ in range(divider.LATENCY - 1):
                assert not ctx.get(dut.done)
                await ctx.tick()
            assert ctx.get(dut.done)
            results.append((ctx.get(dut.q), ctx.get(dut.le)))
            await ctx.tick()
            assert not ctx.get(dut.done)
            for _ in range(len(results) % 3):
                await ctx.tick()
            assert (ctx.get(dut.q), ctx.get(dut.le)) == results[-1], "they hold"

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return results


def boundary_cases() -> list[tuple[int, int]]:
    """Ratios just below, at and above every power of two, where q is at either end of its range."""
    cases = []
    for shift in range(0, 63, 3):
        for n in (1, 2, 3, 1 << 14, (1 << 15) - 1):
            for delta in (-1, 0, 1):
                s = (n << shift) + delta
                if 1 <= s < 1 << 63:
                    cases.append((n, s))
    return [*cases, (1, (1 << 63) - 1), ((1 << 15) - 1, (1 << 63) - 1), ((1 << 15) - 1, 1)]


def random_cases(seed: int) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    return [(rng.randint(1, (1 << rng.randint(1, 15)) - 1), rng.randint(1, (1 << rng.randint(1, 63)) - 1))
            for _ in range(1500)]


def small_cases() -> list[tuple[int, int]]:
    return [(n, s) for n in range(1, 33) for s in range(1, 65)]


@pytest.mark.parametrize(("divider", "cases"), [
    pytest.param(Divider, boundary_cases(), id="boundaries"), pytest.param(Divider, small_cases(), id="small"),
    pytest.param(Divider, random_cases(1), id="random"), pytest.param(SerialDivider, boundary_cases(), id="serial-boundaries"),
    pytest.param(SerialDivider, random_cases(2)[:400], id="serial-random")])
def test_quotients(cases, divider):
    results = divide(cases, divider)
    for (n, s), result in zip(cases, results, strict=True):
        assert result == expected(n, s), f"{n} / {s}"
        assert 1 << 15 <= result[0] < 1 << 16
