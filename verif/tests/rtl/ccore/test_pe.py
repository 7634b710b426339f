"""Windows and PE: the seven patterns of ETA (section IV-B2, figure 6) and PAIR as one-dimensional convolutions of random rows."""

import os
import random

import cocotb
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from gradloom.contracts.config import Config
from gradloom.rtl.ccore.mac import factor_of
from gradloom.rtl.ccore.pe import Pe
from gradloom.rtl.ccore.window_registers import COLUMN_LATENCY, WeightRegisters, WindowRegisters
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.plain_arith import decode

MACS = ("decode_once", "post_shift")
WG_WIDTH = 40
LATENCY = COLUMN_LATENCY + 3
"""Cycles from a token to its sums."""


class Bench(wiring.Component):
    """The first PE of a row, fed with codes; tokens take all their controls in one cycle."""

    def __init__(self, mac: str) -> None:
        self.mac = mac
        taps = data.ArrayLayout(8, 3)
        super().__init__({
            "shift": In(1), "clear": In(1), "swap": In(1), "sel": In(3), "wg": In(1), "acc": In(1),
            "clr": In(1), "snap": In(1), "x0": In(8), "x1": In(8), "load": In(1),
            "w": In(taps), "e": In(taps), "product": Out(78), "drain": Out(3 * WG_WIDTH), "ovf": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = Config(name="test", clusters=1, wpus=1, cols=1, mac=self.mac)
        m.submodules.windows = windows = WindowRegisters(config)
        m.submodules.weights = weights = WeightRegisters(config)
        m.submodules.pe = pe = Pe(self.mac, WG_WIDTH)

        def after(value, cycles: int, name: str):
            for i in range(cycles):
                register = Signal(value.shape(), name=f"{name}{i}")
                m.d.sync += register.eq(value)
                value = register
            return value

        m.d.comb += [
            windows.shift.eq(self.shift), windows.clear.eq(self.clear), windows.sel.eq(self.sel), windows.x[0].x0.eq(self.x0),
            windows.x[0].x1.eq(self.x1), weights.swap.eq(self.swap), weights.load.eq(self.load), weights.w.eq(self.w),
            pe.a.eq(windows.a[0]), pe.w[0].eq(weights.active[0]), pe.wg.eq(after(self.wg, COLUMN_LATENCY, "wg")),
            pe.take.eq(after(~self.wg | self.acc, COLUMN_LATENCY + 2, "take")),
            pe.keep.eq(after(self.wg & ~self.clr, COLUMN_LATENCY + 2, "keep")),
            pe.chain.eq(after(~self.wg, COLUMN_LATENCY + 2, "chain")),
            pe.kept.eq(after(self.wg & self.acc & ~self.clr, COLUMN_LATENCY + 3, "kept")),
            pe.snap.eq(after(self.snap, COLUMN_LATENCY + 3, "snap")), pe.ask.eq(0b111),
            self.product.eq(Cat(total[0][:26] for total in pe.sum)), self.drain.eq(pe.drain), self.ovf.eq(pe.ovf)]
        m.d.comb += [pe.e[0][k].eq(factor_of(self.mac, after(self.e[k], COLUMN_LATENCY, f"e{k}_"))) for k in range(3)]
        return m


def signed_slices(packed: int, bits: int) -> list[int]:
    slices = [packed >> bits * k & (1 << bits) - 1 for k in range(3)]
    return [s - (s >> bits - 1 << bits) for s in slices]


class Driver:
    """Rows of codes to tokens, and the products or accumulators that come back."""

    def __init__(self, dut, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        self.inputs = (dut.shift, dut.clear, dut.swap, dut.sel, dut.wg, dut.acc, dut.clr, dut.snap, dut.x0,
                       dut.x1, dut.load, dut.w, dut.e)

    async def reset(self) -> None:
        Clock(self.dut.clk, 10, unit="ns").start()
        for port in self.inputs:
            port.value = 0
        self.dut.rst.value = 1
        await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def weights(self, codes: list[int]) -> None:
        self.dut.load.value = 1
        self.dut.w.value = int.from_bytes(bytes(codes), "little")
        await RisingEdge(self.dut.clk)
        self.dut.load.value = 0

    def noise(self) -> int:
        return self.rng.randrange(256)

    async def run(self, row: list[int], windows: int, *, pattern: int, par: int, s2: bool = False,
                  preload: bool = False, errors: list[list[int]] | None = None) -> list[list[int]]:
        """Present the windows of one row (docs/machine.md, section 4); the three products of each window."""
        dut = self.dut
        entries = [(row[i], row[i + 1]) for i in range(0, len(row), 2)]
        position = 0

        def feed(shift: bool) -> None:
            nonlocal position
            dut.shift.value = shift
            pair = self.noise(), self.noise()
            if shift:
                pair = entries[position] if position < len(entries) else (0, 0)
                position += 1
            dut.x0.value, dut.x1.value = pair

        dut.swap.value = errors is None
        dut.clear.value = 1
        if preload:
            feed(True)
            await RisingEdge(dut.clk)
            dut.clear.value = 0
            dut.swap.value = 0
        products: list[list[int]] = []
        for j in range(windows + LATENCY):
            dut.acc.value = 0
            if j < windows:
                feed(j == 0 or s2 or par == (1 if pattern == 1 else 0))
                dut.sel.value = 2 * pattern + par
                if errors is not None:
                    dut.e.value = int.from_bytes(bytes(errors[j]), "little")
                    dut.wg.value, dut.acc.value, dut.clr.value = 1, 1, j == 0
                    dut.snap.value = j == windows - 1
                par ^= not s2
            else:
                for port in (dut.shift, dut.wg, dut.clr, dut.snap):
                    port.value = 0
                dut.e.value = self.noise() * 0x10101
            await FallingEdge(dut.clk)
            if j >= LATENCY:
                products.append(signed_slices(int(dut.product.value), 26))
            await RisingEdge(dut.clk)
            dut.swap.value = 0
            dut.clear.value = 0
        return products

    async def accumulators(self) -> list[int]:
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        sums = signed_slices(int(self.dut.drain.value), WG_WIDTH)
        await RisingEdge(self.dut.clk)
        return sums


@cocotb.test()
async def patterns(dut):
    assert os.environ["MAC"] in MACS
    rng = random.Random(7)
    driver = Driver(dut, rng)
    await driver.reset()
    for length in (4, 8, 14):
        for pad in (0, 1):
            for stride in (1, 2):
                row = [rng.randrange(256) for _ in range(length)]
                a = [0] * pad + [decode(code) for code in row] + [0] * 4
                outputs = (length + 2 * pad - 3) // stride + 1
                start = {"pattern": 0, "par": pad, "s2": stride == 2, "preload": pad == 0}

                # Forward, and backward at stride 1 (whose turned kernel the weight network makes).
                codes = [rng.randrange(256) for _ in range(3)]
                w = [decode(code) for code in codes]
                await driver.weights(codes)
                got = await driver.run(row, outputs, **start)
                assert [sum(p) for p in got] == [
                    sum(w[k] * a[stride * x + k] for k in range(3)) for x in range(outputs)]

                # Weight gradient: one error for all three taps.
                errors = [rng.randrange(256) for _ in range(outputs)]
                await driver.run(row, outputs, **start, errors=[[e, e, e] for e in errors])
                assert await driver.accumulators() == [
                    sum(decode(errors[x]) * a[stride * x + k] for x in range(outputs)) for k in range(3)]

        # Backward at stride 2, outputs split by parity: column 2 t + 1 - pad and the next one.
        codes = [rng.randrange(256) for _ in range(3)]
        w = [decode(code) for code in codes]
        await driver.weights(codes)
        row = [rng.randrange(256) for _ in range(length)]
        e = [decode(code) for code in row] + [0]
        got = await driver.run(row, length, pattern=1, par=0)
        assert [(p[1], p[0] + p[2]) for p in got] == [
            (w[1] * e[t], w[2] * e[t] + w[0] * e[t + 1]) for t in range(length)]

        # Kernel 1: one column to three output groups, backward likewise; weight gradient: an error per group.
        await driver.weights(codes)
        got = await driver.run(row, length, pattern=2, par=0)
        assert got == [[w[k] * e[t] for k in range(3)] for t in range(length)]
        errors = [[rng.randrange(256) for _ in range(3)] for _ in range(length)]
        await driver.run(row, length, pattern=2, par=0, errors=errors)
        assert await driver.accumulators() == [
            sum(decode(errors[t][k]) * e[t] for t in range(length)) for k in range(3)]

        # One column of a kernel for two neighbouring output columns: the same weight twice.
        await driver.weights([codes[0], codes[0], 0])
        got = await driver.run(row, length // 2, pattern=3, par=0, s2=True)
        assert [column for p in got for column in p[:2]] == [w[0] * e[x] for x in range(length)]


@pytest.mark.parametrize("mac", MACS)
def test_pe(mac, tmp_path):
    assert run_cocotb(lambda: Bench(mac), __file__, tmp_path, env={"MAC": mac}) == 1
