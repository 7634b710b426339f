"""The cost model: how long a program takes, from its commands alone, in seconds where the RTL simulation takes minutes.

Every command gets its cycles from its own fields (:class:`Costs`); a replay of queues, semaphores, barriers and the shared
memory (:func:`gradloom.host.cost_model.replay.replay`) then places all commands in time, as the Sequencer and the engines would.
Both lie in ``host`` and not beside the networks' models because they read programs, whose encoding belongs to the machine, and the
models know no machine.

Depths of pipelines are those of the contract (:mod:`gradloom.contracts.pipeline`); ``gradloom bench --compare`` shows what is left
as error.
"""

import dataclasses
import functools
from collections import deque
from typing import NamedTuple

from gradloom.contracts import microprograms, pipeline
from gradloom.contracts.config import PE_ROWS, Config
from gradloom.contracts.isa import Opcode, Pattern
from gradloom.contracts.microcode import Kind, Operand
from gradloom.host.cost_model.pool_walk import pool_cycles
from gradloom.host.cost_model.preparation import preparation
from gradloom.host.cost_model.workload import rows as walked
from gradloom.host.cost_model.workload import windows
from gradloom.host.program.assembler import Instruction

__all__ = ["Cost", "Costs", "DramCost", "EngineState", "StagedState"]


_MIN_SPACING = 2
"""Cycles from the end of an engine's command to that of the next one, at least, unless gradients leave the array."""


@dataclasses.dataclass(frozen=True)
class DramCost:
    """The memory.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from an address to its first beat, and from a write's last beat to its answer.
    bytes_per_cycle : :class:`float`, optional
        Reads and writes of all channels together; ``None``: a beat each way and channel.
    burst_cycles : :class:`float`
        Cycles in which the memory moves nothing, for each burst; nothing without ``bytes_per_cycle``.
    """

    latency: int = 40
    bytes_per_cycle: float | None = None
    burst_cycles: float = 0.0


class Cost(NamedTuple):
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
    min_spacing : :class:`int`
        Least cycles from the end of the engine's previous command to its own.
    prepare : :class:`int`
        The part of ``latency`` in a stage of its own that holds one command, until the pipeline takes it; 0: there is none. The
        replay follows that stage; for a clock ``issue`` and ``ahead`` are near enough.
    bytes, bursts : :class:`int`
        What it moves, and in how many bursts.
    row : :class:`int`
        Of a convolution: windows of its last row.
    passed, swept : :class:`int`
        Of the A-Core: cycles in which the first pass and the sweep read the streams, one a turn of a beat, or of a tap.
    tapped : :class:`bool`
        Those of a pool.
    """

    issue: int
    ahead: int
    latency: int
    transfer: int
    end: int = 0
    min_spacing: int = _MIN_SPACING
    prepare: int = 0
    bytes: int = 0
    bursts: int = 0
    row: int = 0
    passed: int = 0
    swept: int = 0
    tapped: bool = False

    @property
    def drains(self) -> bool:
        """Whether its results leave the array behind its last window, which waits until those of the command before have left."""
        return self.min_spacing != _MIN_SPACING


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
            cycles = len(instruction.tail) + pipeline.UCODE_END
            return Cost(cycles, 0, 0, cycles)
        if opcode == Opcode.SOFTMAX:
            a_class, an_image = (pipeline.squared_cycles if instruction["squared"] else pipeline.softmax_cycles)(self.config)
            cycles = pipeline.SOFTMAX_START + instruction["images"] * (instruction["classes"] * a_class + an_image)
            return Cost(cycles, 0, 0, cycles)
        return self._move(instruction, read="dest" in instruction.fields)

    def _move(self, instruction: Instruction, *, read: bool) -> Cost:
        beats = instruction["n0"] * instruction["n1"] * instruction["n2"]
        size, bursts = beats * self.config.beat_bytes, self._bursts(instruction)
        if not read:
            return Cost(beats + pipeline.STORE_ISSUE, pipeline.STORE_FIFO, pipeline.WRITE_LATENCY, beats,
                        self.dram.latency + pipeline.WRITE_END, bytes=size, bursts=bursts)
        latency = pipeline.READ_LATENCY + self.dram.latency
        transfer = max(beats, bursts * latency // pipeline.OUTSTANDING_READS)
        late = bursts - pipeline.OUTSTANDING_READS
        waiting = latency + late * transfer // bursts if late > 0 else 0
        ahead = latency + pipeline.OUTSTANDING_READS * transfer // bursts
        return Cost(pipeline.LOAD_ISSUE + max(bursts, waiting), ahead, latency, transfer, pipeline.READ_END, bytes=size,
                    bursts=bursts)

    def _bursts(self, instruction: Instruction) -> int:
        """Of a load or store: a run is cut where an address is a multiple of a burst's length."""
        beat, loops = self.config.beat_bytes, (instruction[name] for name in ("n0", "n1", "stride1", "n2", "stride2"))
        # The same wherever a burst may begin, so that there are few different ones.
        return _bursts(instruction["offset"] % (beat * pipeline.BURST_BEATS), *loops, beat)

    def _conv(self, instruction: Instruction) -> Cost:
        own, shared = walked(instruction, self.config)
        # A WPU's part of a shared row begins with a preload.
        tokens = windows(instruction, self.config) + instruction["preload"] * own + shared
        # Rows are walked two ahead of their windows; the next command may come when the last one is walked.
        whole, part = instruction["cols"] + instruction["preload"], instruction["scols"] + 1
        last = instruction["units"] % self.config.wpus if shared else 0
        row = part if last else whole
        ahead = row + (part if last > 1 else whole)
        issue = max(2, tokens + pipeline.CONVOLUTION_START - ahead)
        if not (instruction["wg"] and instruction["drain"]):
            return Cost(issue, ahead, pipeline.CONVOLUTION_START, tokens, pipeline.CONVOLUTION_END + self.config.cols, row=row)
        rows = instruction["nr"]
        if instruction["pattern"] == Pattern.K1:
            rows = sum(instruction[f"rlim{row}"] > 0 for row in range(PE_ROWS))
        blocks = rows * instruction["nk"] * self.config.block_beats // self.config.laps + PE_ROWS - rows
        return Cost(issue, ahead, pipeline.CONVOLUTION_START, tokens, blocks + pipeline.DRAIN_END + self.config.cols,
                    min_spacing=blocks, row=row)

    # A-Core

    def program(self, instruction: Instruction) -> list[microprograms.Micro]:
        """The microprogram of a RUN; empty if it is none of the package's."""
        return self._programs.get(instruction["uprog"], [])

    def _run(self, instruction: Instruction) -> Cost:
        """First pass and preparation come before the sweep; each of the three may hold a command."""
        program = self.program(instruction)
        turns = self.config.turns
        beats = instruction["planes"] * instruction["nb"] * turns
        passed = beats if program and program[0]["kind"] == Kind.SUMS else 0
        first = pipeline.ACORE_TO_PASS + (passed + pipeline.PASS_END if passed else 0)
        prepare = preparation(instruction, program, self.config)
        sweep = program[-1] if program and program[-1]["kind"] == Kind.SWEEP else {}
        pooled = bool(sweep.get("x") == Operand.POOL and instruction["pool"])
        swept = beats if sweep else 1
        if pooled:
            swept = instruction["planes"] * pool_cycles(instruction) * turns
        transfer = max(swept + (pipeline.POOL_WALK if pooled else 0), pipeline.SWEEP_LEAST) + pipeline.SWEEP_START
        end = pipeline.SWEEP_END + (pipeline.LONG_SWEEP if sweep.get("long") else 0)
        return Cost(max(first, prepare), 2 * transfer, first + prepare, transfer, end, prepare=prepare, passed=passed, swept=swept,
                    tapped=pooled)


@functools.lru_cache(maxsize=1 << 12)
def _bursts(offset: int, n0: int, n1: int, stride1: int, n2: int, stride2: int, beat: int) -> int:
    starts = (offset + first * stride1 + second * stride2 for second in range(n2) for first in range(n1))
    return sum((start // beat % pipeline.BURST_BEATS + n0 - 1) // pipeline.BURST_BEATS + 1 for start in starts)


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

    def first(self, time: int, cost: Cost) -> int:
        """When the first beat or window of a command that starts at ``time`` is in the pipeline."""
        return max(time + cost.latency, self.bus)

    def begin(self, time: int, cost: Cost, end: int) -> int:
        """A command that starts at ``time`` and whose last beat or window is through at ``end``. Returns when it is done."""
        self.bus = end + (1 if cost.bytes else 0)
        self.free = max(time + cost.issue, end - cost.ahead)
        done = self._done(cost, end)
        self.under_way.append(done)
        return done

    def _done(self, cost: Cost, end: int) -> int:
        return max(end + cost.end, self.under_way[-1] + cost.min_spacing)


class StagedState(EngineState):
    """The same, where a command may be prepared in a stage of its own while others pass the pipeline: the A-Core's three stages,
    gradients on their way out of the array, and rows that are walked ahead of their windows."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.prepared = self.tail = 0
        """Of the latest command that was prepared: when the pipeline took it, and its cycles from the last beat to its end."""
        self.row = 0
        """When the windows of the latest row began."""
        self.drained = 0
        """When the latest gradients had left the array."""

    def copy(self) -> "StagedState":
        """All that :meth:`begin` changes."""
        found = StagedState(len(self.under_way))
        found.restore(self)
        return found

    def restore(self, other: "StagedState") -> None:
        """Be as another one is, or was."""
        self.free, self.bus, self.under_way = other.free, other.bus, other.under_way.copy()
        self.prepared, self.tail, self.row, self.drained = other.prepared, other.tail, other.row, other.drained

    def entered(self, time: int, cost: Cost) -> int:
        """When a command that starts at ``time`` enters the stage in which it is prepared: it holds one, until the pipeline is
        through with those before that."""
        return max(time + cost.latency - cost.prepare, self.prepared)

    def first(self, time: int, cost: Cost) -> int:
        """When the first beat or window of a command that starts at ``time`` is in the pipeline."""
        if not cost.prepare:
            return max(time + cost.latency, self.bus)
        # What takes a shorter way through the lanes does not overtake what is ahead of it.
        return max(self.entered(time, cost) + cost.prepare, self.bus + max(0, self.tail - cost.end))

    def _done(self, cost: Cost, end: int) -> int:
        if not cost.drains:
            return super()._done(cost, end)
        self.drained = max(end + cost.end, self.under_way[-1] + _MIN_SPACING, self.drained + cost.min_spacing)
        return self.drained

    def begin(self, time: int, cost: Cost, end: int) -> int:
        entered = self.entered(time, cost)
        done = super().begin(time, cost, end)
        if cost.row:
            if cost.transfer == cost.row:
                # Two rows ahead of its windows: of a single row, when those of the row before begin, which is another command's.
                self.free = max(time + cost.issue, self.row)
            self.row = end - cost.row
        if cost.drains:
            self.bus += max(0, done - end - cost.end)
        if cost.prepare:
            self.free, self.prepared, self.tail = entered, end - cost.transfer, cost.end
            self.bus = max(end, self.prepared + pipeline.SWEEPS_APART)
        return done
