"""Bytes on two wires: rates that do not divide the clock, senders that are too fast or slow, stop bits that are none, breaks."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.contracts.frame_format import bit_step
from gradloom.rtl.board.link.uart import UartReceiver, UartTransmitter


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


async def line(ctx, dut, clocks, data, stop=1):
    """Bytes as a sender gives them whose bits last ``clocks`` clocks, a fraction; lists what comes out, and errors."""
    out, errors, time, edge = [], 0, 0.0, 0.0
    ctx.set(dut.o.ready, 1)
    for byte in data:
        for bit in [0, *(byte >> n & 1 for n in range(8)), stop, *([1] if stop == 0 else [])]:
            ctx.set(dut.rx, bit)
            edge += clocks
            while time < edge:
                if ctx.get(dut.o.valid):
                    out.append(ctx.get(dut.o.payload))
                errors += ctx.get(dut.error)
                await ctx.tick()
                time += 1
    for _ in range(int(2 * clocks) + 4):
        if ctx.get(dut.o.valid):
            out.append(ctx.get(dut.o.payload))
        errors += ctx.get(dut.error)
        await ctx.tick()
    return bytes(out), errors


RATES = [(3_000_000, 50_000_000), (3_000_000, 25_000_000), (1_000_000, 25_000_000), (2_000_000, 48_000_000)]


@pytest.mark.parametrize(("baud", "clock"), RATES)
@pytest.mark.parametrize("off", [0.98, 1.0, 1.02])
def test_receiver_of_a_sender_two_per_cent_off(baud, clock, off):
    dut, data = UartReceiver(), random.Random(baud).randbytes(40) + b"\0\xff\x55\xaa"

    async def testbench(ctx):
        ctx.set(dut.bit_step, bit_step(baud, clock))
        await ctx.tick().repeat(4)
        assert await line(ctx, dut, off * clock / baud, data) == (data, 0)

    simulate(dut, testbench)


def test_a_wrong_stop_bit_is_told_and_its_byte_not():
    dut = UartReceiver()

    async def testbench(ctx):
        ctx.set(dut.bit_step, bit_step(3_000_000, 50_000_000))
        await ctx.tick().repeat(4)
        out, errors = await line(ctx, dut, 50 / 3, b"\x12\x34", stop=0)
        assert (out, errors) == (b"", 2)
        assert await line(ctx, dut, 50 / 3, b"\x56") == (b"\x56", 0)

    simulate(dut, testbench)


def test_a_byte_that_nobody_takes_is_told_when_the_next_one_is_there():
    dut = UartReceiver()

    async def testbench(ctx):
        ctx.set(dut.bit_step, 1 << 13)
        await ctx.tick().repeat(4)
        errors = 0
        for byte in (1, 2):
            for bit in [0, *(byte >> n & 1 for n in range(8)), 1]:
                ctx.set(dut.rx, bit)
                for _ in range(8):
                    errors += ctx.get(dut.error)
                    await ctx.tick()
        assert (errors, ctx.get(dut.o.payload)) == (1, 2)

    simulate(dut, testbench)


def test_only_a_line_that_is_low_for_1024_bits_is_a_break():
    dut = UartReceiver()

    async def testbench(ctx):
        ctx.set(dut.bit_step, 1 << 13)
        ctx.set(dut.rx, 0)
        for _ in range(8 * 1020):
            await ctx.tick()
            assert not ctx.get(dut.line_break)
        await ctx.tick().repeat(8 * 8)
        assert ctx.get(dut.line_break)
        ctx.set(dut.rx, 1)
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.line_break)

    simulate(dut, testbench)


class Loop(wiring.Component):
    """A transmitter and a receiver on one line."""

    def __init__(self):
        self.sender, self.receiver = UartTransmitter(), UartReceiver()
        super().__init__({"bit_step": In(16), "idle": Out(1), "tx": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sender, m.submodules.receiver = self.sender, self.receiver
        m.d.comb += [self.sender.bit_step.eq(self.bit_step), self.receiver.bit_step.eq(self.bit_step),
                     self.receiver.rx.eq(self.sender.tx), self.idle.eq(self.sender.idle), self.tx.eq(self.sender.tx)]
        return m


def test_transmitter_and_a_change_of_rate_while_it_is_idle():
    dut = Loop()

    async def testbench(ctx):
        ctx.set(dut.receiver.o.ready, 1)
        for clocks in (8, 16.67, 9.1, 40):
            ctx.set(dut.bit_step, round(65536 / clocks))
            await ctx.tick()
            for byte in (0, 0xFF, 0x55, 0x7E):
                ctx.set(dut.sender.i.valid, 1)
                ctx.set(dut.sender.i.payload, byte)
                await ctx.tick()
                ctx.set(dut.sender.i.valid, 0)
                passed, got = 0, None
                while not ctx.get(dut.idle):
                    if ctx.get(dut.receiver.o.valid):
                        got = ctx.get(dut.receiver.o.payload)
                    passed += 1
                    await ctx.tick()
                assert (got, abs(passed - 10 * clocks) < 2) == (byte, True), (clocks, passed)

    simulate(dut, testbench)


def test_rates_that_the_clock_cannot_make():
    assert bit_step(115_200, 50_000_000) == 151
    for baud in (10_000_000, 5_000):
        with pytest.raises(ValueError, match=f"a bit must last 8 to 4096 clocks, at {baud} baud and 50000000 Hz"):
            bit_step(baud, 50_000_000)
