"""Sums that leave the array: over k, over lanes, onto P, out of 32 bits; what the Storer reads of them, and when."""

import dataclasses
import os
import random

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from gradloom.contracts.matrix_config import load_machine
from gradloom.rtl.matrix.sums import Sums
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.memory_bench import start_clock

MACHINES = {
    "lanes": dataclasses.replace(load_machine("darkfpga-4x2"), p_depth=8),
    "rows": dataclasses.replace(load_machine("fox-4"), p_depth=8),
    "output": dataclasses.replace(load_machine("barista-4x4x8"), p_depth=8),
}
TOP = (1 << 31) - 1
LATENCY = {"lanes": 6, "rows": 4, "output": 4}
"""4 and a level for each halving of the lanes."""


class Bench:
    def __init__(self, dut, name):
        self.dut, self.config, self.name = dut, MACHINES[name], name
        self.count = self.config.lanes * self.config.rows
        self.rng = random.Random(2)
        self.whole = self.config.stationary == "output"
        """A sum leaves the array as a whole."""

    async def begin(self):
        await start_clock(self.dut, leaving=0, sums=0, en=0, addr=0)
        return self

    def leave(self, sums, *, first=1, last=1, acc=0, merge=0, p=0):
        packed = sum((value & (1 << 48) - 1) << 48 * n for n, value in enumerate(sums))
        self.dut.leaving.value = 1 | first << 1 | last << 2 | acc << 3 | merge << 4 | p << 5
        self.dut.sums.value = packed

    async def cycle(self):
        await RisingEdge(self.dut.clk)
        self.dut.leaving.value = self.rng.getrandbits(20) << 1
        self.dut.sums.value = self.rng.getrandbits(48 * self.count)

    async def word(self, p):
        """A word of P, by its beats."""
        beats = self.config.p_bytes // self.config.beat_bytes
        found = b""
        for beat in range(beats + 2):
            self.dut.en.value, self.dut.addr.value = int(beat < beats), p * beats + min(beat, beats - 1)
            await ReadOnly()
            if beat >= 2:
                found += int(self.dut.beat.value).to_bytes(self.config.beat_bytes, "little")
            await self.cycle()
        return [int.from_bytes(found[4 * n:4 * n + 4], "little", signed=True) for n in range(self.count)]

    async def settle(self):
        """Cycles until what left in the cycle before is read; whether a sum left its bits meanwhile."""
        over = 0
        for _ in range(LATENCY[self.name]):
            await ReadOnly()
            over |= int(self.dut.overflow.value)
            await self.cycle()
        return over

    @property
    def most(self):
        """Of what leaves the array in a cycle: codes of -128 in every column."""
        return self.config.columns << 14

    def some(self):
        return [self.rng.randint(-self.most, self.most) for _ in range(self.count)]

    async def run_up(self, sums):
        """What is added up over k is now so much; nothing is put into P."""
        if self.whole:
            self.so_far = sums
            return
        turns = max(-(-abs(value) // self.most) for value in sums)
        for k in range(turns):
            part = [min(self.most, max(-self.most, value - (value > 0 or -1) * min(abs(value), k * self.most))) for value in sums]
            self.leave(part, first=int(k == 0), last=0)
            await self.cycle()

    async def add(self, sums, **where):
        """Adds to that, and puts it into P; whether a sum left its bits."""
        if self.whole:
            self.so_far = sums = [a + b for a, b in zip(self.so_far, sums, strict=True)]
        self.leave(sums, first=0, **where)
        await self.cycle()
        return await self.settle()


@cocotb.test()
async def sums_over_k_and_onto_p(dut):
    bench = await Bench(dut, os.environ["MACHINE"]).begin()
    config, rng = bench.config, bench.rng
    held = [[0] * bench.count for _ in range(config.p_depth)]
    for p in range(config.p_depth):
        bench.leave([0] * bench.count, p=p)
        await bench.cycle()
    await bench.settle()
    for _ in range(120):
        merge = int(config.lanes > 1 and rng.random() < 0.5)
        # Words of their own, behind each other without a pause.
        places = rng.sample(range(config.p_depth), rng.randint(1, 4))
        written = set()
        for place in places:
            acc, terms = rng.getrandbits(1), 1 if bench.whole else rng.randint(1, 3)
            total = [0] * bench.count
            slot = rng.randrange(bench.count) if merge else 0
            for k in range(terms):
                part = bench.some()
                total = [a + b for a, b in zip(total, part, strict=True)]
                bench.leave(part, first=int(k == 0), last=int(k == terms - 1), acc=acc, merge=merge,
                            p=place * bench.count + slot if merge else place + config.p_depth * rng.randrange(3))
                await bench.cycle()
            if merge:
                held[place][slot] = sum(total) + acc * held[place][slot]
            else:
                held[place] = [a + acc * b for a, b in zip(total, held[place], strict=True)]
            written.add(place)
        assert not await bench.settle()
        for place in written:
            assert await bench.word(place) == held[place]


@cocotb.test()
async def at_the_edge_of_32_bits(dut):
    bench = await Bench(dut, os.environ["MACHINE"]).begin()
    count = bench.count
    for edge, over in ((TOP, 1), (-TOP - 1, -1)):
        await bench.run_up([edge] * count)
        for p in range(4):
            assert not await bench.add([0] * count, p=p)
            assert await bench.word(p) == [edge] * count
        for n in range(count):
            one = [int(place == n) for place in range(count)]
            # Onto P, from nothing: there and back again, and beyond.
            for value in (-over, over):
                bench.leave([value * bit for bit in one], acc=1, p=n % 4)
                await bench.cycle()
                assert not await bench.settle()
            bench.leave([over * bit for bit in one], acc=1, p=n % 4)
            await bench.cycle()
            assert await bench.settle()
            bench.leave([-over * bit for bit in one], acc=1, p=n % 4)
            await bench.cycle()
            # What went round comes back, which is told as well.
            assert await bench.settle()
        # Over k.
        await bench.run_up([edge] * count)
        assert not await bench.add([-over] * count, p=1)
        assert not await bench.add([over] * count, p=1)
        assert await bench.add([over] + [0] * (count - 1), p=1)


@cocotb.test()
async def over_lanes_at_the_edge(dut):
    bench = await Bench(dut, os.environ["MACHINE"]).begin()
    if bench.config.lanes == 1:
        return
    for edge, over in ((TOP, 1), (-TOP - 1, -1)):
        await bench.run_up([edge, 0, 0, 0])
        assert not await bench.add([0, -over, over, 0], merge=1, p=4)
        assert await bench.add([0, 0, 0, over], merge=1, p=4)
        assert not await bench.add([0, 0, -over, 0], merge=1, p=5)
        bench.leave([0, 0, over, 0], merge=1, acc=1, p=5)
        await bench.cycle()
        assert await bench.settle()
        await bench.run_up([edge] * 4)
        assert await bench.add([0] * 4, merge=1, p=6)


@cocotb.test()
async def a_wide_sum(dut):
    bench = await Bench(dut, os.environ["MACHINE"]).begin()
    if bench.config.stationary != "output":
        return
    for value, over in ((TOP, 0), (TOP + 1, 1), (-TOP - 1, 0), (-TOP - 2, 1), (1 << 40, 1), (-(1 << 47), 1)):
        for n in range(bench.count):
            bench.leave([value if place == n else 5 for place in range(bench.count)], p=1)
            await bench.cycle()
            assert await bench.settle() == over, value


@pytest.mark.parametrize("name", MACHINES)
def test_sums(name, tmp_path):
    assert Sums(MACHINES[name]).latency == LATENCY[name]
    assert run_cocotb(lambda: Sums(MACHINES[name]), __file__, tmp_path, env={"MACHINE": name}) == 4
