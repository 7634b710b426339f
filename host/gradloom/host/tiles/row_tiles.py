"""Planes that are larger than the machine's buffers: tiles of rows of one image.

Three things have a limit of their own: a half of the partial sums (a tile), the input buffer (strips of a tile, which a command
of the array computes) and the A-Core's stream buffers (parts of a tile, which a command of the A-Core sweeps:
:mod:`gradloom.host.tiles.row_parts`). A tile begins where a beat of the plane's bitmap begins.
"""

import dataclasses
import itertools
from collections.abc import Callable

from gradloom.contracts.config import Config
from gradloom.contracts.isa import PsumLayout
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.dram.layout import ceil_div
from gradloom.host.tiles.conv_mapping import ConvMapping, psum_words, row_banks_conflict
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.row_parts import legal_ranges

__all__ = ["RowTile", "RowTiles", "tile_words"]

Range = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class RowTile:
    """Units of one image whose sums lie in a half of the partial-sum buffers, and the strips in which they are computed."""

    first: int
    last: int
    strips: tuple[Range, ...]


def tile_words(sweep: ConvMapping, config: Config, units: int) -> int:
    """Words of a partial-sum bank that the first ``units`` of an image take."""
    return psum_words(sweep.strip(0, units), config, 1) if units else 0


class RowTiles:
    """Where the tiles of a convolution and their strips begin.

    Parameters
    ----------
    work : :class:`~gradloom.host.tiles.convolution.Convolution`
        Of whole images.
    sets : :class:`int`
        How many sets of output groups are computed one after the other.
    step : :class:`int`
        Rows of the plane from one with which a tile may begin to the next.
    kept : :class:`bool`
        The last two tiles of a plane stay in the two halves: they are as large as can be. Else all are about as large, and
        if possible so small that the inputs of one stay on chip for all output groups, beside those of the next.

    Attributes
    ----------
    tiles : tuple of :class:`RowTile`
        In order.
    resident : :class:`bool`
        The inputs of a tile stay on chip for all output groups.
    region : :class:`int`
        Addresses of the input buffer for the inputs, those of the next strip included.

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If the fewest rows that may be computed together do not fit.
    """

    def __init__(self, work: Convolution, sets: int, step: int, *, kept: bool) -> None:
        self._work, self._sweep, self._config, self._sets, self._step = work, work.sweep, work.builder.config, sets, step
        self.resident = False
        self.region = self._config.ibuf_depth // work.share * 2
        self.tiles = tuple(RowTile(first, last, self._strips(first, last)) for first, last in self._ranges(kept))

    def _ranges(self, kept: bool) -> list[Range]:
        """Units of the tiles."""
        config, sweep, units = self._config, self._sweep, self._sweep.upi
        limit = next((n for n in range(units, 0, -1) if tile_words(sweep, config, n) <= config.psum_depth), 0)

        def legal(unit: int) -> bool:
            return sweep.plane_row(unit) % self._step == 0

        found = legal_ranges(0, units, limit, legal) if limit else None
        if found is None:
            raise ScheduleError(
                f"layer {self._work.layer!r}: the fewest rows that can be computed together ({self._step}) take "
                f"{tile_words(sweep, config, min(units, self._step))} words of each partial-sum bank, configuration "
                f"{config.name!r} has {config.psum_depth} (psum_depth): raise psum_depth or shrink the layer"
            )
        if kept and len(found) > 1:
            return self._kept_ranges(limit, legal)
        if not kept and self._sets > 1:
            cuts = [cut for size in range(limit, 0, -1) if (cut := legal_ranges(0, units, size, legal)) and self._together(cut)]
            if cuts:
                self.resident = True
                return min(cuts, key=lambda cut: sum(ceil_div(last - first, config.wpus) for first, last in cut))
        while limit > 1 and (smaller := legal_ranges(0, units, limit - 1, legal)) is not None and len(smaller) == len(found):
            found, limit = smaller, limit - 1
        return found

    def _together(self, ranges: list[Range]) -> bool:
        """Whether half of the region holds all input groups of each tile."""
        size = max(self._sweep.strip(*units).addresses(self._config, 1) for units in ranges)
        return self._work.steps * size <= self.region // 2

    def _kept_ranges(self, limit: int, legal: Callable[[int], bool]) -> list[Range]:
        """Tiles from the last one back. Every WPU needs a unit of the first and of the last one for its sum of magnitudes.

        No tiles if that cannot be.
        """
        least, edges = self._config.wpus, [self._sweep.upi]
        while edges[-1] > limit:
            places = (unit for unit in range(max(edges[-1] - limit, least), edges[-1]) if legal(unit))
            edges.append(next(places, 0))
        if edges[-1]:
            edges.append(0)
        if edges[0] - edges[1] < least or edges[-2] not in range(least, limit + 1):
            return []
        edges.reverse()
        return list(itertools.pairwise(edges))

    def _strips(self, first: int, last: int) -> tuple[Range, ...]:
        """Units that a command computes: what half of the region in the input buffer holds, or more if need be.

        A strip but the last ends with a whole row of the partial-sum banks.
        """
        config = self._config
        if self.resident:
            return ((first, last),)
        step = config.wpus * (2 if self._sweep.layout == PsumLayout.ROWS else 1)

        def legal(unit: int) -> bool:
            return (unit - first) % step == 0

        every = [cut for size in range(last - first, 0, -1) if (cut := legal_ranges(first, last, size, legal))]
        for limit in (self.region // 2, self.region, config.ibuf_depth):
            cuts = [cut for cut in every if all(self._sweep.strip(*strip).addresses(config, 1) <= limit for strip in cut)]
            if cuts:
                self.region = max(self.region, limit)
                # Of as few as can be those that are most alike.
                found = [cut for cut in cuts if len(cut) == len(cuts[0])][-1]
                break
        else:
            strips = (self._sweep.strip(place, min(place + step, last)) for place in range(first, last, step))
            fewest = max(strip.addresses(config, 1) for strip in strips)
            raise ScheduleError(
                f"layer {self._work.layer!r}: the inputs of {step} rows take {fewest} addresses of each "
                f"input row bank, configuration {config.name!r} has {config.ibuf_depth} (ibuf_depth): "
                f"raise ibuf_depth or shrink the layer"
            )
        if any(row_banks_conflict(self._sweep.strip(*strip), config, range(strip[1] - strip[0])) for strip in found):
            self._work.refuse_banks()
        return tuple(found)
