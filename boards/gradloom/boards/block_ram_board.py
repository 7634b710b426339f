"""A whole design without memory chips: UART, bridge, arbiter, block RAM and the machine."""

from amaranth.hdl import ClockSignal, Elaboratable, Instance, Module, ResetSignal
from amaranth.lib import io
from amaranth.lib.wiring import Member, Out, Signature, connect

from gradloom.boards.clocking import add_clock
from gradloom.rtl.board.link.board_link import UartLink
from gradloom.rtl.board.link.registers import manager_members
from gradloom.rtl.board.memory.axi_arbiter import AxiArbiter
from gradloom.rtl.board.memory.axi_bus import connect_manager
from gradloom.rtl.board.memory.block_ram import BlockRam
from gradloom.rtl.config import Config, ConfigError
from gradloom.rtl.emission import TOP
from gradloom.rtl.memory_path.axi import lite_members, read_members, write_members

__all__ = ["BAUD", "BlockRamBoard", "check_one_port", "machine_members"]

BAUD = 115_200
"""First rate of the line."""


def machine_members(config: Config) -> dict[str, Member]:
    """Ports of a machine of one load and one store channel, but clock, reset and interrupt."""
    return {**read_members(config), **write_members(config), **lite_members()}


def check_one_port(config: Config) -> None:
    """A machine for block RAM has one AXI4 port.

    Raises
    ------
    :exc:`~gradloom.rtl.config.ConfigError`
        If it has more.
    """
    if config.load_channels > 1 or config.store_channels > 1:
        raise ConfigError(f"{config.name} has {config.load_channels} load and {config.store_channels} store channels: "
                          "take a machine with one of each")


class BlockRamBoard(Elaboratable):
    """The design for a platform that has a UART, two LEDs and a clock (:mod:`amaranth_boards`).

    The machine is an instance of the Verilog that :func:`gradloom.rtl.emission.emit_verilog` writes, so what is built is what was
    verified. LED 0: the machine is out of reset. LED 1: it has an interrupt.

    Parameters
    ----------
    config : :class:`Config`
        With one load and one store channel.
    memory_bytes : :class:`int`
        A power of two.
    clock : :class:`int`
        Hz, of everything.
    build : :class:`int`
        64-bit number that the board tells the host (:func:`gradloom.rtl.board.link.board_link.identity_bytes`).
    """

    def __init__(self, config: Config, *, memory_bytes: int, clock: int, board: str, build: int = 0) -> None:
        check_one_port(config)
        self.config, self.memory_bytes, self.clock = config, memory_bytes, clock
        self.link = UartLink(config, board=board, clock=clock, memory_bytes=memory_bytes, build=build, baud=BAUD)

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        m.submodules.oscillator = oscillator = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        add_clock(m, oscillator.i, round(platform.default_clk_frequency), self.clock)
        uart = platform.request("uart", 0, dir={name: "-" for name in ("rx", "tx", "rts", "dtr")})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.submodules.link = link = self.link
        m.submodules.arbiter = arbiter = AxiArbiter(2, config.beat_bytes)
        m.submodules.memory = memory = BlockRam(config.beat_bytes, self.memory_bytes)
        m.d.comb += [link.rx_pin.eq(rx.i), tx.o.eq(link.tx_pin)]
        connect(m, arbiter.memory, memory.bus)

        # The arbiter's first manager is the machine.
        machine = machine_members(config)
        ports = Signature(machine).create(path=("machine",))
        m.submodules.machine = Instance(
            TOP, i_clk=ClockSignal(), i_rst=ResetSignal(), o_irq=link.irq,
            **{f"{'o' if member.flow == Out else 'i'}_{name}": getattr(ports, name) for name, member in machine.items()})
        connect_manager(m, ports, arbiter.manager[0])
        connect_manager(m, link, arbiter.manager[1])
        for name, member in manager_members().items():
            ours, theirs = getattr(link, name), getattr(ports, name.replace("m_axil_", "s_axil_"))
            m.d.comb += theirs.eq(ours) if member.flow == Out else ours.eq(theirs)
        # The board has no registers of its own.
        m.d.comb += [link.window_ready.eq(1), link.window_rdata.eq(0)]
        for n, value in enumerate((~ResetSignal(), link.irq)):
            m.submodules[f"led{n}"] = led = io.Buffer("o", platform.request("led", n, dir="-"))
            m.d.comb += led.o.eq(value)
        return m
