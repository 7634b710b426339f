"""A Loader or a Storer with its AXI4 manager and its command queue: an AXI fault is told while the faulty command is the queue's
oldest one, so that the machine names it, however close behind others its burst comes; and no command ends at or behind it."""

import itertools

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Dest, Opcode, Source
from gradloom.rtl.memory_path.axi_read import ReadManager
from gradloom.rtl.memory_path.axi_write import WriteManager
from gradloom.rtl.memory_path.loader import Loader
from gradloom.rtl.memory_path.storer import Storer
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.verif.program_case import command

CONFIG = PRESETS["small"]
BEAT = CONFIG.beat_bytes
LIMIT = 0x4000
COMMANDS = 8


class Engine(wiring.Component):
    """Queue, engine and manager as the machine connects them."""

    def __init__(self, opcode):
        self.load = opcode == Opcode.LOAD
        kind = Loader if self.load else Storer
        self.engine = kind(CONFIG)
        self.manager = (ReadManager if self.load else WriteManager)(CONFIG)
        self.queue = CommandQueue(depth=256, words=10, in_flight=kind.IN_FLIGHT)
        self.bus_ready = Signal(init=1)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine, m.submodules.manager, m.submodules.queue = self.engine, self.manager, self.queue
        connect(m, self.queue.port, self.engine.port)
        m.d.comb += [self.queue.grant.eq(self.queue.request), self.manager.window_limit.eq(LIMIT)]
        if self.load:
            connect(m, self.engine.request, self.manager.request[1])
            connect(m, self.manager.response[1], self.engine.response)
            m.d.comb += [self.engine.ready.eq(self.bus_ready), self.manager.waiting.eq(self.engine.bus.valid & ~self.engine.ready)]
        else:
            connect(m, self.engine.request, self.manager.request)
            connect(m, self.engine.data, self.manager.data)
            m.d.comb += self.engine.completed.eq(self.manager.completed)
        return m


async def feed(ctx, queue, commands):
    """Commands with their numbers as tags and offsets."""
    ctx.set(queue.i.valid, 1)
    for number, words in enumerate(commands):
        for pair in [(number, 0), *itertools.zip_longest(words[::2], words[1::2], fillvalue=0)]:
            ctx.set(queue.i.payload, pair[0] | pair[1] << 32)
            while not ctx.get(queue.i.ready):
                await ctx.tick()
            await ctx.tick()
    ctx.set(queue.i.valid, 0)


def run(opcode, faulty, *, kind, beats=1, latency=60, held=0):
    """(commands that ended, busy, tag and offset at the error). Answers come in successive cycles behind ``latency``; the last beat
    ahead of the faulty command stays on the load bus for ``held`` cycles."""
    dut = Engine(opcode)
    manager, found, ended = dut.manager, [], []
    place = {Opcode.LOAD: {"dest": Dest.AA, "xb": 1}, Opcode.STORE: {"src": Source.OA}}[opcode]
    offsets = [LIMIT if kind == "window" and n == faulty else 1024 * n for n in range(COMMANDS)]
    commands = [command(opcode, tag=n, offset=offset, n0=beats, n1=1, n2=1, **place) for n, offset in enumerate(offsets)]

    async def source(ctx):
        await feed(ctx, dut.queue, commands)

    async def memory(ctx):
        due, addresses, cycle, placed, left = [], [], 0, 0, held
        port = "r" if dut.load else "b"
        valid, ready = getattr(manager, f"m_axi_{port}valid"), getattr(manager, f"m_axi_{port}ready")
        address, length = (getattr(manager, f"m_axi_a{port if dut.load else 'w'}{name}") for name in ("addr", "len"))
        offered, accepted = (getattr(manager, f"m_axi_a{port if dut.load else 'w'}{name}") for name in ("valid", "ready"))
        ctx.set(accepted, 1)
        if not dut.load:
            ctx.set(manager.m_axi_wready, 1)
        while not found and cycle < 2000:
            if dut.load:
                blocked = placed == beats * faulty - 1 and left > 0 and bool(ctx.get(dut.engine.bus.valid))
                ctx.set(dut.bus_ready, not blocked)
                left -= blocked
                placed += bool(ctx.get(dut.engine.bus.valid)) and not blocked
            now = bool(due) and due[0][0] <= cycle
            ctx.set(valid, now)
            if now:
                bad = kind == "response" and due[0][1] == 1024 * faulty + BEAT * (beats - 1)
                ctx.set(getattr(manager, f"m_axi_{port}resp"), 2 * bad)
                if dut.load:
                    ctx.set(manager.m_axi_rlast, due[0][2])
            if ctx.get(offered):
                first, count = ctx.get(address), ctx.get(length) + 1
                # All commands that can be under way are, before the first answer.
                moment = max(latency, cycle + 4)
                if dut.load:
                    due += [(moment, first + BEAT * n, n == count - 1) for n in range(count)]
                else:
                    addresses.append((moment, first + BEAT * (count - 1), 1))
            if not dut.load and ctx.get(manager.m_axi_wvalid) and ctx.get(manager.m_axi_wlast):
                due.append(addresses.pop(0))
            taken = now and ctx.get(ready)
            if ctx.get(dut.queue.port.done):
                ended.append(ctx.get(dut.queue.tag))
            if ctx.get(manager.error):
                found.append((ctx.get(dut.queue.busy), ctx.get(dut.queue.tag), ctx.get(dut.queue.offset)))
            await ctx.tick()
            cycle += 1
            if taken:
                due.pop(0)
        # What ends behind the error would pass on its tokens.
        for _ in range(30):
            ctx.set(valid, 0)
            if ctx.get(dut.queue.port.done):
                ended.append(ctx.get(dut.queue.tag))
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(memory)
    sim.add_testbench(source, background=True)
    sim.run()
    return ended, found


@pytest.mark.parametrize("kind", ["response", "window"])
@pytest.mark.parametrize("beats", [1, 3])
@pytest.mark.parametrize("faulty", range(6))
@pytest.mark.parametrize("opcode", [Opcode.LOAD, Opcode.STORE])
def test_the_faulty_command_is_the_oldest_one_when_its_fault_is_told(opcode, faulty, beats, kind):
    assert run(opcode, faulty, kind=kind, beats=beats) == (list(range(faulty)), [(1, faulty, faulty)])


@pytest.mark.parametrize("kind", ["response", "window"])
@pytest.mark.parametrize("held", [1, 4, 5, 6, 7, 8, 9, 40])
def test_a_beat_that_waits_for_its_memory_holds_the_report_up(held, kind):
    """The last beat of the command ahead stands on the load bus, refused for the sake of another channel, while the fault comes."""
    assert run(Opcode.LOAD, 2, kind=kind, latency=110, held=held) == ([0, 1], [(1, 2, 2)])
