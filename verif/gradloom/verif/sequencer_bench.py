"""The Sequencer with queues, semaphores, scale and seed units, a memory model and engines that only take time."""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from typing import Any

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.isa import pairs
from gradloom.rtl.command import HEAD_WORDS, TailPlace
from gradloom.rtl.registers.register_ports import BASE_READS
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.rtl.sequencer.scale_unit import ScaleUnit
from gradloom.rtl.sequencer.seed_unit import SeedUnit
from gradloom.rtl.sequencer.semaphores import Semaphores
from gradloom.rtl.sequencer.sequencer import Sequencer
from gradloom.rtl.sequencer.tails import Tails

__all__ = ["LIMIT", "PROGRAM", "RUN_SEED", "Bench", "Outcome", "execute"]

PROGRAM = 0x1000
LIMIT = 0x8000
RUN_SEED = 0xC0FFEE
PAIRS = 1 << TailPlace["pair"].width


class Bench(wiring.Component):
    """The Sequencer's surroundings, with base registers and step in place of the register block."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sequencer = Sequencer(config)
        self.units = units(config)
        self.semaphores = Semaphores(len(self.units) + 1)
        self.queues = [CommandQueue(depth=64, tails=Tails()) for _ in self.units]
        self.scale = ScaleUnit(config.tensors)
        self.seed = SeedUnit(config.tensors)
        self.step = Signal(32)
        self.left = Signal(32, init=1)
        self.bases = [Signal(32, name=f"base{n}") for n in range(8)]
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sequencer = seq = self.sequencer
        m.submodules.semaphores = semaphores = self.semaphores
        m.submodules.scale = scale = self.scale
        m.submodules.seed = seed = self.seed
        m.d.comb += [
            seq.program.eq(PROGRAM),
            seq.window_base.eq(PROGRAM),
            seq.window_limit.eq(LIMIT),
            seq.step.eq(self.step),
            seq.last_step.eq(self.left <= 1),
            semaphores.request[0].eq(seq.sem_request),
            semaphores.needs[0].eq(seq.sem_wait),
            seq.sem_grant.eq(semaphores.grant[0]),
            semaphores.signal[0].eq(seq.sem_signal),
            seed.step.eq(self.step), seed.run_seed.eq(RUN_SEED),
        ]
        wiring.connect(m, seq.seed, seed.request)
        wiring.connect(m, seq.scale, scale.request)
        with m.If(seq.loop):
            m.d.sync += [self.step.eq(self.step + 1), self.left.eq(self.left - 1)]
        with m.If(seq.bases.write):
            m.d.sync += Array(self.bases)[seq.bases.index].eq(seq.bases.value)
        m.d.comb += [seq.bases.read[n].eq(Array(self.bases)[seq.bases.at[n]]) for n in range(BASE_READS)]
        for n, queue in enumerate(self.queues):
            m.submodules[f"queue{n}"] = queue
            wiring.connect(m, seq.queue[n], queue.i)
            m.d.comb += [
                seq.idle[n].eq(queue.idle),
                semaphores.request[n + 1].eq(queue.request),
                semaphores.needs[n + 1].eq(queue.needs),
                queue.grant.eq(semaphores.grant[n + 1]),
                semaphores.signal[n + 1].eq(queue.signal),
            ]
        return m


class Simulated:
    """A bench that runs program after program: to build its simulator takes longer than most of them."""

    def __init__(self, config: Config) -> None:
        self.dut = Bench(config)
        self.testbenches: Sequence[Callable[[Any], Awaitable[None]]] = ()
        """Of the present run: two and one for each engine, behind the one that ends it."""
        self._simulator = Simulator(self.dut)
        self._simulator.add_clock(1e-8)
        for n in range(3 + len(self.dut.units)):
            self._simulator.add_testbench(self._testbench(n))

    def _testbench(self, n: int) -> Callable[[Any], Awaitable[None]]:
        async def testbench(ctx: Any) -> None:
            await self.testbenches[n](ctx)
        return testbench

    def run(self, *testbenches: Callable[[Any], Awaitable[None]]) -> None:
        """From the initial values of all registers and memories."""
        self.testbenches = testbenches
        self._simulator.reset()
        self._simulator.run()


simulated = cache(Simulated)
"""The one of a machine."""


class Outcome:
    """What a program did: started commands by engine, the end, and the order of events."""

    def __init__(self, config: Config) -> None:
        self.started: dict[Unit, list[list[int]]] = {unit: [] for unit in units(config)}
        self.events: list[tuple[Any, ...]] = []
        self.error = 0
        self.offset: int | None = None
        self.tag: int | None = None
        self.cycles = 0
        self.hyper: list[int] = []
        self.state: dict[str, Any] = {}


def execute(config: Config, image: bytes, *, seed: int = 0, steps: int = 1, step: int = 0, delay: int = 20,
            exponents: Iterable[tuple[int, int]] = (), stats: Iterable[tuple[int, int]] = (), reads: Iterable[int] = (),
            limit: int = 20000, stalls: float = 0.3, halt: int | None = None) -> Outcome:
    """Run the program in ``image`` (bytes from PROGRAM on). ``reads`` names exponents and seeds to read at the end. It is halted
    in cycle ``halt``, if any."""
    rng = random.Random(seed)
    bench = simulated(config)
    dut = bench.dut
    outcome = Outcome(config)
    beat = config.beat_bytes
    memory = bytearray(image.ljust(LIMIT - PROGRAM, b"\xee"))

    async def dram(ctx):
        port = dut.sequencer
        pending = []
        cycle = 0
        ctx.set(port.request.ready, 1)
        while not outcome.state:
            if ctx.get(port.request.valid) and ctx.get(port.request.ready):
                address, beats = ctx.get(port.request.p.address), ctx.get(port.request.p.beats)
                assert address % beat == 0 and address >= PROGRAM and address + beats * beat <= LIMIT
                assert 0 < beats * beat <= 64 and address // 64 == (address + beats * beat - 1) // 64
                pending += [(cycle + 5, address + n * beat, n == beats - 1) for n in range(beats)]
            taken = ctx.get(port.response.valid) and ctx.get(port.response.ready)
            await ctx.tick()
            cycle += 1
            if taken:
                pending.pop(0)
            ctx.set(port.request.ready, rng.random() >= stalls)
            stalled = rng.random() < stalls and (taken or not ctx.get(port.response.valid))
            ready = bool(pending) and pending[0][0] <= cycle and not stalled
            ctx.set(port.response.valid, ready)
            if ready:
                _, address, last = pending[0]
                data = memory[address - PROGRAM:address - PROGRAM + beat]
                ctx.set(port.response.p.data, int.from_bytes(data, "little"))
                ctx.set(port.response.p.last, last)

    def engine(n, unit):
        queue = dut.queues[n]

        async def process(ctx):
            while not outcome.state:
                if not ctx.get(queue.port.start):
                    await ctx.tick()
                    continue
                words = ctx.get(queue.port.cmd)
                length = words >> 8 & 0xFF
                # What is behind the head lies in the memory by then.
                for pair in range(HEAD_WORDS // 2, pairs(length)):
                    kept = ctx.get(queue.tails.memory.data[ctx.get(queue.port.slot) * PAIRS + pair])
                    words |= kept << 64 * pair
                outcome.started[unit].append([words >> 32 * k & 0xFFFFFFFF for k in range(length)])
                outcome.events.append((unit, "start", ctx.get(queue.offset)))
                await ctx.tick().repeat(rng.randrange(1, delay))
                ctx.set(queue.port.done, 1)
                outcome.events.append((unit, "end", ctx.get(queue.offset)))
                await ctx.tick()
                ctx.set(queue.port.done, 0)
        return process

    async def watch(ctx):
        port = dut.sequencer
        while not outcome.state:
            if ctx.get(port.hyper_write):
                outcome.hyper.append(ctx.get(port.hyper_word))
                outcome.events.append(("hyper", ctx.get(dut.step)))
            if ctx.get(port.loop):
                outcome.events.append(("loop", ctx.get(dut.step)))
            await ctx.tick()

    async def main(ctx):
        port, scale = dut.sequencer, dut.scale
        ctx.set(dut.step, step)
        ctx.set(dut.left, steps)
        for tid, value in exponents:
            ctx.set(scale.host.tid, tid)
            ctx.set(scale.host.value, value)
            ctx.set(scale.host.write, 1)
            await ctx.tick()
        ctx.set(scale.host.write, 0)
        for tid, value in stats:
            ctx.set(scale.statistics.tid, tid)
            ctx.set(scale.statistics.value, value)
            ctx.set(scale.statistics.valid, 1)
            await ctx.tick()
        ctx.set(scale.statistics.valid, 0)
        ctx.set(port.start, 1)
        await ctx.tick()
        ctx.set(port.start, 0)
        for cycle in range(limit):
            await ctx.delay(1e-9)
            outcome.error = ctx.get(port.error)
            ctx.set(port.halt, halt is not None and cycle >= halt)
            if ctx.get(port.done) or outcome.error:
                break
            await ctx.tick()
            outcome.cycles += 1
        else:
            outcome.error = -1
        outcome.offset, outcome.tag = ctx.get(port.offset), ctx.get(port.tag)
        idle = all(ctx.get(queue.idle) for queue in dut.queues)
        assert outcome.error or idle
        state = {"semaphores": ctx.get(dut.semaphores.ready), "step": ctx.get(dut.step),
                 "base": [ctx.get(base) for base in dut.bases], "exponents": {}, "seeds": {}, "stats": {}}
        for tid in reads:
            ctx.set(scale.exponents.en, 1)
            ctx.set(scale.exponents.tid, tid)
            ctx.set(dut.seed.read.en, 1)
            ctx.set(dut.seed.read.tid, tid)
            ctx.set(scale.host.tid, tid)
            await ctx.tick().repeat(3)
            state["exponents"][tid] = ctx.get(scale.exponents.e)
            state["seeds"][tid] = ctx.get(dut.seed.read.value)
            state["stats"][tid] = ctx.get(scale.host.stat)
        outcome.state = state

    bench.run(main, dram, watch, *(engine(n, unit) for n, unit in enumerate(dut.units)))
    return outcome
