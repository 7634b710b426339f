"""What ``pytest --netlist MODULES`` adds to a run: benches on netlists, and proof that each test did simulate one."""

from collections.abc import Iterator

import pytest

from gradloom.verif import cocotb_run
from gradloom.verif.synth import SynthError, yosys_path

__all__ = ["NetlistOption"]

_PROPERTY = "netlist"


class NetlistOption:
    """Every bench simulates netlists of ``kinds`` (:func:`gradloom.verif.synthesis.gates.with_netlists`).

    A test that simulates none fails: nothing may pass for a netlist that is the emitted Verilog.

    Raises
    ------
    :exc:`pytest.UsageError`
        If Yosys is absent.
    """

    def __init__(self, kinds: list[str]) -> None:
        try:
            yosys_path()
        except SynthError as error:
            raise pytest.UsageError(f"--netlist: {error}") from None
        cocotb_run.netlist_of[:] = kinds
        self.lines: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        before = len(cocotb_run.simulated)
        yield
        found = cocotb_run.simulated[before:]
        if not found:
            pytest.fail("--netlist: this test simulated no netlist", pytrace=False)
        item.user_properties += [(_PROPERTY, str(netlist)) for netlist in found]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            # Properties, not the list itself: under xdist the tests run in other processes.
            self.lines += [f"NETLIST {report.nodeid}: {value}" for name, value in report.user_properties if name == _PROPERTY]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines:
            terminalreporter.write_line(line)
