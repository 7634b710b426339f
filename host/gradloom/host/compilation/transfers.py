"""Where operands and results lie on chip, and the commands that bring them from DRAM and back."""

from collections.abc import Iterable, Sequence
from typing import Any

from gradloom.contracts.config import PE_ROWS, Config
from gradloom.contracts.isa import Dest, Opcode, Source
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.dram.layout import ceil_div
from gradloom.host.dram.memory_map import MemoryMap, Region
from gradloom.host.order.accesses import Access, Ranges, tensor_access
from gradloom.host.order.allocators import CachedRing, FreeListAllocator, RingAllocator
from gradloom.host.order.synchronize import Recorder
from gradloom.host.order.tasks import (
    Address,
    Collector,
    Command,
    Fields,
    Number,
    PlannedAccess,
    PlannedPool,
    PlannedRing,
    Way,
)
from gradloom.host.program.assembler import Shift
from gradloom.models.network import INPUT

__all__ = ["BASE", "PARAMETER_ENTRIES", "Transfers"]

PARAMETER_ENTRIES = 6
"""Entries of a parameter set: parameters and sums of a channel group."""
BASE = {"memory": 0, "input": 1, "labels": 2, "logits": 3, "hyper": 4}
"""Base registers: start of the memory, this step's inputs, labels and logits, hyperparameter table."""
_RECIPROCALS = 128
"""Entries that the reciprocals take turns in, if they are not more than half of the buffer."""
_BASE_OF = {(INPUT, "z"): BASE["input"], (INPUT, "labels"): BASE["labels"]}
_ENTRY_BEATS = 4


class Transfers:
    """Loads and stores of one compilation.

    Attributes
    ----------
    rings : dict
        Addresses of the A-Core's stream buffers, of reciprocals and of logits, handed out round and round.
    pools : dict
        Addresses of the array's buffers and of parameter sets, which stay taken until they are given back.
    weights : :class:`~gradloom.host.order.allocators.CachedRing`
        Addresses of the weight buffer.
    parameter_sets : :class:`int`
        Parameter sets that the parameter buffer holds.

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If the parameter buffer is too small for any network.
    """

    def __init__(self, config: Config, memory: MemoryMap, recorder: Recorder) -> None:
        self.config, self.memory, self.recorder = config, memory, recorder
        depth = config.abuf_depth
        # The A-Core's first pass and its lanes read even and odd addresses of the streams in turns: all begin at even ones. So do
        # outputs A, of which an update writes two at once.
        self.rings = {
            "AA": RingAllocator(depth, grain=2, name="AA"),
            "AB": RingAllocator(depth, grain=2, name="AB"),
            "AM": RingAllocator(config.mbuf_depth, name="AM"),
            "OA": RingAllocator(depth, grain=2),
            "OB": RingAllocator(depth),
            "OM": RingAllocator(config.mbuf_depth),
            "LOGIT": RingAllocator(config.logit_depth),
        }
        self.weights = CachedRing(config.wbuf_depth)
        sets = max(2, (config.pbuf_depth - min(_RECIPROCALS, config.pbuf_depth // 2)) // PARAMETER_ENTRIES)
        if config.pbuf_depth < PARAMETER_ENTRIES * sets + 2:
            raise ScheduleError(
                f"configuration {config.name!r} has a pbuf_depth of {config.pbuf_depth}: "
                f"raise it to {PARAMETER_ENTRIES * sets + 2}"
            )
        self.parameter_sets = sets
        self.pools = {
            name: FreeListAllocator(name, size)
            for name, size in (("IBUF", config.ibuf_depth), ("EBUF", config.ebuf_depth), ("PARAMETERS", PARAMETER_ENTRIES * sets))
        }
        self.rings["PBUF"] = RingAllocator(config.pbuf_depth - PARAMETER_ENTRIES * sets, first=PARAMETER_ENTRIES * sets)
        self.collector = Collector(self.rings, self.pools)
        self._fetched: dict[tuple[Dest, str, tuple[int, int], int, tuple[int, int] | None], Address] = {}
        """Addresses of planes that have been loaded ahead."""

    @property
    def ring(self) -> dict[str, PlannedRing]:
        """Rings for the commands of the task that is being made."""
        return self.collector.rings

    @property
    def pool(self) -> dict[str, PlannedPool]:
        """Pools for the commands of the task that is being made."""
        return self.collector.pools

    @property
    def tag(self) -> int:
        """Of what is emitted."""
        return self.collector.tag if self.collector.open else self.recorder.tag

    def put(self, opcode: Opcode, fields: Fields, *, reads: Iterable[Access | PlannedAccess],
            writes: Iterable[Access | PlannedAccess], tail: tuple[Shift, ...] = (), again: bool = False) -> None:
        """A command of the task that is being made, or, of one that is being emitted, now. ``tail``, ``again``: as for
        :meth:`~gradloom.host.order.synchronize.Recorder.emit`."""
        command = Command(opcode, fields, tuple(reads), tuple(writes), tail, again, self.tag)
        if self.collector.open:
            self.collector.add(command)
        else:
            command.perform(self)

    def emit(self, command: Command, fields: dict[str, Any], reads: Sequence[Access], writes: Sequence[Access]) -> None:
        """Emit a command, all of whose fields and accesses have been found."""
        self.recorder.tag = command.tag
        self.recorder.emit(command.opcode, fields, reads=reads, writes=writes, tail=command.tail, again=command.again)

    def way(self, dest: Dest, *, shared: bool, most: int | None = None) -> int:
        """As :meth:`gradloom.host.order.synchronize.Recorder.way`."""
        return self.recorder.way(dest, shared=shared, most=most)

    def set_tag(self, tag: int) -> None:
        """Give a tag to what is emitted from now on."""
        self.recorder.tag = tag

    def _where(self, region: Region) -> tuple[int, int]:
        """Base register and offset."""
        if region.kind == "logits":
            return BASE["logits"], 0
        breg = _BASE_OF.get((region.layer, region.name))
        return (BASE["memory"], region.address) if breg is None else (breg, 0)

    def load(
        self,
        dest: Dest,
        region: Region,
        boxes: Sequence[Ranges],
        offset: int,
        banks: tuple[int, int] = (0, PE_ROWS),
        /,
        *,
        n0: int,
        addr: Number,
        length: int,
        **fields: int | Way,
    ) -> None:
        """LOAD the parts ``boxes`` of a tensor to ``length`` addresses.

        Parameters
        ----------
        banks : of each WPU's row banks, in the input and the error buffer
        n0 : beats of a run
        fields : of LOAD: the loops of more runs than one, and how its beats are placed
        """
        # Addresses of XIN and XOUT wrap: whole, as no other program part uses them.
        place: tuple[tuple[Number, Number], ...] = ((0, self.config.export_depth) if dest == Dest.XIN else (addr, addr + length),)
        if dest in (Dest.IBUF, Dest.EBUF):
            place = (*place, banks)
        self.put(
            Opcode.LOAD,
            {"dest": int(dest), "n0": n0, "addr0": addr, **self._from(region, offset), **fields},
            reads=[tensor_access(region.space, region.part(box)) for box in boxes],
            writes=[PlannedAccess(dest.name, place)],
        )

    def store(
        self, src: Source, region: Region, boxes: Sequence[Ranges], offset: int, *, n0: int, addr: Number, length: int, **loops: int
    ) -> None:
        """STORE ``length`` addresses to the parts ``boxes`` of a tensor, a run of ``n0`` beats unless ``loops`` say more."""
        place: tuple[Number, Number] = (0, self.config.export_depth) if src == Source.XOUT else (addr, addr + length)
        self.put(
            Opcode.STORE,
            {"src": int(src), "n0": n0, "addr0": addr, **self._from(region, offset), **loops},
            reads=[PlannedAccess(src.name, (place,))],
            writes=[tensor_access(region.space, region.part(box)) for box in boxes],
        )

    def _from(self, region: Region, offset: int) -> dict[str, int]:
        """Fields of a move from, or to, one run at ``offset`` of a tensor."""
        breg, start = self._where(region)
        return {"breg": breg, "offset": start + offset, "n1": 1, "stride1": 0, "n2": 1, "stride2": 0}

    def _planes(
        self, memory: Dest | Source, region: Region, images: tuple[int, int], group: int, rows: tuple[int, int] | None
    ) -> tuple[list[Ranges], int, dict[str, int]]:
        """Planes of one channel group, or some of their rows, as :meth:`load` and :meth:`store` take them: the parts of the tensor,
        the byte offset of the first one, and the runs with the addresses that they take in a memory."""
        first, beats = region.rows(*rows) if rows else (0, region.unit // self.config.beat_bytes)
        # By name: the same number is another memory for a load than for a store.
        count, entries = images[1] - images[0], memory.name == Dest.PBUF.name
        boxes = [(images, (group, group + 1), *((rows,) if rows else ()))]
        length = count * (beats // _ENTRY_BEATS if entries else beats)
        runs = {"n0": beats, "n1": count, "stride1": region.outer_bytes, "length": length}
        return boxes, region.at(images[0], group) + first * self.config.beat_bytes, runs

    def load_planes(
        self,
        dest: Dest,
        region: Region,
        images: tuple[int, int],
        group: int,
        rows: tuple[int, int] | None = None,
        place: Address | None = None,
    ) -> Address:
        """Planes (or entries) of one channel group, or some of their rows, image after image, to the next addresses of the ring,
        or to those from ``place`` on. Returns the first address."""
        if (found := self._fetched.pop((dest, region.space, images, group, rows), None)) is not None:
            return found
        boxes, offset, runs = self._planes(dest, region, images, group, rows)
        addr = self.ring[dest.name].take(runs["length"]) if place is None else place
        self.load(dest, region, boxes, offset, addr=addr, **runs)
        return addr

    def fetch_planes(
        self, dest: Dest, region: Region, images: tuple[int, int], group: int, parts: Sequence[tuple[int, int] | None]
    ) -> None:
        """Load rows of planes ahead of the works that will ask for them (:meth:`load_planes`)."""
        for rows in parts:
            place = self.load_planes(dest, region, images, group, rows)
            self._fetched[dest, region.space, images, group, rows] = place

    def store_planes(
        self,
        src: Source,
        region: Region,
        images: tuple[int, int],
        group: int,
        addr: Number,
        rows: tuple[int, int] | None = None,
        every: int = 1,
    ) -> None:
        """Inverse of :meth:`load_planes`. ``every`` 2: what is stored are the even rows of the tensor's planes, or ``rows`` of
        these."""
        if every > 1:
            self._store_rows(src, region, images, group, addr, rows or (0, ceil_div(region.shape[2], every)), every)
            return
        boxes, offset, runs = self._planes(src, region, images, group, rows)
        self.store(src, region, boxes, offset, addr=addr, **runs)

    def _store_rows(
        self, src: Source, region: Region, images: tuple[int, int], group: int, addr: Number, rows: tuple[int, int], every: int
    ) -> None:
        first, count = every * rows[0], rows[1] - rows[0]
        start, beats = region.rows(first, first + 1)
        self.store(
            src,
            region,
            [(images, (group, group + 1), (first, every * (rows[1] - 1) + 1))],
            region.at(images[0], group) + start * self.config.beat_bytes,
            n0=beats,
            n1=count,
            stride1=every * beats * self.config.beat_bytes,
            n2=images[1] - images[0],
            stride2=region.outer_bytes,
            addr=addr,
            length=(images[1] - images[0]) * count * beats,
        )

    def load_parameters(self, layer: str, group: int, *, sums: Region | None = None, entries: int = PARAMETER_ENTRIES,
                        place: Address | None = None) -> Address:
        """Parameters of a channel group (a bias in beta's place) and, if ``sums`` is given, its sums.

        Returns the first of ``entries``: those at ``place``, or new ones, which are to be given back to the pool.
        """
        region = self.memory[layer, "parameters"]
        count = region.shape[1]
        start = self.pool["PARAMETERS"].take(entries) if place is None else place
        first = start if count == 3 else start + 1
        self.load(
            Dest.PBUF,
            region,
            [((group, group + 1), (0, 1))],
            region.at(group),
            n0=_ENTRY_BEATS * count,
            addr=first,
            length=count,
        )
        if sums is not None:
            row = group if sums.kind == "sums" else 0
            self.load(
                Dest.PBUF,
                sums,
                [((row, row + 1), (0, 1))],
                sums.at(row),
                n0=_ENTRY_BEATS * 3,
                addr=start + 3,
                length=3,
            )
        return start

