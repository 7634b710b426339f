"""The buffers between managers and arbiter; the whole memory is in ``test_sdram.py``."""

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped
from amaranth.sim import Simulator

from gradloom.rtl.board.memory.axi_bus import AxiSignature
from gradloom.rtl.board.memory.block_ram import BlockRam
from gradloom.rtl.board.memory.board_memory import BusBuffer
from gradloom.verif.board.axi_traffic import Manager, Scoreboard, Traffic
from gradloom.verif.board.packed import simulate

BEAT, SIZE = 4, 512


class Buffered(wiring.Component):
    """A memory behind a buffer."""

    def __init__(self):
        super().__init__({"bus": In(AxiSignature(BEAT))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.buffer, m.submodules.memory = buffer, memory = BusBuffer(BEAT), BlockRam(BEAT, SIZE)
        connect(m, flipped(self.bus), buffer.manager)
        connect(m, buffer.memory, memory.bus)
        return m


def test_traffic_passes_unchanged():
    traffic = Traffic(bursts=80, seed=3, places=(range(SIZE), range(SIZE, 2 * SIZE)), longest=16,
                      stalls={"ar": 0.3, "aw": 0.3, "w": 0.3, "r": 0.3, "b": 0.3})
    manager = Manager.of("bus", BEAT, traffic, Scoreboard(bytes(SIZE)))
    simulate(Buffered(), [manager], manager.done, limit=8000)


@pytest.mark.parametrize("channel", ["ar", "aw", "w", "r", "b"])
def test_one_a_cycle_and_none_taken_for_the_other_side(channel):
    """Two wait while the other side takes none, whatever it takes in the cycle in which they are offered."""
    dut = BusBuffer(BEAT)
    from_manager = channel not in ("r", "b")
    source, target = (getattr(end, channel) for end in (
        (dut.manager, dut.memory) if from_manager else (dut.memory, dut.manager)))
    passed = []

    async def bench(ctx):
        ctx.set(source.valid, 1)
        offered = 0
        for cycle in range(24):
            taking = 6 <= cycle < 20
            ctx.set(target.ready, taking)
            ctx.set(Value.cast(source.payload), offered % 4)
            if cycle < 6:
                assert ctx.get(source.ready) == (offered < 2)
                assert ctx.get(target.valid) == (cycle > 0)
            elif cycle > 7:
                assert ctx.get(source.ready) == (cycle < 21) and ctx.get(target.valid)
            if taking and ctx.get(target.valid):
                passed.append(ctx.get(Value.cast(target.payload)))
            offered += ctx.get(source.ready)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert passed == [n % 4 for n in range(14)]
