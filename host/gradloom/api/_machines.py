"""Machines from Python: Verilog of one, and the devices that a network can train on here."""

import dataclasses
from pathlib import Path

from gradloom.api._errors import in_python, plain_errors
from gradloom.api._given import Source, name_of, path_of
from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.host.commands.verilog_command import VerilogRequest, write_verilog
from gradloom.host.devices.available import DeviceStatus, available

__all__ = ["devices", "verilog"]


@plain_errors()
def verilog(config: Config | MatrixConfig | Source, out: Path | str, *, family: str = "any", package: bool = False,
            ) -> tuple[Path, ...]:
    """Write a machine's Verilog, its register map (Markdown, C header, JSON) and its resolved configuration.

    Parameters
    ----------
    config : :class:`Config`, :class:`MatrixConfig`, or name or file
        A machine, or what :func:`load_machine` takes.
    out : path
        Folder to write, which must not exist; it is whole or absent.
    family : :class:`str`
        "any", or "xc7": the array's MACs are DSP48E1 slices of the Xilinx 7 series.
    package : :class:`bool`
        Also a FuseSoC core file, the registers in SystemRDL and, of a machine whose beats have 16 bits, a top module with AXI4 data
        of 32 bits.

    Returns
    -------
    tuple of :class:`~pathlib.Path`
        The files, by name.

    Raises
    ------
    :exc:`UserError`
        If the folder exists or cannot be written, the family does not fit the machine, or Yosys is missing.
    """
    return write_verilog(VerilogRequest(config=name_of(config), out=path_of(out), family=family, package=package))


def devices() -> tuple[DeviceStatus, ...]:
    """Every device by the name that ``device`` takes, and why those that cannot be used here cannot.

    A compiler is tried, which takes a second; nothing is built, and no board is opened.
    """
    return tuple(dataclasses.replace(found, reason=found.reason and in_python(found.reason)) for found in available())
