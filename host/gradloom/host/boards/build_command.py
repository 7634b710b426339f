"""``gradloom build``: from a board's name to a bitstream, its report and its page."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gradloom.boards.board import board_named
from gradloom.boards.build_report import BuildReport
from gradloom.contracts.matrix_config import load_training_machine
from gradloom.host.boards.build_page import render_build
from gradloom.host.devices.board_choice import build_folder
from gradloom.host.environment import check_output_folder, check_yosys
from gradloom.host.files import UserError, write_text

__all__ = ["BuildProgress", "earlier_report", "run"]

_SHARES = {"sources": 0.02, "synthesis": 0.2, "placement": 0.25, "routing": 0.52, "bitstream": 0.01}
"""What the stages took of a build of *pico*; for a first guess of how long it will take."""


def earlier_report(folder: Path) -> BuildReport | None:
    """The report of what was built in a folder."""
    try:
        return BuildReport.from_json((folder / "report.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        return None


class BuildProgress:
    """A line now and then: the stage, what its tool says, and how long the rest may take.

    The estimate takes the stages' shares of an earlier build, or of the one in the folder if there is one.

    Parameters
    ----------
    seconds : mapping
        What an earlier build took, by stage.
    """

    def __init__(self, stages: Sequence[str], seconds: dict[str, float] | None = None) -> None:
        self._stages, self._expected = list(stages), seconds
        self._begun: dict[str, float] = {}
        self._start = time.monotonic()

    def left(self, stage: str, now: float) -> str:
        """Estimate of what is left."""
        place = self._stages.index(stage)
        if self._expected:
            rest = sum(self._expected.get(name, 0.0) for name in self._stages[place:]) - (now - self._begun[stage])
        elif place == 0:
            return "time left unknown"
        else:
            ended = self._begun[stage] - self._start
            share = sum(_SHARES[name] for name in self._stages[:place])
            rest = ended / share * (1 - share) - (now - self._begun[stage])
        minutes = round(max(0.0, rest) / 60)
        return f"about {minutes} min left" if minutes else "less than a minute left"

    def __call__(self, stage: str, text: str) -> None:
        now = time.monotonic()
        self._begun.setdefault(stage, now)
        place = self._stages.index(stage) + 1
        print(f"[{place}/{len(self._stages)}] {stage}: {text}  ({self.left(stage, now)})", file=sys.stderr, flush=True)


def run(options: argparse.Namespace) -> int:
    try:
        from gradloom.boards.build import MARGIN, PLACER_OPTIONS, ROUTER_OPTIONS, STAGES, BuildRequest, build
    except ImportError as error:
        missing = (error.name or "a package").replace("_", "-")
        raise UserError(f"gradloom build needs {missing}: pip install 'gradloom[boards]'") from None
    from gradloom.boards.tools import BuildError
    from gradloom.rtl.verilog import EmissionError

    board = board_named(options.board)
    config = board.config if options.config is None else load_training_machine(options.config)
    folder = options.out or build_folder(board)
    check_output_folder(folder)
    check_yosys()
    try:
        request = BuildRequest(
            board=board, config=config, clock=board.clock if options.freq is None else round(options.freq * 1e6),
            block_ram=None if options.block_ram is None else options.block_ram << 10, seed=options.seed,
            margin=MARGIN if options.margin is None else options.margin,
            placer=PLACER_OPTIONS, router=tuple(options.router.split()) if options.router else ROUTER_OPTIONS)
    except ValueError as error:
        raise UserError(str(error)) from None
    before = earlier_report(folder)
    try:
        result = build(folder, request, fresh=options.fresh, report=BuildProgress(STAGES, before.seconds if before else None))
    except (BuildError, EmissionError) as error:
        _page(folder)
        print(f"gradloom: error: {error}", file=sys.stderr)
        return 1
    _page(folder)
    print(f"{folder / 'top.bit'}: {result.machine.name} for {result.board}, {result.clock_mhz:g} MHz, {result.reached_mhz:.2f} MHz "
          f"reached (routed); build {result.build}")
    print(f"{folder / 'report.html'}: what it takes of the device, and what is slowest")
    return 0


def _page(folder: Path) -> None:
    """The page of what was routed, if anything was."""
    report = earlier_report(folder)
    if report is not None:
        write_text(folder / "report.html", render_build(report))
