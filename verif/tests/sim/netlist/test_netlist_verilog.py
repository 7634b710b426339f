"""The Verilog of a netlist: ports, pads, what open and undefined bits become, what stands before pins; and all that is refused."""

import re

import pytest

from gradloom.sim.netlist.netlist_verilog import NetlistError, cell_counts, netlist_verilog


def design(ports=None, nets=None, **cells):
    """A netlist of one module; a cell is (kind, parameters, connections)."""
    outputs = {"Z", "Q", "F", "O", "P0", "P2", "SROA0", "CLKO", "CLKOP", "LOCK"}
    return {"modules": {"top": {
        "ports": {name: {"direction": direction, "bits": bits} for name, (direction, bits) in (ports or {}).items()},
        "netnames": {name: {"bits": [bit]} for name, bit in (nets or {}).items()},
        "cells": {name: {"type": kind, "parameters": parameters, "connections": connections,
                         "port_directions": {pin: "output" if pin in outputs else "input" for pin in connections}}
                  for name, (kind, parameters, connections) in cells.items()}}}}


def cell_line(kind, parameters, connections):
    """The only cell of a netlist."""
    text = netlist_verilog(design(x=(kind, parameters, connections)), "top")
    return next(line.strip() for line in text.splitlines() if " c0(" in line)


def test_ports_and_constants():
    text = netlist_verilog(design(
        {"a": ("input", [2, 3]), "clk": ("input", [4]), "z": ("output", [5, "1", 2])},
        x=("LUT4", {"INIT": "1000000000000010"}, {"A": [2], "B": [3], "C": ["0"], "D": [4], "Z": [5]})), "top", name="part")
    assert text == """module part(
  input [1:0] \\a ,
  input \\clk ,
  output [2:0] \\z );
  wire n2;
  wire n3;
  wire n4;
  wire n5;
  assign n2 = \\a [0];
  assign n3 = \\a [1];
  assign n4 = \\clk ;
  assign \\z  = {n2, 1'b1, n5};
  LUT4 #(.INIT(16'h8002)) c0(.A(n2), .B(n3), .C(1'b0), .D(n4), .Z(n5));
endmodule
"""


def test_open_inputs_read_1_but_a_reset():
    assert cell_line("TRELLIS_FF", {"SD": "0 ", "CEMUX": "1 ", "GSR": "DISABLED"}, {"CLK": [2], "M": [3], "Q": [4]}) == (
        'TRELLIS_FF #(.SD("0"), .CEMUX("1")) c0(.CLK(n2), .LSR(1\'b0), .CE(1\'b1), .DI(1\'b1), .M(n3), .Q(n4));')


def test_undefined_bits_are_drawn_and_undefined_contents_are_0():
    given = ("TRELLIS_DPR16X4", {"INITVAL": "x" * 63 + "1"}, {"DI": ["x"] * 4, "WAD": ["x"] * 4, "WRE": [2], "WCK": [3],
                                                              "RAD": ["0", "1", "0", "1"]})
    line = cell_line(*given)
    assert line == cell_line(*given) and "x" not in line.split("(", 1)[1].replace("TRELLIS_DPR16X4", "")
    assert "INITVAL(64'h1)" in line and ".RAD({1'b1, 1'b0, 1'b1, 1'b0})" in line


def test_what_stands_before_the_pins_of_block_ram():
    line = cell_line("DP16KD", {"DATA_WIDTH_A": f"{18:032b}", "ADA0MUX": "0 ", "ADA1MUX": "1 ", "CSA0MUX": "INV", "CEAMUX": "INV",
                                "CLKAMUX": "CLKA", "WEBMUX": "INV"}, {"CEA": [2], "CLKA": [3], "ADA13": [4]})
    assert ".DATA_WIDTH_A(18)" in line and ".CEA(~n2)" in line and ".CLKA(n3)" in line
    assert ".ADA({n4, " in line and ", 1'b1, 1'b0})" in line and ".CSA({1'b1, 1'b1, ~1'b1})" in line


def test_outputs_that_nothing_reads_have_nets_of_their_own():
    line = cell_line("MULT18X18D", {}, {"A0": [2], "P0": [3], "P2": [4]})
    nets = re.search(r"\.P\(\{(.*)\}\)", line)[1].split(", ")
    assert len(nets) == len(set(nets)) == 36 and nets[-1] == "n3" and nets[-3] == "n4"


def test_multiplexers_behind_luts_are_told_apart():
    """nextpnr's parameters do not: the same cell is that of a function of five inputs or of six."""
    assert "IS_Z1(1'h0)" in cell_line("TRELLIS_COMB", {"MODE": "LOGIC"}, {"M": [2], "F1": [3], "OFX": [4]})
    assert "IS_Z1(1'h1)" in cell_line("TRELLIS_COMB", {"MODE": "LOGIC"}, {"M": [2], "FXA": [3], "FXB": [5], "OFX": [4]})


def test_pads_are_the_ports_of_a_routed_netlist():
    made = design(nets={"in": 2, "out": 3, "inner": 9},
                  a=("TRELLIS_IO", {"DIR": "INPUT"}, {"B": [2], "O": [4]}),
                  b=("TRELLIS_IO", {"DIR": "OUTPUT"}, {"B": [3], "I": [4]}))
    text = netlist_verilog(made, "top")
    assert "module top(\n  input \\in ,\n  output \\out );" in text
    assert ('TRELLIS_IO #(.DIR("INPUT")) c0(.PADI(n2), .I(1\'b1), .T(1\'b1), .IOLDO(1\'b1), .IOLTO(1\'b1), .PADO(), .PADT(), '
            ".O(n4));") in text
    assert "assign \\out  = n3;" in text
    assert cell_counts(made, "top") == {"TRELLIS_IO": 2}


def test_a_pad_of_both_directions_is_three_ports():
    """Levels in, levels out, and where the pad drives; each bit from its own pad."""
    text = netlist_verilog(design({"dq": ("inout", [2, 3])},
                                  a=("TRELLIS_IO", {"DIR": "BIDIR"}, {"B": [2], "I": [4], "T": [5], "O": [6]}),
                                  b=("TRELLIS_IO", {"DIR": "BIDIR"}, {"B": [3], "I": [7], "T": [5], "O": [8]})), "top")
    assert "module top(\n  input [1:0] \\dq_i ,\n  output [1:0] \\dq_o ,\n  output [1:0] \\dq_oe );" in text
    first, second = (re.search(rf"c{n}\(\.PADI\(n{n + 2}\), .*\.PADO\((n\d+)\), \.PADT\((n\d+)\)", text).groups() for n in (0, 1))
    assert "assign n2 = \\dq_i [0];" in text and "assign n3 = \\dq_i [1];" in text
    assert f"assign \\dq_o  = {{{second[0]}, {first[0]}}};" in text
    assert f"assign \\dq_oe  = ~{{{second[1]}, {first[1]}}};" in text


REGISTERED = {"MODE": "IREG_OREG", "FF.INREGMODE": "FF", "LSRIMUX": "0 ", "CEMUX": "CE", "GSR": "ENABLED"}
ZERO = ("TRELLIS_COMB", {"MODE": "LOGIC", "INITVAL": "0" * 16}, {"F": [2]})
ONE = ("TRELLIS_COMB", {"MODE": "LOGIC", "INITVAL": "1" * 16}, {"F": [3]})


def test_registers_of_a_pad():
    """nextpnr ties pins to nets that a LUT of zeros or ones drives."""
    pins = {"CLK": [4], "LSR": [2], "CE": [3], "PADDI": [5], "INFF": [6]}
    text = netlist_verilog(design(zero=ZERO, one=ONE, x=("IOLOGIC", REGISTERED, pins)), "top")
    assert ('IOLOGIC #(.MODE("IREG_OREG")) c2(.CLK(n4), .PADDI(n5), .TXDATA0(1\'b1), .TXDATA1(1\'b1), .TSDATA0(1\'b1), .INFF(n6), '
            ".IOLDO(), .IOLTO());") in text
    for pin, wrong in (("LSR", [3]), ("CE", [2]), ("CE", [4])):
        with pytest.raises(NetlistError, match=f"x: the model of IOLOGIC needs {pin} tied to {int(pin == 'CE')}"):
            netlist_verilog(design(zero=ZERO, one=ONE, x=("IOLOGIC", REGISTERED, {**pins, pin: wrong})), "top")


def test_power_of_a_pll():
    """It is off as long as an input says so that is no pin of the device."""
    cell = ("EHXPLLL", {"CLKI_DIV": "1"}, {"CLKI": [2], "CLKOP": [3], "LOCK": [4]})
    text = netlist_verilog(design({"clk": ("input", [2]), "ok": ("output", [4])}, x=cell), "top", power_off="off")
    assert "module top(\n  input \\off ,\n  input \\clk ,\n" in text and ".OFF(\\off )" in text
    assert ".OFF(1'b0)" in netlist_verilog(design(x=cell), "top")


def test_clocks_are_handed_on():
    assert cell_line("DCCA", {}, {"CLKI": [2], "CLKO": [3]}) == "DCCA c0(.CLKI(n2), .CE(1'b1), .CLKO(n3));"
    assert cell_line("EHXPLLL", {"CLKI_DIV": "1", "PLLRST_ENA": "DISABLED"}, {"CLKI": [2], "CLKOP": [3], "LOCK": [4]}) == (
        "EHXPLLL c0(.CLKI(n2), .CLKFB(1'b1), .RST(1'b1), .STDBY(1'b1), .OFF(1'b0), .CLKOP(n3), .CLKOS(), .LOCK(n4));")


@pytest.mark.parametrize(("kind", "parameters", "connections", "words"), [
    ("SGSR", {}, {}, "x: there is no model of the cell SGSR"),
    ("TRELLIS_FF", {"LSRMODE": "PRLD"}, {}, "x: the model of TRELLIS_FF has no LSRMODE of PRLD, but LSR"),
    ("DP16KD", {"REGMODE_A": "OUTREG"}, {}, "x: the model of DP16KD has no REGMODE_A of OUTREG, but NOREG"),
    ("DP16KD", {"DATA_WIDTH_A": f"{8:032b}"}, {}, "x: the model of DP16KD has no DATA_WIDTH_A of 8, but 1, 2, 4, 9, 18, 36"),
    ("DP16KD", {}, {"WEB": [2]}, "x: the model of DP16KD needs WEB tied to 0"),
    ("DP16KD", {"WEBMUX": "INV"}, {"WEB": ["0"]}, "x: the model of DP16KD needs WEB tied to 0"),
    ("MULT18X18D", {"REG_PIPELINE_CLK": "CLK0"}, {}, "x: the model of MULT18X18D has no REG_PIPELINE_CLK of CLK0, but NONE"),
    ("MULT18X18D", {}, {"SROA0": [2]}, "x: the model of MULT18X18D has no pin SROA0"),
    ("LUT4", {"COLOUR": "RED"}, {}, "x: the model of LUT4 has no COLOUR of RED"),
    ("IOLOGIC", {**REGISTERED, "FF.INREGMODE": "LATCH"}, {}, "x: the model of IOLOGIC has no FF.INREGMODE of LATCH, but FF"),
    ("TRELLIS_IO", {"TRIMUX_TSREG": "X"}, {"B": [2]}, "x: the model of TRELLIS_IO has no TRIMUX_TSREG of X, but PADDT, IOLTO")])
def test_what_has_no_model_is_refused(kind, parameters, connections, words):
    with pytest.raises(NetlistError) as caught:
        netlist_verilog(design(x=(kind, parameters, connections)), "top")
    assert str(caught.value) == words
