"""Data sheets in cycles: no time is cut short, none is a cycle too long; clocks that a part cannot do are refused in a sentence."""

import dataclasses
import re

import pytest

from gradloom.contracts.config import ConfigError
from gradloom.contracts.sdram_timing import PARTS, SdramTiming, part_named, slowest

CLOCKS = [25_000_000, 50_000_000, 66_666_667, 100_000_000, 133_333_333, 142_857_142]
TIMES = {"rp": "t_rp", "rcd": "t_rcd", "ras": "t_ras", "rc": "t_rc", "rfc": "t_rfc", "rrd": "t_rrd", "power_up": "power_up"}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("clock", CLOCKS)
def test_cycles(name, clock):
    part, period = PARTS[name], 1e9 / clock
    if period < min(part.t_ck.values()) * (1 - 1e-8):
        with pytest.raises(ConfigError):
            part.timing(clock)
        return
    timing = part.timing(clock)
    for cycles, time in TIMES.items():
        found, least = getattr(timing, cycles), getattr(part, time)
        assert found * period >= least * (1 - 1e-8) and (found - 1) * period < least, (cycles, found)
    assert timing.wr == max(part.wr_clocks, -(-part.t_wr * clock // 1e9)) and timing.mrd >= part.mrd_clocks
    assert timing.retention * period <= part.retention < (timing.retention + 1.001) * period
    assert part.t_ck[timing.cas] <= period * (1 + 1e-8)
    assert timing.cas == 2 or part.t_ck[2] > period


def test_known_values():
    """MT48LC16M16A2-75 at 100 MHz by hand."""
    assert part_named("MT48LC16M16A2-75").timing(100_000_000) == SdramTiming(
        rp=2, rcd=2, ras=5, rc=7, rfc=7, rrd=2, wr=2, mrd=2, retention=6_400_000, power_up=10_000, init_refreshes=2, cas=2)
    assert part_named("AS4C32M16SB-7").size == 64 << 20 and part_named("IS42S16160G-7").size == 32 << 20
    assert part_named("AS4C32M16SB-7").widened(32).size == 128 << 20


def test_a_board_whose_part_is_not_known_keeps_the_rules_of_all():
    """In every time, at every clock that all of them can do."""
    common = PARTS["ULX3S"]
    for part in PARTS.values():
        assert common.columns <= part.columns and common.rows <= part.rows and common.banks <= part.banks
        for clock in (50_000_000, 100_000_000, 133_333_333):
            least, found = part.timing(clock), common.timing(clock)
            for field in dataclasses.fields(SdramTiming):
                one, other = getattr(found, field.name), getattr(least, field.name)
                assert one <= other if field.name == "retention" else one >= other, (part.name, field.name)
    assert slowest("one", PARTS["IS42S16160G-7"]).timing(10**8) == PARTS["IS42S16160G-7"].timing(10**8)


@pytest.mark.parametrize(("clock", "message"), [
    (200_000_000, "MT48LC16M16A2-75 cannot run at 200 MHz: its shortest clock period is 7.5 ns; take a clock of at most 133.3 MHz, "
                  "or another part"),
    (500_000, "MT48LC16M16A2-75 cannot run at 0.5 MHz: its 8192 rows need a REFRESH every 3 cycles, which leaves no time for data; "
              "take a clock of at least 0.8 MHz"),
    (0, "the memory's clock must be a positive whole number of hertz, not 0"),
    (1.5, "the memory's clock must be a positive whole number of hertz, not 1.5"),
])
def test_clocks_that_a_part_cannot_do(clock, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        part_named("MT48LC16M16A2-75").timing(clock)


@pytest.mark.parametrize(("change", "message"), [
    ({"word_bits": 8}, "MT48LC16M16A2-75: word_bits must be 16 or 32, not 8"),
    ({"columns": 2048}, "MT48LC16M16A2-75: columns must be a power of two in 2..1024, not 2048"),
    ({"rows": 3000}, "MT48LC16M16A2-75: rows must be a power of two in 2..8192, not 3000"),
    ({"banks": 1}, "MT48LC16M16A2-75: banks must be a power of two in 2..4, not 1"),
])
def test_geometries_that_are_refused(change, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(part_named("MT48LC16M16A2-75"), **change)


def test_an_unknown_part():
    with pytest.raises(ConfigError, match=r"^there is no SDRAM 'X': give one of MT48LC16M16A2-75, .*, ULX3S$"):
        part_named("X")
