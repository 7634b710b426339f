"""The machine as Verilog: every distinct repeated component once, then the top level."""

import re
from collections.abc import Callable

from amaranth.back.verilog import YosysError
from amaranth.lib import wiring

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.rtl import shared_module
from gradloom.rtl.accelerator import Accelerator

__all__ = ["TOP", "EmissionError", "emit_design", "emit_verilog"]

TOP = "gradloom"
"""Name of the top module; its ports are ``clk``, ``rst`` and those of :class:`gradloom.rtl.accelerator.Accelerator`."""


class EmissionError(RuntimeError):
    """Yosys, which writes the Verilog, is not there or failed; the message is its telling line."""


def _telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|ERROR): ", line)]
    return (named or lines or ["it said nothing"])[-1]


def emit_design(build: Callable[[], wiring.Component], top: str) -> dict[str, str]:
    """Verilog files by name: one, ``<top>.v``, of the component that ``build`` makes and of all that it instantiates.

    Raises
    ------
    :exc:`EmissionError`
        If Yosys fails.
    """
    try:
        return {f"{top}.v": shared_module.convert(build, top)}
    except YosysError as error:
        raise EmissionError(f"Verilog cannot be written, Yosys failed: {_telling_line(str(error))}") from None


def emit_verilog(config: Config | MatrixConfig, *, top: str = TOP, events: bool = False) -> dict[str, str]:
    """Verilog files by name. One file, ``<top>.v``, holds every module; the text depends on ``config`` alone.

    ``events`` adds the output of that name, for simulators.

    Raises
    ------
    :exc:`EmissionError`
        If Yosys fails.
    """
    return emit_design(lambda: Accelerator(config, events=events), top)
