"""Block RAM, multiplier, pads and PLL in Verilator do what Lattice's documents say, for every width and sign; a fault in a model
is seen."""

import pytest

from gradloom.verif.ecp5.cell_bench import CASES, Case, run_cases
from gradloom.verif.ecp5.cell_faults import FAULTS, Fault

KINDS = {case.kind for case in CASES}
PLANTED = [fault for fault in FAULTS if any(kind in KINDS for kind in fault.kinds)]


def victim(fault: Fault) -> Case:
    """The case that is about what the fault breaks."""
    wanted = {"assign DOA = shown_b": "36 and 36", "WRITEMODE_A ==": "18 and 1 ", "{18'd0, {9": "18 and 18", "at_once_b": "4 and 4",
              "if (RST0)": "all signs INPUT OUTPUT", "REG_OUTPUT_CLK": "all signs OUTPUT", "DATAMUX_ODDR": "OUTPUT PADDO IOLDO",
              "TRIMUX_TSREG": "BIDIR PADDO PADDO IOLTO", "CLK ? high": "IDDRX1"}
    name = next((name for text, name in wanted.items() if text in fault.old), "")
    return next(case for case in CASES if case.kind in fault.kinds and case.name.startswith(name) and (
        "CONTENTS" not in fault.old or "INITVAL" in case.parameters))


@pytest.fixture(scope="module")
def results():
    """One build for all: of cases, then of faults."""
    return run_cases([(case, ()) for case in CASES] + [(victim(fault), (fault,)) for fault in PLANTED])


def test_as_described(results):
    wrong = {f"{case.kind}, {case.name}": row for case, row in zip(CASES, results[:len(CASES)], strict=True) if row is not None}
    assert wrong == {}


@pytest.mark.parametrize("number", range(len(PLANTED)))
def test_planted(results, number):
    assert results[len(CASES) + number] is not None, PLANTED[number]
