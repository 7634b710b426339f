"""What all phases share: buffers, fit, and commands with their accesses."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gradloom.host.assembler import Shift
from gradloom.host.choices import BY_RULES, Choices, Offer
from gradloom.host.im2col import Lowered
from gradloom.host.layer_sizes import Plane
from gradloom.host.layout import ceil_div, equal_ranges
from gradloom.host.memory import MemoryMap, Region
from gradloom.host.pacing import Lane, Part, Piece
from gradloom.host.places import KeptRing, Pool, Ring
from gradloom.host.sums import PartialSums, Sums
from gradloom.host.token_check import MAXIMUM, waits_in_queue
from gradloom.host.tokens import Access, Box, Recorder, tensor_access
from gradloom.models.network import INPUT, Layer, Network
from gradloom.rtl import microprograms
from gradloom.rtl.config import PE_ROWS, Config
from gradloom.rtl.isa import Dest, Opcode, Source

__all__ = ["BASE", "PARAMETER_ENTRIES", "STREAM_SHARES", "Builder", "Needs", "ScheduleError", "shifts"]

PARAMETER_ENTRIES = 6
"""Entries of a parameter set: parameters and sums of a channel group."""
BASE = {"memory": 0, "input": 1, "labels": 2, "logits": 3, "hyper": 4}
"""Base registers: start of the memory, this step's inputs, labels and logits, hyperparameter table."""
_RUN_CYCLES = 128
"""Cycles of a command of the A-Core that its preparation does not outweigh, about."""
_RECIPROCALS = 128
"""Entries that the reciprocals take turns in, if they are not more than half of the buffer."""
_ACORE_CYCLES = 600
"""Cycles of the A-Core in a piece of work, about: not so long that the array's results wait behind it."""
_Step = TypeVar("_Step")
_BASE_OF = {(INPUT, "z"): BASE["input"], (INPUT, "labels"): BASE["labels"]}
_ENTRY_BEATS = 4
STREAM_SHARES = 4
"""Commands of the A-Core whose planes a stream buffer holds, so that loads run ahead and stores lag behind."""
Needs = tuple[tuple[str, str, int, int], ...]
"""What one image or plane takes: a text with {} for the number, the configuration's field, the number, how many there are."""


class ScheduleError(ValueError):
    """A network that does not fit the machine; the message names layer, resource and sizes."""


def shifts(**sums: tuple[int, Sequence[int], Sequence[int]]) -> tuple[Shift, ...]:
    """Shift list from ``SHi = (constant, tensors added, tensors subtracted)``."""
    found: list[Shift] = []
    for name, (constant, plus, minus) in sums.items():
        terms = [(tid, 0) for tid in plus] + [(tid, 1) for tid in minus] or [(0, 0)]
        for place, (tid, negative) in enumerate(terms):
            found.append(Shift(int(name[2:]), tid, constant if place == 0 else 0, negative, int(place == 0)))
    return tuple(found)


class Builder:
    """State of one compilation: network, machine, memory, recorder, on-chip rings.

    Attributes
    ----------
    between : callable
        Whether the pieces of another work may come between the commands of a convolution's tile.
    last_layers, turn : tuple
        Layers that take one range of images after the other in the forward and the backward pass, and these ranges.
    sums : :class:`~gradloom.host.sums.PartialSums`
        Who has which half of them.
    beside_sets : :class:`str`
        The first layer, if its tiles come between those of sets of the next one.
    by_sets : set of (layer, backward)
        Convolutions whose tiles come in sets.
    late_sets : :class:`int`
        Parameter sets that wait for nothing but their update.
    lowered : :class:`~gradloom.host.im2col.Lowered`
        How the network became this one.
    choices, offer : :class:`~gradloom.host.choices.Choices`, :class:`~gradloom.host.choices.Offer`
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
        choices: Choices = BY_RULES,
        lowered: Lowered | None = None,
    ) -> None:
        self.lowered = lowered or Lowered(network)
        self.network, self.config, self.memory, self.choices = network, config, memory, choices
        self.offer = Offer(carriable=[layer.name for layer in network.weighted if layer.input != INPUT])
        self.batch, self.training = batch, training
        self.images = (0, batch)
        self.recorder = Recorder(config, MAXIMUM - waits_in_queue(config.queue_words), staged=choices.cut > 0)
        depth = config.abuf_depth
        # The A-Core's first pass and its lanes read even and odd addresses of the streams in turns: all begin at even ones.
        self.ring = {name: Ring(depth, grain=2) for name in ("AA", "AB")} | {
            name: Ring(size)
            for name, size in (
                ("AM", config.mbuf_depth),
                ("OA", depth),
                ("OB", depth),
                ("OM", config.mbuf_depth),
                ("LOGIT", config.logit_depth),
            )
        }
        self.weights = KeptRing(config.wbuf_depth)
        sets = max(2, (config.pbuf_depth - min(_RECIPROCALS, config.pbuf_depth // 2)) // PARAMETER_ENTRIES)
        if config.pbuf_depth < PARAMETER_ENTRIES * sets + 2:
            raise ScheduleError(
                f"configuration {config.name!r} has a pbuf_depth of {config.pbuf_depth}: "
                f"raise it to {PARAMETER_ENTRIES * sets + 2}"
            )
        self.parameter_sets = sets
        self.late_sets = 0
        self.pool = {
            name: Pool(name, size)
            for name, size in (("IBUF", config.ibuf_depth), ("EBUF", config.ebuf_depth), ("PARAMETERS", PARAMETER_ENTRIES * sets))
        }
        self.ring["PBUF"] = Ring(config.pbuf_depth - PARAMETER_ENTRIES * sets, first=PARAMETER_ENTRIES * sets)
        self.between: Callable[[], bool] = lambda: False
        self.last_layers: tuple[Layer, ...] = ()
        self.turn: tuple[tuple[int, int], ...] = ()
        self.sums = PartialSums(config.psum_depth)
        self._set_region = Ring(config.ibuf_depth)
        self.by_sets: set[tuple[str, bool]] = set()
        self.beside_sets = ""
        self._works = 0
        self._fetched: dict[tuple[Dest, str, tuple[int, int], int, tuple[int, int] | None], int] = {}
        """Addresses of planes that have been loaded ahead."""
        self._seeded: set[int] = set()
        self.hyperparameters_due = False
        """Whether the step's hyperparameters are still to be fetched."""
        self._first_tag: int | None = None

    def begin_step(
        self,
        between: Callable[[], bool],
        add: Callable[[Iterator[Piece]], None],
        give: Callable[[Part, int], None],
        seeded: set[int],
    ) -> None:
        """Nothing is on chip, and no seed is there but of the tensors ``seeded``.

        ``between``, ``add``, ``give``: of the pacer that orders the step's works.
        """
        self.between, self._seeded = between, set(seeded)
        self._add, self._give = add, give
        self.sums = PartialSums(self.config.psum_depth)
        self.weights = KeptRing(self.config.wbuf_depth)
        self._first_tag = None
        self.hyperparameters_due = False

    def tid(self, layer: str, kind: int) -> int:
        return 8 * self.network.index(layer) + kind

    def tagged(self, tag: int, steps: Iterator[_Step]) -> Iterator[_Step]:
        """The same steps; what each emits gets ``tag``."""
        while True:
            self.recorder.tag = tag
            try:
                step = next(steps)
            except StopIteration:
                return
            yield step

    @property
    def apart(self) -> bool:
        """Whether what the A-Core does with a tile is a work of its own, so that it takes turns with others piece by piece."""
        return self.choices.cut > 0

    def sweep(self, sums: Sums, sweeps: Callable[[Part], Iterator[Piece]]) -> None:
        """What the A-Core does with a tile whose last command has been emitted: now, or as a work of its own.

        ``sweeps`` takes what says that the sums are there; its last piece gives what says that they have been read.
        """
        if not self.apart:
            for _ in sweeps(Part("", (0, 0))):
                pass
            return
        place = Access(f"PSUM{sums.half}", ((sums.base, sums.base + sums.words),))
        read = self.later(place, lambda made, read: self._closed(sweeps(made), read))
        self.sums.note(sums, read)

    def later(self, access: Access, make: Callable[[Part, Part], Iterator[Piece]]) -> Part:
        """Add a work of the A-Core's own that reads a part of an on-chip memory. Returns what says that it is done.

        ``make`` takes what says that the memory has been written, and what its last piece gives.
        """
        made, done = self.step()(0), self.step()(0)
        self._give(made, self.recorder.when(access))
        self._add(self.tagged(self.recorder.tag, make(made, done)))
        return done

    @staticmethod
    def _closed(work: Iterator[Piece], read: Part) -> Iterator[Piece]:
        yield from work
        # Comes at once, whatever the A-Core has to do.
        yield Piece(Lane.LOAD, 0, gives=(read,))

    def row_part(self, layer: str, name: str, image: int, rows: tuple[int, int], group: int) -> Part:
        """Some rows of one plane of a tensor, as pieces of work name them."""
        return Part(f"{self.memory[layer, name].space} rows of {image}", rows, (group, group + 1))

    def every_row(self, layer: str, name: str, images: tuple[int, int], groups: tuple[int, int]) -> tuple[Part, ...]:
        """All rows of some planes one by one, if they are asked for."""
        rows = (0, self.memory[layer, name].shape[2])
        each = itertools.product(range(*images), range(*groups)) if self.apart else ()
        return tuple(self.row_part(layer, name, image, rows, group) for image, group in each)

    def set_region(self, start: int, room: int, step: int) -> Ring:
        """Addresses of the input buffer for the chunks of a set of tiles, ``step`` for each input group. Where the latest set had
        the same ones its last chunk, which is the last one in use, lies behind the first that are taken now."""
        if (self._set_region.first, self._set_region.size) != (start, room):
            self._set_region = Ring(room, first=start)
        self._set_region.align(step)
        return self._set_region

    def step(self) -> Callable[[int], Part]:
        """Names for what one work has done for another one, by numbers."""
        self._works += 1
        name = f"work {self._works}"
        return lambda number: Part(name, (number, number + 1))

    def part(self, layer: str, name: str, images: tuple[int, int], groups: tuple[int, int] | None = None) -> Part:
        """Some images of a tensor, all channel groups or some, as pieces of work name them."""
        region = self.memory[layer, name]
        return Part(region.space, images, groups or (0, region.inner))

    def ranges(self, images: tuple[int, int], limit: int, cycles: int) -> list[tuple[int, int]]:
        """Images of the A-Core's pieces of work, at most ``limit`` each; ``cycles`` for one image."""
        return equal_ranges(*images, min(limit, max(1, _ACORE_CYCLES // cycles)))

    def sweeps(
        self,
        groups: int,
        limit: int,
        cycles: int,
        needs: Callable[[tuple[int, int], tuple[int, int]], tuple[Part, ...]],
        gives: Callable[[tuple[int, int], tuple[int, int]], tuple[Part, ...]],
        prepared: int = 0,
        chosen: range | None = None,
    ) -> Iterator[tuple[Piece, tuple[int, int], range]]:
        """Planes of all images as the A-Core's pieces of work: the piece, its images and channel groups.

        Parameters
        ----------
        groups : channel groups
        limit : images at a time, at most
        cycles : for a plane
        needs, gives : of some images and channel groups
        prepared : cycles that its scalars take beside
        """
        for images in equal_ranges(*self.images, min(limit, max(1, _ACORE_CYCLES // (groups * cycles), _RUN_CYCLES // cycles))):
            each = (images[1] - images[0]) * max(cycles, prepared)
            size = max(1, _ACORE_CYCLES // each)
            every = chosen or range(groups)
            for first in range(every.start, every.stop, size):
                some = range(first, min(first + size, every.stop))
                part = some.start, some.stop
                yield Piece(Lane.ACORE, len(some) * each, needs(images, part), gives(images, part)), images, some

    def chosen(self, key: str, fitting: list[int], usual: int) -> int:
        """Images of a tile: the usual number, or another one that has been chosen and fits."""
        if fitting:
            self.offer.tiles[key] = fitting
        return found if (found := self.choices.tiles.get(key)) in fitting else usual

    def check_choices(self) -> None:
        """:exc:`ScheduleError` if something has been chosen that there is not."""
        for key, images in self.choices.tiles.items():
            if images not in self.offer.tiles.get(key, ()):
                raise ScheduleError(f"schedule: {key!r} cannot take {images} images at a time: make it anew with gradloom tune")
        for name in sorted(set(self.choices.carried) - set(self.offer.carriable)):
            raise ScheduleError(f"schedule: there are no gradients of {name!r} to carry over: make it anew with gradloom tune")
        for key in self.choices.order.keys() - set(self.offer.works):
            raise ScheduleError(f"schedule: there is no work {key!r}: make it anew with gradloom tune")

    def groups(self, channels: int) -> int:
        return ceil_div(channels, self.config.group)

    # Fit

    def planes_at_once(self, layer: str, plane: Plane, *, bits: bool = True, also: Needs = ()) -> int:
        """Planes of one command of the A-Core: as many as a quarter of every stream buffer holds, so that loads run ahead and
        stores lag behind, or one if the whole holds it.

        Parameters
        ----------
        bits : :class:`bool`
            Whether bitmaps are read or written.
        also : tuple
            Further needs of a plane.
        """
        config = self.config
        needs = (
            ("one plane takes {} beats of the A-Core's stream buffers", "abuf_depth", plane.nb, config.abuf_depth),
            (
                "one plane takes {} beats of the A-Core's bitmap buffers",
                "mbuf_depth",
                plane.bits if bits else 0,
                config.mbuf_depth,
            ),
            *also,
        )
        most = min(self.ring["PBUF"].size // 2, config.max_planes, self.images[1] - self.images[0])
        for planes in range(most, 1, -1):
            if all(unit * planes <= size // STREAM_SHARES for _, _, unit, size in needs):
                return planes
        self.refuse(layer, needs)
        return 1

    def refuse(self, layer: str, needs: Needs) -> None:
        """:exc:`ScheduleError` if a need is more than there is."""
        for what, field, unit, size in needs:
            if unit > size:
                raise ScheduleError(
                    f"layer {layer!r}: {what.format(unit)}, "
                    f"configuration {self.config.name!r} has {size} ({field}): "
                    f"raise {field} or shrink the layer"
                )

    # DRAM

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
        boxes: Sequence[Box],
        offset: int,
        banks: tuple[int, int] = (0, PE_ROWS),
        /,
        *,
        n0: int,
        n1: int = 1,
        stride1: int = 0,
        n2: int = 1,
        stride2: int = 0,
        addr: int,
        length: int,
        **fields: int,
    ) -> None:
        """LOAD ``n2 x n1 x n0`` beats of the parts ``boxes`` of a tensor to ``length`` addresses.

        ``banks``: of each WPU's row banks, in the input and the error buffer.
        """
        # Addresses of XIN and XOUT wrap: whole, as no other program part uses them.
        place: Box = ((0, self.config.export_depth) if dest == Dest.XIN else (addr, addr + length),)
        if dest in (Dest.IBUF, Dest.EBUF):
            place = (*place, banks)
        breg, start = self._where(region)
        self.recorder.emit(
            Opcode.LOAD,
            {
                "dest": int(dest),
                "breg": breg,
                "offset": start + offset,
                "n0": n0,
                "n1": n1,
                "stride1": stride1,
                "n2": n2,
                "stride2": stride2,
                "addr0": addr,
                **fields,
            },
            reads=[tensor_access(region.space, box) for box in boxes],
            writes=[Access(dest.name, place)],
        )

    def store(
        self,
        src: Source,
        region: Region,
        boxes: Sequence[Box],
        offset: int,
        *,
        n0: int,
        n1: int = 1,
        stride1: int = 0,
        n2: int = 1,
        stride2: int = 0,
        addr: int,
        length: int,
    ) -> None:
        """STORE ``n2 x n1 x n0`` beats to the parts ``boxes`` of a tensor."""
        breg, start = self._where(region)
        self.recorder.emit(
            Opcode.STORE,
            {
                "src": int(src),
                "breg": breg,
                "offset": start + offset,
                "n0": n0,
                "n1": n1,
                "stride1": stride1,
                "n2": n2,
                "stride2": stride2,
                "addr0": addr,
            },
            reads=[Access(src.name, ((0, self.config.export_depth) if src == Source.XOUT else (addr, addr + length),))],
            writes=[tensor_access(region.space, box) for box in boxes],
        )

    def holds(self, plane: Plane, *, bits: bool = True) -> bool:
        """Whether the A-Core's buffers hold a plane; else its rows are taken in parts (:mod:`gradloom.host.row_tiles`)."""
        return plane.nb <= self.config.abuf_depth and (not bits or plane.bits <= self.config.mbuf_depth)

    def _part(self, region: Region, rows: tuple[int, int] | None) -> tuple[int, int]:
        """Byte offset and beats of some rows of a plane, or of all."""
        if rows is None:
            return 0, region.unit // self.config.beat_bytes
        first, beats = region.rows(*rows)
        return first * self.config.beat_bytes, beats

    def load_planes(
        self,
        dest: Dest,
        region: Region,
        images: tuple[int, int],
        group: int,
        rows: tuple[int, int] | None = None,
        place: int | None = None,
    ) -> int:
        """Planes (or entries) of one channel group, or some of their rows, image after image, to the next addresses of the ring,
        or to those from ``place`` on. Returns the first address."""
        if (found := self._fetched.pop((dest, region.space, images, group, rows), None)) is not None:
            return found
        (offset, beats), count = self._part(region, rows), images[1] - images[0]
        size = count * (beats // _ENTRY_BEATS if dest == Dest.PBUF else beats)
        addr = self.ring[dest.name].take(size) if place is None else place
        self.load(
            dest,
            region,
            [(images, (group, group + 1), *((rows,) if rows else ()))],
            region.at(images[0], group) + offset,
            n0=beats,
            n1=count,
            stride1=region.outer_bytes,
            addr=addr,
            length=size,
        )
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
        addr: int,
        rows: tuple[int, int] | None = None,
    ) -> None:
        """Inverse of :meth:`load_planes`."""
        (offset, beats), count = self._part(region, rows), images[1] - images[0]
        size = count * (beats // _ENTRY_BEATS if src == Source.PBUF else beats)
        self.store(
            src,
            region,
            [(images, (group, group + 1), *((rows,) if rows else ()))],
            region.at(images[0], group) + offset,
            n0=beats,
            n1=count,
            stride1=region.outer_bytes,
            addr=addr,
            length=size,
        )

    # A-Core

    def load_parameters(self, layer: str, group: int, *, sums: Region | None = None, entries: int = PARAMETER_ENTRIES,
                        place: int | None = None) -> int:
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
            place = group if sums.kind == "sums" else 0
            self.load(
                Dest.PBUF,
                sums,
                [((place, place + 1), (0, 1))],
                sums.at(place),
                n0=_ENTRY_BEATS * 3,
                addr=start + 3,
                length=3,
            )
        return start

    def run(
        self,
        program: str,
        fields: dict[str, int],
        tail: tuple[Shift, ...],
        *,
        reads: Sequence[tuple[str, int, int]] = (),
        writes: Sequence[tuple[str, int, int]] = (),
    ) -> None:
        """RUN a microprogram, behind the SEED of a tensor that it rounds first; accesses are (memory, first address, count).

        The first one that is no part of the first layer's forward pass comes behind LDHYP. Nothing before it uses hyperparameters,
        and by then the engines have enough to do while the Sequencer reads them and then the program anew.
        """
        if self._first_tag is None:
            self._first_tag = self.recorder.tag
        if self.hyperparameters_due and self.recorder.tag != self._first_tag:
            self.hyperparameters_due = False
            self.recorder.aside(Opcode.LDHYP, breg=BASE["hyper"])
        for number in (1, 2):
            tid = fields.get(f"t{number}", 0)
            if fields.get(f"r{number}") and tid not in self._seeded:
                self._seeded.add(tid)
                self.recorder.aside(Opcode.SEED, tid=tid)
        self.recorder.emit(
            Opcode.RUN,
            {"uprog": microprograms.TABLE[program], "f1": 8, "f2": 8, **fields},
            tail=tail,
            reads=[Access(name, ((addr, addr + count),)) for name, addr, count in reads if count],
            writes=[Access(name, ((addr, addr + count),)) for name, addr, count in writes if count],
        )
