"""The machine as Verilog: every distinct repeated component once, then the top level."""


from gradloom.rtl import emit
from gradloom.rtl.accelerator import Accelerator
from gradloom.rtl.config import Config

__all__ = ["TOP", "emit_verilog"]

TOP = "gradloom"
"""Name of the top module; its ports are ``clk``, ``rst`` and those of :class:`gradloom.rtl.accelerator.Accelerator`."""


def emit_verilog(config: Config, *, top: str = TOP, events: bool = False) -> dict[str, str]:
    """Verilog files by name. One file, ``<top>.v``, holds every module; the text depends on ``config`` alone.

    ``events`` adds the output of that name, for simulators.
    """
    return {f"{top}.v": emit.convert(lambda: Accelerator(config, events=events), top)}
