"""Rows that all WPUs share, for :mod:`gradloom.verif.ccore.conv_case`: fields, copies of operands and errors, places of sums.

``docs/machine.md`` section 4. A row of ``cols`` windows has T = ceil(``cols`` / 2) beats; the parts of all WPUs but the last one
are k = ceil(T / wpus) - 1 of them. Units are dealt to WPUs as long as there is one for each; ``dealt`` of them, the rest is shared.
"""

import dataclasses

import numpy as np

from gradloom.contracts.config import Config

__all__ = ["Shared", "dealt", "place", "plan"]

Place = tuple[int, int]
"""(bank, address)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shared:
    """Shared rows of a tile whose images lie behind each other in the input buffer, ``yin`` rows of ``xe`` entries each.

    Attributes
    ----------
    first, units : int
        First shared unit, and all of the tile.
    upi, ystep, cols : int
        Units of an image, rows from unit to unit (the first one begins at row -1), windows of a unit.
    beats, scols, entries : int
        k, windows of the last part, entries of a stored row of a part.
    sbank, soff : int
        Fields of the command.
    istep : int
        Entries of a step: rows and copies.
    """

    wpus: int
    first: int
    units: int
    upi: int
    yin: int
    ystep: int
    xe: int
    cols: int
    beats: int
    scols: int
    entries: int
    sbank: int = 0
    soff: int = 0
    istep: int = 0

    @property
    def fields(self) -> dict[str, int]:
        return {"shared": 1, "scols": self.scols, "sbank": self.sbank, "soff": self.soff}

    def rows(self) -> dict[Place, int]:
        """First entry of every stored row of all images, from the begin of a step, with its number."""
        count = self.units // self.upi * self.yin
        return {(row % (3 * self.wpus), row // (3 * self.wpus) * self.xe): row for row in range(count)}

    def parts(self) -> dict[Place, tuple[int, int]]:
        """First entry of every stored row of a part: number of the row that it is a copy of, WPU."""
        banks = 3 * self.wpus
        found = {}
        image, y = divmod(self.first, self.upi)
        address = (image * self.yin + y * self.ystep - 1) // banks * self.xe + self.soff
        for unit in range(self.first, self.units):
            image, y = divmod(unit, self.upi)
            for w in range(self.wpus):
                for r in range(3):
                    row = y * self.ystep - 1 + r
                    wrap, bank = divmod(self.sbank + 3 * w + r, banks)
                    if 0 <= row < self.yin:
                        found[bank, address + wrap * self.entries] = image * self.yin + row, w
            address += self.entries
        return found

    def used(self) -> list[Place]:
        """Every place of a step."""
        return [(bank, address + i) for starts, size in ((self.rows(), self.xe), (self.parts(), self.entries))
                for bank, address in starts for i in range(size)]

    def copy(self, ibuf: dict[Place, np.ndarray], base: int) -> None:
        """Store the parts of a step whose rows begin at ``base``; what no WPU reads is any code."""
        sources = {row: place for place, row in self.rows().items()}
        for (bank, address), (row, w) in self.parts().items():
            source_bank, source = sources[row]
            for i in range(self.entries):
                entry = self.beats * self.ystep * w - 1 + i
                beat = ibuf[source_bank, base + source + max(entry, 0)]
                ibuf[bank, base + address + i] = beat if entry >= 0 else np.full_like(beat, 0xA5)

    def share_errors(self, ebuf: dict[Place, np.ndarray], base: int, first_bank: int) -> None:
        """Instead of the errors of the shared units those of their parts; ``base``: address of the first row of errors."""
        size = (self.cols + 1) // 2
        rows = []
        for unit in range(self.first, self.units):
            group, w = divmod(unit, self.wpus)
            rows.append([ebuf.pop((first_bank + 3 * w, base + group * size + i)) for i in range(size)])
        for group, row in enumerate(rows, self.first // self.wpus):
            for w in range(self.wpus):
                for i in range((self.scols + 1) // 2):
                    ebuf[first_bank + 3 * w, base + group * size + i] = row[self.beats * w + i]


def plan(config: Config, rng: np.random.Generator, *, images: int, upi: int, yin: int, ystep: int, xe: int,
         cols: int) -> Shared | None:
    """How a tile of images with padding 1 shares its rows, if it can; copies lie anywhere behind the first shared unit's rows."""
    wpus, units = config.wpus, images * upi
    left = units % wpus
    beats = ((cols + 1) // 2 - 1) // wpus
    if not left or beats < 1 or upi - left < wpus:
        return None
    scols = cols - 2 * beats * (wpus - 1)
    shared = Shared(wpus=wpus, first=units - left, units=units, upi=upi, yin=yin, ystep=ystep, xe=xe, cols=cols, beats=beats,
                    scols=scols, entries=1 + (scols if ystep == 2 else (scols + 1) // 2), sbank=int(rng.integers(3 * wpus)))
    places = []
    for soff in range(256):
        used = (one := dataclasses.replace(shared, soff=soff)).used()
        if len(set(used)) == len(used):
            places.append(dataclasses.replace(one, istep=1 + max(address for _, address in used) + int(rng.integers(3))))
    return places[rng.integers(min(4, len(places)))]


def dealt(config: Config, fields: dict[str, int]) -> int:
    """Units of a command that are dealt to WPUs; the others are shared."""
    return fields["units"] - (fields["units"] % config.wpus if fields.get("shared") else 0)


def place(config: Config, fields: dict[str, int], unit: int, j: int) -> tuple[int, int, int]:
    """(row group, WPU, window of the WPU) of window ``j`` of a unit."""
    first = dealt(config, fields)
    if unit < first:
        return *divmod(unit, config.wpus), j
    windows = (fields["cols"] - fields["scols"]) // (config.wpus - 1)
    w = min(j // windows, config.wpus - 1)
    return first // config.wpus + unit - first, w, j - w * windows
