"""Rows that are left over when the WPUs share out those of a tile, divided among all of them.

Contract: docs/machine.md section 4; why: docs/decisions/0006-tiles-of-rows.md. A WPU reads a copy of the columns that its
part needs, as a bank answers one address a cycle.
"""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.contracts.isa import Pattern
from gradloom.host.dram.layout import ceil_div

if TYPE_CHECKING:
    from gradloom.host.tiles.conv_mapping import ConvMapping

__all__ = ["SharedRows", "StoredTile", "row_groups", "shared_rows"]

_WORTH = 100
"""Of the array's cycles for a tile one of so many must be saved: less is not worth the loads of the copies."""
_LONGEST = 100
"""Entries of a row, at most: `soff` reaches two rows further."""
_PRELOAD = 1
"""Cycles of a row before its first window, in which every part but the first takes the entry before it."""


@dataclasses.dataclass(frozen=True)
class StoredTile:
    """Units of a batch that a command takes, and where their inputs lie on chip.

    Parameters
    ----------
    first, last : units; image i has those from i ``upi`` on
    first_row : the first stored row of its first image that is on chip
    rows : that are on chip, all images together
    """

    first: int
    last: int
    first_row: int
    rows: int

    @property
    def units(self) -> int:
        return self.last - self.first


@dataclasses.dataclass(frozen=True)
class SharedRows:
    """The rows of a tile that all WPUs share.

    Parameters
    ----------
    units : how many
    image : that they are of, counted from the tile's first one
    row : the stored row of it that PE row 0 reads for the first of them
    reads : for which of them which PE rows read a row; others read padding
    beats : of the outputs of every part but the last
    last : window positions of the last part
    entries : of a copy
    stride : entries from copy to copy
    bank : of the first copy of the first row
    addr : of the first copies, from the tile's first one on
    behind : the same from the address of the stored row on
    """

    units: int
    image: int
    row: int
    reads: tuple[tuple[int, int], ...]
    beats: int
    last: int
    entries: int
    stride: int
    bank: int
    addr: int
    behind: int

    @property
    def cycles(self) -> int:
        """Of the array, for a step and kernel window."""
        return self.units * (self.last + _PRELOAD)

    @property
    def fields(self) -> dict[str, int]:
        """Of CONV."""
        return {"shared": 1, "scols": self.last, "sbank": self.bank, "soff": self.behind}


def row_groups(config: Config, units: int, *, shared: bool) -> int:
    """Row groups of so many units: of one for each WPU, the rest together or, ``shared``, one by one."""
    return sum(divmod(units, config.wpus)) if shared else ceil_div(units, config.wpus)


def shared_rows(sweep: "ConvMapping", config: Config, tile: StoredTile) -> SharedRows | None:
    """The rows that a tile's units leave over, where sharing them is possible and worth it.

    They are of one image. Every WPU has a row of it before them, as sums of magnitudes go on from there.
    """
    wpus, n = config.wpus, config.row_banks
    first, after = tile.first // sweep.upi, ceil_div(tile.last, sweep.upi)
    left, end = tile.units % wpus, (tile.last - 1) % sweep.upi + 1
    if not left or tile.units < wpus or end - left < wpus or sweep.xe > _LONGEST or not _possible(sweep):
        return None
    beats = ceil_div(ceil_div(sweep.cols, 2), wpus) - 1
    last = sweep.cols - 2 * beats * (wpus - 1)
    saved = sweep.cols - left * (last + _PRELOAD)
    if not beats or saved * _WORTH < ceil_div(tile.units, wpus) * sweep.cols:
        return None
    row = (end - left) * sweep.ystep + sweep.y0[0]
    reads = tuple((unit, r) for unit in range(left) for r in range(PE_ROWS) if row + unit * sweep.ystep + r < sweep.rows)
    entries = 1 + (last if sweep.xstep == 2 else ceil_div(last, 2))
    place = (after - 1 - first) * sweep.pitch + row - tile.first_row
    used, full = tile.rows % n, tile.rows // n * sweep.xe
    # Beside the last stored rows, if banks that hold none of them are enough.
    beside = used and left == 1 and entries <= sweep.xe
    bank = next((bank for bank in range(used, n) if beside and _free(range(used, n), bank, reads, config)), None)
    addr = full if bank is not None else ceil_div(tile.rows, n) * sweep.xe
    return SharedRows(
        units=left,
        image=after - 1 - first,
        row=row,
        reads=reads,
        beats=beats,
        last=last,
        entries=entries,
        stride=beats * sweep.xstep,
        bank=bank or 0,
        addr=addr,
        behind=addr - place // n * sweep.xe,
    )


def _free(banks: range, first: int, reads: Iterable[tuple[int, int]], config: Config) -> bool:
    """Whether all copies that are read of a row's, the first one in bank ``first``, lie in some ``banks``."""
    return all(first + PE_ROWS * w + r in banks for w in range(config.wpus) for _, r in reads)


def _possible(sweep: "ConvMapping") -> bool:
    """Whether the machine can share rows of a convolution: a kernel of 3 x 3 with a padding of 1."""
    window = sweep.windows[0]
    one = sweep.shareable and len(sweep.windows) == 1 and (window.rows, window.cols) == (PE_ROWS, PE_TAPS)
    return one and sweep.pattern == Pattern.K3 and not sweep.stacked and sweep.c0 == (-1,)
