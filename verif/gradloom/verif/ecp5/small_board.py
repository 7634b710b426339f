"""A small design that a device routes in a minute: the board's end of the cable without its UART, block RAM behind it, and a PE."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import PRESETS
from gradloom.rtl.board.link.board_link import BoardLink
from gradloom.rtl.board.memory.axi_bus import connect_manager
from gradloom.rtl.board.memory.block_ram import BlockRam
from gradloom.rtl.ccore.pe import Pe

__all__ = ["CONFIG", "MEMORY_BYTES", "SmallBoard"]

CONFIG = PRESETS["nano"]
MEMORY_BYTES = 1 << 12
_SERIAL, _SUMS = 8, 8


class SmallBoard(wiring.Component):
    """Bytes of frames in and out; bits for the PE in, sums of its bits out.

    Members
    -------
    rx : ``In(stream.Signature(8))``, tx : ``Out(stream.Signature(8))``
        Bytes from and to the host.
    serial : ``In(8)``
        Moves through all inputs of the PE.
    sums : ``Out(8)``
        Every eighth bit of the PE's outputs, added without carry.
    """

    def __init__(self) -> None:
        super().__init__({"rx": In(stream.Signature(8)), "tx": Out(stream.Signature(8)), "serial": In(_SERIAL), "sums": Out(_SUMS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = BoardLink(CONFIG, memory_bytes=MEMORY_BYTES)
        m.submodules.memory = memory = BlockRam(CONFIG.beat_bytes, MEMORY_BYTES)
        connect(m, flipped(self.rx), link.rx)
        connect(m, link.tx, flipped(self.tx))
        connect_manager(m, link, memory.bus)
        m.d.comb += [link.tx_idle.eq(1), link.window_ready.eq(1)]
        m.submodules.pe = pe = Pe(CONFIG.mac)
        members = pe.signature.members
        inputs, outputs = (Cat(Value.cast(getattr(pe, name)) for name, member in members.items() if member.flow == flow)
                           for flow in (In, Out))
        chain = Signal(len(inputs))
        m.d.sync += chain.eq(Cat(self.serial, chain))
        m.d.comb += inputs.eq(chain)
        for bit in range(_SUMS):
            m.d.sync += self.sums[bit].eq(outputs[bit::_SUMS].xor())
        return m
