"""Arithmetic as one DSP48E1 of the Xilinx 7 series, in place of the modules that are emitted for every family: the array's MAC, the
sum of magnitudes.

A MAC of two clusters (``mac = "double_pumped"``) is one slice at twice the clock. It takes one cluster's factors in the first half
of a cycle and the other's in the second, so its P holds the two sums in turns. C is P of one half cycle before, so that the sum
that P + M would be added to, two half cycles old, is there with nothing beside the slice; for a sum that goes on, C takes P of the
slice before. Such a machine has another clock, ``clk2x``, whose every other edge is that of ``clk``, and ``phase``, 1 in the second
half of a cycle, which its top module makes.
"""

import re

from gradloom.rtl.ccore.mac import PRODUCT_BITS

__all__ = ["with_dsp48"]

_NO_RESETS = """.RSTA(1'b0), .RSTALLCARRYIN(1'b0), .RSTALUMODE(1'b0), .RSTB(1'b0), .RSTC(1'b0),
    .RSTCTRL(1'b0), .RSTD(1'b0), .RSTINMODE(1'b0), .RSTM(1'b0), .RSTP(1'b0)
  );
endmodule
"""
"""How every instance of a slice ends."""
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
    .CECTRL(1'b0), .CED(1'b1), .CEINMODE(1'b1), """ + _NO_RESETS
_CHAIN_BITS = PRODUCT_BITS + 3
"""Bits of a sum over the products of at most 8 columns, all that goes from slice to slice."""
_PAIR_BODY = """module {name}({ports}, clk2x, phase);
  input {inputs}, clk2x, phase;
  input signed [12:0] a;
  input [25:0] w, e;
  input [95:0] cin;
  output [95:0] sum, cout;
  reg signed [12:0] a_reg;
  reg [25:0] w_reg, e_reg;
  reg wg_reg, own;
  reg [47:0] first, second;
  wire [47:0] p;
  always @(posedge clk) begin
    a_reg <= a;
    w_reg <= w;
    e_reg <= e;
    wg_reg <= wg;
    first <= p;
  end
  always @(posedge clk2x) begin
    own <= wg_reg;
    if (~phase) second <= p;
  end
  // Two bits with one select take five inputs, so one LUT6: operands of either half of a cycle, and what a sum goes on from.
  wire signed [12:0] weight, error;
  wire [{chain}:0] before;
  wire [25:0] chosen;
  assign {{error, weight}} = chosen;
  wire [25:0] early = {{e_reg[12:0], w_reg[12:0]}}, late = {{e_reg[25:13], w_reg[25:13]}};
  wire [{chain}:0] others = {{1'b0, cin[{chain}-1:0]}}, mine = {{1'b0, p[{chain}-1:0]}};
  genvar i;
  generate
    for (i = 0; i < 26; i = i + 2) begin : operands
      LUT6_2 #(.INIT(64'hFF00F0F0_CCCCAAAA)) lut (.I0(early[i]), .I1(late[i]), .I2(early[i+1]), .I3(late[i+1]), .I4(phase),
        .I5(1'b1), .O5(chosen[i]), .O6(chosen[i+1]));
    end
    for (i = 0; i < {chain}; i = i + 2) begin : chain_or_own
      LUT6_2 #(.INIT(64'hFF00F0F0_CCCCAAAA)) lut (.I0(others[i]), .I1(mine[i]), .I2(others[i+1]), .I3(mine[i+1]), .I4(own),
        .I5(1'b1), .O5(before[i]), .O6(before[i+1]));
    end
  endgenerate
  // The sum changes from 0, or from what C holds: it is kept as it is, has a product added, or goes on.
  wire earlier = ~take | keep | chain;
  assign sum = {{second, first}};
  assign cout = {{48'b0, p}};
  // OPMODE: the product or nothing (X, Y) and C or nothing (Z). INMODE: the pre-adder lets A or D through.
  DSP48E1 #(
    .AREG(1), .BREG(1), .ACASCREG(1), .BCASCREG(1), .MREG(1), .PREG(1), .ADREG(0), .ALUMODEREG(0), .CARRYINREG(0),
    .CARRYINSELREG(0), .CREG(1), .DREG(1), .INMODEREG(1), .OPMODEREG(0), .USE_MULT("MULTIPLY"), .USE_DPORT("TRUE"),
    .USE_PATTERN_DETECT("NO_PATDET"), .USE_SIMD("ONE48"), .A_INPUT("DIRECT"), .B_INPUT("DIRECT")
  ) slice (
    .CLK(clk2x), .A({{{{17{{weight[12]}}}}, weight}}), .D({{{{12{{error[12]}}}}, error}}), .B({{{{5{{a_reg[12]}}}}, a_reg}}),
    .C({{p[47:{chain}], before[{chain}-1:0]}}), .P(p), .CEP(1'b1),
    .OPMODE({{1'b0, earlier, earlier, 1'b0, take, 1'b0, take}}), .ALUMODE(4'b0000),
    .INMODE({{2'b00, wg_reg, wg_reg, 1'b0}}), .CARRYIN(1'b0), .CARRYINSEL(3'b000), .PCIN(48'b0),
    .ACIN(30'b0), .BCIN(18'b0), .CARRYCASCIN(1'b0), .MULTSIGNIN(1'b0),
    .CEA1(1'b0), .CEA2(1'b1), .CEB1(1'b0), .CEB2(1'b1), .CEM(1'b1), .CEAD(1'b0), .CEALUMODE(1'b0), .CEC(1'b1), .CECARRYIN(1'b0),
    .CECTRL(1'b0), .CED(1'b1), .CEINMODE(1'b1), """ + _NO_RESETS
_PHASE = """  input clk2x;
  reg turn = 0, seen = 0, phase = 0;
  always @(posedge clk) turn <= ~turn;
  always @(posedge clk2x) begin
    seen <= turn;
    phase <= turn ^ seen;
  end
"""
_MODULE = re.compile(r"^module (\\?\S+?) ?\(([^)]*)\);\n(.*?)^endmodule\n", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^  (\\?\S+) +\\?\S+ +\(\n(?=    \.)", re.MULTILINE)
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
    .CECTRL(1'b1), .CED(1'b0), .CEINMODE(1'b0), """ + _NO_RESETS


def _ports(match: re.Match[str]) -> tuple[str, list[str]]:
    """The port list of a module and those of its inputs that have one bit."""
    ports = [port.strip() for port in match[2].split(",")]
    return ", ".join(ports), [port for port in ports if re.search(rf"^  input {port};", match[0], re.MULTILINE)]


def with_dsp48(text: str) -> str:
    """The Verilog of a machine, its units instances of DSP48E1; MACs with ``mac = "post_shift"`` are left alone.

    Every ``cin`` is the ``cout`` of the PE before it, or 0, so that PCIN and PCOUT are joined as the cascade of a DSP column asks.
    A machine of MACs of two clusters gets the port ``clk2x``.
    """
    pairs = []

    def mac(match: re.Match[str]) -> str:
        if not re.search(r"^  input (?:signed )?\[12:0\] a;", match[0], re.MULTILINE):
            return match[0]
        ports, bits = _ports(match)
        if re.search(r"^  input \[25:0\] w;", match[0], re.MULTILINE):
            pairs.append(match[1])
            return _PAIR_BODY.format(name=match[1], ports=ports, inputs=", ".join(bits), chain=_CHAIN_BITS)
        return _BODY.format(name=match[1], ports=ports, inputs=", ".join(bits))

    def magnitude(match: re.Match[str]) -> str:
        top = re.search(r"^  input (?:signed )?\[(\d+):0\] a;", match[0], re.MULTILINE)
        assert top is not None
        ports, bits = _ports(match)
        return _MAGNITUDE_BODY.format(name=match[1], ports=ports, inputs=", ".join(bits), top=top[1], pad=47 - int(top[1]))

    text = _MAGNITUDE.sub(magnitude, _MAC.sub(mac, text))
    return _with_clock(text, set(pairs)) if pairs else text


def _with_clock(text: str, clocked: set[str]) -> str:
    """``clk2x`` and ``phase`` from the top module, the one that no other has, down to the modules that are ``clocked``."""
    bodies = {match[1]: match[3] for match in _MODULE.finditer(text)}
    inside = {name: {instance[1] for instance in _INSTANCE.finditer(body)} & bodies.keys() for name, body in bodies.items()}
    ends = set(clocked)
    while more := {name for name, parts in inside.items() if parts & clocked} - clocked:
        clocked = clocked | more
    tops = clocked - set().union(*inside.values())

    def instance(match: re.Match[str]) -> str:
        return match[0] + "    .clk2x(clk2x),\n    .phase(phase),\n" if match[1] in clocked else match[0]

    def module(match: re.Match[str]) -> str:
        name, ports, body = match.groups()
        if name not in clocked or name in ends:
            return match[0]
        more, declared = ("clk2x", _PHASE) if name in tops else ("clk2x, phase", "  input clk2x, phase;\n")
        gap = " " if name.startswith("\\") else ""  # behind an escaped name
        return f"module {name}{gap}({ports}, {more});\n{declared}{_INSTANCE.sub(instance, body)}endmodule\n"

    return _MODULE.sub(module, text)
