"""When the commands of a step ran, recorded in RTL or estimated, and what held them up; traces for Perfetto and Chrome.

A :class:`Timeline` holds the commands of one step in program order with the cycles of their starts and ends. The recording
knows only engines and cycles: as every engine takes its commands in order, its n-th start is that of its n-th command.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.isa import SEMAPHORES, Opcode
from gradloom.host.program.assembler import Instruction

__all__ = ["SEQUENCER", "Timeline", "TraceError", "chrome_trace", "cut", "engine_name", "step_programs", "timelines"]

SEQUENCER = "sequencer"
"""What an engine waits for while its next command is not there: program fetch, a barrier, or another engine's full queue."""
_HANDOVER = 8
"""Cycles from an end to the start that it allows, at most; a longer gap has another reason."""


class TraceError(RuntimeError):
    """A recording that does not belong to the program."""


def engine_name(unit: Unit) -> str:
    """As in all records: load, load1, ccore, ..."""
    return unit.name.lower()


def _bits(mask: int) -> Iterator[int]:
    return (bit for bit in range(SEMAPHORES) if mask >> bit & 1)


@dataclasses.dataclass(frozen=True)
class Timeline:
    """One step.

    Parameters
    ----------
    program : tuple of :class:`~gradloom.host.program.assembler.Instruction`
        The step's commands in program order, those of the Sequencer too.
    config : :class:`~gradloom.contracts.config.Config`
        The machine: its channels say which engine ran a command.
    start, done : int64 array (commands,)
        Cycles from the begin of the step; -1 for commands of the Sequencer. ``done`` is the cycle in which the engine
        reports the end.
    cycles : :class:`int`
        Length of the step.
    kind : :class:`str`
        "simulated" or "estimated".
    """

    program: tuple[Instruction, ...]
    config: Config
    start: np.ndarray
    done: np.ndarray
    cycles: int
    kind: str

    @functools.cached_property
    def units(self) -> tuple[Unit, ...]:
        """The engine of every command."""
        return tuple(instruction.unit(self.config) for instruction in self.program)

    @functools.cached_property
    def by_engine(self) -> dict[Unit, np.ndarray]:
        """Positions of every engine's commands, in order."""
        engines = np.array(self.units, np.int64)
        return {unit: np.flatnonzero(engines == unit) for unit in units(self.config)}

    @functools.cached_property
    def before(self) -> np.ndarray:
        """Position of the same engine's previous command; -1 for its first."""
        found = np.full(len(self.program), -1, np.int64)
        for places in self.by_engine.values():
            found[places[1:]] = places[:-1]
        return found

    @functools.cached_property
    def busy(self) -> np.ndarray:
        """Cycles that count as a command's own: up to its end, from its start or, where two of an engine overlap, from the end
        of the one before. Their sum over an engine is the time in which it had a command under way.
        """
        begin = np.where(self.before >= 0, np.maximum(self.start, self.done[self.before]), self.start)
        return self.done - begin

    @functools.cached_property
    def producers(self) -> list[tuple[int, ...]]:
        """For every command those whose ends its semaphores waited for; the n-th wait takes the n-th signal."""
        signals: list[list[int]] = [[] for _ in range(SEMAPHORES)]
        taken = [0] * SEMAPHORES
        found: list[tuple[int, ...]] = []
        for place, instruction in enumerate(self.program):
            needs = []
            for bit in _bits(instruction.wait):
                needs.append(signals[bit][taken[bit]])
                taken[bit] += 1
            found.append(tuple(needs))
            for bit in _bits(instruction.signal):
                signals[bit].append(place)
        return found

    def gap(self, place: int) -> tuple[int, str]:
        """Idle cycles of an engine before one of its commands, and the engine (or :data:`SEQUENCER`) that it waited for."""
        before = self.before[place]
        free = int(self.done[before]) if before >= 0 else 0
        idle = int(self.start[place]) - free
        latest = max(self.producers[place], key=lambda p: int(self.done[p]), default=-1)
        if idle <= 0 or latest < 0 or self.done[latest] < free:
            return max(0, idle), SEQUENCER
        return idle, engine_name(self.units[latest])

    def critical_path(self) -> dict[tuple[str, int], int]:
        """Cycles by (engine, tag) of the chain of commands that fixes the length of the step; they sum to ``cycles``."""
        place = int(np.argmax(self.done)) if len(self.done) else -1
        return self._chain(place, self.cycles, 0) if place >= 0 and self.start[place] >= 0 else {}

    def blame(self, place: int) -> dict[str, int]:
        """Idle cycles of an engine before one of its commands by the engines that worked for it meanwhile.

        Where :meth:`gap` names the engine whose end came last, this follows the chain behind that end back to the begin of the
        idle time.
        """
        before = self.before[place]
        start, free = int(self.start[place]), int(self.done[before]) if before >= 0 else 0
        link = self._link(place) if start > free else -1
        found: dict[str, int] = {}
        if start <= free:
            return found
        end = max(free, int(self.done[link])) if link >= 0 else free
        parts = self._chain(link, end, free) if end > free else {}
        for (name, _), cycles in (*parts.items(), ((SEQUENCER, 0), start - end)):
            if cycles:
                found[name] = found.get(name, 0) + cycles
        return found

    def _chain(self, place: int, time: int, floor: int) -> dict[tuple[str, int], int]:
        """Divide the cycles from ``floor`` to ``time``, the end of command ``place``, among the commands that led to it."""
        found: dict[tuple[str, int], int] = {}
        while place >= 0 and time > floor:
            tag, link = self.program[place].tag, self._link(place)
            end = max(floor, min(time, int(self.done[link]))) if link >= 0 else floor
            begin = min(time, max(int(self.start[place]), end))
            for name, cycles in ((engine_name(self.units[place]), time - begin), (SEQUENCER, begin - end)):
                if cycles:
                    found[name, tag] = found.get((name, tag), 0) + cycles
            place, time = link, end
        return found

    def _link(self, place: int) -> int:
        """What ended last of all that a command had to wait for: its semaphores, its engine's previous command, or, where it
        started long after both, whatever ended last before it (a barrier, a full queue); -1 if there is nothing.
        """
        needs = [p for p in (*self.producers[place], int(self.before[place])) if p >= 0]
        link = max(needs, key=lambda p: int(self.done[p]), default=-1)
        if link < 0 or self.start[place] - self.done[link] > _HANDOVER:
            link = self._ended_before(place, link)
        return link

    def _ended_before(self, place: int, best: int) -> int:
        """The earlier command that ended last before ``place`` started, ``best`` if there is none later than that."""
        for places in self.by_engine.values():
            earlier = places[: np.searchsorted(places, place)]
            index = int(np.searchsorted(self.done[earlier], self.start[place], side="right")) - 1
            if index >= 0 and (best < 0 or self.done[earlier[index]] > self.done[best]):
                best = int(earlier[index])
        return best


def step_programs(instructions: Sequence[Instruction], labels: Mapping[int, int], steps: int) -> list[tuple[Instruction, ...]]:
    """What the Sequencer takes in each of the ``steps`` steps of one start; what comes before the loop belongs to the first.

    Where updates are carried over from step to step (:mod:`gradloom.host.training_step.program_loop`), what is left behind the last
    one comes as one entry more, or, behind a single step, belongs to it.
    """
    (loop, body), *further = sorted(labels.items())
    first, again = tuple(instructions[: loop + 1]), tuple(instructions[body : loop + 1])
    if not further:
        return [first if step == 0 else again for step in range(steps)]
    (last, _), = further
    left, again = tuple(instructions[loop + 1 : body]), tuple(instructions[body : last + 1])
    if steps == 1:
        return [first + left]
    return [first, *[again] * (steps - 1), tuple(instructions[last + 1 :])]


def timelines(programs: Sequence[tuple[Instruction, ...]], config: Config, cycles: np.ndarray, bits: np.ndarray) -> list[Timeline]:
    """The steps of one start from a recording (:meth:`gradloom.sim.rtl_device.RtlDevice.events`).

    Raises
    ------
    :exc:`TraceError`
        If the recording has another number of starts or ends than the program has commands.
    """
    engines = np.array([instruction.unit(config) for program in programs for instruction in program], np.int64)
    start, done = np.full(len(engines), -1, np.int64), np.full(len(engines), -1, np.int64)
    for number, engine in enumerate(units(config)):
        places = np.flatnonzero(engines == engine)
        for target, bit, what in ((start, 2 * number, "started"), (done, 2 * number + 1, "ended")):
            seen = cycles[bits >> bit & 1 != 0]
            if len(seen) != len(places):
                raise TraceError(f"{engine.name} {what} {len(seen)} commands, the program has {len(places)} for it")
            target[places] = seen
    return cut(programs, config, start, done, "simulated")


def cut(programs: Sequence[tuple[Instruction, ...]], config: Config, start: np.ndarray, done: np.ndarray,
        kind: str) -> list[Timeline]:
    """Steps from the starts and ends of all commands of one start of the machine.

    A step ends with its last command: the Sequencer's own commands at a step's end wait for every engine. The first step
    begins with its first command.
    """
    found = []
    begin = int(start[start >= 0].min()) if (start >= 0).any() else 0
    place = 0
    for program in programs:
        part = slice(place, place + len(program))
        end = max(begin, int(done[part].max()))
        shifted = [np.where(times[part] < 0, -1, times[part] - begin) for times in (start, done)]
        found.append(Timeline(program, config, shifted[0], shifted[1], end - begin, kind))
        begin, place = end, part.stop
    return found


def chrome_trace(timeline: Timeline, name: Callable[[Instruction], str], *, title: str) -> dict[str, Any]:
    """A trace that ui.perfetto.dev and chrome://tracing open: a track for each engine, a slice for each command.

    One microsecond of the trace is one clock cycle. Where commands of an engine overlap, a slice begins where the one before
    ends, and its argument ``start`` gives the cycle of its own start.
    """
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": title}}]
    for engine, places in timeline.by_engine.items():
        if not len(places):
            continue
        track = {"pid": 1, "tid": int(engine)}
        events.append({"ph": "M", **track, "name": "thread_name", "args": {"name": engine_name(engine)}})
        for place in places:
            instruction = timeline.program[place]
            idle, cause = timeline.gap(place)
            args: dict[str, Any] = {"start": int(timeline.start[place]), "command": int(place), "tag": instruction.tag}
            if idle:
                args |= {"waited": idle, "waited for": cause}
            duration = int(timeline.busy[place])
            events.append({"ph": "X", **track, "ts": int(timeline.done[place]) - duration, "dur": duration,
                           "name": name(instruction), "cat": Opcode(instruction.opcode).name, "args": args})
    return {"displayTimeUnit": "ns", "traceEvents": events,
            "otherData": {"kind": timeline.kind, "unit": "1 us is 1 clock cycle", "cycles": timeline.cycles}}
