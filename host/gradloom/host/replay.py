"""The second half of the cost model: a replay that places the commands of a program (:mod:`gradloom.host.cost`) in time.

Queues, semaphores, barriers, the Sequencer's pace, the program's own fetch, the memory's bandwidth and the banks that several
channels fill are those of the machine; every event comes in the order of time.
"""

import dataclasses
import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from gradloom.host.acore_stages import AcoreStages
from gradloom.host.assembler import Instruction
from gradloom.host.cost import Cost, Costs, DramCost, StagedState, in_flight
from gradloom.host.layout import ceil_div
from gradloom.host.trace import Timeline, cut
from gradloom.rtl.axi_read import FETCH_BEATS, OUTSTANDING_READS
from gradloom.rtl.banks import WEIGHT_BANKS
from gradloom.rtl.channels import LOAD_UNITS, Unit, units
from gradloom.rtl.config import Config
from gradloom.rtl.isa import SEMAPHORES, Dest, Opcode, Source, pairs
from gradloom.rtl.program_fetch import AHEAD, CHUNK

__all__ = ["replay"]

_SEQUENCER = {Opcode.SCALE: 14, Opcode.EXPSET: 14, Opcode.SEED: 30, Opcode.SETBASE: 3, Opcode.ADDBASE: 3, Opcode.BARRIER: 4,
              Opcode.LOOP: 6, Opcode.LDHYP: 70}
"""Cycles of the Sequencer's own commands behind their last word."""
_FETCH_SETUP = 12
"""Cycles of a read of the program beside the memory's latency."""
_READ_ISSUE = 6
"""Cycles from a LOAD's start until its first request is at the memory."""
_HANDOUT = 2
"""Cycles of the Sequencer for a command beside one for each pair of its words."""
_START = 1
"""Cycles from the last condition of a command (engine free, semaphores, words in the queue) to its start."""

_PARAMETER_READ, _PARAMETER_WRITE = 3, 2
"""Cycles from a STORE's start until it reads the parameter buffer, and from a beat's arrival at the port to the buffer."""
_ROOM = 1
"""Cycles from a command's end until its engine has room for one more."""


@dataclasses.dataclass
class _Command:
    """One command of an engine, all in cycles."""

    place: int
    """In the program."""
    start: int
    end: int
    """The cycle after its last beat or window."""
    bursts: int = 0
    rate: float = 0.0
    """Of a load: its bursts, and the cycles of each."""
    walks: bool = False
    """It goes from bank to bank of the weight buffer."""


class _Engine(StagedState):
    """One engine with its queue."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.handed: deque[tuple[int, int]] = deque()
        """(position, cycle in which the last word was there) of commands that have not started."""
        self.words = 0
        """Words in the queue: all of ``handed`` but the first, which is collected beside the queue."""
        self.commands: list[_Command] = []
        """All that have started."""
        self.held = 0
        """Of a Loader: until then lower channels keep single banks of the weight buffer busy, so that what goes from bank to bank
        stands."""

    def delay(self, cycles: int) -> None:
        """What its next command does comes so much later."""
        self.bus += cycles
        self.free += cycles

    def walks(self, time: int) -> bool:
        """Whether a load that goes from bank to bank is under way after ``time``."""
        return self._first_walk(time) is not None

    def postpone(self, time: int, cycles: int) -> list[int]:
        """What goes from bank to bank after ``time``, and all behind it, comes so much later; the places of these commands."""
        first = self._first_walk(time)
        if first is None:
            return []
        late = self.commands[first:]
        for command in late:
            command.end += cycles
        for place in range(max(-len(late), -len(self.under_way)), 0):
            self.under_way[place] += cycles
        self.delay(cycles)
        return [command.place for command in late]

    def _first_walk(self, time: int) -> int | None:
        first = None
        for place in range(len(self.commands) - 1, -1, -1):
            if self.commands[place].end <= time:
                break
            if self.commands[place].walks:
                first = place
        return first


_SLICE = 64
"""Cycles in which what channels share is dealt out at a time: whoever asks first takes what is left."""


class _Banks:
    """Banks of the weight buffer, of which a load of kernel 1 fills one; other loads go from bank to bank and soon part, as many as
    there are banks.

    A channel waits while a lower one has a beat for its bank (:mod:`gradloom.rtl.load_arbiter`).
    """

    def __init__(self, config: Config) -> None:
        self.beat_bytes = config.beat_bytes
        self.used: defaultdict[tuple[range, int], list[float]] = defaultdict(lambda: [0.0] * config.load_channels)
        """Bytes of every channel by banks and slice."""
        self.pushed = [0.0] * config.load_channels
        """Bytes that were dealt with before a lower channel came for the same bank."""

    def take(self, banks: range, number: int, wanted: float, channel: int) -> float:
        """Bytes of so many wanted ones that go to some banks in a slice of time."""
        room = len(banks) * self.beat_bytes * _SLICE
        used = self.used[banks, number]
        wanted = max(0.0, min(wanted, room - sum(used[:channel])))
        used[channel] += wanted
        over = sum(used) - room
        for other in reversed(range(channel + 1, len(used))):
            late = max(0.0, min(over, used[other]))
            used[other] -= late
            self.pushed[other] += late
            over -= late
        return wanted

    def delays(self) -> list[int]:
        """Cycles that every channel is late since the latest call."""
        cycles = [round(late / self.beat_bytes) for late in self.pushed]
        self.pushed = [0.0] * len(cycles)
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

    def move(self, first: int, cycles: int, size: int, banks: range | None = None, channel: int = 0) -> int:
        """Cycle after the last of ``size`` bytes, which take ``cycles`` if nothing is in their way, from ``first`` on.

        ``banks``, ``channel``: as for :meth:`_Banks.take`.
        """
        if self.slice_bytes == math.inf and banks is None:
            return first + cycles
        rate, left, time = size / cycles, float(size), first
        while True:
            number = time // _SLICE
            end = (number + 1) * _SLICE
            taken = min(left, rate * (end - time), self.slice_bytes - self.used[number])
            if banks is not None:
                taken = self.banks.take(banks, number, taken, channel)
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
        self.pairs = CHUNK // 8
        self.under_way = FETCH_BEATS // self.beats
        self.ahead = 4 * AHEAD // CHUNK
        self.jump(0)

    def jump(self, time: int) -> None:
        """Begin anew; the first request leaves at ``time``."""
        self.origin = time
        self.ends: list[int] = []
        self.taken: list[int] = []
        self.used = 0

    def take(self, count: int, time: int, loaders: Sequence[_Engine]) -> int:
        """Cycle in which the last of ``count`` pairs of words is taken, one a cycle from ``time`` on; the first Loader shares its
        port."""
        while count:
            if len(self.ends) == len(self.taken):
                self._request(loaders)
            step = min(count, self.pairs - self.used)
            self.used += step
            count -= step
            time = max(time + step, self.ends[-1] - self.beats + ceil_div(self.used * self.beats, self.pairs))
            if self.used == self.pairs:
                self.taken.append(time)
                self.used = 0
        return time

    def _request(self, loaders: Sequence[_Engine]) -> None:
        load, number = loaders[0], len(self.ends)
        issue = self.origin
        if number >= self.under_way:
            issue = max(issue, self.ends[number - self.under_way])
        if number >= self.ahead:
            issue = max(issue, self.taken[number - self.ahead])
        first = issue + self.dram.latency + _FETCH_SETUP
        # Data come in the order of the requests: those of the Loader's commands that started earlier come first, as far as they
        # have been requested.
        place = bisect_right(load.commands, issue - _READ_ISSUE, key=lambda command: command.start) - 1
        if place >= 0:
            first = max(first, self._requested(load, place, issue - _READ_ISSUE))
        end = self.memory.move(max(first, self.ends[-1] if self.ends else 0), self.beats, CHUNK)
        if load.bus > first:
            load.bus += self.beats
        # A Loader that stands while its port brings the program falls back by a block, into the bank of the next one, which waits
        # for it, and so on.
        if load.walks(first):
            for other in loaders[1:]:
                if other.walks(first):
                    other.delay(self.beats)
        self.ends.append(end)

    @staticmethod
    def _requested(load: _Engine, place: int, time: int) -> int:
        """When the data have come that the Loader has requested until ``time``, at which its command ``place`` is the latest one.

        It requests a burst a cycle, and no more than can be under way.
        """
        command = load.commands[place]
        before, rate = (load.commands[place - 1].end, load.commands[place - 1].rate) if place else (0, 1.0)
        come = max(0.0, time - (command.end - command.bursts * command.rate)) / max(command.rate, 1.0)
        earlier = max(0, before - time) / max(rate, 1.0)
        asked = min(command.bursts, time - command.start, come + OUTSTANDING_READS - earlier)
        return before if asked <= 0 else int(command.end - (command.bursts - asked) * command.rate)


class _Replay:
    def __init__(self, program: Sequence[Instruction], config: Config, dram: DramCost) -> None:
        self.program, self.config, self.dram = program, config, dram
        self.costs = Costs(config, dram)
        self.engines = {unit: _Engine(in_flight(unit)) for unit in units(config)}
        self.loaders = [self.engines[unit] for unit in LOAD_UNITS[:config.load_channels]]
        self.acore = self.engines[Unit.ACORE]
        self.stages = AcoreStages(self.acore, self.costs)
        self.signals: list[deque[int]] = [deque() for _ in range(SEMAPHORES)]
        """Of every semaphore: the places of the commands that have given, or will give, what nothing has taken yet."""
        self.engine_of = [self.engines.get(instruction.unit(config)) for instruction in program]
        """``None`` for a command of the Sequencer."""
        self.lengths = [pairs(instruction.length) for instruction in program]
        """In pairs of words."""
        self.queued = [instruction.queued for instruction in program]
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
            if engine.handed and engine.words + self.queued[self.place] > self.config.queue_words:
                return None
            return max(self.there, self.time + length) + _HANDOUT
        instruction = self.program[self.place]
        if instruction.opcode in (Opcode.BARRIER, Opcode.END):
            if any(engine.handed for engine in self.engines.values()):
                return None
            return max(self.there, *(engine.under_way[-1] for engine in self.engines.values())) + _SEQUENCER[Opcode.BARRIER]
        ready = self._signalled(self.place)
        return None if ready is None else max(self.there, ready) + _SEQUENCER[instruction.opcode]

    def _hand_out(self, time: int) -> None:
        engine = self.engine_of[self.place]
        if engine is not None:
            if engine.handed:
                engine.words += self.queued[self.place]
            engine.handed.append((self.place, time))
        else:
            self._take_signals(self.place)
        opcode = self.program[self.place].opcode
        if opcode in (Opcode.LOOP, Opcode.LDHYP):
            self.fetch.jump(time)
        self.place, self.time = self.place + 1, time
        self.there = self._fetched()

    def _fetched(self) -> int:
        if self.place == len(self.program):
            return self.time
        return self.fetch.take(self.lengths[self.place], self.time, self.loaders)

    def _ready(self, engine: _Engine) -> int | None:
        """When the engine's next command can start; ``None`` while a semaphore's signal is not known."""
        place, there = engine.handed[0]
        signalled = self._signalled(place)
        return None if signalled is None else max(there, engine.free, engine.under_way[0] + _ROOM, signalled) + _START

    def _signalled(self, place: int) -> int | None:
        """When a command has all its semaphores' signals; ``None`` while one is not known."""
        signals = [self.signals[bit] for bit in self.needs[place]]
        return int(max((self.done[signal[0]] for signal in signals), default=0)) if all(signals) else None

    def _begin(self, engine: _Engine, time: int) -> None:
        place, _ = engine.handed.popleft()
        instruction = self.program[place]
        if engine.handed:
            # The next command leaves the queue for the register beside it, two words a cycle.
            following, there = engine.handed[0]
            engine.words -= self.queued[following]
            engine.handed[0] = (following, max(there, time + self.lengths[following]))
            self.time = max(self.time, time) if self._was_full(engine, self.queued[following]) else self.time
        self._take_signals(place)
        cost = self.costs(instruction)
        first = end = 0
        if engine is self.acore:
            done = self.stages.begin(place, time, instruction, cost)
        else:
            first = engine.first(time, cost)
            end = self._moved(engine, instruction, cost, first) if cost.bytes else first + cost.transfer
            done = engine.begin(time, cost, end)
        self._parameters(instruction, time, first, end, cost.bytes // self.config.beat_bytes)
        walks = instruction.fields.get("dest") == Dest.WBUF and not instruction["linear"]
        engine.commands.append(_Command(place, time, engine.bus, cost.bursts, (end - first) / max(1, cost.bursts), walks))
        self.start[place], self.done[place] = time, done
        for bit in self.given[place]:
            self.signals[bit].append(place)

    def _take_signals(self, place: int) -> None:
        for bit in self.needs[place]:
            self.signals[bit].popleft()

    def _moved(self, engine: _Engine, instruction: Instruction, cost: Cost, first: int) -> int:
        """Cycle after the last beat of a load or store."""
        if instruction.fields.get("dest") != Dest.WBUF:
            return self.memory.move(first, cost.transfer, cost.bytes)
        channel = self.loaders.index(engine)
        if not instruction["linear"]:
            return self.memory.move(max(first, engine.held), cost.transfer, cost.bytes, range(WEIGHT_BANKS), channel)
        bank = instruction["bank0"]
        end = self.memory.move(first, cost.transfer, cost.bytes, range(bank, bank + 1), channel)
        for loader, late in zip(self.loaders, self.memory.banks.delays(), strict=True):
            loader.delay(late)
        for loader in self.loaders[channel + 1:]:
            self._hold(loader, first, end)
        return end

    def _hold(self, loader: _Engine, first: int, end: int) -> None:
        """A lower channel keeps one bank busy, before which what goes from bank to bank stands."""
        since = max(first, loader.held)
        if end > since:
            for place in loader.postpone(since, end - since):
                self.done[place] += end - since
            loader.held = end

    def _parameters(self, instruction: Instruction, time: int, first: int, end: int, beats: int) -> None:
        """What starts at ``time`` may read or write the parameter buffer, which keeps the A-Core waiting."""
        late: dict[int, int] = {}
        if instruction.fields.get("src") == Source.PBUF:
            late = self.stages.stored(range(time + _PARAMETER_READ, time + _PARAMETER_READ + beats))
        if instruction.fields.get("dest") == Dest.PBUF:
            late = self.stages.loaded(first + _PARAMETER_WRITE + beat * (end - first) // beats for beat in range(beats))
        for place, done in late.items():
            self.done[place] = done

    def _was_full(self, engine: _Engine, freed: int) -> bool:
        """Whether the Sequencer stood before this queue until ``freed`` words left it."""
        if self.place == len(self.program):
            return False
        waiting = self.queued[self.place]
        return self.engine_of[self.place] is engine and engine.words + freed + waiting > self.config.queue_words


def replay(programs: Sequence[tuple[Instruction, ...]], config: Config, dram: DramCost) -> list[Timeline]:
    """Timelines of the steps of one start (:func:`gradloom.host.trace.step_programs`), estimated."""
    machine = _Replay([instruction for program in programs for instruction in program], config, dram)
    machine.run()
    return cut(programs, config, machine.start, machine.done, "estimated")
