"""A program in the order of its meaning, and the semaphores that let the engines run it side by side.

The scheduler emits commands in an order in which they would be right one after the other, and says which part
of which memory each reads and writes. :class:`Recorder` finds, for every command, the latest command of every
other engine that it conflicts with and has not yet been ordered behind, and orders the two by a token.
Every Loader and every Storer is an engine by itself (:class:`~gradloom.contracts.engines.Unit`). Engines take their
commands in order and finish them in order, so one semaphore for each ordered pair of engines is enough: the n-th
wait of a pair matches its n-th signal. Pairs that other tokens order have no semaphore
(:data:`gradloom.contracts.engines.TOKENS`); should two commands of such a pair conflict all the same, and no other
tokens order them, a barrier does.

Why this cannot deadlock: every wait is matched by a signal of a command earlier in the program, so the
earliest unfinished command can always run, however short the queues are. Why every semaphore ends at 0:
signals and waits are made in pairs. Why none passes its largest value: a token that would span too many others
comes from a later command than it need, or a barrier takes its place.
"""

import operator
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from gradloom.contracts.config import Config
from gradloom.contracts.engines import LOAD_UNITS, Unit, load_channels, semaphore, units
from gradloom.contracts.isa import Dest, Opcode
from gradloom.host.cost_model.clock import Clock
from gradloom.host.dram.layout import ceil_div
from gradloom.host.order.accesses import Access, AccessIndex, Ranges
from gradloom.host.order.addresses import AddressIndex
from gradloom.host.order.liveness import UnreadData
from gradloom.host.program.assembler import Instruction

__all__ = ["Recorder"]


class _Index(Protocol):
    """What has been accessed of one memory; each kind takes records of its own.

    Attributes
    ----------
    reads, writes : accesses that have been added
    """

    reads: int
    writes: int

    def clear(self) -> None: ...

    def record(self, engine: Unit, box: Ranges, *, write: bool) -> Any: ...

    def latest(self, new: Any, needs: dict[Unit, int], known: Mapping[Unit, int]) -> None: ...

    def add(self, new: Any, position: int) -> None: ...


class Recorder:
    """Collects the commands of a program.

    Parameters
    ----------
    config : :class:`~gradloom.contracts.config.Config`
        Its channels say which engine executes a command.
    most_tokens : :class:`int`
        Tokens of a pair of engines that may be signalled and not yet waited for, in the order of the program.
    staged : :class:`bool`
        As for :class:`~gradloom.host.cost_model.clock.Clock`.

    Attributes
    ----------
    instructions : list of :class:`~gradloom.host.program.assembler.Instruction`
    tag : :class:`int`
        Given to every command that is emitted.
    clock : :class:`~gradloom.host.cost_model.clock.Clock`
        When they would run.
    """

    def __init__(self, config: Config, most_tokens: int = 128, *, staged: bool = False) -> None:
        self._config = config
        self.clock = Clock(config, staged=staged)
        self._most_tokens = most_tokens
        self._emitted: dict[Unit, list[int]] = {unit: [] for unit in units(config)}
        self._waits: dict[tuple[Unit, Unit], list[int]] = {}
        self.instructions: list[Instruction] = []
        self.tag = 0
        self._known: dict[int, dict[Unit, int]] = {}
        self._last: dict[Unit, int] = {}
        self._floor = -1
        self._awaited = -1
        """Latest command of the A-Core that a command of the Sequencer has waited for."""
        self._spaces: dict[str, _Index] = {}
        self._when: dict[tuple[Access, bool], tuple[tuple[int, int], int]] = {}
        """What has been asked for (:meth:`when`): when so much of its memory had been accessed, and the answer."""
        self._unused = UnreadData(config)
        self._running = False

    def sequence(self, opcode: Opcode, tail: tuple = (), **fields: int) -> int:
        """A command of the Sequencer itself; engines have finished all earlier ones when it runs.

        Returns its position.
        """
        self.barrier()
        self.instructions.append(Instruction(opcode, fields, tail, self.tag))
        return len(self.instructions) - 1

    def aside(self, opcode: Opcode, **fields: int) -> None:
        """A command of the Sequencer that no command under way depends on: it waits for none of them."""
        self.instructions.append(Instruction(opcode, fields, (), self.tag))

    def since_barrier(self) -> Iterator[tuple[int, Instruction]]:
        """Commands since the last barrier, with their positions."""
        return ((place, self.instructions[place]) for place in range(self._floor + 1, len(self.instructions)))

    def behind_acore(self, commands: Sequence[tuple[int, Instruction]]) -> None:
        """Commands of the Sequencer, each behind a command of the A-Core while engines go on.

        Parameters
        ----------
        commands : (position, command)
            Position of the A-Core's command; -1 if there is none since the last barrier.
        """
        # What has been waited for before is done, and a token of it would come ahead of those that are yet to be waited for.
        known = max(self._floor, self._awaited)
        places = sorted({place for place, _ in commands if place > known})
        # More tokens than a semaphore may hold are thinned out: a command waits for the next one that is left.
        left = places[:: -max(1, ceil_div(len(places), self._most_tokens))][::-1]
        number = semaphore(Unit.ACORE, Unit.SEQ)
        assert number is not None
        for place, command in sorted(commands, key=operator.itemgetter(0)):
            if place > known:
                known = left[bisect_left(left, place)]
                self.instructions[known].signal |= 1 << number
                command.wait |= 1 << number
            command.tag = self.tag
            self.instructions.append(command)
        self._awaited = known

    def barrier(self) -> None:
        """All earlier commands have finished before any later one starts."""
        if not self._running:
            return
        self.instructions.append(Instruction(Opcode.BARRIER, {}, (), self.tag))
        self._floor = len(self.instructions) - 1
        self.clock.barrier()
        self._known.clear()
        self._last.clear()
        for space in self._spaces.values():
            space.clear()
        self._running = False

    def emit(
        self,
        opcode: Opcode,
        fields: dict[str, int],
        *,
        reads: Sequence[Access] = (),
        writes: Sequence[Access] = (),
        tail: tuple = (),
        again: bool = False,
    ) -> int:
        """A command of an engine with all that it reads and writes. Returns its position.

        ``again``: what it reads in rings is read again, and may not be overwritten before.
        """
        instruction = Instruction(opcode, fields, tail, self.tag)
        engine = instruction.unit(self._config)
        self._unused.note(instruction, () if again else reads, writes)
        records = self._records(engine, reads, writes)
        # What has finished when the engine's command before is done needs no token, and does not delay this one.
        needs, known = dict[Unit, int](), self._before(engine)
        for space, record in records:
            space.latest(record, needs, known)
        unordered = {other: place for other, place in needs.items() if place > known.get(other, self._floor)}
        if unordered and self._needs_barrier(engine, needs, unordered):
            self.barrier()
            needs, unordered, known = {}, {}, {}
        self._running = True
        position = len(self.instructions)
        self.clock.place(position, engine, instruction, needs.values())
        self._order(engine, unordered, instruction, known)
        self.instructions.append(instruction)
        self._emitted[engine].append(position)
        self._known[position] = known
        self._last[engine] = position
        for space, record in records:
            space.add(record, position)
        return position

    def way(self, dest: Dest, *, shared: bool, most: int | None = None) -> int:
        """The one of the channels that fill a memory that will be through first, if they share the work, else the usual one.

        ``most``: of so many channels only.
        """
        channels = load_channels(self._config, dest)[:most]
        if not shared:
            return 0
        return min(range(len(channels)), key=lambda way: self.clock.free(LOAD_UNITS[channels[way]]))

    def waits_for_use(self, access: Access) -> bool:
        """Whether anything in a part of an on-chip ring has not been used yet."""
        return self._unused.holds(access)

    def when(self, access: Access, *, write: bool = False) -> int:
        """Cycle from which a command could read what has been written of a part of a memory, or write it anew."""
        space = self._spaces.get(access.space)
        if space is None:
            return 0
        # Many tasks ask for the same, as for all inputs of a wide layer.
        version = space.writes, space.reads if write else 0
        asked, time = self._when.get((access, write), (None, 0))
        if asked != version:
            # An engine's commands are done in their order: the last one of each is enough. The Sequencer has none there.
            last: dict[Unit, int] = {}
            space.latest(space.record(Unit.SEQ, access.box, write=write), last, {})
            time = max((self.clock.done[position] for position in last.values()), default=0)
            self._when[access, write] = version, time
        return time

    def _space(self, access: Access) -> "_Index":
        if access.space not in self._spaces:
            dimensions, on_chip = len(access.box), len(access.box) == 1 or access.space in Dest.__members__
            self._spaces[access.space] = AddressIndex(dimensions) if on_chip else AccessIndex(dimensions)
        return self._spaces[access.space]

    def _records(self, engine: Unit, reads: Sequence[Access], writes: Sequence[Access]) -> list[tuple["_Index", Any]]:
        """What a command accesses, and where that is remembered."""
        found = []
        for write, accesses in ((False, reads), (True, writes)):
            for access in accesses:
                space = self._space(access)
                found.append((space, space.record(engine, access.box, write=write)))
        return found

    def _before(self, engine: Unit) -> dict[Unit, int]:
        """What has finished, at the latest, when the engine is done with a next command that waits for nothing."""
        if engine not in self._last:
            return {}
        before = self._last[engine]
        return {**self._known[before], engine: before}

    def _needs_barrier(self, engine: Unit, needs: dict[Unit, int], unordered: dict[Unit, int]) -> bool:
        """Tokens cannot order a command of ``engine`` behind all of ``needs``, of which some are yet ``unordered``."""
        for other, place in unordered.items():
            if semaphore(other, engine) is None:
                implied = any(
                    self._known[p].get(other, self._floor) >= place
                    for o, p in needs.items()
                    if semaphore(o, engine) is not None
                )
                if not implied:
                    return True
            elif self._producer(other, engine, place) is None:
                return True
        return False

    def _order(self, engine: Unit, unordered: dict[Unit, int], instruction: Instruction, known: dict[Unit, int]) -> None:
        """Add the tokens that ``unordered`` asks for, and to ``known`` what has finished when the command is done, itself aside."""
        for other, place in unordered.items():
            if any(self._known[p].get(other, self._floor) >= place for o, p in unordered.items() if o != other):
                continue
            late_enough, number = self._producer(other, engine, place), semaphore(other, engine)
            assert late_enough is not None and number is not None, "emit() has put a barrier here"
            place = late_enough
            self._waits.setdefault((other, engine), []).append(len(self.instructions))
            bit = 1 << number
            self.instructions[place].signal |= bit
            instruction.wait |= bit
            known[other] = max(known.get(other, -1), place)
            for third, reach in self._known[place].items():
                known[third] = max(known.get(third, -1), reach)

    def _producer(self, other: Unit, engine: Unit, place: int) -> int | None:
        """The first command of ``other`` from ``place`` on whose token to ``engine`` spans few enough others, if there is one."""
        waits = self._waits.get((other, engine), [])
        if len(waits) < self._most_tokens or waits[-self._most_tokens] <= place:
            return place
        emitted = self._emitted[other]
        found = bisect_left(emitted, waits[-self._most_tokens])
        return emitted[found] if found < len(emitted) else None
