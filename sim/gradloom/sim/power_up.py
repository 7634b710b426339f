"""A machine as it wakes up where nothing gives flip-flops and memories an initial value.

FPGAs load initial values with their bitstream; an ASIC has none, and a board's reset may come long after its configuration. What a
machine computes must hang on its reset alone, so a simulation may take the values away and let Verilator draw them at random.
"""

import re

__all__ = ["without_initial_values"]

_REGISTER = re.compile(r"^(\s*reg (?:\[[^\]]*\] )?)((?!\\\$auto)\S+ ?) = [^;]*;", re.MULTILINE)
_CONTENTS = re.compile(r"^  initial begin\n(?:    \S+ ?\[\d+\] = [^;]*;\n)+  end\n", re.MULTILINE)
_ZEROS = re.compile(r"[^=]*(?:= \d+'[hd]0+;[^=]*)*")


def without_initial_values(verilog: str) -> str:
    """Verilog of Amaranth's back end without the initial values of registers, and of memories that begin with zeros.

    Other memories are tables (microprograms) and keep their contents.
    """
    return _CONTENTS.sub(lambda block: "" if _ZEROS.fullmatch(block[0]) else block[0], _REGISTER.sub(r"\1\2;", verilog))
