"""One access at a time as an AXI4-Lite manager."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Member, Out

__all__ = ["RegisterManager", "manager_members"]

_ADDRESS_BITS = 16


def manager_members(prefix: str = "m_axil_") -> dict[str, Member]:
    """AXI4-Lite manager signals: 16-bit addresses, 32-bit data."""
    return {f"{prefix}{name}": member for name, member in (
        ("awaddr", Out(_ADDRESS_BITS)), ("awprot", Out(3)), ("awvalid", Out(1)), ("awready", In(1)),
        ("wdata", Out(32)), ("wstrb", Out(4)), ("wvalid", Out(1)), ("wready", In(1)),
        ("bresp", In(2)), ("bvalid", In(1)), ("bready", Out(1)),
        ("araddr", Out(_ADDRESS_BITS)), ("arprot", Out(3)), ("arvalid", Out(1)), ("arready", In(1)),
        ("rdata", In(32)), ("rresp", In(2)), ("rvalid", In(1)), ("rready", Out(1)))}


class RegisterManager(wiring.Component):
    """Reads or writes one register.

    Members
    -------
    start : ``In(1)``, write : ``In(1)``, address : ``In(14)``, value : ``In(32)``
        One cycle of ``start``; the others stay until ``done``. The address counts words.
    done : ``Out(1)``, failed : ``Out(1)``, result : ``Out(32)``
        One cycle; the access was refused; what was read.
    m_axil_*
        See :func:`manager_members`.
    """

    def __init__(self) -> None:
        super().__init__(manager_members() | {
            "start": In(1), "write": In(1), "address": In(14), "value": In(32),
            "done": Out(1), "failed": Out(1), "result": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for channel in ("aw", "w", "ar"):
            valid = getattr(self, f"m_axil_{channel}valid")
            with m.If(valid & getattr(self, f"m_axil_{channel}ready")):
                m.d.sync += valid.eq(0)
        with m.If(self.start):
            m.d.sync += [self.m_axil_awvalid.eq(self.write), self.m_axil_wvalid.eq(self.write), self.m_axil_arvalid.eq(~self.write)]
        m.d.comb += [
            self.m_axil_awaddr.eq(self.address << 2), self.m_axil_araddr.eq(self.address << 2),
            self.m_axil_wdata.eq(self.value), self.m_axil_wstrb.eq(0xF), self.m_axil_bready.eq(1), self.m_axil_rready.eq(1),
            self.done.eq(self.m_axil_bvalid | self.m_axil_rvalid),
            self.failed.eq((self.m_axil_bvalid & self.m_axil_bresp[1]) | (self.m_axil_rvalid & self.m_axil_rresp[1])),
            self.result.eq(self.m_axil_rdata),
        ]
        return m
