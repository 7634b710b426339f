"""Planted in the checks themselves (``sim``, ``verif``); each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_TESTS = "verif/tests"

FAULTS = (
    Fault(
        "the AXI checker does not see that what waits changes",
        "sim/gradloom/sim/axi_checker.h",
        "now == payload_ ? NONE : CHANGED",
        "NONE",
        f"{_TESTS}/sim/test_axi_checker.py::test_address_channels",
    ),
    Fault(
        "the bench of a netlist runs on the emitted Verilog",
        "verif/gradloom/verif/cocotb_run.py",
        "    if kinds:\n",
        "    if not kinds:\n",
        f"{_TESTS}/verif/synthesis/test_gates.py::test_a_bench_runs_on_the_netlist",
    ),
    Fault(
        "operators pass for gates",
        "verif/gradloom/verif/synthesis/gates.py",
        "if not _GATE.fullmatch(kind)]",
        "if kind is None]",
        f"{_TESTS}/verif/synthesis/test_gates.py::test_an_operator_is_no_gate",
    ),
    Fault(
        "a flip-flop without a reset is always in reset",
        "sim/gradloom/sim/netlist/cells.py",
        'open={"LSR": "0"}',
        "open={}",
        f"{_TESTS}/sim/netlist/test_netlist_verilog.py::test_open_inputs_read_1_but_a_reset",
    ),
    Fault(
        "a block RAM that both ports write passes for one that has a model",
        "sim/gradloom/sim/netlist/cells.py",
        'zero=("WEB",), ',
        "",
        f"{_TESTS}/sim/netlist/test_netlist_verilog.py::test_what_has_no_model_is_refused",
    ),
)
