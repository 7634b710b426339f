"""Planes that the two halves of the partial sums hold, all but a few rows: their pieces, and the order in which these are computed
and swept (docs/decisions/0006-tiles-of-rows.md).

L1-FRN scales the first value of a plane by the sum of all its magnitudes, so all of it is computed before any of it is swept. The
array goes on with the next output groups piece by piece: while the A-Core sweeps a piece of one half the array computes into the
other one, as the read ports of a half serve one of the two. The first piece is small, as the array waits for its sweep; the next
ones grow, as the A-Core sweeps faster than the array computes. What the halves do not hold (the *rest*) is computed for its
magnitudes first, and again when lambda is known, in the place of a piece that has been swept.

Every other plane is computed from its last row on, so that it begins with inputs that are still on chip.
"""

import dataclasses
import itertools
import math

from gradloom.contracts.isa import PsumLayout
from gradloom.host.compilation.layer_sizes import Plane, channel_cycles
from gradloom.host.compilation.sums import HALVES, PsumRegion
from gradloom.host.dram.layout import ceil_div, equal_ranges
from gradloom.host.order.allocators import LruSlots
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.row_convolution import RowConvolution
from gradloom.host.tiles.row_tiles import RowTile, tile_words

__all__ = ["REST", "KeptTile", "ResidentPlane", "Stage", "piece_sizes"]

Range = tuple[int, int]

REST = -1
"""Number of what the halves do not hold."""
_GROWTH = 2
"""Of a piece beside the one before: the A-Core takes two columns a cycle, the array one."""
_STRIPS = 4
"""Strips of inputs on chip: one in use, those that follow, and those that the next plane begins with."""


@dataclasses.dataclass(frozen=True)
class KeptTile:
    """A piece of a plane, and where its sums lie: those of the rest when it is computed again."""

    tile: RowTile
    sums: PsumRegion


@dataclasses.dataclass(frozen=True)
class Stage:
    """What the array computes, by numbers of pieces, and what the A-Core sweeps of the plane before meanwhile.

    ``again``: first the rest of the plane before. Behind the last stage the A-Core sweeps piece 0 of the plane itself, with which
    it finds lambda: in the half of the last command that has gathered magnitudes.
    """

    computes: tuple[int, ...]
    sweeps: tuple[int, ...] = ()
    again: bool = False


_WITH_REST = {
    5: (Stage((), (1,), again=True), Stage((REST, 1), (REST, 2)), Stage((0, 2), (3,)), Stage((3,), (4,)), Stage((4,))),
    3: (Stage((), (1,), again=True), Stage((REST, 1), (REST, 2)), Stage((0,)), Stage((2,))),
}
"""By the number of pieces, of which those of even numbers lie in the first half and the others in the second. The rest takes the
place of piece 0 when it is computed again, and before that of piece 1."""
_WHOLE = {
    5: (Stage((0,), (1,)), Stage((1,), (2,)), Stage((2,), (3,)), Stage((3,), (4,)), Stage((4,))),
    3: (Stage((0,), (1,)), Stage((1,), (2,)), Stage((2,))),
}


def piece_sizes(count: int, room: int, rest: int) -> list[int]:
    """Sizes of the pieces of ``count`` parts of a plane, an odd number of them; none if either half has no room for them, which is
    ``room`` parts, or the first two none for the ``rest``."""
    if count > HALVES * room:
        return []
    half, first = ceil_div(count, HALVES), max(1, rest)
    second, third = _GROWTH * first, _GROWTH**2 * first
    found = [first, second, third, count - half - second, half - first - third]
    if min(found) <= 0:
        found = [first, count - half, half - first]
    return found if min(found) > 0 and found[1] >= rest else []


class ResidentPlane(RowConvolution):
    """A convolution whose planes stay in the partial sums.

    Attributes
    ----------
    stages : tuple of :class:`Stage`
        In which some output groups are computed; none if that cannot be.
    """

    def __init__(self, work: Convolution, plane: Plane, *, bits: bool) -> None:
        super().__init__(work, plane, bits=bits, kept=True)
        config, units = self.builder.config, self.sweep.upi
        rows = config.wpus * (2 if self.sweep.layout == PsumLayout.ROWS else 1)
        # Pieces are whole grains: they begin with a row of the partial-sum banks and with a beat of the bitmap.
        self._grain = math.lcm(rows, self._step)
        self._place = tile_words(self.sweep, config, self._grain)
        room = config.psum_depth // self._place
        count = min(HALVES * room, ceil_div(units, self._grain))
        self._rest = max(0, units - count * self._grain)
        if 0 < self._rest < config.wpus:
            # Every WPU needs a unit of the first command that gathers magnitudes.
            count, self._rest = count - 1, self._rest + self._grain
        self._sizes = piece_sizes(count, room, ceil_div(self._rest, self._grain))
        each = self._choose_strips()
        self._slots = min(_STRIPS, config.ibuf_depth // each)
        self.region = self._slots * each
        odd = 0 < (units - self._rest) % self._grain < config.wpus
        self.stages: tuple[Stage, ...] = ()
        if self._sizes and self._slots >= HALVES and not odd:
            self.stages = (_WITH_REST if self._rest else _WHOLE)[len(self._sizes)]
            self._found = {up: self._pieces(up=up) for up in (True, False)}

    def _choose_strips(self) -> int:
        """Size of the strips: one grain, unless they have halo rows. Returns the addresses of the inputs of one."""
        depth, units = self.builder.config.ibuf_depth, self.sweep.upi

        def size(strip: int) -> int:
            strips = [self.sweep.strip(low, min(low + strip, units)) for low in range(0, units, strip)]
            return max(each.addresses(self.builder.config, 1) for each in strips) * self.work.steps

        self._strip_units = self._grain
        first, last = self.sweep.read(0, self._grain)
        if last - first > self._grain * self.sweep.ystep or min(self.sweep.y0) < 0:
            larger = range(2 * self._grain, units, self._grain)
            self._strip_units = max((strip for strip in larger if size(strip) * (_STRIPS - 1) <= depth), default=self._grain)
        return size(self._strip_units)

    def pieces(self, *, up: bool) -> dict[int, KeptTile]:
        """The pieces of a plane that is computed from its first row on (``up``) or from its last one on, by number."""
        return self._found[up]

    def _pieces(self, *, up: bool) -> dict[int, KeptTile]:
        found, bases, top = dict[int, KeptTile](), [0, 0], self.sweep.upi - self._rest
        starts, count = dict[int, int](), 0
        for number in (number for stage in self.stages for number in stage.computes if number != REST):
            starts[number] = count
            count += self._sizes[number]
        for number, size in enumerate(self._sizes):
            half, start = number % HALVES, starts[number] if up else count - starts[number] - size
            tile = self._tile(start * self._grain, min((start + size) * self._grain, top), up=up)
            found[number] = KeptTile(tile, PsumRegion(half, bases[half], size * self._place))
            bases[half] += size * self._place
        if self._rest:
            found[REST] = KeptTile(self._tile(top, self.sweep.upi, up=True), found[0].sums)
        return found

    def _tile(self, first: int, last: int, *, up: bool) -> RowTile:
        edges = [first, *(edge for edge in range(0, last, self._strip_units) if edge > first), last]
        strips = list(itertools.pairwise(edges))
        return RowTile(first, last, tuple(strips if up else reversed(strips)))

    def parts(self, tile: RowTile) -> list[Range]:
        """Rows of a tile that the A-Core sweeps at a time: as few parts as can be, and these alike."""
        found = self._rows(tile)
        first, last, each = found[0][0], found[-1][1], self._step
        limit = max(1, max(high - low for low, high in found) // each)
        return [(low * each, min(high * each, last)) for low, high in equal_ranges(first // each, ceil_div(last, each), limit)]

    def open(self) -> None:
        """Take the region of the input buffer, until :meth:`close`."""
        self._open(lambda first: LruSlots(self._slots, self.region // self._slots, first=first))

    @property
    def bound(self) -> int:
        """Cycles of one image: of the array, with what it waits for, or of the loads, if they take longer."""
        config, found = self.builder.config, self.pieces(up=True)
        waits = self.swept_cycles(found[0].tile, self.outputs[0])
        again = self.tile_cycles(found[REST].tile) if self._rest else 0
        inputs = self.input_beats([piece.tile for piece in found.values()]) * len(self.outputs)
        weights = self.work.weights.beats * len(found)
        loads = channel_cycles(config, inputs, weights, channels=config.load_channels)
        return max(self.cycles + len(self.outputs) * (waits + again), loads)
