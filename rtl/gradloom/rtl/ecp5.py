"""Arithmetic in the cells of Lattice ECP5, for machines with ``family = "ecp5"``: what synthesis does not find by itself.

Each component behaves as it is written here, in simulators; where ``SYNTHESIS`` is defined, as Yosys does, its Verilog is an
instance of cells (:func:`gradloom.rtl.shared_module.with_cells`). Proofs join the two (``verif/tests/formal/test_formal_ecp5.py``).

A CCU2C has two LUT4 of a carry chain: bit i of a sum is LUT4(A, B, C, D) xor carry, and the next carry is the carry where that
LUT4 is 1, else the LUT4 with C = D = 0. So one term of the sum is a function of A and B alone, and the other one is 0 at C = D = 0:
that leaves room for a choice of the other term (:class:`ChosenSum`), or for the sign of the first one (:class:`MagnitudeSum`).
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.pint import V_BITS

__all__ = ["ChosenSum", "MagnitudeSum", "Multiplier"]

_PRODUCT_BITS = 2 * V_BITS
_MULT_BITS = 18
"""Bits of a factor of a MULT18X18D."""
_CHOSEN, _KEPT = "16'h665A", "16'h66AA"
"""A + (D ? B : C), and with C = 1: A + (D ? B : 0)."""
_MAGNITUDE = "16'h6696"
"""(A xor B) + (D ? 0 : C)."""


def _chain(width: int, bit: Callable[[int], tuple[str, str, str, str, str]], carry: str) -> list[str]:
    """A sum ``s`` of ``width`` bits in CCU2C cells. ``bit`` gives a bit's LUT4 and its inputs A to D; ``carry`` is the first."""
    lines = [f"  wire [{width + 1}:0] sums;", f"  wire [{width // 2 + 1}:0] carries;", f"  assign carries[0] = {carry};",
             f"  assign s = sums[{width - 1}:0];"]
    for first in range(0, width, 2):
        ports, inits = [], []
        for half in range(2):
            # The half beyond the last bit: constants that need no wire.
            init, *inputs = bit(first + half) if first + half < width else ("16'h0000", *(["1'b1"] * 4))
            inits.append(f".INIT{half}({init}), .INJECT1_{half}(\"NO\")")
            ports += [f".{name}{half}({value})" for name, value in zip("ABCD", inputs, strict=True)]
            ports.append(f".S{half}(sums[{first + half}])")
        cell = first // 2
        lines += [f"  CCU2C #({', '.join(inits)}) bits{first} (.CIN(carries[{cell}]), .COUT(carries[{cell + 1}]),",
                  f"    {', '.join(ports)});"]
    return lines


class Multiplier(wiring.Component):
    """A MULT18X18D with its registers of inputs and output, always enabled and never reset.

    Members
    -------
    a, b : ``In(signed(13))``
        Cycle 0.
    product : ``Out(signed(26))``
        Cycle 2.
    """

    def __init__(self) -> None:
        super().__init__({"a": In(signed(V_BITS)), "b": In(signed(V_BITS)), "product": Out(signed(_PRODUCT_BITS))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b = (Signal(signed(V_BITS), name=f"{name}_reg", reset_less=True) for name in "ab")
        product = Signal(signed(_PRODUCT_BITS), name="product_reg", reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(a * b)]
        m.d.comb += self.product.eq(product)
        return m

    def cells(self) -> list[str]:
        """Factors are at the top of their ports, so that the bits below are constants and none is the sign once more."""
        below = _MULT_BITS - V_BITS
        registers = [f".REG_{stage}_CLK(\"CLK0\"), .REG_{stage}_CE(\"CE0\"), .REG_{stage}_RST(\"RST0\")"
                     for stage in ("INPUTA", "INPUTB", "OUTPUT")]
        factors = [f".{name.upper()}{below + i}({name}[{i}])" for name in "ab" for i in range(V_BITS)]
        nothing = [f".{name}{i}(1'b0)" for name in "AB" for i in range(below)]
        nothing += [f".C{i}(1'b0)" for i in range(_MULT_BITS)]
        product = [f".P{2 * below + i}(product[{i}])" for i in range(_PRODUCT_BITS)]
        return [f"  MULT18X18D #({', '.join(registers)},",
                '    .REG_INPUTC_CLK("NONE"), .REG_PIPELINE_CLK("NONE"), .SOURCEB_MODE("B_SHIFT"), .MULT_BYPASS("DISABLED"),',
                '    .CAS_MATCH_REG("FALSE"), .RESETMODE("SYNC"), .GSR("DISABLED")) cell_ (',
                "    .CLK0(clk), .CE0(1'b1), .RST0(1'b0), .SIGNEDA(1'b1), .SIGNEDB(1'b1), .SOURCEA(1'b0), .SOURCEB(1'b0),",
                *(f"    {', '.join(part)}," for part in (factors, nothing)), f"    {', '.join(product)});"]


class ChosenSum(wiring.Component):
    """``a`` and one of two other terms, modulo 2^width: a LUT4 a bit. Combinational.

    Parameters
    ----------
    width, low : :class:`int`
        Bits of the sum, and of ``c``, at most ``width``; 0: there is no ``c``.

    Members
    -------
    a, b : ``In(width)``
    c : ``In(low)``
    own : ``In(1)``
        ``b`` is added; else ``c``, whose bits from ``low`` on are 0.
    s : ``Out(width)``
    """

    def __init__(self, width: int, low: int) -> None:
        self.width, self.low = width, low
        super().__init__({"a": In(width), "b": In(width), **({"c": In(low)} if low else {}), "own": In(1), "s": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.s.eq(self.a + Mux(self.own, self.b, self.c if self.low else 0))
        return m

    def cells(self) -> list[str]:
        return _chain(self.width, lambda i: (_CHOSEN if i < self.low else _KEPT, f"a[{i}]", f"b[{i}]",
                                             f"c[{i}]" if i < self.low else "1'b1", "own"), "1'b0")


class MagnitudeSum(wiring.Component):
    """The magnitude of ``x`` and a sum, or nothing, modulo 2^width: a LUT4 a bit. Combinational.

    Members
    -------
    x : ``In(width)``
    negative : ``In(1)``
        The sign of ``x``.
    total : ``In(width)``
    fresh : ``In(1)``
        ``total`` is left out.
    s : ``Out(width)``
    """

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__({"x": In(width), "negative": In(1), "total": In(width), "fresh": In(1), "s": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # |x| = (x ^ sign) + sign; the sign enters the adder as its carry.
        wide = Signal(self.width + 1)
        m.d.comb += [wide.eq(Cat(self.negative, Mux(self.fresh, 0, self.total))
                             + Cat(self.negative, self.x ^ self.negative.replicate(self.width))),
                     self.s.eq(wide[1:])]
        return m

    def cells(self) -> list[str]:
        return _chain(self.width, lambda i: (_MAGNITUDE, f"x[{i}]", "negative", f"total[{i}]", "fresh"), "negative")
