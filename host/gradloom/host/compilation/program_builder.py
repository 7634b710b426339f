"""What all phases of a compilation share: its state, pieces of the A-Core's work, and RUN commands with their accesses."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradloom.contracts import microprograms
from gradloom.contracts.config import Config
from gradloom.contracts.isa import Dest, Opcode
from gradloom.host.compilation.fit import Needs, ScheduleError, refuse
from gradloom.host.compilation.sums import PlannedSums, PsumAllocator, PsumRegion, TakeSums, TileSums
from gradloom.host.compilation.transfers import BASE, Transfers
from gradloom.host.dram.im2col import Lowered
from gradloom.host.dram.layout import ceil_div, equal_ranges
from gradloom.host.dram.memory_map import MemoryMap
from gradloom.host.knobs import DEFAULT_KNOBS, Knobs, SearchSpace
from gradloom.host.order.accesses import Access, tensor_access
from gradloom.host.order.allocators import CachedRing, RingAllocator
from gradloom.host.order.dependences import Dependences
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate, Piece
from gradloom.host.order.synchronize import Recorder
from gradloom.host.order.tasks import (
    Address,
    Call,
    Collector,
    Command,
    Fields,
    Later,
    Number,
    PlannedAccess,
    Region,
    Start,
    Step,
    Task,
    Uses,
    Way,
    emitted,
)
from gradloom.host.program.assembler import Shift
from gradloom.host.program.token_check import MAXIMUM, waits_in_queue
from gradloom.models.network import INPUT, Layer, Network

__all__ = ["ProgramBuilder", "shifts"]

_RUN_CYCLES = 128
"""Cycles of a command of the A-Core that its preparation does not outweigh, about."""
_ACORE_CYCLES = 600
"""Cycles of the A-Core in a piece of work, about: not so long that the array's results wait behind it."""


def shifts(**sums: tuple[int, Sequence[int], Sequence[int]]) -> tuple[Shift, ...]:
    """Shift list from ``SHi = (constant, tensors added, tensors subtracted)``."""
    found: list[Shift] = []
    for name, (constant, plus, minus) in sums.items():
        terms = [(tid, 0) for tid in plus] + [(tid, 1) for tid in minus] or [(0, 0)]
        for place, (tid, negative) in enumerate(terms):
            found.append(Shift(int(name[2:]), tid, constant if place == 0 else 0, negative, int(place == 0)))
    return tuple(found)


class ProgramBuilder(Transfers):
    """State of one compilation: network, machine, knobs, and what is under way.

    Attributes
    ----------
    may_interleave_wgrad : callable
        Whether the pieces of another work may come between the commands of a convolution's tile.
    last_layers, turn : tuple
        Layers that take one range of images after the other in the forward and the backward pass, and these ranges.
    beside_forward : :class:`bool`
        Whether the parameter buffer holds the sums of the last layers' backward pass beside what the forward pass takes.
    sums : :class:`~gradloom.host.compilation.sums.PsumAllocator`
        Who has which half of them.
    beside_sets : :class:`str`
        The first layer, if its tiles come between those of sets of the next one.
    by_sets : set of (layer, backward)
        Convolutions whose tiles come in sets.
    late_sets : :class:`int`
        Parameter sets that wait for nothing but their update.
    lowered : :class:`~gradloom.host.dram.im2col.Lowered`
        How the network became this one.
    knobs, search_space : :class:`~gradloom.host.knobs.Knobs`, :class:`~gradloom.host.knobs.SearchSpace`
        What has been chosen, and what there is to choose from.
    """

    def __init__(
        self,
        network: Network,
        config: Config,
        memory: MemoryMap,
        *,
        batch: int,
        training: bool,
        knobs: Knobs = DEFAULT_KNOBS,
        lowered: Lowered | None = None,
    ) -> None:
        self.lowered = lowered or Lowered(network)
        recorder = Recorder(config, MAXIMUM - waits_in_queue(config.queue_words), staged=knobs.subtile_beats > 0)
        super().__init__(config, memory, recorder)
        self.network, self.knobs = network, knobs
        self.search_space = SearchSpace(deferrable=[layer.name for layer in network.weighted if layer.input != INPUT])
        self.batch, self.training = batch, training
        self.images = (0, batch)
        self.late_sets = 0
        self.dependences = Dependences()
        self.may_interleave_wgrad: Callable[[], bool] = lambda: False
        self.last_layers: tuple[Layer, ...] = ()
        self.beside_forward = True
        self.turn: tuple[tuple[int, int], ...] = ()
        self.sums = PsumAllocator(config.psum_depth)
        self._set_region = RingAllocator(config.ibuf_depth)
        self.by_sets: set[tuple[str, bool]] = set()
        self.beside_sets = ""
        self._gate = OPEN
        self._seeded: set[int] = set()
        self.hyperparameters_due = False
        """Whether the step's hyperparameters are still to be fetched."""
        self._first_tag: int | None = None

    def begin_step(
        self,
        may_interleave_wgrad: Callable[[], bool],
        add: Callable[[Iterator[Piece]], None],
        seeded: set[int],
    ) -> None:
        """Nothing is on chip, and no seed is there but of the tensors ``seeded``.

        ``may_interleave_wgrad``, ``add``: of the list scheduler that orders the step's works.
        """
        self.may_interleave_wgrad, self._seeded = may_interleave_wgrad, set(seeded)
        self._add = add
        self.sums = PsumAllocator(self.config.psum_depth)
        self.weights = CachedRing(self.config.wbuf_depth)
        self._first_tag = None
        self.hyperparameters_due = False
        self.dependences = Dependences()

    def tid(self, layer: str, kind: int) -> int:
        return 8 * self.network.index(layer) + kind

    def planned(self, tag: int, work: Iterator[Piece]) -> Iterator[Piece]:
        """The same work, all of whose commands are made now, with a tag; only their addresses on chip are found when they come."""
        tasks = self._made(tag, work)
        self.dependences.add(tasks)
        return emitted(tasks, self)

    def _made(self, tag: int, work: Iterator[Piece]) -> list[Task]:
        """The tasks of a work."""
        with self._collecting(tag) as collector:
            tasks = collector.tasks(work)
        if self._gate != OPEN:
            for task in tasks:
                if task.piece.lane != BoundEngine.LOAD:
                    task.piece = task.piece._replace(gate=self._gate | task.piece.gate)
        return tasks

    @contextlib.contextmanager
    def gated(self, gate: Gate) -> Iterator[None]:
        """While this context is open, all tasks that are made have a gate beside their own, but those that only load."""
        self._gate = gate
        try:
            yield
        finally:
            self._gate = OPEN

    @contextlib.contextmanager
    def _collecting(self, tag: int) -> Iterator[Collector]:
        """While this context is open, what is emitted and taken is put into tasks."""
        outer, self.collector = self.collector, Collector(self.rings, self.pools, tag, open=True)
        try:
            yield self.collector
        finally:
            self.collector = outer

    def branch(self, make: Callable[[], None]) -> tuple[Step, ...]:
        """What ``make`` emits and takes, as steps that may be done or not."""
        with self._collecting(self.tag) as collector:
            make()
            return collector.steps()

    def if_room(self, name: str, count: int, make: Callable[[], None]) -> Callable[[], bool]:
        """What ``make`` emits and takes comes if a pool has room when the task is emitted; the result says whether it did."""
        found, pool, steps = list[bool](), self.pools[name], self.branch(make)

        def try_it() -> None:
            found.append(pool.find(count) is not None)
            for step in steps if found[-1] else ():
                step.perform(self)

        self.call(try_it, steps)
        return lambda: found[-1]

    def call(self, action: Callable[[], None], steps: tuple[Step, ...] = (), uses: Uses | None = None) -> None:
        """Do something when the task is emitted that is being made; ``steps``, ``uses``: what that may do, and reads and writes."""
        self.collector.add(Call(action, self.tag, steps, uses or Uses()))

    def take_sums(self, words: int | None = None, base: int = 0,
                  beside: Callable[[], PsumRegion | None] = lambda: None) -> PlannedSums:
        """Partial sums of a tile (:meth:`PsumAllocator.take`), if possible ``beside`` those of others."""
        sums = PlannedSums(self.sums.depth if words is None else words)
        self.collector.add(TakeSums(sums, lambda: beside() or self.sums.take(words, base)))
        return sums

    def channel(self, dest: Dest, *, shared: bool, most: int | None = None) -> int | Way:
        """Of some loads (:meth:`~gradloom.host.order.synchronize.Recorder.way`); the first one chooses it when it is emitted."""
        return Way(dest, most) if shared else 0

    @property
    def fine_grained(self) -> bool:
        """Whether what the A-Core does with a tile is a work of its own, so that it takes turns with others piece by piece."""
        return self.knobs.subtile_beats > 0

    def sweep(self, planned: TileSums, sweeps: Callable[[], Iterator[Piece]],
              otherwise: Callable[[], Iterator[Piece]] | None = None, chosen: Callable[[], bool] = lambda: True) -> None:
        """What the A-Core does with a tile: behind its last command, or as a work of its own, which may be another one
        (``otherwise``) unless the first is ``chosen`` when that command has been emitted."""
        if not self.fine_grained:
            for _ in sweeps():
                pass
            return
        first = self._made(self.tag, sweeps())
        self.collector.add(Start(first, self._made(self.tag, otherwise()) if otherwise else (), chosen))
        # The last one of either kind ends them both.
        self.call(lambda: self.sums.note(planned.known(), first[-1]))

    def later(self, work: Iterator[Piece]) -> None:
        """Add a work of the A-Core's own when the task is emitted that is being made."""
        self.collector.add(Start(self._made(self.tag, work)))

    def start(self, tasks: Sequence[Task]) -> None:
        """Emit tasks one after the other from now on, beside all others."""
        self._add(emitted(tasks, self))

    def set_region(self, start: Address, room: int, step: int) -> Region:
        """Addresses of the input buffer for the chunks of a set of tiles, ``step`` for each input group. Where the latest set had
        the same ones its last chunk, which is the last one in use, lies behind the first that are taken now."""
        region = Region(room)

        def begin() -> None:
            if (self._set_region.first, self._set_region.size) != (int(start), room):
                self._set_region = RingAllocator(room, first=int(start))
            self._set_region.align(step)
            region.ring = self._set_region

        self.call(begin)
        return region

    def region(self, layer: str, name: str, images: tuple[int, int] | None = None, groups: tuple[int, int] | None = None) -> Access:
        """A tensor in DRAM, or its part of some images and channel groups (of weights: output and input groups)."""
        tensor = self.memory[layer, name]
        return tensor_access(tensor.space, (images or (0, tensor.outer), groups or (0, tensor.inner)))

    def ranges(self, images: tuple[int, int], limit: int, cycles: int) -> list[tuple[int, int]]:
        """Images of the A-Core's pieces of work, at most ``limit`` each; ``cycles`` for one image."""
        return equal_ranges(*images, min(limit, max(1, _ACORE_CYCLES // cycles)))

    def sweeps(
        self,
        groups: int,
        limit: int,
        cycles: int,
        *,
        gate: Callable[[tuple[int, int], tuple[int, int]], Gate] = lambda *_: OPEN,
        prepared: int = 0,
        chosen: range | None = None,
    ) -> Iterator[tuple[Piece, tuple[int, int], range]]:
        """Planes of all images as the A-Core's pieces of work: the piece, its images and channel groups.

        Parameters
        ----------
        groups : channel groups
        limit : images at a time, at most
        cycles : for a plane
        gate : of some images and channel groups
        prepared : cycles that its scalars take beside
        """
        for images in equal_ranges(*self.images, min(limit, max(1, _ACORE_CYCLES // (groups * cycles), _RUN_CYCLES // cycles))):
            each = (images[1] - images[0]) * max(cycles, prepared)
            size = max(1, _ACORE_CYCLES // each)
            every = chosen or range(groups)
            for first in range(every.start, every.stop, size):
                some = range(first, min(first + size, every.stop))
                yield Piece(BoundEngine.ACORE, len(some) * each, gate(images, (some.start, some.stop))), images, some

    def chosen(self, key: str, fitting: list[int], usual: int) -> int:
        """Images of a tile: the usual number, or another one that has been chosen and fits."""
        if fitting:
            self.search_space.tiles[key] = fitting
        return found if (found := self.knobs.tiles.get(key)) in fitting else usual

    def check_choices(self) -> None:
        """:exc:`~gradloom.host.compilation.fit.ScheduleError` if something has been chosen that there is not."""
        for key, images in self.knobs.tiles.items():
            if images not in self.search_space.tiles.get(key, ()):
                raise ScheduleError(f"schedule: {key!r} cannot take {images} images at a time: make it anew with gradloom tune")
        for name in sorted(set(self.knobs.deferred_layers) - set(self.search_space.deferrable)):
            raise ScheduleError(f"schedule: there are no gradients of {name!r} to carry over: make it anew with gradloom tune")
        for key in self.knobs.order.keys() - set(self.search_space.works):
            raise ScheduleError(f"schedule: there is no work {key!r}: make it anew with gradloom tune")

    def groups(self, channels: int) -> int:
        return ceil_div(channels, self.config.group)

    def refuse(self, layer: str, needs: Needs) -> None:
        """:exc:`~gradloom.host.compilation.fit.ScheduleError` if a need is more than there is."""
        refuse(self.config, layer, needs)

    def run(
        self,
        program: str,
        fields: Fields,
        tail: tuple[Shift, ...],
        *,
        reads: Sequence[tuple[str | Later, Number, int]] = (),
        writes: Sequence[tuple[str | Later, Number, int]] = (),
        again: bool = False,
    ) -> None:
        """RUN a microprogram; accesses are (memory, first address, count).

        ``again``: as for :meth:`~gradloom.host.order.synchronize.Recorder.emit`.
        """
        self.put(
            Opcode.RUN,
            {"uprog": microprograms.TABLE[program], "f1": 8, "f2": 8, **fields},
            reads=[PlannedAccess(name, ((addr, addr + count),)) for name, addr, count in reads if count],
            writes=[PlannedAccess(name, ((addr, addr + count),)) for name, addr, count in writes if count],
            tail=tail,
            again=again,
        )

    def emit(self, command: Command, fields: dict[str, Any], reads: Sequence[Access], writes: Sequence[Access]) -> None:
        """Emit a command, all of it found, and a RUN behind the SEED of a tensor that it rounds first.

        The first RUN that is no part of the first layer's forward pass comes behind LDHYP. Nothing before it uses hyperparameters,
        and by then the engines have enough to do while the Sequencer reads them and then the program anew.
        """
        if command.opcode == Opcode.RUN:
            self._prepare(command.tag, fields)
        super().emit(command, fields, reads, writes)

    def _prepare(self, tag: int, fields: dict[str, Any]) -> None:
        """What the Sequencer does before a RUN."""
        recorder = self.recorder
        recorder.tag = tag
        if self._first_tag is None:
            self._first_tag = tag
        if self.hyperparameters_due and tag != self._first_tag:
            self.hyperparameters_due = False
            recorder.aside(Opcode.LDHYP, breg=BASE["hyper"])
        for number in (1, 2):
            tid = fields.get(f"t{number}", 0)
            if fields.get(f"r{number}") and tid not in self._seeded:
                self._seeded.add(tid)
                recorder.aside(Opcode.SEED, tid=tid)
