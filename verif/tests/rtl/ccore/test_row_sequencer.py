"""The walk of row groups, where what it adds up needs every bit."""

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl.ccore.row_sequencer import RowSequencer
from gradloom.verif.ccore.conv_fields import encode_conv


def walk(wpus, **fields):
    """The row groups of one command."""
    dut = RowSequencer(Config(name="walk", clusters=1, cols=1, wpus=wpus))
    groups = []

    async def bench(ctx):
        ctx.set(dut.cmd, encode_conv(fields))
        ctx.set(dut.ready, 1)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        while not (groups and groups[-1].last):
            if ctx.get(dut.valid):
                groups.append(ctx.get(dut.group))
            await ctx.tick()
        assert ctx.get(dut.free)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return groups


@pytest.mark.parametrize(("pattern", "cols", "words"), [
    (Pattern.K3, 4095, 2048), (Pattern.K3, 4094, 2047), (Pattern.PAIR, 4095, 4095), (Pattern.K1, 4095, 4096),
    (Pattern.BP2, 4095, 4095)])
def test_groups_lie_as_many_sums_apart_as_a_row_has(pattern, cols, words):
    """The longest rows; K3 and PAIR: two groups share their addresses."""
    groups = walk(1, pattern=pattern, units=5, upi=5, steps=1, cols=cols, nr=1, nk=1, pbase=3)
    every = 1 if pattern in (Pattern.K1, Pattern.BP2) else 2
    assert [group.pa for group in groups] == [3 + n // every * words for n in range(5)]


@pytest.mark.parametrize(("s2", "scols", "entries"), [(0, 254, 128), (0, 255, 129), (1, 254, 255), (1, 255, 256)])
def test_a_part_of_a_shared_row_has_as_many_entries_as_its_windows_touch(s2, scols, entries):
    """And the next shared row's part lies as many addresses further on."""
    groups = walk(3, pattern=Pattern.K3, units=2, upi=2, steps=1, cols=300, nr=1, nk=1, shared=1, s2=s2, scols=scols,
                  soff=7)
    assert [group.shared for group in groups] == [1, 1]
    assert [group.command.xe for group in groups] == [entries] * 2
    assert [unit.a for group in groups for unit in group.unit] == [7] * 3 + [7 + entries] * 3
