"""Faults that one may plant in the models of ECP5 cells: each check of them must notice its own."""

import dataclasses
import re
from collections.abc import Sequence

from gradloom.sim.netlist.cells import models

__all__ = ["FAULTS", "Fault", "prefixed"]


@dataclasses.dataclass(frozen=True)
class Fault:
    """``old`` becomes ``new`` in the models; ``kinds`` are the cells that go wrong."""

    kinds: tuple[str, ...]
    old: str
    new: str


FAULTS = (
    Fault(("LUT4",), "assign Z = INIT[{D, C, B, A}];", "assign Z = INIT[{C, D, B, A}];"),
    Fault(("PFUMX",), "C0 ? ALUT : BLUT", "C0 ? BLUT : ALUT"),
    Fault(("L6MUX21",), "SD ? D1 : D0", "SD ? D0 : D1"),
    Fault(("CCU2C", "TRELLIS_COMB carry"), "assign COUT = lut ? CIN : made;", "assign COUT = lut ? made : CIN;"),
    Fault(("CCU2C", "TRELLIS_COMB carry"), 'INJECT1 == "YES" ? 1\'b0 : INIT[{2\'b00, B, A}]', "INIT[{2'b00, B, A}]"),
    Fault(("CCU2C", "TRELLIS_COMB carry"), 'lut ^ (INJECT1 == "YES" ? 1\'b0 : CIN)', "lut ^ CIN"),
    Fault(("TRELLIS_COMB",), "assign F = INITVAL[{D, C, B, A}];", "assign F = INITVAL[{C, D, B, A}];"),
    Fault(("TRELLIS_COMB",), "M ? FXB : FXA", "M ? F1 : F"),
    Fault(("TRELLIS_COMB ram",), ".RAD({A, C, B, D})", ".RAD({D, C, B, A})"),
    Fault(("TRELLIS_COMB ram",), "= {A0, C0, B0, D0};", "= {D0, C0, B0, A0};"),
    Fault(("TRELLIS_COMB ram",), ".INIT({INITVAL[15], INITVAL[7],", ".INIT({INITVAL[15], INITVAL[14],"),
    Fault(("TRELLIS_FF",), 'SD == "1" ? DI : M', "DI"),
    Fault(("TRELLIS_FF",), 'CEMUX == "INV" ? ~CE : CE', "CE"),
    Fault(("TRELLIS_FF",), 'SRMODE == "ASYNC"', "0"),
    Fault(("TRELLIS_FF",), "if (again) state <= VALUE;\n        else if (enabled) state <= data;\n    end\n",
          "if (enabled) state <= again ? VALUE : data;\n    end\n"),
    Fault(("TRELLIS_DPR16X4",), "if (write) mem[WAD] <= DI", "mem[WAD] <= DI"),
    Fault(("DP16KD",), "? written : 36'd0)", "? 36'd0 : 36'd0)"),
    Fault(("DP16KD",), 'WRITEMODE_A == "READBEFOREWRITE"', "1"),
    Fault(("DP16KD",), "CONTENTS[40 * i + 20 +: 18]", "CONTENTS[40 * i + 18 +: 18]"),
    Fault(("DP16KD",), "6'd9 * {4'd0, AD[4:3]}", "6'd8 * {4'd0, AD[4:3]}"),
    Fault(("DP16KD",), "{18'd0, {9{AD[1]}}, {9{AD[0]}}}", "{18'd0, {9{AD[0]}}, {9{AD[1]}}}"),
    Fault(("DP16KD",), "assign DOA = shown_b;\n      assign DOB = upper_b;", "assign DOA = upper_b;\n      assign DOB = shown_b;"),
    Fault(("DP16KD",), "CEA & (CSA == 3'd0)", "CEA"),
    Fault(("DP16KD",), "if (at_once_a | RSTA) shown_a <= 18'd0;\n    else if", "if"),
    Fault(("DP16KD",), 'at_once_b = RESETMODE == "ASYNC" & RSTB', "at_once_b = RSTB"),
    Fault(("DP16KD",), "if (at_once_b | RSTB)", "if (on_b & (at_once_b | RSTB))"),
    Fault(("MULT18X18D",), "{19{from_b[18] & from_b[17]}}", "{19{from_a[18] & from_b[17]}}"),
    Fault(("MULT18X18D",), "if (RST0) value <= {WIDTH{1'b0}};\n        else if (CE0)",
          "if (CE0) value <= RST0 ? {WIDTH{1'b0}} : D;\n        else if (0)"),
    Fault(("MULT18X18D",), ".WIDTH(36), .CLK(REG_OUTPUT_CLK)", '.WIDTH(36), .CLK("NONE")'),
    Fault(("MULT18X18D",), "SOURCEA ? SRIA : A", "A"),
    Fault(("TRELLIS_IO",), ' || DATAMUX_ODDR == "IOLDO"', ""),
    Fault(("TRELLIS_IO",), 'TRIMUX_TSREG == "IOLTO" ? IOLTO : T', "T"),
    Fault(("TRELLIS_IO",), 'DIR == "INPUT" ? 1\'b1 : ', ""),
    Fault(("IOLOGIC",), "assign IOLDO = CLK ? high : low;", "assign IOLDO = CLK ? low : high;"),
    Fault(("IOLOGIC",), "assign IOLTO = off;", "assign IOLTO = TSDATA0;"),
    Fault(("IOLOGIC",), "assign INFF = in;", "assign INFF = PADDI;"),
    Fault(("EHXPLLL",), "assign LOCK = cycles[4];", "assign LOCK = cycles[3];"),
    Fault(("EHXPLLL",), "if (OFF) cycles <= 5'd0;\n    else if", "if"),
)
"""At least one for every kind that has a model with a function of its own."""

_MODULE = re.compile(r"^module (\w+)", re.MULTILINE)


def prefixed(prefix: str, faults: Sequence[Fault] = ()) -> str:
    """All models in one text, with ``prefix`` before the name of each, and with faults."""
    text = "\n".join(models().values())
    for fault in faults:
        assert text.count(fault.old) == 1, f"the models hold {fault.old!r} {text.count(fault.old)} times"
        text = text.replace(fault.old, fault.new)
    return re.sub(rf"\b({'|'.join(_MODULE.findall(text))})(?= *[(#]| +\w+ *\()", prefix + r"\1", text)
