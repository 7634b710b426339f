"""The pin-level SDRAM model: a legal waveform breaks no rule and keeps its data; every rule broken once, alone, is named with its
bank and cycle."""

import dataclasses

import pytest

from gradloom.sim.sdram_model import Pins, SdramModel, model_settings
from gradloom.verif.board.sdram_bench import CLOCK, small_part

PART = small_part(t_rrd=30, t_rc=80)  # tRC is more than tRAS + tRP, tRRD more than a cycle after tRCD
TIMING = PART.timing(CLOCK)
NOP = Pins(cs_n=1)
PRECHARGE_ALL = Pins(cs_n=0, ras_n=0, we_n=0, a=1 << 10)
REFRESH = Pins(cs_n=0, ras_n=0, cas_n=0)


def mode(value=2 << 4, **changes):
    return Pins(cs_n=0, ras_n=0, cas_n=0, we_n=0, a=value, **changes)


def activate(bank, row=3):
    return Pins(cs_n=0, ras_n=0, ba=bank, a=row)


def read(bank, column=5):
    return Pins(cs_n=0, cas_n=0, ba=bank, a=column)


def write(bank, column=5, data=0xABCD, **changes):
    return dataclasses.replace(Pins(cs_n=0, cas_n=0, we_n=0, ba=bank, a=column, dq_o=data, dq_oe=1), **changes)


def precharge(bank):
    return Pins(cs_n=0, ras_n=0, we_n=0, ba=bank)


def wait(cycles):
    return [NOP] * cycles


POWER_UP = [*wait(TIMING.power_up), PRECHARGE_ALL, *wait(TIMING.rp - 1), *[REFRESH, *wait(TIMING.rfc - 1)] * TIMING.init_refreshes,
            mode(), *wait(TIMING.mrd - 1)]
BEGIN = len(POWER_UP)


def play(waveform, **settings):
    """dq_i in each cycle, violations, the memory in the end, counts."""
    with SdramModel(model_settings(PART, TIMING) | settings) as model:
        model.data[:] = bytes(n * 7 & 255 for n in range(model.size))
        return [model.step(pins) for pins in waveform], model.violations, bytes(model.data), model.counts


def violations(*waveform, **settings):
    return play([*POWER_UP, *waveform], **settings)[1]


def word(bank, row, column):
    return 2 * ((row * PART.banks + bank) * PART.columns + column)


@pytest.mark.parametrize("cas", [2, 3])
@pytest.mark.parametrize("capture", [0, 1])
def test_data_come_after_the_latency_and_noise_in_all_other_cycles(cas, capture):
    power_up = [*POWER_UP[:-TIMING.mrd], mode(cas << 4), *wait(TIMING.mrd - 1)]
    waveform = [*power_up, activate(2), *wait(TIMING.rcd - 1), write(2), write(2, 6, 0x1234, dqm=2), read(2), read(2, 6), *wait(4)]
    seen, told, memory, counts = play(waveform, capture=capture)
    assert told == []
    at = len(power_up) + TIMING.rcd + 2
    old = word(2, 3, 6) * 7 + 7 & 255  # the byte that DQM kept
    assert [n for n, value in enumerate(seen) if value in (0xABCD, old << 8 | 0x34)] == [at + cas - 1 + capture, at + cas + capture]
    assert len(set(seen)) > 0.9 * len(seen)
    assert memory[word(2, 3, 5):][:4] == bytes([0xCD, 0xAB, 0x34, old])
    assert (counts.reads, counts.writes, counts.activates, counts.refreshes) == (2, 2, 1, TIMING.init_refreshes)


def test_a_legal_waveform_at_the_shortest_distances_breaks_no_rule():
    opened = [activate(0), *wait(TIMING.rrd - 1), activate(1), *wait(TIMING.ras - 1)]
    turned = [read(0), *wait(TIMING.cas + 1), write(1), *wait(TIMING.wr - 1), PRECHARGE_ALL, *wait(TIMING.rp - 1)]
    assert violations(*opened, *turned, REFRESH, *wait(TIMING.rfc - 1), activate(3), *wait(TIMING.rcd - 1), read(3),
                      *wait(TIMING.rc)) == []


OPEN = [activate(1), *wait(TIMING.rcd - 1)]
LONG = [activate(1), *wait(TIMING.rc)]
SHORT = [activate(1), *wait(TIMING.ras - 1), precharge(1), *wait(TIMING.rp - 1)]
BESIDE = "the data pins are driven beside read data, or right after"
RULES = {
    "tRP: bank 1: ACTIVATE too soon after PRECHARGE": [*LONG, precharge(1), *wait(TIMING.rp - 2), activate(1)],
    "tRP: bank 1: REFRESH too soon after PRECHARGE": [*LONG, precharge(1), *wait(TIMING.rp - 2), REFRESH],
    "tRCD: bank 1: READ too soon after ACTIVATE": [activate(1), *wait(TIMING.rcd - 2), read(1)],
    "tRCD: bank 1: WRITE too soon after ACTIVATE": [activate(1), *wait(TIMING.rcd - 2), write(1)],
    "tRAS: bank 1: PRECHARGE too soon after ACTIVATE": [activate(1), *wait(TIMING.ras - 2), precharge(1)],
    "tRC: bank 1: ACTIVATE too soon after ACTIVATE": [*SHORT, activate(1)],
    "tRC: bank 1: REFRESH too soon after ACTIVATE": [*SHORT, REFRESH],
    "tRFC: a command too soon after REFRESH": [REFRESH, *wait(TIMING.rfc - 2), activate(1)],
    "tRRD: bank 2: ACTIVATE too soon after ACTIVATE of another bank": [activate(1), *wait(TIMING.rrd - 2), activate(2)],
    "tWR: bank 1: PRECHARGE too soon after WRITE": [*LONG, write(1), *wait(TIMING.wr - 2), precharge(1)],
    "tMRD: a command too soon after LOAD MODE REGISTER": [mode(), *wait(TIMING.mrd - 2), activate(1)],
    "tREFI: no REFRESH for too long": wait(model_settings(PART, TIMING)["refresh_gap"] + 2 - TIMING.mrd),
    "bank state: bank 1: READ while it is closed": [read(1)],
    "bank state: bank 1: WRITE while it is closed": [write(1)],
    "bank state: bank 1: ACTIVATE while it is open": [*LONG, activate(1)],
    "bank state: bank 1: REFRESH while it is open": [*LONG, REFRESH],
    "bank state: bank 1: LOAD MODE REGISTER while it is open": [*LONG, mode()],
    f"bus contention: bank 1: {BESIDE}": [*OPEN, read(1), *wait(TIMING.cas), write(1)],
    "data pins: bank 1: a WRITE whose data nobody drives": [*OPEN, write(1, dq_oe=0)],
    "DQM: bank 0: high without a WRITE": [Pins(cs_n=1, dqm=1)],
    "row end: bank 1: READ beyond the row": [*OPEN, read(1, PART.columns)],
    "row end: bank 1: WRITE beyond the row": [*OPEN, write(1, 512)],
    "row: bank 1: ACTIVATE of a row that is not there": [activate(1, PART.rows)],
    "auto precharge: bank 1: READ with A10 high": [*OPEN, read(1, 5 | 1 << 10)],
    "mode: not burst length 1, sequential, standard operation": [mode(2 << 4 | 1)],
    "mode: CAS latency is neither 2 nor 3": [mode(4 << 4)],
    "CKE: a command while CKE is low": [dataclasses.replace(activate(1), cke=0)],
    "command: BURST TERMINATE": [Pins(cs_n=0, we_n=0)],
}


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_named_with_its_cycle(rule):
    assert violations(*RULES[rule]) == [f"in cycle {BEGIN + len(RULES[rule]) - 1}: {rule}"]


def test_masked_read_data_are_named():
    """DQM is two cycles early of read data, in or after their READ. It may be high only with a WRITE, so two rules are broken."""
    for cas, place in ((2, 0), (3, 1)):
        waveform = [*OPEN, read(1), NOP, NOP, NOP]
        waveform[len(OPEN) + place] = dataclasses.replace(waveform[len(OPEN) + place], dqm=1)
        rules = [line.split(": ", 1)[1] for line in play([*POWER_UP[:-TIMING.mrd], mode(cas << 4), NOP, *waveform])[1]]
        assert rules == [f"DQM: bank {1 - place}: high without a WRITE", "DQM: bank 1: read data are masked"]


def test_a_cas_latency_too_small_for_the_clock_is_named():
    assert violations(least_cas=3) == [f"in cycle {BEGIN - TIMING.mrd}: CAS latency: too small for the clock"]


@pytest.mark.parametrize(("waveform", "rule"), [
    ([*POWER_UP[:TIMING.power_up - 1], PRECHARGE_ALL], "power-up: a command before the clock was stable for long enough"),
    ([*wait(TIMING.power_up), mode()], "power-up: LOAD MODE REGISTER before PRECHARGE ALL and enough REFRESH"),
    ([*wait(TIMING.power_up), PRECHARGE_ALL, *wait(1), REFRESH, *wait(TIMING.rfc), mode()],
     "power-up: LOAD MODE REGISTER before PRECHARGE ALL and enough REFRESH"),
    ([*wait(TIMING.power_up), activate(0)], "power-up: bank 0: ACTIVATE before LOAD MODE REGISTER"),
])
def test_power_up(waveform, rule):
    assert play(waveform)[1] == [f"in cycle {len(waveform) - 1}: {rule}"]


def test_every_row_needs_its_refresh_within_the_retention_time():
    """Refreshes that keep the interval on average, or at the most allowed from one to the next for all rows."""
    gap = TIMING.retention // PART.rows
    first = wait(gap - 1 - TIMING.mrd)  # the time runs from LOAD MODE REGISTER on
    assert violations(*first, REFRESH, *[*wait(gap - 1), REFRESH] * (2 * PART.rows)) == []
    late = violations(*[*wait(gap + 9), REFRESH] * (2 * PART.rows))
    assert late and all("refresh count: a row was not refreshed within the retention time" in line for line in late)


def test_columns_that_are_not_there_and_data_that_are_forgotten():
    """As real parts: an address pin that a part lacks does nothing; without REFRESH the data go."""
    waveform = [*OPEN, write(1, PART.columns | 5), *wait(TIMING.retention + 30)]
    _, told, memory, _ = play([*POWER_UP, *waveform], ignores_columns=1)
    assert memory[word(1, 3, 5):][:2] == b"\xcd\xab" and len(told) == 1
    assert play([*POWER_UP, *waveform], ignores_columns=1, forgets=1)[2][word(1, 3, 5):][:2] == b"\x32\x54"


def test_no_more_than_32_are_kept():
    assert len(violations(*[read(0)] * 50)) == 32
