"""The two multipliers of the array: different operands, the same product (ETA, section IV-B1, figure 4(a)).

``decode_once``: operands are the 13-bit integers of :func:`gradloom.rtl.pint.decode`, made where a byte
leaves its buffer. ``post_shift``: operands are the codes themselves; each becomes a *factor* {segment, m},
and the 7 x 7 product is shifted by three times the sum of the segments, 0/3/6/9/12.
"""

from amaranth.hdl import Cat, Module, Shape, Signal, Value, signed, unsigned

from gradloom.rtl.config import Config
from gradloom.rtl.pint import CODE_BITS, V_BITS, decode, segment

__all__ = ["PRODUCT_BITS", "factor_of", "factor_shape", "mac_operand", "multiply", "operand_of",
           "operand_shape"]

PRODUCT_BITS = 26
"""Bits of a product: |v| <= 4096, so it lies in -4096 * 4032 .. 4096 * 4096."""

_M_BITS = 7


def _is_once(mac: str) -> bool:
    if mac not in ("decode_once", "post_shift"):
        raise ValueError(f"mac must be 'decode_once' or 'post_shift', not {mac!r}")
    return mac == "decode_once"


def mac_operand(mac: str) -> Shape:
    """Shape of an operand of the MAC ``mac``."""
    return signed(V_BITS) if _is_once(mac) else unsigned(CODE_BITS)


def operand_shape(config: Config) -> Shape:
    """Shape of an operand of a machine's MACs: signed(13) values or unsigned(8) codes."""
    return mac_operand(config.mac)


def operand_of(mac: str, code: Value) -> Value:
    """The operand of the MAC ``mac`` for an 8-bit code, combinational."""
    return decode(code) if _is_once(mac) else code


def factor_shape(mac: str) -> Shape:
    """Shape of a multiplier's input register."""
    return signed(V_BITS) if _is_once(mac) else unsigned(_M_BITS + 2)


def factor_of(mac: str, operand: Value) -> Value:
    """What a multiplier's input register takes of an operand, combinational."""
    return operand if _is_once(mac) else Cat(operand[:_M_BITS], segment(operand))


def multiply(m: Module, domain: str, product: Signal, mac: str, a: Value, b: Value) -> None:
    """Drive ``product``, signed(26), in ``domain`` with the product of two factors."""
    if _is_once(mac):
        m.d[domain] += product.eq(a * b)
        return
    narrow = Signal(signed(2 * _M_BITS), name=f"{product.name}_m")
    shift = Signal(3, name=f"{product.name}_shift")
    m.d.comb += [narrow.eq(a[:_M_BITS].as_signed() * b[:_M_BITS].as_signed()),
                 shift.eq(a[_M_BITS:] + b[_M_BITS:])]
    with m.Switch(shift):
        for step in range(4):
            with m.Case(step):
                m.d[domain] += product.eq(narrow << (3 * step))
        with m.Default():
            m.d[domain] += product.eq(narrow << 12)
