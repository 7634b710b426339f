"""Arithmetic as one DSP48E1 of the Xilinx 7 series, in place of the modules that are emitted for every family: the array's MAC, the
sum of magnitudes."""

import re

__all__ = ["with_dsp48"]

_MAC = re.compile(r"^module (gradloom_mac_\w+)\(([^)]*)\);.*?^endmodule\n", re.MULTILINE | re.DOTALL)
_BODY = """module {name}({ports});
  input {inputs};
  input signed [12:0] a, w, e;
  input [47:0] cin;
  output [47:0] sum, cout;
  // OPMODE: the product (X, Y) and P, PCIN or nothing (Z). INMODE: the pre-adder lets A or D through.
  DSP48E1 #(
    .AREG(1), .BREG(1), .ACASCREG(1), .BCASCREG(1), .MREG(1), .PREG(1), .ADREG(0), .ALUMODEREG(0), .CARRYINREG(0),
    .CARRYINSELREG(0), .CREG(0), .DREG(1), .INMODEREG(1), .OPMODEREG(0), .USE_MULT("MULTIPLY"), .USE_DPORT("TRUE"),
    .USE_PATTERN_DETECT("NO_PATDET"), .USE_SIMD("ONE48"), .A_INPUT("DIRECT"), .B_INPUT("DIRECT")
  ) slice (
    .CLK(clk), .A({{{{17{{w[12]}}}}, w}}), .D({{{{12{{e[12]}}}}, e}}), .B({{{{5{{a[12]}}}}, a}}),
    .P(sum), .PCIN(cin), .PCOUT(cout), .CEP(take), .OPMODE({{1'b0, keep, chain, 4'b0101}}), .ALUMODE(4'b0000),
    .INMODE({{2'b00, wg, wg, 1'b0}}), .CARRYIN(1'b0), .CARRYINSEL(3'b000), .C(48'b0),
    .ACIN(30'b0), .BCIN(18'b0), .CARRYCASCIN(1'b0), .MULTSIGNIN(1'b0),
    .CEA1(1'b0), .CEA2(1'b1), .CEB1(1'b0), .CEB2(1'b1), .CEM(1'b1), .CEAD(1'b0), .CEALUMODE(1'b0), .CEC(1'b0), .CECARRYIN(1'b0),
    .CECTRL(1'b0), .CED(1'b1), .CEINMODE(1'b1), .RSTA(1'b0), .RSTALLCARRYIN(1'b0), .RSTALUMODE(1'b0), .RSTB(1'b0), .RSTC(1'b0),
    .RSTCTRL(1'b0), .RSTD(1'b0), .RSTINMODE(1'b0), .RSTM(1'b0), .RSTP(1'b0)
  );
endmodule
"""
_MAGNITUDE = re.compile(r"^module (gradloom_magnitude_\w+)\(([^)]*)\);.*?^endmodule\n", re.MULTILINE | re.DOTALL)
_MAGNITUDE_BODY = """module {name}({ports});
  input {inputs};
  input signed [{top}:0] a, c;
  output [47:0] sum;
  wire signed [47:0] wide = a;
  wire negative = second ? c[{top}] : a[{top}];
  // OPMODE: A:B (X) or C (Y), and P or nothing (Z). ALUMODE: Z + X + Y or Z - X - Y.
  DSP48E1 #(
    .AREG(1), .BREG(1), .ACASCREG(1), .BCASCREG(1), .MREG(0), .PREG(1), .ADREG(0), .ALUMODEREG(1), .CARRYINREG(0),
    .CARRYINSELREG(0), .CREG(1), .DREG(0), .INMODEREG(0), .OPMODEREG(1), .USE_MULT("NONE"), .USE_DPORT("FALSE"),
    .USE_PATTERN_DETECT("NO_PATDET"), .USE_SIMD("ONE48"), .A_INPUT("DIRECT"), .B_INPUT("DIRECT")
  ) slice (
    .CLK(clk), .A(wide[47:18]), .B(wide[17:0]), .C({{{{{pad}{{c[{top}]}}}}, c}}), .P(sum), .CEP(add),
    .OPMODE({{1'b0, ~open, 1'b0, second, second, ~second, ~second}}), .ALUMODE({{2'b00, negative, negative}}), .INMODE(5'b00000),
    .CARRYIN(1'b0), .CARRYINSEL(3'b000), .D(25'b0), .PCIN(48'b0), .ACIN(30'b0), .BCIN(18'b0), .CARRYCASCIN(1'b0), .MULTSIGNIN(1'b0),
    .CEA1(1'b0), .CEA2(1'b1), .CEB1(1'b0), .CEB2(1'b1), .CEM(1'b0), .CEAD(1'b0), .CEALUMODE(1'b1), .CEC(1'b1), .CECARRYIN(1'b0),
    .CECTRL(1'b1), .CED(1'b0), .CEINMODE(1'b0), .RSTA(1'b0), .RSTALLCARRYIN(1'b0), .RSTALUMODE(1'b0), .RSTB(1'b0), .RSTC(1'b0),
    .RSTCTRL(1'b0), .RSTD(1'b0), .RSTINMODE(1'b0), .RSTM(1'b0), .RSTP(1'b0)
  );
endmodule
"""


def _ports(match: re.Match[str]) -> tuple[str, list[str]]:
    """The port list of a module and those of its inputs that have one bit."""
    ports = [port.strip() for port in match[2].split(",")]
    return ", ".join(ports), [port for port in ports if re.search(rf"^  input {port};", match[0], re.MULTILINE)]


def with_dsp48(text: str) -> str:
    """The Verilog of a machine, its units instances of DSP48E1; MACs with ``mac = "post_shift"`` are left alone.

    Every ``cin`` is the ``cout`` of the PE before it, or 0, so that PCIN and PCOUT are joined as the cascade of a DSP column asks.
    """
    def mac(match: re.Match[str]) -> str:
        if not re.search(r"^  input (?:signed )?\[12:0\] a;", match[0], re.MULTILINE):
            return match[0]
        ports, bits = _ports(match)
        return _BODY.format(name=match[1], ports=ports, inputs=", ".join(bits))

    def magnitude(match: re.Match[str]) -> str:
        top = re.search(r"^  input (?:signed )?\[(\d+):0\] a;", match[0], re.MULTILINE)
        assert top is not None
        ports, bits = _ports(match)
        return _MAGNITUDE_BODY.format(name=match[1], ports=ports, inputs=", ".join(bits), top=top[1], pad=47 - int(top[1]))

    return _MAGNITUDE.sub(magnitude, _MAC.sub(mac, text))
