"""PINT(8, 3) in RTL: every code decoded, every representable value encoded."""


import cocotb
from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from gradloom.rtl.pint import code_of, decode, segment
from gradloom.verif.cocotb_run import run_cocotb


class Codec(wiring.Component):
    """The combinational functions as a module."""

    def __init__(self) -> None:
        super().__init__({"code": In(8), "v": Out(signed(13)), "segment": Out(2), "value": In(signed(13)),
                          "encoded": Out(8)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.v.eq(decode(self.code)), self.segment.eq(segment(self.code)),
                     self.encoded.eq(code_of(self.value))]
        return m


def definition(code: int) -> tuple[int, int]:
    """(value, segment) of a code."""
    m = (code & 127) - (code & 64) * 2
    if code & 128:
        return 8 * m, 1
    return (m, 0) if -8 <= m <= 7 else (64 * m, 2)


@cocotb.test()
async def every_code(dut):
    values = set()
    for code in range(256):
        v, segment_ = definition(code)
        values.add(v)
        dut.code.value = code
        dut.value.value = v
        await Timer(1, "ns")
        assert dut.v.value.to_signed() == v
        assert int(dut.segment.value) == segment_
        encoded = int(dut.encoded.value)
        # 0x80 and 0xFF decode to 0 and -8, which have a code in the low segment.
        assert encoded == {0x80: 0x00, 0xFF: 0x78}.get(code, code)
    assert len(values) == 254 and min(values) == -4096 and max(values) == 4032


def test_pint(tmp_path):
    assert run_cocotb(Codec, __file__, tmp_path) == 1
