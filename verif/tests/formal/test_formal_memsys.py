"""Proofs of the AXI4 units, each with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.memsys import FifoSpec, ReadSpec, SplitterSpec, WindowSpec, WriteSpec
from gradloom.verif.formal.run import planted_bug, run_formal

FIFO = "gradloom.rtl.fifo"
SPLIT = "gradloom.rtl.memory_path.axi"
READ = "gradloom.rtl.memory_path.axi_read"
WRITE = "gradloom.rtl.memory_path.axi_write"
WINDOW = "gradloom.rtl.memory_path.window"

FIFO_DEPTH = 12
"""Cycles: fills, empties and wraps a FIFO of 3 elements several times."""
SPLIT_DEPTH = 8
READ_DEPTH = 5
WRITE_DEPTH = 5


def test_window():
    assert run_formal(WindowSpec, "prove", 1)
    bug = planted_bug(WINDOW, "Value.cast(end) <= limit", "Value.cast(end)[:32] <= limit")
    assert not run_formal(lambda: WindowSpec(bug), "prove", 1)


@pytest.mark.parametrize(("depth", "block"), [(1, False), (3, False), (3, True)])
def test_fifo(depth, block):
    assert run_formal(lambda: FifoSpec(depth=depth, block=block), "bmc", FIFO_DEPTH, engine="sat")


@pytest.mark.parametrize(("before", "after"), [
    ("transparent_for=[write]", "transparent_for=[]"),
    ("Mux(get, successor(read_at), read_at)", "read_at"),
])
def test_block_fifo_bugs(before, after):
    bug = planted_bug(FIFO, before, after)
    assert not run_formal(lambda: FifoSpec(depth=3, block=True, design=bug), "bmc", FIFO_DEPTH, engine="sat")


@pytest.mark.parametrize(("before", "after"), [
    ("self.i.ready.eq(self.level != self.depth)", "self.i.ready.eq(1)"),
    ("pointer == self.depth - 1", "pointer == self.depth - 2"),
    ("self.level.eq(self.level + put - get)", "self.level.eq(self.level + put - self.o.valid)"),
    ("if self.block else read_at)", "if self.block else 0)"),
])
def test_fifo_bugs(before, after):
    bug = planted_bug(FIFO, before, after)
    assert not run_formal(lambda: FifoSpec(depth=3, design=bug), "bmc", FIFO_DEPTH, engine="sat")


def test_splitter():
    assert run_formal(SplitterSpec, "bmc", SPLIT_DEPTH, engine="sat")


@pytest.mark.parametrize(("before", "after"), [
    ("room.eq(BURST_BEATS - beat[:grid])", "room.eq(BURST_BEATS)"),
    ("(reach <= BURST_BEATS)", "(reach < BURST_BEATS)"),
    ("~beats[grid + 1:].any() & ", ""),
    ("rest_beats.eq(beats - room)", "rest_beats.eq(beats - room + 1)"),
    ("(~final | reach[grid])", "reach[grid]"),
    ("self.request.ready.eq(free & ~rest & ~self.clear)", "self.request.ready.eq(free & ~self.clear)"),
])
def test_splitter_bugs(before, after):
    bug = planted_bug(SPLIT, before, after)
    assert not run_formal(lambda: SplitterSpec(bug), "bmc", SPLIT_DEPTH, engine="sat")


def test_read_window():
    assert run_formal(ReadSpec, "prove", 3)


@pytest.mark.parametrize(("before", "after"), [
    ("issue.eq(take & inside)", "issue.eq(take)"),
    ("end=of.behind", "end=of.address + self.config.beat_bytes"),
    ("(~self.m_axi_arvalid | self.m_axi_arready)", "under_way.i.ready"),
    ("stopped = report.refused | report.failed", "stopped = report.failed"),
])
def test_read_bugs(before, after):
    bug = planted_bug(READ, before, after)
    assert not run_formal(lambda: ReadSpec(bug), "bmc", READ_DEPTH)


def test_write():
    assert run_formal(WriteSpec, "prove", 3)


@pytest.mark.parametrize(("before", "after"), [
    ("issue.eq(take & inside)", "issue.eq(take)"),
    ("free = ~self.m_axi_wvalid | self.m_axi_wready", "free = ~self.m_axi_wvalid | self.m_axi_wready | self.flush"),
    ("stopped = report.refused | report.failed", "stopped = report.failed"),
    ("stopped = report.refused | report.failed", "stopped = report.refused"),
    ("& ~stopped & ~bad_response & ~self.flush),", "& ~stopped & ~bad_response),"),
])
def test_write_bugs(before, after):
    bug = planted_bug(WRITE, before, after)
    assert not run_formal(lambda: WriteSpec(bug), "bmc", WRITE_DEPTH)
