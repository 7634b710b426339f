"""The frame check sequence against zlib's, and its own complement as the FCS."""

import random
import zlib

from amaranth.sim import Simulator

from gradloom.rtl.board.link.crc32 import GOOD, Crc32


def test_bytes_fcs_and_what_is_left_behind_them():
    dut, rng = Crc32(), random.Random(3)

    async def testbench(ctx):
        for length in (0, 1, 2, 3, 9, 64):
            data = rng.randbytes(length)
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            for byte in data:
                ctx.set(dut.enable, 1)
                ctx.set(dut.byte, byte)
                await ctx.tick()
            ctx.set(dut.enable, 0)
            await ctx.tick()
            assert ctx.get(dut.state) ^ 0xFFFFFFFF == zlib.crc32(data)
            for byte in zlib.crc32(data).to_bytes(4, "little"):
                ctx.set(dut.enable, 1)
                ctx.set(dut.byte, byte)
                await ctx.tick()
            ctx.set(dut.enable, 0)
            assert ctx.get(dut.state) == GOOD

    simulate(dut, testbench)


def test_the_state_moves_out_as_the_fcs():
    dut = Crc32()

    async def testbench(ctx):
        for byte in b"frame":
            ctx.set(dut.enable, 1)
            ctx.set(dut.byte, byte)
            await ctx.tick()
        ctx.set(dut.enable, 0)
        ctx.set(dut.shift, 1)
        fcs = bytearray()
        for _ in range(4):
            fcs.append(ctx.get(dut.state) & 0xFF ^ 0xFF)
            await ctx.tick()
        assert bytes(fcs) == zlib.crc32(b"frame").to_bytes(4, "little")

    simulate(dut, testbench)


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()
