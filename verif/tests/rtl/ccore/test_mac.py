"""Both multipliers, exhaustively over all pairs of codes."""

import os

import cocotb
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from gradloom.contracts.config import PRESETS
from gradloom.rtl.ccore.mac import (
    PRODUCT_BITS,
    factor_of,
    factor_shape,
    mac_factor,
    multiply,
)
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.plain_arith import decode


class Multiplier(wiring.Component):
    """Two codes to their product by one of the MACs, combinational."""

    def __init__(self, mac: str) -> None:
        self.mac = mac
        super().__init__({"a": In(8), "b": In(8), "product": Out(signed(PRODUCT_BITS))})

    def elaborate(self, platform) -> Module:
        m = Module()
        factors = []
        for name, code in (("a", self.a), ("b", self.b)):
            factor = Signal(mac_factor(self.mac), name=f"factor_{name}")
            m.d.comb += factor.eq(factor_of(self.mac, code))
            factors.append(factor)
        multiply(m, "comb", self.product, self.mac, *factors)
        return m


@cocotb.test()
async def every_pair(dut):
    assert os.environ["MAC"] in ("decode_once", "post_shift")
    for a in range(256):
        dut.a.value = a
        for b in range(256):
            dut.b.value = b
            await Timer(1, "ns")
            assert dut.product.value.to_signed() == decode(a) * decode(b), f"{a:#x} * {b:#x}"


@pytest.mark.parametrize("mac", ["decode_once", "post_shift"])
def test_multiplier(mac, tmp_path):
    assert run_cocotb(lambda: Multiplier(mac), __file__, tmp_path, env={"MAC": mac}) == 1


def test_factor_shape():
    assert factor_shape(PRESETS["nano"]) == signed(13)
    assert mac_factor("double_pumped") == signed(13)
    assert mac_factor("post_shift").width == 9 and not mac_factor("post_shift").signed


def test_unknown_mac():
    with pytest.raises(ValueError, match=r"^mac must be 'decode_once', 'double_pumped' or 'post_shift', not 'float'$"):
        mac_factor("float")
