"""A board's memory behind several AXI4 managers: buffers, arbiter, packer and SDRAM controller."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.sdram_timing import SdramPart
from gradloom.rtl.board.memory.axi_arbiter import AxiArbiter
from gradloom.rtl.board.memory.axi_bus import AxiSignature
from gradloom.rtl.board.memory.packer import Packer, word_length_bits
from gradloom.rtl.board.memory.sdram import SdramController, pin_members
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.axi import connect_flat

__all__ = ["BoardMemory", "BusBuffer"]


class BusBuffer(wiring.Component):
    """A FIFO of two in every channel of a bus: whether one side offers or takes anything is decided by registers of the other, so
    that no path leads through both. Everything comes a cycle later, and one a cycle passes.

    Members
    -------
    manager : ``In(AxiSignature(beat_bytes))``, memory : ``Out(AxiSignature(beat_bytes))``
    """

    def __init__(self, beat_bytes: int) -> None:
        bus = AxiSignature(beat_bytes)
        super().__init__({"manager": In(bus), "memory": Out(bus)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for channel, member in self.memory.signature.members.items():
            ends = (self.manager, self.memory) if member.flow == Out else (self.memory, self.manager)
            source, target = (getattr(end, channel) for end in ends)
            m.submodules[channel] = fifo = Fifo(source.payload.shape(), 2)
            connect(m, flipped(source), fifo.i)
            connect(m, fifo.o, flipped(target))
        return m


class BoardMemory(wiring.Component):
    """Managers of ``beat_bytes`` share an SDRAM of any word width.

    Parameters
    ----------
    managers, beat_bytes : :class:`int`
        As in :class:`~gradloom.rtl.board.memory.axi_arbiter.AxiArbiter`.
    part, clock, capture, pad_registers
        As in :class:`~gradloom.rtl.board.memory.sdram.SdramController`.

    Members
    -------
    manager : ``In(AxiSignature(beat_bytes)).array(managers)``
    cke, cs_n, ras_n, cas_n, we_n, ba, a, dqm, dq_o, dq_oe, dq_i
        The part's pins (:func:`~gradloom.rtl.board.memory.sdram.pin_members`).
    ready : ``Out(1)``
        The part is initialised.
    """

    def __init__(self, managers: int, beat_bytes: int, part: SdramPart, clock: int, *, capture: int = 0,
                 pad_registers: bool = False) -> None:
        self.arbiter = AxiArbiter(managers, beat_bytes)
        self.buffers = [BusBuffer(beat_bytes) for _ in range(managers)]
        self.packer = Packer(beat_bytes, part.word_bytes)
        self.controller = SdramController(part, clock, capture=capture, pad_registers=pad_registers,
                                          length_bits=word_length_bits(beat_bytes, part.word_bytes))
        self.pins = pin_members(part)
        super().__init__({"manager": In(AxiSignature(beat_bytes)).array(managers), **self.pins, "ready": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.arbiter, m.submodules.packer, m.submodules.controller = arbiter, packer, controller = (
            self.arbiter, self.packer, self.controller)
        for n, (outer, buffer, inner) in enumerate(zip(self.manager, self.buffers, arbiter.manager, strict=True)):
            m.submodules[f"buffer{n}"] = buffer
            connect(m, flipped(outer), buffer.manager)
            connect(m, buffer.memory, inner)
        connect(m, arbiter.memory, packer.beats)
        connect(m, packer.words, controller.bus)
        connect_flat(m, controller, self, self.pins)
        m.d.comb += self.ready.eq(controller.ready)
        return m
