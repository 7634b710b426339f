"""The second half of the cost model: a replay that places the commands of a program (:mod:`gradloom.host.cost_model.cost`) in time.

Queues (:mod:`gradloom.host.cost_model.replay_engine`), semaphores, barriers, the Sequencer's pace, the program's own fetch
(:mod:`gradloom.host.cost_model.replay_fetch`), the memory's bandwidth and the banks that several channels fill
(:mod:`gradloom.host.cost_model.replay_memory`) are those of the machine; every event comes in the order of time.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from gradloom.contracts.config import WEIGHT_BANKS, Config
from gradloom.contracts.engines import LOAD_UNITS, Unit, units
from gradloom.contracts.isa import SEMAPHORES, Dest, Opcode, Source, pairs
from gradloom.contracts.pipeline import (
    PARAMETER_READ,
    PARAMETER_WRITE,
    QUEUE_ROOM,
    QUEUE_START,
    SEQUENCER_CYCLES,
    SEQUENCER_HANDOUT,
    in_flight,
)
from gradloom.host.cost_model.acore_stages import AcoreStages
from gradloom.host.cost_model.cost import Cost, Costs, DramCost
from gradloom.host.cost_model.replay_engine import Command, QueuedEngine
from gradloom.host.cost_model.replay_fetch import Fetch
from gradloom.host.cost_model.replay_memory import Memory
from gradloom.host.cost_model.trace import Timeline, cut
from gradloom.host.program.assembler import Instruction

__all__ = ["replay"]


class _Replay:
    def __init__(self, program: Sequence[Instruction], config: Config, dram: DramCost, costs: Costs) -> None:
        self.program, self.config, self.dram, self.costs = program, config, dram, costs
        self.engines = {unit: QueuedEngine(in_flight(unit)) for unit in units(config)}
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
        self.memory = Memory(config, dram)
        self.fetch = Fetch(config, dram, self.memory)
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
            return max(self.there, self.time + length) + SEQUENCER_HANDOUT
        instruction = self.program[self.place]
        if instruction.opcode in (Opcode.BARRIER, Opcode.END):
            if any(engine.handed for engine in self.engines.values()):
                return None
            return max(self.there, *(engine.under_way[-1] for engine in self.engines.values())) + SEQUENCER_CYCLES[Opcode.BARRIER]
        ready = self._signalled(self.place)
        return None if ready is None else max(self.there, ready) + SEQUENCER_CYCLES[instruction.opcode]

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

    def _ready(self, engine: QueuedEngine) -> int | None:
        """When the engine's next command can start; ``None`` while a semaphore's signal is not known."""
        place, there = engine.handed[0]
        signalled = self._signalled(place)
        return None if signalled is None else max(there, engine.free, engine.under_way[0] + QUEUE_ROOM, signalled) + QUEUE_START

    def _signalled(self, place: int) -> int | None:
        """When a command has all its semaphores' signals; ``None`` while one is not known."""
        signals = [self.signals[bit] for bit in self.needs[place]]
        return int(max((self.done[signal[0]] for signal in signals), default=0)) if all(signals) else None

    def _begin(self, engine: QueuedEngine, time: int) -> None:
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
        engine.commands.append(Command(place, time, engine.bus, cost.bursts, (end - first) / max(1, cost.bursts), walks))
        self.start[place], self.done[place] = time, done
        for bit in self.given[place]:
            self.signals[bit].append(place)

    def _take_signals(self, place: int) -> None:
        for bit in self.needs[place]:
            self.signals[bit].popleft()

    def _moved(self, engine: QueuedEngine, instruction: Instruction, cost: Cost, first: int) -> int:
        """Cycle after the last beat of a load or store."""
        if instruction.fields.get("dest") != Dest.WBUF:
            return self.memory.move(first, cost.transfer, cost.bytes, cost.bursts)
        channel = self.loaders.index(engine)
        if not instruction["linear"]:
            return self.memory.move(max(first, engine.held), cost.transfer, cost.bytes, cost.bursts, range(WEIGHT_BANKS), channel)
        bank = instruction["bank0"]
        end = self.memory.move(first, cost.transfer, cost.bytes, cost.bursts, range(bank, bank + 1), channel)
        for loader, late in zip(self.loaders, self.memory.banks.delays(), strict=True):
            loader.delay(late)
        for loader in self.loaders[channel + 1:]:
            self._hold(loader, first, end)
        return end

    def _hold(self, loader: QueuedEngine, first: int, end: int) -> None:
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
            late = self.stages.stored(range(time + PARAMETER_READ, time + PARAMETER_READ + beats))
        if instruction.fields.get("dest") == Dest.PBUF:
            late = self.stages.loaded(first + PARAMETER_WRITE + beat * (end - first) // beats for beat in range(beats))
        for place, done in late.items():
            self.done[place] = done

    def _was_full(self, engine: QueuedEngine, freed: int) -> bool:
        """Whether the Sequencer stood before this queue until ``freed`` words left it."""
        if self.place == len(self.program):
            return False
        waiting = self.queued[self.place]
        return self.engine_of[self.place] is engine and engine.words + freed + waiting > self.config.queue_words


def replay(
    programs: Sequence[tuple[Instruction, ...]], config: Config, dram: DramCost, costs: Costs | None = None
) -> list[Timeline]:
    """Timelines of the steps of one start (:func:`gradloom.host.cost_model.trace.step_programs`), estimated.

    ``costs``: of single commands; by default those of the machine.
    """
    program = [instruction for program in programs for instruction in program]
    machine = _Replay(program, config, dram, costs or Costs(config, dram))
    machine.run()
    return cut(programs, config, machine.start, machine.done, "estimated")
