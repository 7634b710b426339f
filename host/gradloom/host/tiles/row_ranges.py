"""Row ranges: successive output rows of a batch, image after image, that the array takes in one go.

A gradient sums over all rows of all images, so it does not matter where a command ends: row ranges end where every WPU has a row,
in the middle of an image too, and only the batch's last rows may leave some without. On chip are the rows that the windows of a
range read, those of an image after those of the one before.
"""

import dataclasses
import functools
from typing import Any

from gradloom.contracts.config import Config
from gradloom.host.dram.layout import ceil_div, equal_ranges
from gradloom.host.order.tasks import Number
from gradloom.host.tiles.conv_mapping import ConvMapping, row_banks_conflict
from gradloom.host.tiles.remembered import remembered
from gradloom.host.tiles.shared_rows import SharedRows, StoredTile, row_groups, shared_rows

__all__ = ["RowRange", "Rows", "row_ranges"]

Range = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Rows:
    """The same rows of some images.

    Parameters
    ----------
    images, rows : ranges
    skipped : rows of the row range that lie before them
    """

    images: Range
    rows: Range
    skipped: int

    @property
    def count(self) -> int:
        """Rows of all its images."""
        return (self.images[1] - self.images[0]) * (self.rows[1] - self.rows[0])

    def one_by_one(self) -> "list[Rows]":
        """The same, a part for each image."""
        size = self.rows[1] - self.rows[0]
        return [Rows((image, image + 1), self.rows, self.skipped + n * size) for n, image in enumerate(range(*self.images))]


@dataclasses.dataclass(frozen=True)
class RowRange:
    """Units ``first`` to ``last`` of a batch; image i has those from i ``sweep.upi`` on."""

    sweep: ConvMapping
    first: int
    last: int

    @property
    def units(self) -> int:
        return self.last - self.first

    @functools.cached_property
    def images(self) -> Range:
        """Images that have units in it."""
        return self.first // self.sweep.upi, ceil_div(self.last, self.sweep.upi)

    @property
    def left_out(self) -> int:
        """Units of the first image that lie before the row range."""
        return self.first % self.sweep.upi

    @property
    def outputs(self) -> list[Rows]:
        """Its units."""
        return self._pieces(self.left_out, (self.last - 1) % self.sweep.upi + 1, self.sweep.upi)

    @functools.cached_property
    def inputs(self) -> tuple[Rows, ...]:
        """Stored rows that are on chip."""
        return tuple(self._pieces(self._first_row, self._last_image[1], self.sweep.rows))

    @property
    def _last_image(self) -> Range:
        """Stored rows that the units of the last image read."""
        only = self.images[1] - self.images[0] == 1
        return self.sweep.read(self.left_out if only else 0, (self.last - 1) % self.sweep.upi + 1)

    @functools.cached_property
    def _first_row(self) -> int:
        """The first stored row of the first image that is on chip."""
        return self.sweep.read(self.left_out, self.sweep.upi)[0]

    def _pieces(self, low: int, high: int, rows: int) -> list[Rows]:
        """Images of so many rows, the first one from row ``low`` on, the last one up to row ``high``; whole ones together."""
        first, last = self.images
        found = list[Rows]()
        skipped = 0
        for image in range(first, last):
            part = low if image == first else 0, high if image == last - 1 else rows
            if found and part == found[-1].rows == (0, rows):
                found[-1] = dataclasses.replace(found[-1], images=(found[-1].images[0], image + 1))
            else:
                found.append(Rows((image, image + 1), part, skipped))
            skipped += part[1] - part[0]
        return found

    @functools.cached_property
    def rows(self) -> int:
        """Stored rows on chip."""
        return sum(piece.count for piece in self.inputs)

    @remembered
    def shared(self, config: Config) -> SharedRows | None:
        """Its rows that the WPUs share."""
        return shared_rows(self.sweep, config, StoredTile(self.first, self.last, self._first_row, self.rows))

    @remembered
    def addresses(self, config: Config) -> int:
        """Row-bank addresses that one channel group of its inputs takes."""
        return self.sweep.room(config, self.rows, self.shared(config))

    @remembered
    def groups(self, config: Config) -> int:
        """Row groups."""
        return row_groups(config, self.units, shared=self.shared(config) is not None)

    @remembered
    def cycles(self, config: Config) -> int:
        """Cycles of the array for one step and kernel window."""
        return self.sweep.window_cycles(config, self.units, self.sweep.cols, self.shared(config))

    def row_fields(self, config: Config, window: int, base: Number, entries: int | None = None) -> dict[str, Any]:
        """Rows and columns of CONV, with inputs from address ``base`` on, as for :meth:`ConvMapping.row_fields`."""
        fields, behind = self._row_fields(config, window, entries)
        return fields | {"ia0": base + behind & 0xFFFF}

    @remembered
    def _row_fields(self, config: Config, window: int, entries: int | None) -> tuple[dict[str, int], int]:
        """All of them but the address ``ia0``, and how far that lies behind the base."""
        sweep, n = self.sweep.alone, self.sweep.banks(config)
        row = sweep.y0[window] + self.left_out * sweep.ystep - self._first_row
        shared = self.shared(config)
        fields = (
            sweep.row_fields(config, window, 0, 1, entries)
            | {"units": self.units, "u0": self.left_out, "ib0": row % n * sweep.bank_step}
            | (shared.fields if shared else {})
        )
        return fields, row // n * (entries or sweep.xe)

    @remembered
    def conflicts(self, config: Config) -> bool:
        """Whether some row group asks one bank for two different rows."""
        return row_banks_conflict(self.sweep, config, range(self.first, self.last))


def row_ranges(sweep: ConvMapping, config: Config, images: Range, groups: int) -> list[RowRange]:
    """All units of some images in row ranges of at most ``groups`` row groups, as equal as can be.

    Where rows of two images fall on one bank, a row range ends with its image.
    """
    first, last = (image * sweep.upi for image in images)
    found = _cut(sweep, config, first, last, groups)
    if any(row_range.conflicts(config) for row_range in found):
        return [some for low in range(first, last, sweep.upi) for some in _cut(sweep, config, low, low + sweep.upi, groups)]
    return found


def _cut(sweep: ConvMapping, config: Config, first: int, last: int, groups: int) -> list[RowRange]:
    cuts = equal_ranges(0, ceil_div(last - first, config.wpus), groups)
    return [RowRange(sweep, first + low * config.wpus, min(first + high * config.wpus, last)) for low, high in cuts]
