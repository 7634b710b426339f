"""Load arbiter: never two beats for one bank, the lower channel goes first, and streams over banks part."""

import dataclasses
import itertools
import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import LOAD_MAP
from gradloom.contracts.isa import Dest
from gradloom.rtl.memory_path.load_arbiter import LoadArbiter

FIELDS = ("dest", "bank", "addr", "sub", "data")


def simulate(channels, testbench):
    dut = LoadArbiter(dataclasses.replace(PRESETS["small"], wpus=2, load_channels=channels))
    simulator = Simulator(dut)

    async def process(ctx):
        await testbench(ctx, dut)

    simulator.add_testbench(process)
    simulator.run()


def offer(ctx, bus, values):
    ctx.set(bus.valid, values is not None)
    if values is not None:
        for name, value in zip(FIELDS, values, strict=True):
            ctx.set(getattr(bus, name), int(value))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_one_beat_for_a_bank(channels):
    rng = random.Random(channels)
    memories = LOAD_MAP[channels]

    async def testbench(ctx, dut):
        refused = 0
        for _ in range(800):
            beats = [(rng.choice(part), rng.randrange(3), rng.randrange(100), rng.choice((0, 0, 1, 3)), rng.getrandbits(32))
                     for part in memories]
            beats = [values if rng.random() < 0.8 else None for values in beats]
            for bus, values in zip(dut.loader, beats, strict=True):
                offer(ctx, bus, values)
            await ctx.delay(1e-9)
            ready, taken = ctx.get(dut.ready), []
            for n, (values, bus) in enumerate(zip(beats, dut.memory, strict=True)):
                if values is None:
                    assert not ctx.get(bus.valid)
                    continue
                rivals = [k for k, other in enumerate(beats) if other is not None and other[:2] == values[:2]]
                expected = n == min(rivals, key=lambda k: (beats[k][3] == 0, k))
                assert bool(ready >> n & 1) == expected == bool(ctx.get(bus.valid))
                assert [ctx.get(getattr(bus, name)) for name in FIELDS] == [int(value) for value in values]
                refused += not expected
                if expected:
                    taken.append(values[:2])
            assert len(set(taken)) == len(taken)
        assert (refused > 20) == (channels > 2)

    simulate(channels, testbench)


def test_loads_of_weights_part():
    """Two loads that start at one bank of WBUF, blocks of 4 beats bank after bank: the second waits for one block in all."""

    async def testbench(ctx, dut):
        places, waits = [0, 0], 0
        while min(places) < 640:
            for bus, place in zip(dut.loader[:2], places, strict=True):
                offer(ctx, bus, (Dest.WBUF, place // 4 % 3, 0, place % 4, 0))
            await ctx.delay(1e-9)
            ready = ctx.get(dut.ready)
            places = [place + (ready >> n & 1) for n, place in enumerate(places)]
            waits += 2 - (ready & 3).bit_count()
        assert waits == 4

    simulate(4, testbench)


@pytest.mark.parametrize("starts", list(itertools.permutations((0, 6, 9))))
def test_a_third_load_gets_through(starts):
    """Three loads of weights that start in any cycles of each other's blocks: whoever comes later waits for parts of blocks while
    they part, and no beat is lost behind that."""

    async def testbench(ctx, dut):
        places, waits = [0, 0, 0], 0
        for cycle in range(600):
            for bus, place, start in zip(dut.loader[:3], places, starts, strict=True):
                offer(ctx, bus, (Dest.WBUF, place // 4 % 3, 0, place % 4, 0) if cycle >= start else None)
            await ctx.delay(1e-9)
            ready = ctx.get(dut.ready)
            for n, start in enumerate(starts):
                if cycle >= start:
                    places[n] += ready >> n & 1
                    waits += not ready >> n & 1
        assert waits <= 12

    simulate(4, testbench)
