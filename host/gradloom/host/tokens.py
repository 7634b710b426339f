"""A program in the order of its meaning, and the semaphores that let the engines run it side by side.

The scheduler emits commands in an order in which they would be right one after the other, and says which part
of which memory each reads and writes. :class:`Recorder` finds, for every command, the latest command of every
other engine that it conflicts with and has not yet been ordered behind, and orders the two by a token.
Every Loader and every Storer is an engine by itself (:class:`~gradloom.rtl.channels.Unit`). Engines take their
commands in order and finish them in order, so one semaphore for each ordered pair of engines is enough: the n-th
wait of a pair matches its n-th signal. Pairs that other tokens order have no semaphore
(:data:`gradloom.rtl.channels.TOKENS`); should two commands of such a pair conflict all the same, and no other
tokens order them, a barrier does.

Why this cannot deadlock: every wait is matched by a signal of a command earlier in the program, so the
earliest unfinished command can always run, however short the queues are. Why every semaphore ends at 0:
signals and waits are made in pairs. Why none passes its largest value: a token that would span too many others
comes from a later command than it need, or a barrier takes its place.
"""

import dataclasses
import itertools
import operator
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gradloom.host.assembler import Instruction
from gradloom.host.clock import Clock
from gradloom.host.layout import ceil_div
from gradloom.rtl.channels import LOAD_UNITS, Unit, load_channels, semaphore, units
from gradloom.rtl.config import PE_ROWS, Config
from gradloom.rtl.isa import Dest, Opcode

__all__ = ["Access", "Box", "Overwritten", "Recorder", "row_access", "tensor_access"]

Box = tuple[tuple[int, int], ...]
"""Half-open ranges, one a dimension; two boxes conflict if they overlap in every dimension."""


@dataclasses.dataclass(frozen=True)
class Access:
    """A part of a memory: on-chip addresses, or two to three index ranges of a DRAM tensor."""

    space: str
    box: Box


def row_access(space: str, first: int, count: int, banks: tuple[int, int] = (0, PE_ROWS)) -> Access:
    """Addresses of the input or error buffer, of some of each WPU's row banks."""
    return Access(space, ((first, first + count), banks))


_EVERY = (0, 1 << 16)


def tensor_access(space: str, box: Box) -> Access:
    """A part of a tensor in DRAM: images and channel groups, or output and input groups; then rows or kernel windows, or all."""
    return Access(space, box if len(box) == _TENSOR_DIMENSIONS else (*box, _EVERY))


_TENSOR_DIMENSIONS = 3
_CELL_ADDRESSES = 64
_CELL_INDICES = 4
"""Sizes of the cells by which past accesses are found: addresses on chip, banks or indices of a tensor."""


@dataclasses.dataclass(eq=False, slots=True)
class _Past:
    position: int
    engine: Unit
    write: bool
    box: Box
    live: bool = True
    seen: int = 0
    """The latest search that has found it."""


class _Space:
    """What has been accessed of one memory or tensor, found by place: cells of some addresses or indices in the first two
    dimensions."""

    def __init__(self, dimensions: int, *, on_chip: bool) -> None:
        self._dimensions = dimensions
        self._sizes = (_CELL_ADDRESSES if on_chip else _CELL_INDICES, _CELL_INDICES)
        self._cells: dict[tuple[int, ...], list[_Past]] = {}
        self._searches = 0

    def _keys(self, box: Box) -> Iterator[tuple[int, ...]]:
        if len(box) != self._dimensions:
            raise ValueError(f"an access of {len(box)} dimensions to a memory of {self._dimensions}")
        return itertools.product(
            *(range(low // size, (high - 1) // size + 1) for size, (low, high) in zip(self._sizes, box, strict=False))
        )

    def near(self, box: Box) -> list[_Past]:
        """All that may overlap ``box``."""
        self._searches += 1
        search, found = self._searches, []
        for key in self._keys(box):
            cell = self._cells.get(key)
            if cell:
                dead = 0
                for past in cell:
                    if not past.live:
                        dead += 1
                    elif past.seen != search:
                        past.seen = search
                        found.append(past)
                if 2 * dead > len(cell):
                    self._cells[key] = [past for past in cell if past.live]
        return found

    def add(self, new: _Past) -> None:
        """Remember ``new``, and forget what it stands for: all inside a write, its engine's reads inside a read."""
        for past in self.near(new.box):
            if (new.write or (past.engine == new.engine and not past.write)) and _inside(past.box, new.box):
                past.live = False
        for key in self._keys(new.box):
            self._cells.setdefault(key, []).append(new)


def _overlap(a: Box, b: Box) -> bool:
    # A loop takes a third of the time of all() over a generator.
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low >= other_high or other_low >= high:
            return False
    return True


def _inside(a: Box, b: Box) -> bool:
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low < other_low or high > other_high:
            return False
    return True


_BESIDE = ("dacc", "lap")
"""Fields of a drain that leaves what its addresses hold: it adds to it, or to the lap before."""


class Overwritten(ValueError):
    """A command would overwrite what another one is still to use."""


class _Unused:
    """Addresses of on-chip rings that hold what nothing has used yet.

    A ring hands out its addresses round and round; the recorder orders their reuse by the order of the program. That a command
    reads what was meant for it takes more: between the two no one may have taken its addresses.
    """

    def __init__(self, config: Config) -> None:
        sizes = {"AA": config.abuf_depth, "AB": config.abuf_depth, "AM": config.mbuf_depth, "DW": config.dw_depth}
        self._held = {name: np.zeros(size, bool) for name, size in sizes.items()}
        self._block = config.block_beats

    def holds(self, access: Access) -> bool:
        """Whether some of it has not been used."""
        return bool(self._held[access.space][slice(*access.box[0])].any())

    def note(self, instruction: Instruction, reads: Iterable[Access], writes: Iterable[Access]) -> None:
        """What a command uses, and what it leaves for others.

        Raises
        ------
        :exc:`Overwritten`
            If what it overwrites has not been used.
        """
        for access in reads:
            if access.space in self._held:
                self._held[access.space][slice(*access.box[0])] = False
        for access in writes:
            if access.space in self._held:
                held = self._held[access.space][slice(*access.box[0])]
                gap = instruction.fields.get("dgap", 0)
                # With a gap blocks of other tiles lie between.
                own = np.arange(len(held)) // self._block % (gap + 1) == 0 if gap else slice(None)
                beside = instruction.opcode == Opcode.CONV and any(instruction[name] for name in _BESIDE)
                if held[own].any() and not beside:
                    raise Overwritten(f"addresses {access.box[0]} of {access.space} would be overwritten before they are used")
                held[own] = True


class Recorder:
    """Collects the commands of a program.

    Parameters
    ----------
    config : :class:`~gradloom.rtl.config.Config`
        Its channels say which engine executes a command.
    most_tokens : :class:`int`
        Tokens of a pair of engines that may be signalled and not yet waited for, in the order of the program.
    staged : :class:`bool`
        As for :class:`~gradloom.host.clock.Clock`.

    Attributes
    ----------
    instructions : list of :class:`~gradloom.host.assembler.Instruction`
    tag : :class:`int`
        Given to every command that is emitted.
    clock : :class:`~gradloom.host.clock.Clock`
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
        self._spaces: dict[str, _Space] = {}
        self._unused = _Unused(config)
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
        self._spaces.clear()
        self._running = False

    def emit(
        self,
        opcode: Opcode,
        fields: dict[str, int],
        *,
        reads: Iterable[Access] = (),
        writes: Iterable[Access] = (),
        tail: tuple = (),
        again: bool = False,
    ) -> int:
        """A command of an engine with all that it reads and writes. Returns its position.

        ``again``: what it reads in rings is read again, and may not be overwritten before.
        """
        instruction = Instruction(opcode, fields, tail, self.tag)
        engine, reads, writes = instruction.unit(self._config), tuple(reads), tuple(writes)
        self._unused.note(instruction, () if again else reads, writes)
        needs = self._conflicts(engine, reads, writes)
        if self._needs_barrier(engine, needs):
            self.barrier()
            needs = {}
        self._running = True
        position = len(self.instructions)
        self.clock.place(position, engine, instruction, needs.values())
        known = self._order(engine, needs, instruction)
        self.instructions.append(instruction)
        self._emitted[engine].append(position)
        self._known[position] = known
        self._last[engine] = position
        for access in reads:
            self._space(access).add(_Past(position, engine, False, access.box))
        for access in writes:
            self._space(access).add(_Past(position, engine, True, access.box))
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
        space, done = self._spaces.get(access.space), self.clock.done
        near = space.near(access.box) if space else ()
        return max((done[past.position] for past in near if (write or past.write) and _overlap(past.box, access.box)), default=0)

    def _space(self, access: Access) -> _Space:
        if access.space not in self._spaces:
            self._spaces[access.space] = _Space(len(access.box), on_chip=len(access.box) == 1 or access.space in Dest.__members__)
        return self._spaces[access.space]

    def _conflicts(
        self, engine: Unit, reads: tuple[Access, ...], writes: tuple[Access, ...]
    ) -> dict[Unit, int]:
        needs: dict[Unit, int] = {}
        for write, accesses in ((False, reads), (True, writes)):
            for access in accesses:
                space = self._spaces.get(access.space)
                for past in space.near(access.box) if space else ():
                    if (
                        past.engine != engine
                        and (write or past.write)
                        and past.position > needs.get(past.engine, -1)
                        and _overlap(past.box, access.box)
                    ):
                        needs[past.engine] = past.position
        return needs

    def _before(self, engine: Unit) -> dict[Unit, int]:
        """What has finished, at the latest, when the engine is done with a next command that waits for nothing."""
        if engine not in self._last:
            return {}
        before = self._last[engine]
        return {**self._known[before], engine: before}

    def _needs_barrier(self, engine: Unit, needs: dict[Unit, int]) -> bool:
        """Tokens cannot order a command of ``engine`` behind all of ``needs``."""
        known = self._before(engine)
        for other, place in needs.items():
            if place <= known.get(other, self._floor):
                continue
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

    def _order(self, engine: Unit, needs: dict[Unit, int], instruction: Instruction) -> dict[Unit, int]:
        """Add the tokens that ``needs`` asks for. Returns what has finished when the command is done, itself aside."""
        known = self._before(engine)
        open_needs = {other: place for other, place in needs.items() if place > known.get(other, self._floor)}
        for other, place in list(open_needs.items()):
            if any(
                self._known[p].get(other, self._floor) >= place for o, p in open_needs.items() if o != other
            ):
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
        return known

    def _producer(self, other: Unit, engine: Unit, place: int) -> int | None:
        """The first command of ``other`` from ``place`` on whose token to ``engine`` spans few enough others, if there is one."""
        waits = self._waits.get((other, engine), [])
        if len(waits) < self._most_tokens or waits[-self._most_tokens] <= place:
            return place
        emitted = self._emitted[other]
        found = bisect_left(emitted, waits[-self._most_tokens])
        return emitted[found] if found < len(emitted) else None
