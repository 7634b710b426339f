"""Turns of the A-Core's APUs: each value of a beat has one, and what an APU takes in it is that value."""

import random
from collections import Counter

import pytest
from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.rtl.acore.turns import COLUMNS, Turns

SHAPES = [(group, channels, lanes) for group in (1, 2, 4, 8) for channels in (1, 2, 4, 8) if channels <= group for lanes in (1, 2)]


def turns_of(group: int, channels: int, lanes: int) -> Turns:
    return Turns(Config(name="turns", clusters=group, cols=group, wpus=1, apu_channels=channels, apu_lanes=lanes))


@pytest.mark.parametrize(("group", "channels", "lanes"), SHAPES)
def test_every_value_has_a_turn(group, channels, lanes):
    """As many values in each turn as all APUs have lanes; the turn of a value says its channel and, with one lane, its column."""
    turns = turns_of(group, channels, lanes)
    assert Counter(turns.parts()) == dict.fromkeys(range(turns.count), group // channels * lanes)
    for at, part in enumerate(turns.parts()):
        column, channel = divmod(at, group)
        assert part == turns.part(column, channel) and part % channels == channel % channels
        assert lanes == COLUMNS or part // channels == column
    assert isinstance(turns.last(Const(0, 4)), int) == (turns.count == 1)


@pytest.mark.parametrize(("group", "channels", "lanes"), SHAPES)
def test_what_is_taken_in_a_turn(group, channels, lanes):
    """Values of 5 bits: of the lanes, and of both columns."""
    turns, rng, bits = turns_of(group, channels, lanes), random.Random(group), 5
    m = Module()
    data, turn = Signal(bits * COLUMNS * group), Signal(max(1, turns.bits))
    taken, whole = (turns.picked(data, bits, turn, whole=both) for both in (False, True))
    outputs = [Signal(len(value)) for value in (taken, whole)]
    sums = Signal(bits * group)
    m.d.comb += [Cat(*outputs).eq(Cat(taken, whole)), sums.eq(turns.of_every_channel(data[:bits * (group // channels)], bits))]

    async def bench(ctx):
        for now in range(turns.count):
            values = [[rng.getrandbits(bits) for _ in range(group)] for _ in range(COLUMNS)]
            flat = [value for column in values for value in column]
            ctx.set(data, sum(value << bits * at for at, value in enumerate(flat)))
            ctx.set(turn, now)
            channel, first = now % channels, now // channels
            columns = [values[column] for column in (range(COLUMNS) if lanes == COLUMNS else [first])]
            for output, expected in zip(outputs, (columns, values), strict=True):
                words = [value for column in expected for value in column[channel::channels]]
                assert ctx.get(output) == sum(value << bits * at for at, value in enumerate(words)), now
            assert ctx.get(sums) == sum(flat[c // channels] << bits * c for c in range(group))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
