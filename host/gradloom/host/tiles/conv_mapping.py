"""How the array sweeps a layer: rows and columns in order, where rows lie in the banks, the fields of CONV that say so.

Contracts: docs/machine.md sections 3 and 4. Which sweep a phase of a layer takes: :mod:`gradloom.host.tiles.phase_sweeps`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from gradloom.contracts.config import PE_ROWS, Config
from gradloom.contracts.isa import Pattern, PsumLayout
from gradloom.host.compilation.windows import Window
from gradloom.host.dram.layout import ceil_div, even
from gradloom.host.order.tasks import Number
from gradloom.host.tiles.remembered import remembered
from gradloom.host.tiles.shared_rows import SharedRows, StoredTile, row_groups, shared_rows

__all__ = ["ConvMapping", "psum_words", "row_banks_conflict"]

_FEW_STEPS = 8
"""Steps whose inputs the buffer holds at once: with fewer, one more or less decides how far loads run ahead."""


@dataclasses.dataclass(frozen=True)
class ConvMapping:
    """How the array walks the rows and columns of one phase of a layer, the same for all its tiles.

    Parameters
    ----------
    pattern : :class:`~gradloom.contracts.isa.Pattern`
    layout : :class:`~gradloom.contracts.isa.PsumLayout`
        As the A-Core reads it.
    groups_in : channel groups of what is swept over
    rows, xe : stored rows of one image, entries of a row
    upi, cols : units of one image, window positions of a row
    ystep, xstep : 1 or 2, stored rows from unit to unit and columns from window to window
    y0, c0 : for every window, first input row of unit 0 and column of the first window
    windows : kernel windows
    psr, psc : SPLIT: the first row (column) of the plane is the second of its unit (position)
    flip : whether taps are reversed (backward, stride 1)
    pitch : rows from image to image in the buffer
    row0, every : first stored row in the plane of the tensor, and rows of it from one to the next
    laps : of the array for every step
    stacked : K3 with an input group on every PE row; its rows lie on chip as those of K1, so that the groups' row y is what rows
        3 y, 3 y + 1 and 3 y + 2 of a convolution would be
    columns : stacked: for every place that an input group has in the weight buffer the column of the kernel that lies there; a
        window's ``col`` is a place
    shareable : whether WPUs may share rows that are left over
    kept : K1_UP: only the rows of the plane that a unit gives are made, not those of zeros between them
    """

    pattern: Pattern
    layout: PsumLayout
    groups_in: int
    rows: int
    xe: int
    upi: int
    cols: int
    ystep: int
    windows: tuple[Window, ...]
    y0: tuple[int, ...]
    c0: tuple[int, ...]
    psr: int = 0
    psc: int = 0
    flip: bool = False
    pitch: int = 0
    row0: int = 0
    every: int = 1
    xstep: int = 1
    laps: int = 1
    stacked: bool = False
    columns: tuple[int, ...] = ()
    shareable: bool = True
    kept: bool = False

    @property
    def k1(self) -> bool:
        return self.pattern == Pattern.K1

    @property
    def dealt(self) -> bool:
        """Whether the PE rows take an input group each, not a row of the kernel."""
        return self.k1 or self.stacked

    @functools.cached_property
    def alone(self) -> "ConvMapping":
        """The same, where the WPUs share no rows."""
        return dataclasses.replace(self, shareable=False)

    def strip(self, first: int, last: int) -> "ConvMapping":
        """The units ``first`` to ``last`` of one image; of the rows only those that their windows read are stored.

        Rows outside the strip's are never asked for, so that the machine takes only true padding for padding. None are shared.
        """
        start, end = self.read(first, last)
        return dataclasses.replace(
            self,
            rows=end - start,
            pitch=end - start,
            upi=last - first,
            y0=tuple(y0 + first * self.ystep - start for y0 in self.y0),
            psr=0 if first else self.psr,
            row0=self.row0 + start * self.every,
            shareable=False,
        )

    def read(self, first: int, last: int) -> tuple[int, int]:
        """Stored rows that the units ``first`` to ``last`` of one image read, at least one."""
        above, below = self._reach
        low, high = first * self.ystep + above, (last - 1) * self.ystep + below
        start = min(max(0, low), self.rows - 1)
        return start, max(start + 1, min(self.rows, high))

    @functools.cached_property
    def _reach(self) -> tuple[int, int]:
        """First row that unit 0 reads in any window, and the end of its last one."""
        more = [1 if self.pattern == Pattern.BP2 else 0 if self.dealt else window.rows - 1 for window in self.windows]
        return min(self.y0), max(y0 + rows for y0, rows in zip(self.y0, more, strict=True)) + 1

    @property
    def unit_rows(self) -> int:
        """Rows of the plane that a unit gives."""
        return 2 if self.layout == PsumLayout.SPLIT or (self.layout == PsumLayout.K1_UP and not self.kept) else 1

    def sub_row(self, row: int) -> int:
        """Field `psr` of RUN from a row of the plane on."""
        return int(self.kept) or (self.psr if row == 0 else 0)

    def unit(self, row: int) -> int:
        """Unit that gives a row of the plane."""
        return (row + self.psr) // self.unit_rows

    def begins(self, row: int) -> bool:
        """Whether a row of the plane is the first one that a unit may give."""
        return (row + self.psr) % self.unit_rows == 0

    def plane_row(self, unit: int) -> int:
        """First row of the plane that a unit gives."""
        return max(0, unit * self.unit_rows - self.psr)

    def banks(self, config: Config) -> int:
        """Length of the bank counter's cycle."""
        return config.wpus if self.dealt else config.row_banks

    @property
    def bank_step(self) -> int:
        """Banks from row to row as the machine counts them."""
        return PE_ROWS if self.stacked else 1

    @remembered
    def shared(self, config: Config, images: int) -> SharedRows | None:
        """The rows of a tile of so many images that the WPUs share.

        None where the buffer has room for few input groups, and for fewer with copies beside them: loads would come later.
        """
        rows = self._stored(images)
        found = shared_rows(self, config, StoredTile(0, images * self.upi, 0, rows))
        least = config.ibuf_depth // self.room(config, rows, None)
        fewer = config.ibuf_depth // self.room(config, rows, found) < least <= _FEW_STEPS
        return None if fewer else found

    def _stored(self, images: int) -> int:
        """Rows on chip of so many images."""
        return (images - 1) * self.pitch + self.rows

    @remembered
    def cycles(self, config: Config, images: int) -> int:
        """Cycles of the array for one step and kernel window, a position at a time, of ``images`` images."""
        return self.window_cycles(config, images * self.upi, self.cols, self.shared(config, images))

    def window_cycles(self, config: Config, units: int, positions: int, shared: SharedRows | None) -> int:
        """Cycles of the array for one step and kernel window of so many units and positions of a row."""
        if shared:
            return (units // config.wpus * positions + shared.cycles) * self.laps
        return ceil_div(units, config.wpus) * positions * self.laps

    def positions(self, window: int) -> int:
        """Cycles of the array for a row of units in a kernel window."""
        return ceil_div(self.cols, 2) if self.windows[window].pair else self.cols

    @remembered
    def step_cycles(self, config: Config, images: int) -> int:
        """Cycles of the array for one step and all kernel windows of ``images`` images."""
        positions = sum(self.positions(window) for window in range(len(self.windows)))
        return self.window_cycles(config, images * self.upi, positions, self.shared(config, images))

    @remembered
    def addresses(self, config: Config, images: int) -> int:
        """Row-bank addresses that one channel group of ``images`` images takes."""
        return self.room(config, self._stored(images), self.shared(config, images))

    def room(self, config: Config, rows: int, shared: SharedRows | None) -> int:
        """Row-bank addresses of so many stored rows, and of copies of those that are shared."""
        stored = ceil_div(rows, self.banks(config)) * self.xe
        return max(stored, shared.addr + shared.units * shared.entries) if shared else stored

    def group_step(self) -> int:
        """K1: input groups of one PE row; else of the whole tile."""
        return ceil_div(self.groups_in, PE_ROWS) if self.dealt else self.groups_in

    def some_units(self, config: Config, window: int, base: int, units: tuple[int, int]) -> dict[str, int]:
        """Fields of :meth:`row_fields` that differ for some units of one image."""
        row, n = self.y0[window] + units[0] * self.ystep, self.banks(config)
        bank, addr = row % n * self.bank_step, base + row // n * self.xe & 0xFFFF
        return {"units": units[1] - units[0], "u0": units[0], "ib0": bank, "ia0": addr}

    def strips(self, config: Config, edges: Sequence[int]) -> list[tuple[int, int]]:
        """Units of an image that can be computed once its stored rows up to each of ``edges`` are there; partial sums of a strip
        begin at an address of their own."""
        step = config.wpus * (2 if self.layout == PsumLayout.ROWS else 1)
        ends = (max((u for u in range(step, self.upi, step) if self.read(0, u)[1] <= edge), default=0) for edge in edges)
        cuts = sorted({0, *ends, self.upi})
        return list(itertools.pairwise(cuts))

    def strip_address(self, config: Config, unit: int) -> int:
        """Address in the partial-sum banks, behind the tile's first one, of a strip that begins with a unit."""
        groups = unit // config.wpus
        return groups // 2 * ceil_div(self.cols, 2) if self.layout == PsumLayout.ROWS else groups * self.cols

    def row_fields(self, config: Config, window: int, base: Number, images: int, entries: int | None = None) -> dict[str, Any]:
        """Rows and columns of CONV for a tile of ``images`` whose inputs start at address ``base``.

        ``entries``: of a row on chip, if others lie beside the input group's own.
        """
        fields, behind = self._row_fields(config, window, images, entries)
        return fields | {"ia0": base + behind & 0xFFFF}

    @remembered
    def _row_fields(self, config: Config, window: int, images: int, entries: int | None) -> tuple[dict[str, int], int]:
        """All of them but the address ``ia0``, and how far that lies behind the base."""
        xe = self.xe if entries is None else entries
        n, y0, c0 = self.banks(config), self.y0[window], self.c0[window]
        jump = self.pitch - (self.upi - 1) * self.ystep
        pattern, each = Pattern.PAIR if self.windows[window].pair else self.pattern, self.bank_step
        shared = self.shared(config, images)
        fields = {
            "pattern": int(pattern),
            "p2": int(self.ystep == 2),
            "s2": int(self.xstep == 2 or pattern == Pattern.PAIR),
            "lap_end": self.laps - 1,
            "units": images * self.upi,
            "cols": self.positions(window),
            "upi": self.upi,
            # PE row r is told row r behind the unit's, whatever it reads.
            "yin": self.rows + (PE_ROWS - 1 if self.stacked else 0),
            "y0": y0,
            "xe": xe,
            **_entry(pattern, c0),
            "ib0": y0 % n * each,
            "sb": self.ystep % n * each,
            "cb": jump % n * each,
            "sa": self.ystep // n * xe & 0xFFFF,
            "ca": jump // n * xe & 0xFFFF,
            **(shared.fields if shared else {}),
        }
        return fields, y0 // n * xe


def _entry(pattern: Pattern, c0: int) -> dict[str, int]:
    """First entry, its parity and whether two entries are needed before the window at column ``c0``."""
    if pattern in (Pattern.K1, Pattern.PAIR):
        return {"e0": c0 >> 1, "par0": c0 & 1, "preload": 0}
    first = c0 >> 1
    if pattern == Pattern.BP2 and not c0 & 1:
        return {"e0": first, "par0": 0, "preload": 0}
    if first < 0:
        return {"e0": first + 1, "par0": c0 & 1, "preload": 0}
    return {"e0": first, "par0": c0 & 1, "preload": 1}


def psum_words(sweep: ConvMapping, config: Config, images: int) -> int:
    """Words of each partial-sum bank that a tile takes."""
    groups = row_groups(config, images * sweep.upi, shared=sweep.shared(config, images) is not None)
    if sweep.pattern == Pattern.K3:
        return ceil_div(groups, 2) * ceil_div(sweep.cols, 2)
    return groups * (even(sweep.cols) if sweep.k1 else sweep.cols)


def row_banks_conflict(sweep: ConvMapping, config: Config, units: range) -> bool:
    """Whether some row group of these units, image after image, asks one bank for two different rows.

    A bank answers one address a cycle, so the rows that the WPUs read together must lie in different banks or
    be the same.
    """
    if config.wpus == 1:
        return False
    n = sweep.banks(config)
    offsets = (0,) if sweep.dealt else {Pattern.K3: (0, 1, 2), Pattern.BP2: (1, 0)}[sweep.pattern]
    for y0 in sweep.y0:
        for group in range(0, len(units), config.wpus):
            asked: dict[int, int] = {}
            for slot, y in (divmod(unit, sweep.upi) for unit in units[group : group + config.wpus]):
                for offset in offsets:
                    row = y * sweep.ystep + y0 + offset
                    if 0 <= row < sweep.rows:
                        place = slot * sweep.pitch + row
                        if asked.setdefault(place % n, place) != place:
                            return True
    return False
