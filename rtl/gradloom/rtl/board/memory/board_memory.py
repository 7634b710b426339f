"""A board's memory behind several AXI4 managers: arbiter, packer and SDRAM controller."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.rtl.board.memory.axi_arbiter import AxiArbiter
from gradloom.rtl.board.memory.axi_bus import AxiSignature
from gradloom.rtl.board.memory.packer import Packer, word_length_bits
from gradloom.rtl.board.memory.sdram import SdramController, pin_members
from gradloom.rtl.board.memory.sdram_timing import SdramPart

__all__ = ["BoardMemory"]


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
        self.packer = Packer(beat_bytes, part.word_bytes)
        self.controller = SdramController(part, clock, capture=capture, pad_registers=pad_registers,
                                          length_bits=word_length_bits(beat_bytes, part.word_bytes))
        self.pins = pin_members(part)
        super().__init__({"manager": In(AxiSignature(beat_bytes)).array(managers), **self.pins, "ready": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.arbiter, m.submodules.packer, m.submodules.controller = arbiter, packer, controller = (
            self.arbiter, self.packer, self.controller)
        for outer, inner in zip(self.manager, arbiter.manager, strict=True):
            connect(m, flipped(outer), inner)
        connect(m, arbiter.memory, packer.beats)
        connect(m, packer.words, controller.bus)
        for name, member in self.pins.items():
            ours, theirs = getattr(self, name), getattr(controller, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        m.d.comb += self.ready.eq(controller.ready)
        return m
