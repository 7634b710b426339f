"""``gradloom flash``: the bitstream of a build into its board, and whether the board then answers as what was built."""

import argparse
import hashlib
import sys
from pathlib import Path

from gradloom.boards.board import Board, board_named
from gradloom.boards.build_report import BuildReport
from gradloom.host.boards.build_command import earlier_report
from gradloom.host.boards.loader import load_bitstream
from gradloom.host.boards.self_test import check_range
from gradloom.host.devices.board_choice import BoardChoice, build_folder
from gradloom.host.devices.board_opening import open_board
from gradloom.host.files import UserError
from gradloom.host.link.cables import cable_of

__all__ = ["built", "run"]


def built(folder: Path, board: str) -> tuple[Path, BuildReport]:
    """Bitstream and report of a build for a board.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If there is none, it is for another board, or one of the two is not of the same build.
    """
    bitstream, report = folder / "top.bit", earlier_report(folder)
    if report is None or not bitstream.is_file():
        raise UserError(f"there is no bitstream in {folder}: run gradloom build --board {board}, or give the folder of one with "
                        "--build")
    if report.board != board:
        raise UserError(f"the bitstream in {folder} is for {report.board}, not for {board}: give the folder of another with "
                        "--build")
    if hashlib.sha256(bitstream.read_bytes()).hexdigest() != report.files.get("top.bit"):
        raise UserError(f"{bitstream} is not the one that {folder / 'report.json'} tells of: run gradloom build --board {board} "
                        "again")
    return bitstream, report


def run(options: argparse.Namespace) -> int:
    board = board_named(options.board)
    bitstream, report = built(options.build or build_folder(board), board.name)
    cable = cable_of(board, options.port)
    idcode = load_bitstream(board, bitstream, persistent=options.persistent, serial=cable.serial)
    print(f"{bitstream} is in {'the flash memory of ' if options.persistent else ''}{board.name} at {cable.port} (die "
          f"0x{idcode:08x}): {report.machine.name} at {report.clock_mhz:g} MHz, build {report.build}")
    if not options.no_test:
        _test(board, report, cable.port)
    return 0


def _test(board: Board, report: BuildReport, port: str) -> None:
    """Whether it is what was built, and whether its memory keeps what is written."""
    device = open_board(BoardChoice(board, simulated=False, port=port), report.machine, build=int(report.build, 16))
    try:
        identity = device.link.identity
        check_range(device, identity.memory_base, identity.memory_bytes,
                    report=lambda text: print(f"memory: {text}", file=sys.stderr, flush=True))
    finally:
        device.close()
    print(f"the board answers as build {report.build}, and its memory of {identity.memory_bytes >> 10:,} KiB keeps what is written")
