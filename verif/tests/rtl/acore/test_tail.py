"""The A-Core's second stage behind its queue: every word of a shift list and of microcode reaches its reader, whatever lies in the
slots beside it."""

import itertools
import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, FIRST_SHIFT_WORD, MAX_WORDS, Opcode
from gradloom.contracts.microcode import MICRO_WORDS, Kind, encode
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.acore.acore import ACore
from gradloom.rtl.acore.scalar_stage import ScalarStage
from gradloom.rtl.acore.shift_setup import SHIFT_REGISTER_BITS
from gradloom.rtl.command import HEAD_WORDS
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.rtl.sequencer.tails import Tails
from gradloom.verif.acore.acore_commands import command, shift_word
from gradloom.verif.ccore.collisions import colliding
from gradloom.verif.plain_arith import wrap

CONFIG = Config(name="tail", clusters=1, cols=1, wpus=1, microcode_depth=64)
_FIRST_DATA = COMMANDS[Opcode.UCODE].words
_STORE = CONFIG.microcode_depth * MICRO_WORDS
"""Words of the program memory."""


class Dut(wiring.Component):
    """Queue and second stage; the first one holds a command while ``hold``."""

    def __init__(self) -> None:
        self.queue = CommandQueue(depth=256, words=HEAD_WORDS, in_flight=ACore.IN_FLIGHT, tails=Tails(family="ecp5"))
        self.prepare = ScalarStage(CONFIG)
        self.flush, self.hold, self.held, self.legal = Signal(), Signal(), Signal(), Signal()
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m, inner = Module(), Module()
        queue, prepare, held = self.queue, self.prepare, self.held
        inner.submodules.queue, inner.submodules.prepare = queue, prepare
        take = prepare.valid & prepare.ready
        inner.d.comb += [
            queue.grant.eq(queue.request), queue.port.free.eq(~held),
            queue.port.done.eq(prepare.done | (prepare.o.valid & prepare.o.ready)),
            prepare.valid.eq(held & ~self.hold), prepare.cmd.eq(queue.port.cmd), prepare.slot.eq(queue.port.slot),
            # In commands of this bench an odd tag is a fault.
            prepare.legal.eq(~queue.port.cmd[16]),
            queue.port.tail_at.eq(prepare.tail_at), prepare.tail.eq(queue.port.tail),
        ]
        inner.d.sync += held.eq(queue.port.start | (held & ~take))
        m.submodules.inner = ResetInserter(self.flush)(inner)
        return m


class Bench:
    """Feeds commands, and sees to it that each does what its words say, in their order."""

    def __init__(self, ctx, dut: Dut, rng: random.Random, *, busy: float) -> None:
        self.ctx, self.dut, self.rng, self.busy = ctx, dut, rng, busy
        self.clear()
        self.most = 0
        """Commands that were collected or on their way at once, at most."""
        ctx.set(dut.prepare.micro_data, sum(word << 32 * i for i, word in enumerate(encode(kind=Kind.SWEEP))))

    def clear(self) -> None:
        self.queued: list[int] = []
        self.waiting: list[list[int]] = []
        self.listed: list[int] = []
        self.written: list[tuple[int, int]] = []
        self.started = 0

    def send(self, words: list[int]) -> None:
        self.waiting.append(words)
        self.queued += [pair[0] | pair[1] << 32
                        for pair in [(0, 0), *itertools.zip_longest(words[::2], words[1::2], fillvalue=self.rng.getrandbits(32))]]

    async def tick(self, *, flush: bool = False) -> None:
        ctx, rng, queue, prepare = self.ctx, self.rng, self.dut.queue, self.dut.prepare
        ctx.set(queue.i.valid, bool(self.queued))
        if self.queued:
            ctx.set(queue.i.payload, self.queued[0])
        for port in (prepare.micro_grant, prepare.o.ready):
            ctx.set(port, rng.random() >= self.busy)
        ctx.set(self.dut.hold, rng.random() < self.busy)
        # Now and then the lanes are busy for as long as it takes to collect two commands.
        if rng.random() < 0.02:
            ctx.set(prepare.empty, rng.random() >= self.busy)
        ctx.set(self.dut.flush, flush)
        if ctx.get(prepare.setup.start):
            self.listed = []
        if ctx.get(prepare.exponents.en):
            self.listed.append(ctx.get(prepare.exponents.tid))
        if enable := ctx.get(prepare.micro_we):
            self.written.append((4 * ctx.get(prepare.micro_waddr) + enable.bit_length() - 1, ctx.get(prepare.micro_word)))
        self.started += ctx.get(queue.port.start)
        if ctx.get(prepare.done):
            self._ucode(self.waiting.pop(0), ctx.get(prepare.fault))
        if ctx.get(prepare.o.valid) and ctx.get(prepare.o.ready):
            self._run(self.waiting.pop(0), ctx.get(prepare.o.command).fault)
        if self.queued and ctx.get(queue.i.ready):
            self.queued.pop(0)
        await ctx.tick()
        if flush:
            self.clear()

    def _run(self, words: list[int], fault: int) -> None:
        shifts = words[FIRST_SHIFT_WORD:]
        registers = [0] * 8
        for word in shifts:
            at = word & 7
            registers[at] = wrap((0 if word >> 4 & 1 else registers[at]) + wrap(word >> 16, 16), SHIFT_REGISTER_BITS)
        setup = self.dut.prepare.setup
        assert words[0] & 0xFF == Opcode.RUN
        assert self.listed == [word >> 5 & 0x7FF for word in shifts]
        assert [self.ctx.get(setup.sh[i]) for i in range(8)] == registers
        assert fault == (ErrorCode.ILLEGAL_FIELD if words[0] >> 16 & 1 else 0)

    def _ucode(self, words: list[int], fault: int) -> None:
        address, data = words[3], words[_FIRST_DATA:]
        room = max(0, _STORE - address)
        assert words[0] & 0xFF == Opcode.UCODE
        # The last of four words is none of a microinstruction's.
        assert self.written == [(address + i, word) for i, word in enumerate(data[:room]) if (address + i) % 4 != 3]
        assert fault == (ErrorCode.ILLEGAL_FIELD if len(data) > room else 0)
        self.written = []


def run(rng: random.Random, words: int) -> list[int]:
    tail = [shift_word(dst=rng.randrange(8), neg=rng.randrange(2), first=rng.randrange(2), tid=rng.getrandbits(11),
                       const=rng.randrange(-(1 << 15), 1 << 15)) for _ in range(words)]
    words = command(Opcode.RUN, tail)
    words[0] |= rng.getrandbits(1) << 16
    return words


def ucode(rng: random.Random, words: int, address: int) -> list[int]:
    return command(Opcode.UCODE, [rng.getrandbits(32) for _ in range(words)], address=address)


def simulate(body, seed: int, busy: float) -> None:
    """Where a word is read while it is written, all its bits are wrong."""
    dut = Dut()

    async def testbench(ctx):
        await body(Bench(ctx, dut, random.Random(seed), busy=busy))

    with colliding():
        simulator = Simulator(dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(testbench)
        simulator.run()


@pytest.mark.parametrize("opcode", [Opcode.RUN, Opcode.UCODE])
def test_every_length_alone(opcode):
    """From no word to the most, at odd and even addresses; the second stage stops for nothing."""
    async def body(bench: Bench) -> None:
        bench.ctx.set(bench.dut.prepare.empty, 1)
        words = COMMANDS[opcode].words
        for length in range(words, MAX_WORDS + 1):
            count, rng = length - words, bench.rng
            bench.send(run(rng, count) if opcode == Opcode.RUN else ucode(rng, count, rng.randrange(_STORE - count)))
            for _ in range(200):
                if not bench.waiting:
                    break
                await bench.tick()
            assert not bench.waiting, length

    simulate(body, 1, 0)


@pytest.mark.parametrize(("busy", "flushes"), [(0, 0), (0.4, 0), (0.8, 0), (0.4, 1)])
def test_many_at_once(busy, flushes):
    """Commands of all lengths in any order, as many on their way as there may be: one in the second stage that waits for the lanes,
    one behind the first stage, one collected. A stop in between, and what is started then finds nothing of them."""
    async def body(bench: Bench) -> None:
        ctx, rng, dut = bench.ctx, bench.rng, bench.dut
        ctx.set(dut.prepare.empty, 1)
        full = stopped = ended = 0
        for _ in range(6000):
            if len(bench.waiting) < 6:
                if rng.random() < 0.5:
                    bench.send(run(rng, rng.choice((0, 1, 19, rng.randrange(20)))))
                else:
                    count = rng.choice((0, 1, 37, rng.randrange(38)))
                    bench.send(ucode(rng, count, rng.choice((rng.randrange(_STORE), rng.randrange(_STORE - count)))))
                ended += 1
            flush = bool(flushes) and rng.random() < 0.01
            stopped += flush
            await bench.tick(flush=flush)
            full += ctx.get(dut.held) and ctx.get(dut.queue.request) == 0 and not ctx.get(dut.prepare.ready)
        assert full > 500 * bool(busy) and ended > 40 and bool(stopped) == bool(flushes)

    simulate(body, 2 + flushes, busy)
