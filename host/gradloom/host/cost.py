"""The cost model: how long a program takes, from its commands alone, in seconds where the RTL simulation takes minutes.

Every command gets its cycles from its own fields (:class:`Costs`); a replay of queues, semaphores, barriers and the shared
memory (:func:`replay`) then places all commands in time, as the Sequencer and the engines would. It lies in ``host`` and not
beside the networks' models because it reads programs, whose encoding belongs to the machine, and the models know no machine.

The constants are those of the RTL (its pipelines' depths); ``gradloom bench --compare`` shows what is left as error.
"""

import dataclasses
import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from gradloom.host.assembler import Instruction
from gradloom.host.bench_work import windows
from gradloom.host.layout import ceil_div
from gradloom.host.trace import Timeline, cut
from gradloom.rtl import microprograms
from gradloom.rtl.acore import ACore
from gradloom.rtl.apu import ADD1, CODE1, CODE2
from gradloom.rtl.axi import BURST_BEATS
from gradloom.rtl.axi_read import FETCH_BEATS, OUTSTANDING_READS
from gradloom.rtl.ccore import CCore
from gradloom.rtl.channels import Unit, engine_of, units
from gradloom.rtl.config import PE_ROWS, Config
from gradloom.rtl.divider import Divider
from gradloom.rtl.isa import FIRST_SHIFT_WORD, SEMAPHORES, Engine, Opcode, Pattern
from gradloom.rtl.loader import Loader
from gradloom.rtl.microcode import Each, Kind, Operand, ScalarDestination
from gradloom.rtl.program_fetch import AHEAD, CHUNK
from gradloom.rtl.scalars import Scalars, dividers
from gradloom.rtl.storer import Storer
from gradloom.rtl.sweep import FETCH

__all__ = ["Costs", "DramCost", "EngineState", "in_flight", "pool_cycles", "replay"]

_READ_SETUP, _READ_END = 8, 3
"""Cycles from a LOAD's start to its address at the memory and back without the memory's latency; from the last beat to done."""
_WRITE_SETUP, _WRITE_END = 6, 3
_FEED, _CONV_END, _DRAIN_END = 3, 13, 11
_FIRST_PASS_END, _SCALAR_END, _SWEEP_START, _SWEEP_LEAST = 9, 3, 2, 18
"""A-Core: from the last beat of a first pass to its sums; from the last scalar's result to what needs it; before a sweep's first
beat; least from there to the last one."""
_POOL_PREPARE = 19
"""A-Core: from the acceptance of a pool to its first beat, and its tail."""
_LANES_END = FETCH + ADD1 + CODE2 + 2
"""From a sweep's last beat to done, on the short path."""
_SEQUENCER = {Opcode.SCALE: 14, Opcode.EXPSET: 14, Opcode.SEED: 30, Opcode.SETBASE: 3, Opcode.ADDBASE: 3, Opcode.BARRIER: 4,
              Opcode.LOOP: 6, Opcode.LDHYP: 70}
"""Cycles of the Sequencer's own commands behind their last word."""
_FETCH_SETUP = 12
"""Cycles of a read of the program beside the memory's latency."""
_READ_ISSUE = 6
"""Cycles from a LOAD's start until its first request is at the memory."""
_HANDOUT = 2
"""Cycles of the Sequencer for a command beside one for each of its words."""
_STORE_FIFO = 16
"""Beats that the Storer has read and not written."""
_START = 1
"""Cycles from the last condition of a command (engine free, semaphores, words in the queue) to its start."""


@dataclasses.dataclass(frozen=True)
class DramCost:
    """The memory.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from an address to its first beat, and from a write's last beat to its answer.
    bytes_per_cycle : :class:`float`, optional
        Reads and writes of all channels together; ``None``: a beat each way and channel.
    """

    latency: int = 40
    bytes_per_cycle: float | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one command, all in cycles from its start.

    Parameters
    ----------
    issue : :class:`int`
        Until its engine can take the next command, at least.
    ahead : :class:`int`
        Cycles by which that may come before its last beat or window, at most.
    latency : :class:`int`
        Until its first beat or window is in the engine's one pipeline.
    transfer : :class:`int`
        From there until its last one.
    end : :class:`int`
        From there until it is done.
    apart : :class:`int`
        Least cycles from the end of the engine's previous command to its own.
    bytes, bursts : :class:`int`
        What it moves, and the bursts of a load.
    """

    issue: int
    ahead: int
    latency: int
    transfer: int
    end: int = 0
    apart: int = 2
    bytes: int = 0
    bursts: int = 0


class Costs:
    """Cycles of single commands on one machine."""

    def __init__(self, config: Config, dram: DramCost) -> None:
        self.config, self.dram = config, dram
        self._programs = {address: microprograms.PROGRAMS[name] for name, address in microprograms.TABLE.items()}

    def __call__(self, instruction: Instruction) -> Cost:
        opcode = instruction.opcode
        if opcode == Opcode.CONV:
            return self._conv(instruction)
        if opcode == Opcode.RUN:
            return self._run(instruction)
        if opcode == Opcode.UCODE:
            cycles = len(instruction.tail) + 3
            return Cost(cycles, 0, 0, cycles)
        if opcode == Opcode.SOFTMAX:
            classes = instruction["classes"]
            cycles = 1 + instruction["images"] * (classes * (1 if instruction["squared"] else 11) + 13)
            return Cost(cycles, 0, 0, cycles)
        return self._move(instruction, read="dest" in instruction.fields)

    def _move(self, instruction: Instruction, *, read: bool) -> Cost:
        n0, runs = instruction["n0"], instruction["n1"] * instruction["n2"]
        beats, bursts = n0 * runs, runs * ceil_div(n0, BURST_BEATS)
        size = beats * self.config.beat_bytes
        if not read:
            return Cost(beats + 4, _STORE_FIFO, _WRITE_SETUP, beats, self.dram.latency + _WRITE_END, bytes=size)
        latency = _READ_SETUP + self.dram.latency
        transfer = max(beats, bursts * latency // OUTSTANDING_READS)
        late = bursts - OUTSTANDING_READS
        waiting = latency + late * transfer // bursts if late > 0 else 0
        ahead = latency + OUTSTANDING_READS * transfer // bursts
        return Cost(4 + max(bursts, waiting), ahead, latency, transfer, _READ_END, bytes=size, bursts=bursts)

    def _conv(self, instruction: Instruction) -> Cost:
        groups = ceil_div(instruction["units"], self.config.wpus)
        tokens = windows(instruction, self.config) + instruction["preload"] * groups * instruction["steps"]
        # Rows are walked two ahead of their windows; the next command may come when the last one is walked.
        ahead = 2 * (instruction["cols"] + instruction["preload"])
        issue = max(2, tokens + _FEED - ahead)
        if not (instruction["wg"] and instruction["drain"]):
            return Cost(issue, ahead, _FEED, tokens, _CONV_END + self.config.cols)
        rows = instruction["nr"]
        if instruction["pattern"] == Pattern.K1:
            rows = sum(instruction[f"rlim{row}"] > 0 for row in range(PE_ROWS))
        blocks = rows * instruction["nk"] * self.config.block_beats + PE_ROWS - rows
        return Cost(issue, ahead, _FEED, tokens, blocks + _DRAIN_END + self.config.cols, apart=blocks)

    # A-Core

    def _run(self, instruction: Instruction) -> Cost:
        """First pass and preparation come before the sweep; each of the three may hold a command."""
        program = self._programs.get(instruction["uprog"], [])
        beats = instruction["planes"] * instruction["nb"]
        first = 3 + (beats + _FIRST_PASS_END if program and program[0]["kind"] == Kind.SUMS else 0)
        prepare = self._prepare(instruction, program)
        sweep = program[-1] if program and program[-1]["kind"] == Kind.SWEEP else {}
        pooled = sweep.get("x") == Operand.POOL and instruction["pool"]
        if pooled:
            beats = instruction["planes"] * pool_cycles(instruction) + _POOL_PREPARE
        transfer = max(beats if sweep else 1, _SWEEP_LEAST) + _SWEEP_START
        end = _LANES_END + (CODE1 - ADD1 if sweep.get("long") else 0)
        return Cost(max(first, prepare), 2 * transfer, first + prepare, transfer, end)

    def _prepare(self, instruction: Instruction, program: list[dict[str, int]]) -> int:
        """Set-up, then the microinstructions one after the other."""
        group = self.config.group
        time = 2
        ready = time + max(max(2, group), instruction.length - FIRST_SHIFT_WORD) + 3
        for micro in program:
            time += 3
            kind = micro["kind"]
            if kind in (Kind.SCALAR, Kind.SWEEP) and not micro.get("chain"):
                time = max(time, ready)
            if kind == Kind.LOAD:
                time = max(time, ready) + micro["count"] + 1
            if kind == Kind.SCALAR:
                values = group * (instruction["planes"] if micro["each"] == Each.PLANE else 1)
                divides = micro["sdst"] == ScalarDestination.DIVIDE
                bursts = ceil_div(values, dividers(self.config))
                time += (bursts - 1) * (Divider.LATENCY + 1) + 1 if divides else values
                ready = time + Scalars.LATENCY + _SCALAR_END + (Divider.LATENCY - 3 if divides else 0)
            time += 1
        return max(time, ready) + 1


def pool_cycles(instruction: Instruction) -> int:
    """Cycles of a plane's pooling walk, a stored beat each (``gradloom.rtl.poolwalk``)."""
    kernel, stride, pad = instruction["pkern"], instruction["pstride"], instruction["ppad"]
    rows, beats = instruction["py"], instruction["xe"]
    if instruction["pool"] == 1:
        both = max(1, ceil_div(kernel + stride + pad % 2, 2))
        one = max(1, ceil_div(kernel + pad % 2, 2))
        return rows * kernel * ((beats - 1) * both + (one if instruction["xodd"] else both))
    held = sum(max(1, ceil_div(kernel - (row + pad + instruction["poff"]) % stride, stride)) for row in range(rows))
    taps = [(2 * beat + 1 + pad) % (2 * stride) - 1 for beat in range(beats)]
    return held * sum(1 + ceil_div(max(0, kernel - stride - tap), 2 * stride) for tap in taps)


def in_flight(unit: Unit) -> int:
    """Commands that an engine may have under way."""
    depths = {Engine.LOAD: Loader.IN_FLIGHT, Engine.CCORE: CCore.IN_FLIGHT, Engine.ACORE: ACore.IN_FLIGHT,
              Engine.STORE: Storer.IN_FLIGHT}
    return depths[engine_of(unit)]


class EngineState:
    """When an engine takes its next command, and its one pipeline the next beat or window.

    Attributes
    ----------
    free, bus : :class:`int`
        First cycle in which it could.
    under_way : :class:`~collections.deque` of :class:`int`
        Ends of the latest commands, as many as it may have under way.
    """

    def __init__(self, in_flight: int) -> None:
        self.free = 0
        self.bus = 0
        self.under_way: deque[int] = deque([0] * in_flight, maxlen=in_flight)

    def begin(self, time: int, cost: Cost, end: int) -> int:
        """A command that starts at ``time`` and whose last beat or window is through at ``end``. Returns when it is done."""
        self.bus = end + (1 if cost.bytes else 0)
        self.free = max(time + cost.issue, end - cost.ahead)
        done = max(end + cost.end, self.under_way[-1] + cost.apart)
        self.under_way.append(done)
        return done


class _Engine(EngineState):
    """One engine with its queue."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.handed: deque[tuple[int, int]] = deque()
        """(position, cycle in which the last word was there) of commands that have not started."""
        self.words = 0
        """Words in the queue: all of ``handed`` but the first, which is collected beside the queue."""
        self.starts: list[int] = []
        self.ends: list[int] = []
        """Of every command so far: its start, and the cycle after its last beat."""
        self.bursts: list[tuple[int, float]] = []
        """Of every command of a Loader: its bursts, and the cycles of each."""


_SLICE = 64
"""Cycles in which what channels share is dealt out at a time: whoever asks first takes what is left."""


class _Banks:
    """Banks of the weight buffer, of which a load of kernel 1 fills one; other loads go from bank to bank and soon part.

    Channel 1 waits while channel 0 has a beat for its bank (:mod:`gradloom.rtl.load_arbiter`).
    """

    def __init__(self, config: Config) -> None:
        self.room = config.beat_bytes * _SLICE
        self.used: tuple[defaultdict[tuple[int, int], float], ...] = defaultdict(float), defaultdict(float)
        """Bytes by bank and slice, of either channel."""
        self.pushed = 0.0
        """Bytes of channel 1 that were dealt with before channel 0 came for the same bank."""

    def take(self, bank: int, number: int, wanted: float, second: bool) -> float:
        """Bytes of so many wanted ones that go to a bank in a slice of time, ``second``: through channel 1."""
        other = self.used[not second][bank, number]
        if second:
            wanted = min(wanted, self.room - other)
        else:
            self.pushed += max(0.0, min(wanted, wanted + other - self.room))
        self.used[second][bank, number] += wanted
        return wanted

    def delay(self) -> int:
        """Cycles that channel 1 is late since the latest call."""
        cycles, self.pushed = round(self.pushed * _SLICE / self.room), 0.0
        return cycles


class _Memory:
    """What channels share: the memory's bandwidth, and banks."""

    def __init__(self, config: Config, dram: DramCost) -> None:
        channels = config.load_channels + config.store_channels
        self.slice_bytes = math.inf
        if dram.bytes_per_cycle is not None and dram.bytes_per_cycle < channels * config.beat_bytes:
            self.slice_bytes = dram.bytes_per_cycle * _SLICE
        self.used: defaultdict[int, float] = defaultdict(float)
        self.banks = _Banks(config)

    def move(self, first: int, cycles: int, size: int, bank: int | None = None, second: bool = False) -> int:
        """Cycle after the last of ``size`` bytes, which take ``cycles`` if nothing is in their way, from ``first`` on.

        ``bank``, ``second``: as for :meth:`_Banks.take`.
        """
        if self.slice_bytes == math.inf and bank is None:
            return first + cycles
        rate, left, time = size / cycles, float(size), first
        while True:
            number = time // _SLICE
            end = (number + 1) * _SLICE
            taken = min(left, rate * (end - time), self.slice_bytes - self.used[number])
            if bank is not None:
                taken = self.banks.take(bank, number, taken, second)
            self.used[number] += taken
            left -= taken
            if left < 1:
                return min(end, time + ceil_div(round(taken), round(rate) or 1))
            time = end


class _Fetch:
    """The program on its way to the Sequencer: bursts read ahead, on the read channel that the first Loader uses too."""

    def __init__(self, config: Config, dram: DramCost, memory: _Memory) -> None:
        self.dram, self.memory = dram, memory
        self.beats = CHUNK // config.beat_bytes
        self.words = self.beats * config.beat_bytes // 4
        self.under_way = FETCH_BEATS // self.beats
        self.ahead = AHEAD // self.words
        self.jump(0)

    def jump(self, time: int) -> None:
        """Begin anew; the first request leaves at ``time``."""
        self.origin = time
        self.ends: list[int] = []
        self.taken: list[int] = []
        self.used = 0

    def take(self, count: int, time: int, load: _Engine) -> int:
        """Cycle in which the last of ``count`` words is taken, one a cycle from ``time`` on."""
        while count:
            if len(self.ends) == len(self.taken):
                self._request(load)
            step = min(count, self.words - self.used)
            self.used += step
            count -= step
            time = max(time + step, self.ends[-1] - self.beats + ceil_div(self.used * self.beats, self.words))
            if self.used == self.words:
                self.taken.append(time)
                self.used = 0
        return time

    def _request(self, load: _Engine) -> None:
        number = len(self.ends)
        issue = self.origin
        if number >= self.under_way:
            issue = max(issue, self.ends[number - self.under_way])
        if number >= self.ahead:
            issue = max(issue, self.taken[number - self.ahead])
        first = issue + self.dram.latency + _FETCH_SETUP
        # Data come in the order of the requests: those of the Loader's commands that started earlier come first, as far as they
        # have been requested.
        place = bisect_right(load.starts, issue - _READ_ISSUE) - 1
        if place >= 0:
            first = max(first, self._requested(load, place, issue - _READ_ISSUE))
        end = self.memory.move(max(first, self.ends[-1] if self.ends else 0), self.beats, CHUNK)
        if load.bus > first:
            load.bus += self.beats
        self.ends.append(end)

    @staticmethod
    def _requested(load: _Engine, place: int, time: int) -> int:
        """When the data have come that the Loader has requested until ``time``, at which its command ``place`` is the latest one.

        It requests a burst a cycle, and no more than can be under way.
        """
        count, cycles = load.bursts[place]
        before, rate = (load.ends[place - 1], load.bursts[place - 1][1]) if place else (0, 1.0)
        come = max(0.0, time - (load.ends[place] - count * cycles)) / max(cycles, 1.0)
        earlier = max(0, before - time) / max(rate, 1.0)
        asked = min(count, time - load.starts[place], come + OUTSTANDING_READS - earlier)
        return before if asked <= 0 else int(load.ends[place] - (count - asked) * cycles)


class _Replay:
    def __init__(self, program: Sequence[Instruction], config: Config, dram: DramCost) -> None:
        self.program, self.config, self.dram = program, config, dram
        self.costs = Costs(config, dram)
        self.engines = {unit: _Engine(in_flight(unit)) for unit in units(config)}
        self.signals: list[deque[int]] = [deque() for _ in range(SEMAPHORES)]
        self.engine_of = [self.engines.get(instruction.unit(config)) for instruction in program]
        """``None`` for a command of the Sequencer."""
        self.lengths = [instruction.length for instruction in program]
        self.needs = [[bit for bit in range(SEMAPHORES) if instruction.wait >> bit & 1] for instruction in program]
        self.given = [[bit for bit in range(SEMAPHORES) if instruction.signal >> bit & 1] for instruction in program]
        self.start = np.full(len(program), -1, np.int64)
        self.done = np.full(len(program), -1, np.int64)
        self.memory = _Memory(config, dram)
        self.fetch = _Fetch(config, dram, self.memory)
        self.place, self.time = 0, 0
        self.there = self._fetched()
        """When the words of the command at ``place`` are there."""

    def run(self) -> None:
        """The earliest next event, one after the other: a command that the Sequencer hands out, or one that starts."""
        while True:
            best, chosen = self._sequencer(), None
            for engine in self.engines.values():
                if engine.handed:
                    ready = self._ready(engine)
                    if ready is not None and (best is None or ready < best):
                        best, chosen = ready, engine
            if best is None:
                break
            if chosen is None:
                self._hand_out(best)
            else:
                self._begin(chosen, best)
        if self.place < len(self.program):
            raise RuntimeError(f"the program does not end: it stands at command {self.place}")

    def _sequencer(self) -> int | None:
        """When the Sequencer is through with its next command; ``None`` while it cannot be."""
        if self.place == len(self.program):
            return None
        engine, length = self.engine_of[self.place], self.lengths[self.place]
        if engine is not None:
            if engine.handed and engine.words + length > self.config.queue_words:
                return None
            return max(self.there, self.time + length) + _HANDOUT
        instruction = self.program[self.place]
        if instruction.opcode in (Opcode.BARRIER, Opcode.END):
            if any(engine.handed for engine in self.engines.values()):
                return None
            return max(self.there, *(engine.under_way[-1] for engine in self.engines.values())) + _SEQUENCER[Opcode.BARRIER]
        return self.there + _SEQUENCER[instruction.opcode]

    def _hand_out(self, time: int) -> None:
        engine = self.engine_of[self.place]
        if engine is not None:
            if engine.handed:
                engine.words += self.lengths[self.place]
            engine.handed.append((self.place, time))
        opcode = self.program[self.place].opcode
        if opcode in (Opcode.LOOP, Opcode.LDHYP):
            self.fetch.jump(time)
        self.place, self.time = self.place + 1, time
        self.there = self._fetched()

    def _fetched(self) -> int:
        if self.place == len(self.program):
            return self.time
        return self.fetch.take(self.lengths[self.place], self.time, self.engines[Unit.LOAD])

    def _ready(self, engine: _Engine) -> int | None:
        """When the engine's next command can start; ``None`` while a semaphore's signal is not known."""
        place, there = engine.handed[0]
        ready = max(there, engine.free, engine.under_way[0])
        for bit in self.needs[place]:
            if not self.signals[bit]:
                return None
            ready = max(ready, self.signals[bit][0])
        return ready + _START

    def _begin(self, engine: _Engine, time: int) -> None:
        place, _ = engine.handed.popleft()
        instruction = self.program[place]
        if engine.handed:
            # The next command leaves the queue for the register beside it, a word a cycle.
            following, there = engine.handed[0]
            length = self.lengths[following]
            engine.words -= length
            engine.handed[0] = (following, max(there, time + length))
            self.time = max(self.time, time) if self._was_full(engine, length) else self.time
        for bit in self.needs[place]:
            self.signals[bit].popleft()
        cost = self.costs(instruction)
        first = max(time + cost.latency, engine.bus)
        end = self._moved(engine, instruction, cost, first) if cost.bytes else first + cost.transfer
        done = engine.begin(time, cost, end)
        engine.starts.append(time)
        engine.ends.append(engine.bus)
        engine.bursts.append((cost.bursts, (end - first) / max(1, cost.bursts)))
        self.start[place], self.done[place] = time, done
        for bit in self.given[place]:
            self.signals[bit].append(done)

    def _moved(self, engine: _Engine, instruction: Instruction, cost: Cost, first: int) -> int:
        """Cycle after the last beat of a load or store."""
        if not instruction["linear"]:
            return self.memory.move(first, cost.transfer, cost.bytes)
        second = self.engines.get(Unit.LOAD1)
        end = self.memory.move(first, cost.transfer, cost.bytes, instruction["bank0"], engine is second)
        if second is not None:
            late = self.memory.banks.delay()
            second.bus += late
            second.free += late
        return end

    def _was_full(self, engine: _Engine, freed: int) -> bool:
        """Whether the Sequencer stood before this queue until ``freed`` words left it."""
        if self.place == len(self.program):
            return False
        waiting = self.lengths[self.place]
        return self.engine_of[self.place] is engine and engine.words + freed + waiting > self.config.queue_words


def replay(programs: Sequence[tuple[Instruction, ...]], config: Config, dram: DramCost) -> list[Timeline]:
    """Timelines of the steps of one start (:func:`gradloom.host.trace.step_programs`), estimated."""
    machine = _Replay([instruction for program in programs for instruction in program], config, dram)
    machine.run()
    return cut(programs, config, machine.start, machine.done, "estimated")
