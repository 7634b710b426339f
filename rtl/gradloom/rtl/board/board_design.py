"""Everything of a board between its cable and the pins of its memory: link, machine, memory. No pins of a platform."""

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Member, Out, Signature, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.frame_format import FIRST_BAUD
from gradloom.contracts.sdram_timing import SdramPart
from gradloom.rtl.board.link.board_link import BoardLink, UartLink
from gradloom.rtl.board.link.registers import manager_members
from gradloom.rtl.board.memory.axi_arbiter import AxiArbiter
from gradloom.rtl.board.memory.axi_bus import connect_manager
from gradloom.rtl.board.memory.block_ram import BlockRam
from gradloom.rtl.board.memory.board_memory import BoardMemory
from gradloom.rtl.board.memory.sdram import pin_members
from gradloom.rtl.memory_path.axi import connect_flat, lite_members, port_prefix, read_members, write_members

__all__ = ["BoardDesign", "machine_members"]

MACHINE = "gradloom"
"""Module of the machine (:data:`gradloom.rtl.verilog.TOP`, whose import takes a second)."""


def machine_members(config: Config) -> dict[str, Member]:
    """Ports of a machine, but clock, reset and interrupt."""
    members = lite_members()
    for half, channels in ((read_members, config.load_channels), (write_members, config.store_channels)):
        for n in range(channels):
            members |= half(config, port_prefix(n))
    return members


class BoardDesign(wiring.Component):
    """The design of a board but for its pins and its clock.

    The machine is an instance of the Verilog that :func:`gradloom.rtl.verilog.emit_verilog` writes, so what is built is what was
    verified. Its managers come first at the arbiter, the bridge's last.

    Parameters
    ----------
    config : :class:`Config`
    part : :class:`SdramPart` or :class:`int`
        The SDRAM at the pins; or bytes of block RAM in its place, a power of two.
    clock : :class:`int`
        Hz, of everything.
    capture, pad_registers
        See :class:`~gradloom.rtl.board.memory.sdram.SdramController`.
    board, build, baud
        See :class:`~gradloom.rtl.board.link.board_link.BoardLink`.
    uart : :class:`bool`
        With a UART; else bytes come and go by two streams.

    Members
    -------
    rx_pin : ``In(1)``, tx_pin : ``Out(1)``
        With a UART: the line.
    rx : ``In(stream.Signature(8))``, tx : ``Out(stream.Signature(8))``
        Without: bytes from and to the host.
    cke, cs_n, ras_n, cas_n, we_n, ba, a, dqm, dq_o, dq_oe, dq_i
        With an SDRAM: its pins (:func:`~gradloom.rtl.board.memory.sdram.pin_members`).
    irq : ``Out(1)``
        The machine's interrupt.
    """

    def __init__(self, config: Config, part: SdramPart | int, *, clock: int, capture: int = 0, pad_registers: bool = False,
                 board: str = "SIM0", build: int = 0, baud: int = FIRST_BAUD, uart: bool = True) -> None:
        self.config, self.part, self.uart = config, part, uart
        sdram = isinstance(part, SdramPart)
        link = UartLink if uart else BoardLink
        self.link = link(config, board=board, clock=clock, memory_bytes=part.size if sdram else part, build=build, baud=baud)
        managers = max(config.load_channels, config.store_channels) + 1
        if sdram:
            self.memory = BoardMemory(managers, config.beat_bytes, part, clock, capture=capture, pad_registers=pad_registers)
        else:
            self.memory, self.arbiter = BlockRam(config.beat_bytes, part), AxiArbiter(managers, config.beat_bytes)
        self.pins = pin_members(part) if sdram else {}
        line = {"rx_pin": In(1, init=1), "tx_pin": Out(1, init=1)} if uart else {
            "rx": In(stream.Signature(8)), "tx": Out(stream.Signature(8))}
        super().__init__({**line, **self.pins, "irq": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link, m.submodules.memory = link, memory = self.link, self.memory
        if self.uart:
            m.d.comb += [link.rx_pin.eq(self.rx_pin), self.tx_pin.eq(link.tx_pin)]
        else:
            connect(m, flipped(self.rx), link.rx)
            connect(m, link.tx, flipped(self.tx))
        if isinstance(self.part, SdramPart):
            managers = memory.manager
        else:
            m.submodules.arbiter = arbiter = self.arbiter
            connect(m, arbiter.memory, memory.bus)
            managers = arbiter.manager
        connect_flat(m, memory, self, self.pins)

        members = machine_members(self.config)
        ports = Signature(members).create(path=("machine",))
        m.submodules.machine = Instance(
            MACHINE, i_clk=ClockSignal(), i_rst=ResetSignal(), o_irq=self.irq,
            **{f"{'o' if member.flow == Out else 'i'}_{name}": getattr(ports, name) for name, member in members.items()})
        for n, bus in enumerate(managers[:-1]):
            connect_manager(m, ports, bus, port_prefix(n))
        connect_manager(m, link, managers[-1])
        connect_flat(m, link, ports, manager_members(), prefix="m_axil_", outer_prefix="s_axil_")
        # The board has no registers of its own.
        m.d.comb += [link.irq.eq(self.irq), link.window_ready.eq(1), link.window_rdata.eq(0)]
        return m
