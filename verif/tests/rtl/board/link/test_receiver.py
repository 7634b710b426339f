"""Frames out of noise, as the host's reader finds them; and the ring, which keeps whole frames or nothing."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.frame_format import RING_BYTES
from gradloom.host.link.frames import FrameReader, encode
from gradloom.rtl.board.link.receiver import FrameReceiver, RequestRing
from gradloom.verif.link.model_transport import DISTURBANCES


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


def disturbed(rng, count):
    """Frames of which half are damaged."""
    data = b""
    for _ in range(count):
        content = bytes(rng.choice([0x7E, 0x7D, rng.randrange(256)]) for _ in range(rng.randint(0, 20)))
        frame = encode(content)
        data += rng.choice(list(DISTURBANCES.values()))(rng, frame) if rng.random() < 0.5 else frame
    return data


@pytest.mark.parametrize("seed", range(2))
def test_frames_are_those_that_the_host_finds(seed):
    rng = random.Random(seed)
    data = disturbed(rng, 120)
    wanted = [content for content in FrameReader().feed(data) if len(content) >= 4]
    dut = FrameReceiver()

    async def testbench(ctx):
        found, body = [], bytearray()
        for byte in data:
            while rng.random() < 0.2:
                ctx.set(dut.hold, rng.random() < 0.5)
                ctx.set(dut.i.valid, ctx.get(dut.hold))
                await ctx.tick()
            ctx.set(dut.hold, 0)
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.i.payload, byte)
            if ctx.get(dut.write):
                body.append(ctx.get(dut.data))
            assert ctx.get(dut.last) == ctx.get(dut.good) and not (ctx.get(dut.good) and ctx.get(dut.bad))
            if ctx.get(dut.good):
                found.append(bytes([ctx.get(dut.session), ctx.get(dut.number), ctx.get(dut.ack)]) + bytes(body))
                assert body[0] == ctx.get(dut.kind)
            if byte == 0x7E:
                body.clear()
            await ctx.tick()
        assert found == wanted and len(found) > 40

    simulate(dut, testbench)


def test_a_lost_byte_breaks_the_frame_around_it_and_no_other():
    """Even if the FCS is good without it; a byte lost between frames breaks none."""
    frame = encode(bytes(range(10)))
    dut = FrameReceiver()

    async def testbench(ctx):
        for lost in (3, None, len(frame) - 2, 0, None):
            for place, byte in enumerate(frame):
                ctx.set(dut.i.valid, 0)
                ctx.set(dut.error, place == lost)
                await ctx.tick()
                ctx.set(dut.error, 0)
                ctx.set(dut.i.valid, 1)
                ctx.set(dut.i.payload, byte)
                last = ctx.get(dut.good), ctx.get(dut.bad)
                await ctx.tick()
            assert last == ((0, 1) if lost else (1, 0)), lost

    simulate(dut, testbench)


def test_the_ring_holds_all_but_one_byte_and_forgets_what_is_not_kept():
    rng, dut = random.Random(1), RequestRing()

    async def testbench(ctx):
        waiting, taken = [], []
        kept = refused = 0
        partial: list[int] = []
        length = 0
        ctx.set(dut.o.ready, 0)
        for cycle in range(16000):
            # A frame of some length, kept or dropped at its end.
            if not length:
                length, partial, over = rng.choice([1, 2, 40, 700]), [], False
            byte, last = rng.randrange(256), len(partial) + 1 == length
            write = rng.random() < 0.5
            ctx.set(dut.write, write)
            ctx.set(dut.data, byte)
            ctx.set(dut.last, last)
            room = RING_BYTES - 1 - len(waiting) - len(partial)
            full = bool(ctx.get(dut.full)) if write else False
            over |= write and room <= 0
            if write:
                assert full == over
            keep = write and last and not full and rng.random() < 0.7
            drop = write and last and not keep
            ctx.set(dut.keep, keep)
            ctx.set(dut.drop, drop)
            ready = rng.random() < (0.02 if cycle % 8000 < 5000 else 0.9)
            ctx.set(dut.o.ready, ready)
            if ctx.get(dut.o.valid) and ready:
                taken.append((ctx.get(dut.o.payload.data), ctx.get(dut.o.payload.last)))
                assert taken[-1] == waiting.pop(0)
            if write:
                partial.append(byte)
            if keep:
                waiting += [(value, n + 1 == length) for n, value in enumerate(partial)]
                kept += 1
            refused += drop and full
            if write and last:
                length = 0
            await ctx.tick()
        assert kept > 20 and refused > 2 and len(taken) > 2000, (kept, refused, len(taken))

    simulate(dut, testbench)
