"""The partial sums on chip while a program is made: which half a tile takes, and what lies beside the tiles of a set.

The array writes one half while the A-Core sweeps the other one. Tiles take the halves in turns, those of a set
(:mod:`gradloom.host.tiles.shared_input_tiles`) several places of each. The tiles of a first layer may come between those of a set
of the next layer: their sums lie at the end of the half that the set has used last, which the A-Core sweeps while the set goes on
in the other.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from gradloom.host.dram.layout import ceil_div
from gradloom.host.order.accesses import Access
from gradloom.host.order.pieces import Known, Results
from gradloom.host.order.tasks import Emitter, Later, Uses

__all__ = ["HALVES", "AddedSums", "FixedSums", "NextSums", "PlannedSums", "PsumAllocator", "PsumRegion", "TakeSums", "TileSums",
           "norm_access", "port_access"]

HALVES = 2
"""Of the partial sums: tiles whose results can leave them at once."""


@dataclasses.dataclass(frozen=True)
class PsumRegion:
    """Partial sums of a tile: their half, and addresses of each bank."""

    half: int
    base: int
    words: int

    def known(self) -> "PsumRegion":
        """Themselves."""
        return self

    @property
    def read(self) -> list[tuple[str, int, int]]:
        """What the A-Core reads: the sums, through the read ports of their half."""
        return [(f"PSUM{self.half}", self.base, self.words), (f"PORT{self.half}", 0, 1)]

    @property
    def norms(self) -> tuple[str, int, int]:
        """The half's sums of magnitudes, as the A-Core reads them."""
        return f"NORM{self.half}", 0, 1

    def written(self, *, added: bool) -> list[Access]:
        """What the array writes. Where it adds to sums it reads them, and the half's read ports are not the A-Core's meanwhile."""
        ports = [port_access(self.half)] if added else []
        return [Access(f"PSUM{self.half}", ((self.base, self.base + self.words),)), *ports]


class PlannedSums:
    """Sums of ``words`` addresses, whose half and first address are found when the array begins with their tile (``found``)."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.found: PsumRegion | None = None

    def known(self) -> PsumRegion:
        """Raises :exc:`ValueError` before they have been found."""
        if self.found is None:
            raise ValueError("a command uses partial sums that no tile has made before it")
        return self.found

    @property
    def half(self) -> Later:
        return Later(self, lambda: self.known().half)

    @property
    def base(self) -> Later:
        return Later(self, lambda: self.known().base)

    @property
    def read(self) -> list[tuple[Later, Later | int, int]]:
        """As of :class:`PsumRegion`."""
        sums, port = Later(self, lambda: self.known().read[0][0]), Later(self, lambda: self.known().read[1][0])
        return [(sums, self.base, self.words), (port, 0, 1)]

    @property
    def norms(self) -> tuple[Later, int, int]:
        """As of :class:`PsumRegion`."""
        return Later(self, lambda: self.known().norms[0]), 0, 1


TileSums: TypeAlias = PsumRegion | PlannedSums
"""Sums of a tile, known or to be found."""


@dataclasses.dataclass(frozen=True)
class TakeSums:
    """Partial sums are found: by default the next half, from ``base`` on."""

    sums: PlannedSums
    find: Callable[[], PsumRegion]

    def perform(self, _: Emitter) -> None:
        self.sums.found = self.find()

    def uses(self) -> Uses:
        return Uses(filled=(self.sums,))


def _meet(sums: PsumRegion, other: PsumRegion) -> bool:
    return sums.half == other.half and sums.base < other.base + other.words and other.base < sums.base + sums.words


def norm_access(half: int) -> Access:
    """The sums of magnitudes of a half."""
    return Access(f"NORM{half}", ((0, 1),))


def port_access(half: int) -> Access:
    """The read ports of a half of the partial sums."""
    return Access(f"PORT{half}", ((0, 1),))


class PsumAllocator:
    """Who has which half.

    Parameters
    ----------
    depth : :class:`int`
        Addresses of a half.

    Attributes
    ----------
    kept : :class:`int`
        Addresses of either half that sets leave to the tiles that come between their own.
    used : :class:`int`
        The half of the array's latest command.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.kept = self.used = 0
        self._half = self._set = 0
        self._unread: list[tuple[PsumRegion, Known]] = []

    def note(self, sums: PsumRegion, last: Known) -> None:
        """Sums that the A-Core has not taken until the ``last`` task that reads them has been emitted."""
        self._unread = [(other, task) for other, task in self._unread if not _meet(other, sums)] + [(sums, last)]

    def unread(self, sums: PsumRegion | None = None, *, half: bool = False) -> list[Known]:
        """Tasks that come before others take the place of sums, or of any in their ``half``; by default of the next half's."""
        where = sums or PsumRegion(self._half ^ 1, 0, self.depth)
        return [task for other, task in self._unread if other.half == where.half and (half or _meet(other, where))]

    def next(self) -> Access:
        """What has to be free for the next tile of its own, or of a set: a half."""
        return Access(f"PSUM{self._half ^ 1}", ((0, 1),))

    def take(self, words: int | None = None, base: int = 0) -> PsumRegion:
        """``words`` addresses, or all, of the next half."""
        self._half ^= 1
        return PsumRegion(self._half, base, self.depth if words is None else words)

    def begin_set(self, tiles: int, words: int) -> None:
        """A set of so many tiles, of ``words`` addresses each, takes half of them to either half."""
        self._set = ceil_div(tiles, HALVES) * words

    def end_set(self) -> None:
        """Its last command has been emitted."""
        self._set = 0

    def beside(self, words: int) -> PsumRegion | None:
        """``words`` addresses beside those of the set under way, in the half that it has used last; ``None`` if there is none, or
        less room."""
        if not self._set or words > self.depth - self._set:
            return None
        return PsumRegion(self.used, self.depth - words, words)


@dataclasses.dataclass(frozen=True)
class NextSums(Results):
    """Where the sums of a tile of its own go, or of a set: to the next half.

    ``beside``: if a set is under way, and there is room, these many words go to the half that it has used last; 0: never.
    """

    allocator: PsumAllocator
    beside: int = 0

    def _beside(self) -> PsumRegion | None:
        return self.allocator.beside(self.beside) if self.beside else None

    def place(self) -> Access:
        # Beside a set the sums are free, but for the half's sums of magnitudes.
        sums = self._beside()
        return norm_access(sums.half) if sums else self.allocator.next()

    def readers(self) -> Sequence[Known]:
        return self.allocator.unread()

    def disjoint(self) -> bool:
        return self._beside() is not None


@dataclasses.dataclass(frozen=True)
class AddedSums(Results):
    """Sums of a tile that has begun, or of which it is known where they go.

    Parameters
    ----------
    last : the tile's last command, which gives the half's read ports to the A-Core
    norms : it takes the place of the half's sums of magnitudes
    """

    allocator: PsumAllocator
    sums: TileSums
    last: bool
    norms: bool

    def place(self) -> Access | None:
        return port_access(self.sums.known().half) if self.last else None

    def readers(self) -> Sequence[Known]:
        return self.allocator.unread(self.sums.known(), half=self.norms)


@dataclasses.dataclass(frozen=True)
class FixedSums(Results):
    """Sums of a plane that stays in the partial sums: where its first piece lies is known."""

    sums: PsumRegion

    def place(self) -> Access:
        return Access(f"PSUM{self.sums.half}", ((self.sums.base, self.sums.base + self.sums.words),))
