"""The joint of a machine's flat AXI4 ports with the bus of a board's memory: whole managers, halves, a machine's own ports."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from gradloom.contracts.config import PRESETS
from gradloom.rtl.board.memory.axi_bus import AxiSignature, connect_manager, flat_manager_members
from gradloom.rtl.board.memory.block_ram import BlockRam
from gradloom.rtl.memory_path.axi import port_prefix, read_members, write_members
from gradloom.verif.board.axi_traffic import Manager, Scoreboard, Traffic
from gradloom.verif.board.packed import simulate

BEAT, SIZE = 4, 512


class Joined(wiring.Component):
    """A bus, through flat ports and back to a bus, to a memory."""

    def __init__(self):
        super().__init__({"bus": In(AxiSignature(BEAT))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = BlockRam(BEAT, SIZE)
        flat = wiring.Signature(flat_manager_members(BEAT, "m1_axi_")).create()
        again = AxiSignature(BEAT).create()
        connect_manager(m, flat, again, "m1_axi_")
        connect(m, again, memory.bus)
        bus = self.bus
        m.d.comb += [
            flat.m1_axi_arvalid.eq(bus.ar.valid), flat.m1_axi_araddr.eq(bus.ar.p.addr), flat.m1_axi_arlen.eq(bus.ar.p.len),
            bus.ar.ready.eq(flat.m1_axi_arready), flat.m1_axi_rready.eq(bus.r.ready), bus.r.valid.eq(flat.m1_axi_rvalid),
            bus.r.p.data.eq(flat.m1_axi_rdata), bus.r.p.resp.eq(flat.m1_axi_rresp), bus.r.p.last.eq(flat.m1_axi_rlast),
            flat.m1_axi_awvalid.eq(bus.aw.valid), flat.m1_axi_awaddr.eq(bus.aw.p.addr), flat.m1_axi_awlen.eq(bus.aw.p.len),
            bus.aw.ready.eq(flat.m1_axi_awready), flat.m1_axi_wvalid.eq(bus.w.valid), flat.m1_axi_wdata.eq(bus.w.p.data),
            flat.m1_axi_wstrb.eq(bus.w.p.strb), flat.m1_axi_wlast.eq(bus.w.p.last), bus.w.ready.eq(flat.m1_axi_wready),
            flat.m1_axi_bready.eq(bus.b.ready), bus.b.valid.eq(flat.m1_axi_bvalid), bus.b.p.resp.eq(flat.m1_axi_bresp),
        ]
        return m


def test_every_signal_of_a_whole_manager_is_joined():
    board = Scoreboard(bytes(SIZE))
    manager = Manager.of("bus", BEAT, Traffic(bursts=60, seed=1, places=(range(SIZE), range(SIZE, 2 * SIZE)), longest=16,
                                              stalls={"r": 0.3, "b": 0.3}), board)
    simulate(Joined(), [manager], manager.done, limit=5000)


@pytest.mark.parametrize("name", ["nano", "ulx3s"])
def test_the_ports_are_those_of_a_machine(name):
    """Same names, widths and directions as the machine's managers have."""
    config = PRESETS[name]
    for channel in (0, 1):
        prefix = port_prefix(channel)
        assert flat_manager_members(config.beat_bytes, prefix) == read_members(config, prefix) | write_members(config, prefix)


@pytest.mark.parametrize("half", [read_members, write_members])
def test_a_half_that_is_not_there_is_silent(half):
    """Only signals of the half that is there are joined; the other half of the bus keeps its 0."""
    m = Module()
    flat = wiring.Signature({name: Out(member.shape) if member.flow == Out else In(member.shape)
                             for name, member in half(PRESETS["nano"]).items()}).create()
    bus = AxiSignature(2).create()
    connect_manager(m, flat, bus)
    driven = {signal.name for statements in m._statements.values() for one in statements for signal in one._lhs_signals()}
    assert any("bus__ar" in name or "ar__valid" in name for name in driven) == (half is read_members)
    assert any("aw__valid" in name for name in driven) == (half is write_members)
