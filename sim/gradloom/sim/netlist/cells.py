"""What of each ECP5 cell has a model: ports, parameters with the values that our designs use, and what an open input reads.

The models are the ``.v`` files beside this one. Anything else in a netlist is refused by name, so that nothing is left out in
silence.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CELLS", "IGNORED", "Cell", "models"]

_OPTIONS = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A kind of cell.

    Parameters
    ----------
    inputs, outputs : mapping of port of the model to its pins, lowest bit first
        A port that a netlist has as a vector (``DI`` of TRELLIS_DPR16X4) has its own name as its only pin.
    bits : mapping of parameter to its width
        Taken over as numbers.
    options, numbers : mapping of parameter to values
        Taken over, as words or as numbers; the values are those that the model has.
    fixed : mapping of parameter to values
        Not taken over: what the model is for, or what says nothing about what a cell computes (any value if none stands here).
    zero, one : tuple of pins
        That must be tied to 0, or to 1.
    open : mapping of pin to bit
        What an input reads that nothing is joined to, where it is not 1.
    pin_muxes : :class:`bool`
        Whether a parameter ``<pin>MUX`` of 0, 1 or INV stands for a constant or an inverter before any pin.
    """

    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    bits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    options: _OPTIONS = dataclasses.field(default_factory=dict)
    numbers: _OPTIONS = dataclasses.field(default_factory=dict)
    fixed: _OPTIONS = dataclasses.field(default_factory=dict)
    zero: tuple[str, ...] = ()
    one: tuple[str, ...] = ()
    open: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pin_muxes: bool = False


def _single(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names.split()}


def _bus(name: str, width: int) -> dict[str, tuple[str, ...]]:
    return {name: tuple(f"{name}{bit}" for bit in range(width))}


_CARRY = ("NO", "YES")
_GSR = ("DISABLED", "ENABLED", "AUTO")
_WIDTHS = ("1", "2", "4", "9", "18", "36")
_REGISTERS = ("INPUTA", "INPUTB", "OUTPUT")
"""Of the multiplier, those that have a model."""

CELLS: dict[str, Cell] = {
    "LUT4": Cell(_single("A B C D"), _single("Z"), bits={"INIT": 16}),
    "PFUMX": Cell(_single("ALUT BLUT C0"), _single("Z")),
    "L6MUX21": Cell(_single("D0 D1 SD"), _single("Z")),
    "CCU2C": Cell(_single("CIN A0 B0 C0 D0 A1 B1 C1 D1"), _single("S0 S1 COUT"), bits={"INIT0": 16, "INIT1": 16},
                  options={"INJECT1_0": _CARRY, "INJECT1_1": _CARRY}),
    "TRELLIS_FF": Cell(_single("CLK LSR CE DI M"), _single("Q"),
                       options={"CLKMUX": ("CLK", "INV"), "CEMUX": ("1", "0", "CE", "INV"), "LSRMUX": ("LSR", "INV"),
                                "SRMODE": ("LSR_OVER_CE", "ASYNC"), "REGSET": ("RESET", "SET"), "SD": ("0", "1")},
                       fixed={"GSR": _GSR, "LSRMODE": ("LSR",)}, open={"LSR": "0"}),
    "TRELLIS_DPR16X4": Cell(_single("DI WAD WRE WCK RAD"), _single("DO"), bits={"INITVAL": 64},
                            options={"WREMUX": ("WRE", "INV", "0", "1"), "WCKMUX": ("WCK", "INV")}),
    "TRELLIS_COMB": Cell(_single("A B C D M FCI F1 FXA FXB WD WAD0 WAD1 WAD2 WAD3 WRE WCK"), _single("F FCO OFX"),
                         bits={"INITVAL": 16, "IS_Z1": 1},
                         options={"MODE": ("LOGIC", "CCU2", "DPRAM", "RAMW_BLOCK"), "CCU2_INJECT1": _CARRY,
                                  "WREMUX": ("WRE", "INV", "0", "1"), "WCKMUX": ("WCK", "INV")}),
    "TRELLIS_RAMW": Cell(_single("A0 B0 C0 D0 A1 B1 C1 D1"), _single("WADO0 WADO1 WADO2 WADO3 WDO0 WDO1 WDO2 WDO3")),
    "DP16KD": Cell({**_bus("DIA", 18), **_bus("ADA", 14), **_single("CEA CLKA WEA RSTA"), **_bus("CSA", 3),
                    **_bus("DIB", 18), **_bus("ADB", 14), **_single("CEB CLKB RSTB"), **_bus("CSB", 3)},
                   {**_bus("DOA", 18), **_bus("DOB", 18)},
                   bits={f"INITVAL_{number:02X}": 320 for number in range(64)},
                   options={"WRITEMODE_A": ("NORMAL", "READBEFOREWRITE"), "RESETMODE": ("ASYNC", "SYNC"),
                            "ASYNC_RESET_RELEASE": ("ASYNC", "SYNC")},
                   numbers={"DATA_WIDTH_A": _WIDTHS, "DATA_WIDTH_B": _WIDTHS},
                   fixed={"REGMODE_A": ("NOREG",), "REGMODE_B": ("NOREG",), "CSDECODE_A": ("0b000",), "CSDECODE_B": ("0b000",),
                          "WRITEMODE_B": ("NORMAL", "READBEFOREWRITE", "WRITETHROUGH"), "GSR": _GSR},
                   zero=("WEB",), pin_muxes=True),
    "MULT18X18D": Cell({**_bus("A", 18), **_bus("B", 18), **_bus("SRIA", 18), **_bus("SRIB", 18),
                        **_single("SIGNEDA SIGNEDB SOURCEA SOURCEB CLK0 CE0 RST0")}, _bus("P", 36),
                       options={f"REG_{register}_CLK": ("NONE", "CLK0") for register in _REGISTERS},
                       fixed={**{f"REG_{register}_CE": ("CE0",) for register in _REGISTERS},
                              **{f"REG_{register}_RST": ("RST0",) for register in _REGISTERS},
                              "REG_INPUTC_CLK": ("NONE",), "REG_PIPELINE_CLK": ("NONE",), "RESETMODE": ("SYNC",),
                              "SOURCEB_MODE": ("B_SHIFT",), "CAS_MATCH_REG": ("FALSE",), "MULT_BYPASS": ("DISABLED",), "GSR": _GSR},
                       pin_muxes=True),
    "TRELLIS_IO": Cell(_single("PADI I T IOLDO IOLTO"), _single("PADO PADT O"),
                       options={"DIR": ("INPUT", "OUTPUT", "BIDIR"), "DATAMUX_OREG": ("PADDO", "IOLDO"),
                                "DATAMUX_ODDR": ("PADDO", "IOLDO"), "TRIMUX_TSREG": ("PADDT", "IOLTO")},
                       fixed={"DATAMUX_MDDR": ("PADDO",)}),
    "IOLOGIC": Cell(_single("CLK PADDI TXDATA0 TXDATA1 TSDATA0"), _single("INFF IOLDO IOLTO"),
                    options={"MODE": ("IREG_OREG", "IDDRX1_ODDRX1")},
                    fixed={**{f"{register}.REGSET": ("RESET",) for register in ("FF", "OUTREG", "TSREG", "MTDDRX")},
                           "FF.INREGMODE": ("FF",), "OUTREG.OUTREGMODE": ("FF",), "TSREG.OUTREGMODE": ("FF",), "GSR": _GSR,
                           "SRMODE": ("ASYNC", "LSR_OVER_CE"), "CEMUX": ("CE",), "CEIMUX": ("CEMUX", "1"), "CEOMUX": ("CEMUX", "1"),
                           "LSRMUX": ("LSR",), "LSROMUX": ("LSRMUX", "0"), "LSRIMUX": ("LSRMUX", "0"),
                           "CLKIMUX": ("CLK",), "CLKOMUX": ("CLK",), "IOLTOMUX": ("NONE",),
                           "MIDDRX_MODDRX.WRCLKMUX": ("NONE",), "MTDDRX.DQSW_INVERT": ("DISABLED",),
                           **{f"{mode}.MODE": ("NONE",) for mode in ("MTDDRX", "MODDRX", "MIDDRX", "ODDRXN", "IDDRXN")},
                           "DELAY.WAIT_FOR_EDGE": ("DISABLED",), "DELAY.DEL_VALUE": ("0000000",), "DELAY.OUTDEL": ("DISABLED",)},
                    zero=("LSR",), one=("CE",)),
    "DCCA": Cell(_single("CLKI CE"), _single("CLKO")),
    "EHXPLLL": Cell(_single("CLKI CLKFB RST STDBY OFF"), _single("CLKOP CLKOS LOCK"), open={"OFF": "0"},
                    fixed={"PLLRST_ENA": ("DISABLED",), "STDBY_ENABLE": ("DISABLED",), "CLKOP_ENABLE": ("ENABLED",),
                           "CLKOS_ENABLE": ("ENABLED",),
                           **dict.fromkeys(("CLKI_DIV", "CLKFB_DIV", "FEEDBK_PATH", "INTFB_WAKE", "DPHASE_SOURCE",
                                            "OUTDIVIDER_MUXA", *(f"{clock}_{part}" for clock in ("CLKOP", "CLKOS")
                                                                 for part in ("DIV", "CPHASE", "FPHASE"))), ())}),
}
"""By kind."""
IGNORED = ("$scopeinfo",)
"""Kinds that compute nothing."""


def models() -> dict[str, str]:
    """Verilog of all models by file name."""
    return {path.name: path.read_text() for path in sorted(Path(__file__).parent.glob("*.v"))}
