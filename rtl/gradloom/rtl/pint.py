"""PINT(8, 3), the number format of every tensor: one byte ``{flag, m}``, value v * 2^e, one e for the tensor.

``flag = 1``: v = 8 m (middle segment, -512..504). ``flag = 0`` and m in -8..7: v = m (low segment).
Otherwise v = 64 m (top segment, -4096..4032). ETA, section III-A and figure 3.
"""

from amaranth.hdl import Cat, Const, Mux, Value

__all__ = ["CODE_BITS", "V_BITS", "all_equal", "code_of", "decode", "segment"]

CODE_BITS = 8
V_BITS = 13
"""Bits of a decoded value: v lies in -4096..4032."""


def all_equal(bits: Value) -> Value:
    """1 if ``bits`` are all zeros or all ones."""
    return bits.all() | ~bits.any()


def segment(code: Value) -> Value:
    """Segment of an 8-bit code, unsigned(2): 0 low, 1 middle, 2 top; v = m << (3 * segment)."""
    return Mux(code[7], 1, Mux(all_equal(code[3:7]), 0, 2))[:2]


def decode(code: Value) -> Value:
    """Value of an 8-bit code, signed(13), combinational. Legal for all 256 codes (0x80 is 0, 0xFF is -8)."""
    m = code[:7]
    sign = m[6]
    low = Cat(m, sign.replicate(6))
    middle = Cat(Const(0, 3), m, sign.replicate(3))
    top = Cat(Const(0, 6), m)
    return Mux(code[7], middle, Mux(all_equal(m[3:]), low, top)).as_signed()


def code_of(v: Value) -> Value:
    """Code of a representable value ``v``, signed(13) -> unsigned(8), combinational; never 0x80 or 0xFF.

    Bits of ``v`` below its segment's step are dropped: round first (:class:`gradloom.rtl.acore.converter.Rounder`).
    """
    low = Cat(v[:7], Const(0, 1))
    middle = Cat(v[3:10], Const(1, 1))
    top = Cat(v[6:13], Const(0, 1))
    return Mux(all_equal(v[3:13]), low, Mux(all_equal(v[9:13]), middle, top))
