"""What ``gradloom build`` left of a board, to be simulated cell by cell."""

import dataclasses
from pathlib import Path
from typing import Any

from gradloom.boards.board import Board
from gradloom.boards.build_report import BuildReport, read_json
from gradloom.contracts.config import Config
from gradloom.host.files import UserError

__all__ = ["RoutedBuild", "routed_build"]


@dataclasses.dataclass(frozen=True)
class RoutedBuild:
    """A routed design.

    Parameters
    ----------
    netlist : :class:`~pathlib.Path`
        nextpnr's JSON.
    machine : :class:`~gradloom.contracts.config.Config`
    clock : :class:`int`
        Hz that the design was built for.
    number : :class:`int`
        Of the build, which the design tells the host.
    """

    netlist: Path
    machine: Config
    clock: int
    number: int

    def design(self) -> dict[str, Any]:
        """The netlist.

        Raises
        ------
        :exc:`UserError`
            If it is damaged.
        """
        try:
            return read_json(self.netlist)
        except (OSError, ValueError) as error:
            raise UserError(f"{self.netlist} cannot be read ({error}): route it anew with gradloom build") from None


def routed_build(board: Board, folder: Path) -> RoutedBuild:
    """The build of a board in a folder.

    Raises
    ------
    :exc:`UserError`
        If there is none, or one of another board, without a netlist or without the board's SDRAM.
    """
    advice = f"gradloom build --board {board.name} --out {folder}"
    netlist = folder / "routed.json"
    try:
        report = BuildReport.from_json((folder / "report.json").read_text())
    except OSError:
        raise UserError(f"there is no build of {board.name} in {folder}: {advice}, or name its folder behind a colon") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{folder / 'report.json'} is no report of a build: {advice}") from None
    if report.board != board.name:
        raise UserError(f"the build in {folder} is of {report.board}, not of {board.name}: {advice}, or name another folder")
    if not report.memory.startswith("SDRAM"):
        raise UserError(f"the build in {folder} has {report.memory} in the place of the SDRAM, which is simulated at the pins: "
                        f"build it without --block-ram")
    if not netlist.is_file():
        raise UserError(f"the build in {folder} left no {netlist.name}: route it anew with {advice}")
    return RoutedBuild(netlist, report.machine, round(report.clock_mhz * 1e6), int(report.build, 16))
