"""SDR SDRAM parts: geometry and timings of their data sheets, and what these are in cycles of a clock."""

import dataclasses
import math
from fractions import Fraction

from gradloom.contracts.config import ConfigError

__all__ = ["PARTS", "SdramPart", "SdramTiming", "part_named", "slowest"]

_NS = 10**9


@dataclasses.dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """Cycles of the clock from one command to another, at least, and what else hangs on the clock.

    Parameters
    ----------
    rp, rcd, ras, rc, rfc, rrd : :class:`int`
        PRECHARGE to ACTIVATE or REFRESH; ACTIVATE to READ or WRITE; ACTIVATE to PRECHARGE of its bank; ACTIVATE to ACTIVATE of one
        bank; REFRESH to the next command; ACTIVATE to ACTIVATE of another bank.
    wr : :class:`int`
        Last WRITE to PRECHARGE of its bank (tDPL in some data sheets).
    mrd : :class:`int`
        LOAD MODE REGISTER to the next command.
    retention : :class:`int`
        Cycles in which every row must be refreshed once.
    power_up : :class:`int`
        Cycles with a stable clock before the first command.
    init_refreshes : :class:`int`
        REFRESH commands at power-up.
    cas : :class:`int`
        CAS latency, 2 or 3.
    """

    rp: int
    rcd: int
    ras: int
    rc: int
    rfc: int
    rrd: int
    wr: int
    mrd: int
    retention: int
    power_up: int
    init_refreshes: int
    cas: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SdramPart:
    """One SDRAM, or several side by side that share their commands. Times are in nanoseconds.

    Parameters
    ----------
    name : :class:`str`
        For messages.
    word_bits : :class:`int`
        Data pins: 16 or 32.
    columns, rows, banks : :class:`int`
        Powers of two: at most 1024, 8192 and 4.
    t_rp, t_rcd, t_ras, t_rc, t_rfc, t_rrd, t_wr, t_mrd : :class:`float`
        As in :class:`SdramTiming`. ``t_mrd`` may be given as ``mrd_clocks`` in clocks.
    mrd_clocks, wr_clocks : :class:`int`
        Clocks that ``t_mrd`` and ``t_wr`` last at least.
    t_ck : mapping of CAS latency to :class:`float`
        Shortest clock period for each.
    t_ac, t_oh, t_hz : :class:`float`
        Of the smallest CAS latency in ``t_ck``: clock to data, at most; data held, at least; clock to high impedance, at most.
    retention : :class:`float`
        Time in which all rows must be refreshed.
    power_up : :class:`float`
        Stable clock before the first command.
    init_refreshes : :class:`int`

    Raises
    ------
    :exc:`ConfigError`
        If the geometry breaks a rule.
    """

    name: str
    word_bits: int
    columns: int
    rows: int
    banks: int
    t_rp: float
    t_rcd: float
    t_ras: float
    t_rc: float
    t_rfc: float
    t_rrd: float
    t_wr: float
    t_mrd: float = 0.0
    mrd_clocks: int = 2
    wr_clocks: int = 1
    t_ck: dict[int, float]
    t_ac: float
    t_oh: float
    t_hz: float
    retention: float = 64e6
    power_up: float = 200e3
    init_refreshes: int = 8

    def __post_init__(self) -> None:
        if self.word_bits not in (16, 32):
            raise ConfigError(f"{self.name}: word_bits must be 16 or 32, not {self.word_bits!r}")
        for field, least, most in (("columns", 2, 1024), ("rows", 2, 8192), ("banks", 2, 4)):
            value = getattr(self, field)
            if not isinstance(value, int) or not least <= value <= most or value & (value - 1):
                raise ConfigError(f"{self.name}: {field} must be a power of two in {least}..{most}, not {value!r}")

    @property
    def word_bytes(self) -> int:
        return self.word_bits // 8

    @property
    def size(self) -> int:
        """Bytes."""
        return self.columns * self.rows * self.banks * self.word_bytes

    def widened(self, word_bits: int) -> "SdramPart":
        """Several of this part side by side, with ``word_bits`` data pins in all."""
        return dataclasses.replace(self, name=f"{word_bits // self.word_bits} x {self.name}", word_bits=word_bits)

    def cas_latency(self, clock: int) -> int:
        """The smallest CAS latency at a clock in hertz.

        Raises
        ------
        :exc:`ConfigError`
            If the part cannot run at this clock.
        """
        for latency in sorted(self.t_ck):
            if Fraction(str(self.t_ck[latency])) * clock <= _NS:
                return latency
        shortest = min(self.t_ck.values())
        raise ConfigError(f"{self.name} cannot run at {clock / 1e6:g} MHz: its shortest clock period is {shortest:g} ns; take a "
                          f"clock of at most {int(10 * 1e3 / shortest) / 10:g} MHz, or another part")

    def timing(self, clock: int) -> SdramTiming:
        """Cycles at a clock in hertz.

        Raises
        ------
        :exc:`ConfigError`
            If the clock is too fast for the part, or too slow for its refreshes.
        """
        if not isinstance(clock, int) or clock < 1:
            raise ConfigError(f"the memory's clock must be a positive whole number of hertz, not {clock!r}")

        def cycles(nanoseconds: float, least: int = 1) -> int:
            return max(least, math.ceil(Fraction(str(nanoseconds)) * clock / _NS))

        latency = self.cas_latency(clock)
        timing = SdramTiming(
            rp=cycles(self.t_rp), rcd=cycles(self.t_rcd), ras=cycles(self.t_ras), rc=cycles(self.t_rc), rfc=cycles(self.t_rfc),
            rrd=cycles(self.t_rrd), wr=cycles(self.t_wr, self.wr_clocks), mrd=cycles(self.t_mrd, self.mrd_clocks),
            retention=math.floor(Fraction(str(self.retention)) * clock / _NS), power_up=cycles(self.power_up),
            init_refreshes=self.init_refreshes, cas=latency)
        # Half of the time for refreshes is no use to anyone.
        least = 2 * (timing.rfc + timing.rp + timing.ras)
        if timing.retention // self.rows < least:
            raise ConfigError(f"{self.name} cannot run at {clock / 1e6:g} MHz: its {self.rows} rows need a REFRESH every "
                              f"{timing.retention // self.rows} cycles, which leaves no time for data; take a clock of at least "
                              f"{math.ceil(least * self.rows * 1e4 / self.retention) / 10:g} MHz")
        return timing


def slowest(name: str, *parts: SdramPart) -> SdramPart:
    """A part that keeps the rules of all of ``parts``, with the smallest geometry of them: for a board whose part is not known."""
    latencies = set.intersection(*(set(part.t_ck) for part in parts))
    most = {field: max(getattr(part, field) for part in parts) for field in (
        "t_rp", "t_rcd", "t_ras", "t_rc", "t_rfc", "t_rrd", "t_wr", "t_mrd", "mrd_clocks", "wr_clocks", "t_ac", "t_hz", "power_up",
        "init_refreshes")}
    least = {field: min(getattr(part, field) for part in parts) for field in ("columns", "rows", "banks", "t_oh", "retention")}
    return dataclasses.replace(parts[0], name=name, **most, **least,
                               t_ck={latency: max(part.t_ck[latency] for part in parts) for latency in latencies})


# Micron 256Mb SDR SDRAM, MT48LC16M16A2 speed grade -75; ISSI IS42/45S16160G grade -7; Alliance AS4C32M16SB grade -7.
_PARTS = (
    SdramPart(name="MT48LC16M16A2-75", word_bits=16, columns=512, rows=8192, banks=4, t_rp=20, t_rcd=20, t_ras=44, t_rc=66,
              t_rfc=66, t_rrd=15, t_wr=15, t_ck={2: 10, 3: 7.5}, t_ac=6, t_oh=2.7, t_hz=6, power_up=100e3, init_refreshes=2),
    SdramPart(name="IS42S16160G-7", word_bits=16, columns=512, rows=8192, banks=4, t_rp=15, t_rcd=15, t_ras=37, t_rc=60, t_rfc=60,
              t_rrd=14, t_wr=14, wr_clocks=2, t_mrd=14, t_ck={2: 10, 3: 7}, t_ac=6, t_oh=2.7, t_hz=6),
    SdramPart(name="AS4C32M16SB-7", word_bits=16, columns=1024, rows=8192, banks=4, t_rp=21, t_rcd=21, t_ras=42, t_rc=63, t_rfc=63,
              t_rrd=14, t_wr=14, wr_clocks=2, t_mrd=14, t_ck={2: 10, 3: 7}, t_ac=6, t_oh=2.5, t_hz=6),
)
PARTS: dict[str, SdramPart] = {part.name: part for part in (*_PARTS, slowest("ULX3S", *_PARTS))}
"""Parts by name. ``ULX3S``: whichever of the three a production run of the board carries, as the smallest and slowest of them."""


def part_named(name: str) -> SdramPart:
    """A part by name.

    Raises
    ------
    :exc:`ConfigError`
        If there is none of this name.
    """
    if name not in PARTS:
        raise ConfigError(f"there is no SDRAM {name!r}: give one of {', '.join(PARTS)}")
    return PARTS[name]
