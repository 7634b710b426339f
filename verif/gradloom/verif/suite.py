"""The suite's own options, a plugin of pytest that ``pyproject.toml`` names, so that they are there wherever its paths point.

``--long``: also the tests that take minutes and have a smaller representative in the suite (``nox -s eta``).

``--skips-to FILE`` and ``--no-skips`` see to it that nothing is skipped in silence: the first writes what was skipped for want of
something on this machine, so that it can be run where that is (``pytest @FILE``); the second fails if any such thing is left.

``--netlist MODULES``: cocotb benches simulate netlists of gates in the place of these modules of the emitted Verilog, or, with
``ecp5``, of an ECP5's cells in the place of all of it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from gradloom.verif.garbage import search_seldom

__all__ = ["FIRST", "SkipLog", "beginning_with_the_longest"]

FIRST = tuple(f"verif/tests/{file}" for file in (
    "formal/test_formal_arith.py", "rtl/test_accelerator.py", "rtl/acore/test_acore.py", "host/test_schedule.py",
    "rtl/ccore/test_ccore.py", "verif/mutants/test_run.py", "system/test_verify.py", "host/tiles/test_convolution.py",
    "host/tiles/test_row_tiles.py", "system/test_board.py", "rtl/acore/test_scalar_stage.py", "host/test_tune.py",
    "system/test_train_rtl.py", "host/tiles/test_resident_planes.py"))
"""Files whose tests take longest, one minute to some each."""

HOURS = "nox -s"
"""The reason of a skip that names a nox session says where the test runs."""
ELSEWHERE = ("needs a GPU", "needs a board")
"""Reasons of skips that a machine without these cannot help."""


settings.register_profile("gradloom", derandomize=True, deadline=None)  # the same examples everywhere, on a busy machine too
settings.load_profile("gradloom")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")
    parser.addoption("--skips-to", type=Path, metavar="FILE", help="write what was skipped here, but for long tests, a line each")
    parser.addoption("--no-skips", action="store_true",
                     help="fail if more is skipped than long tests and what needs a GPU or a board")
    parser.addoption("--netlist", type=lambda text: text.split(","), metavar="MODULES",
                     help="run the cocotb benches that are named on gates that Yosys makes of their modules (commas between them; "
                          "'all': of the whole component; 'ecp5': that in cells of an ECP5)")


def pytest_configure(config: pytest.Config) -> None:
    search_seldom()  # a fifth of the time in which Amaranth makes a machine
    config.addinivalue_line("markers", "long(reason): takes a minute or more, and a smaller one runs in its place")
    if not hasattr(config, "workerinput"):  # the workers of xdist report to the one process that has this
        config.pluginmanager.register(SkipLog(config), "gradloom-skips")
    if config.getoption("--netlist"):
        from gradloom.verif.synthesis.netlist_option import NetlistOption  # brings cocotb, which few runs need

        config.pluginmanager.register(NetlistOption(config.getoption("--netlist")), "gradloom-netlist")


def beginning_with_the_longest(names: Sequence[str]) -> list[int]:
    """Places of these tests in the order in which they run: those of :data:`FIRST` are at the front of both halves, with which two
    workers of xdist begin. At the end each then has short ones, so that neither waits long for the other. A file stays together,
    but for the one in the middle.
    """
    by_file = [[n for n, name in enumerate(names) if name.startswith(f"{file}::")] for file in FIRST]
    front, middle = ([n for places in by_file[half::2] for n in places] for half in (0, 1))
    moved = {*front, *middle}
    rest = [n for n in range(len(names)) if n not in moved]
    split = max(0, len(names) // 2 - len(front))
    return [*front, *rest[:split], *middle, *rest[split:]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = [items[n] for n in beginning_with_the_longest([item.nodeid for item in items])]
    if config.getoption("--long"):
        return
    for item in items:
        mark = item.get_closest_marker("long")
        if mark is not None:
            # Skipped, as the suite has to stay under 45 minutes on 2 cores; pytest lists the reasons.
            item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]}: nox -s eta"))


class SkipLog:
    """What was skipped, and why."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reasons: dict[str, str] = {}
        """By node, or by file where a whole file was skipped."""

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.reasons[report.nodeid] = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def wanting(self) -> dict[str, str]:
        """What another machine, or another package, would run."""
        return {node: reason for node, reason in self.reasons.items() if HOURS not in reason}

    def left(self) -> dict[str, str]:
        """What ``--no-skips`` does not allow."""
        return {node: reason for node, reason in self.wanting().items() if not any(words in reason for words in ELSEWHERE)}

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        file = self.config.getoption("--skips-to")
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{node}\n" for node in self.wanting()))
        if self.config.getoption("--no-skips") and self.left() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.config.getoption("--no-skips"):
            for node, reason in self.left().items():
                terminalreporter.write_line(f"SKIPPED, which --no-skips does not allow: {node}: {reason}", red=True)
