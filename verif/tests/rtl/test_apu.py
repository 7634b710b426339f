"""Blocks of an auxiliary processing unit: align, registers, the operands that MUL1 cannot take."""

import random

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.rtl.align import Align, saturated
from gradloom.rtl.apu import ADD1, CHECK, Apu
from gradloom.rtl.config import Config
from gradloom.rtl.microcode import FIELDS, Destination, Factor, Operand, Register, decode, encode
from gradloom.verif.acore_case import align, saturate

CONFIG = Config(name="apu", clusters=1, wpus=1, cols=1, max_planes=4)


def simulate(dut, bench) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("width", [13, 16, 34, 64])
def test_align(width):
    dut = Align(width)
    rng = random.Random(width)
    top = (1 << (width - 1)) - 1
    edges = [0, 1, -1, top, -top - 1, top >> 1]
    cases = [(x, n) for x in edges for n in (-256, -65, -64, -63, -1, 0, 1, 62, 63, 64, 255)]
    cases += [(x, n) for x in edges for n in range(63 - width, 66 - width)]
    cases += [(rng.randint(-top - 1, top) >> rng.randint(0, width - 1), rng.randint(-72, 72)) for _ in range(1500)]

    async def bench(ctx):
        results = []
        for x, n in [*cases, *[(0, 0)] * Align.LATENCY]:
            ctx.set(dut.x, x)
            ctx.set(dut.n, n)
            results.append(ctx.get(dut.y))
            await ctx.tick()
        for (x, n), y in zip(cases, results[Align.LATENCY:], strict=True):
            assert y == align(x, n), (x, n)

    simulate(dut, bench)


@pytest.mark.parametrize("width", [0, 1, 65])
def test_align_width(width):
    with pytest.raises(ValueError, match=rf"^width must lie in 2\.\.64, not {width}$"):
        Align(width)


def test_saturated():
    wide = Signal(signed(8))
    assert len(saturated(wide, 8)) == 8
    assert saturated(wide, 9) is wide

    class Dut(wiring.Component):
        x: In(signed(8))
        y: Out(signed(5))

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.y.eq(saturated(self.x, 5))
            return m

    dut = Dut()

    async def bench(ctx):
        for x in range(-128, 128):
            ctx.set(dut.x, x)
            assert ctx.get(dut.y) == saturate(x, 5)

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


def micro(**values: int) -> dict[str, int]:
    decoded = decode(encode(**values))
    return {name: decoded[name] for name in FIELDS}


async def load(ctx, dut: Apu, register: Register, entry: int) -> None:
    ctx.set(dut.load_reg, register)
    ctx.set(dut.entry, entry)
    ctx.set(dut.load, 1)
    await ctx.tick()
    ctx.set(dut.load, 0)


def stored(ctx, dut: Apu, register: Register) -> int:
    ctx.set(dut.store_reg, register)
    return ctx.get(dut.store)


async def scalar(ctx, dut: Apu, **values: int) -> None:
    """One beat of a scalar sweep through ADD1."""
    ctx.set(dut.op, micro(**values))
    for stage in range(ADD1 + 2):
        ctx.set(dut.at_t, {"v": stage == ADD1, "v0": 1, "first": 1, "last": 1})
        ctx.set(dut.check, stage == CHECK)
        await ctx.tick()


def test_registers():
    """A load of a parameter fills {V, P}, a store gives it back; sums are separate; lam of a plane comes back."""
    dut = Apu(CONFIG)

    async def bench(ctx):
        rng = random.Random(1)
        entries = {register: rng.getrandbits(64) for register in Register}
        for register, entry in entries.items():
            await load(ctx, dut, register, entry)
            assert stored(ctx, dut, register) == entry
        for register in (Register.GAMMA, Register.BETA, Register.TAU):
            assert stored(ctx, dut, register) == entries[Register.TAU]
        for register in (Register.SG, Register.SB, Register.ST):
            assert stored(ctx, dut, register) == entries[register]
        for plane in range(4):
            ctx.set(dut.load_plane, plane)
            ctx.set(dut.entry, 0xABCD_0012_3450 + plane)
            ctx.set(dut.load_lambda, 1)
            await ctx.tick()
        ctx.set(dut.load_lambda, 0)
        ctx.set(dut.store_lambda, 1)
        for plane in range(4):
            ctx.set(dut.plane, plane)
            await ctx.tick()
            assert ctx.get(dut.store) == 0x12_3450 + plane
        ctx.set(dut.store_lambda, 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert stored(ctx, dut, Register.SG) == 0

    simulate(dut, bench)


def test_scalar_products():
    """P = clamp(V * lm - ...) through MUL1 and ADD1; the wide product needs all three slices."""
    dut = Apu(CONFIG)

    async def bench(ctx):
        rng = random.Random(2)
        for _ in range(30):
            total = saturate(rng.randint(-(1 << 47), (1 << 47) - 1) >> rng.randint(0, 40), 48)
            inv, shift = rng.randint(1 << 15, 1 << 16), rng.randint(-50, -10)
            await load(ctx, dut, Register.SB, total & (1 << 64) - 1)
            ctx.set(dut.setup, {"inv": inv, "sh1": shift})
            await scalar(ctx, dut, x=Operand.SUM, reg=Register.SB, factor=Factor.INV, dst=Destination.P)
            expected = saturate(align(total * inv, shift), 28)
            got = stored(ctx, dut, Register.GAMMA) & 0xFFFFFFFF
            assert got == expected & 0xFFFFFFFF
            assert not ctx.get(dut.overflow)

    simulate(dut, bench)


def test_operand_beyond_48_bits():
    """MUL1 saturates what does not fit and says so; without a multiplication the operand passes whole."""
    dut = Apu(CONFIG)

    async def bench(ctx):
        for total, factor, overflow in (((1 << 47) - 1, Factor.INV, 0), (-(1 << 47), Factor.INV, 0), (1 << 47, Factor.NONE, 0),
                                        (1 << 47, Factor.INV, 1), (-(1 << 47) - 1, Factor.INV, 1)):
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            await load(ctx, dut, Register.SG, total & (1 << 64) - 1)
            ctx.set(dut.setup, {"inv": 1 << 15, "sh1": -40})
            await scalar(ctx, dut, x=Operand.SUM, reg=Register.SG, factor=factor, dst=Destination.V)
            assert ctx.get(dut.overflow) == overflow
            product = saturate(total, 48) << 15 if factor else total
            assert stored(ctx, dut, Register.GAMMA) >> 32 == saturate(product >> 40, 32) & 0xFFFFFFFF

    simulate(dut, bench)
