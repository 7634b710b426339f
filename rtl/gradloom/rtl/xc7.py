"""The array's MAC as one DSP48E1 of the Xilinx 7 series, in place of the module that is emitted for every family."""

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


def with_dsp48(text: str) -> str:
    """The Verilog of a machine with ``mac = "decode_once"``, its MACs instances of DSP48E1; of another one unchanged.

    Every ``cin`` is the ``cout`` of the PE before it, or 0, so that PCIN and PCOUT are joined as the cascade of a DSP column asks.
    """
    def slice_of(match: re.Match[str]) -> str:
        if not re.search(r"^  input (?:signed )?\[12:0\] a;", match[0], re.MULTILINE):
            return match[0]
        ports = [port.strip() for port in match[2].split(",")]
        bits = [port for port in ports if port in ("clk", "rst", "wg", "take", "keep", "chain")]
        return _BODY.format(name=match[1], ports=", ".join(ports), inputs=", ".join(bits))

    return _MAC.sub(slice_of, text)
