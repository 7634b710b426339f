"""A machine whose beats have 16 bits behind AXI4 ports of 32 bits, the least that vendors' interconnects take.

AMD's AXI Interconnect and SmartConnect take data of 32 to 1024 bits (PG059, PG247); a machine with one channel in a group
(``clusters = 1``) has beats of 2 bytes. All others have 32 bits or more and need nothing.
"""

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Member, Out, Signature, connect, flipped
from amaranth.utils import exact_log2

from gradloom.contracts.config import Config
from gradloom.contracts.pipeline import OUTSTANDING_READS
from gradloom.rtl import shared_module
from gradloom.rtl.board.board_design import MACHINE, machine_members
from gradloom.rtl.board.memory.axi_bus import AxiSignature, connect_manager, flat_manager_members
from gradloom.rtl.board.memory.packer import Packer
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.axi import connect_flat, lite_members, port_prefix
from gradloom.rtl.verilog import emit_design

__all__ = ["PORT_BYTES", "TOP32", "Axi32Machine", "PortWidener", "emit_axi32", "is_narrow"]

TOP32 = "gradloom_axi32"
"""Name of the top module; its ports are those of the machine, with wider data."""
PORT_BYTES = 4
"""Bytes of a beat of a vendor's port, at least."""


def is_narrow(config: Config) -> bool:
    """Whether the machine's own beats are narrower than :data:`PORT_BYTES`."""
    return config.beat_bytes < PORT_BYTES


class PortWidener(wiring.Component):
    """Between an AXI4 manager of narrow beats and a port of :data:`PORT_BYTES`.

    A burst becomes one burst, from the word that holds its first beat to the one that holds its last: 64 beats, which cross no
    multiple of 64 beats, become 32 words at most, which cross no 4 KiB. Its address is that of its first word. Strobes are those
    of the beats, and 0 for what a burst leaves out of its first and last word; such bytes are read and dropped. A beat has the
    response of its word, a burst that of its burst.

    No output of the port follows from an input in the same cycle. The address of a read passes at once, that of a write a cycle
    later; its data come with it at the earliest, and do not wait until it is taken. Read data come a cycle later.

    Members
    -------
    manager : ``In(AxiSignature(beat_bytes))``
        Offers (``valid``, payloads, and ``ready`` of B) that do not follow from this port's inputs in the same cycle.
    port : ``Out(AxiSignature(PORT_BYTES))``
    """

    def __init__(self, beat_bytes: int) -> None:
        self.beat_bytes = beat_bytes
        super().__init__({"manager": In(AxiSignature(beat_bytes)), "port": Out(AxiSignature(PORT_BYTES))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.packer = packer = Packer(self.beat_bytes, PORT_BYTES, outstanding=OUTSTANDING_READS)
        connect(m, flipped(self.manager), packer.beats)
        reads, writes, low = packer.words.ar, packer.words.aw, exact_log2(PORT_BYTES)
        # The packer sends data when their address is taken, and a subordinate may wait for data before it takes an address (AMBA
        # AXI, A3.3.1). With one address in a register here, data do not wait, and do not come before it is offered.
        free = ~self.port.aw.valid | self.port.aw.ready
        with m.If(free):
            m.d.sync += self.port.aw.valid.eq(writes.valid)
            # Whole words: an address within a word is legal (A3.4.1), but not all that one meets takes it.
            m.d.sync += [self.port.aw.p.addr.eq(writes.p.addr[low:] << low), self.port.aw.p.len.eq(writes.p.len)]
        m.d.comb += [
            writes.ready.eq(free),
            self.port.ar.valid.eq(reads.valid), reads.ready.eq(self.port.ar.ready),
            self.port.ar.p.addr.eq(reads.p.addr[low:] << low), self.port.ar.p.len.eq(reads.p.len),
        ]
        connect(m, packer.words.w, flipped(self.port.w))
        connect(m, flipped(self.port.b), packer.words.b)
        # The packer takes a word when its last beat is taken, so its READY follows from VALID.
        m.submodules.read_data = read_data = Fifo(self.port.r.payload.shape(), 2)
        connect(m, flipped(self.port.r), read_data.i)
        connect(m, read_data.o, packer.words.r)
        return m


class Axi32Machine(wiring.Component):
    """The machine with :class:`PortWidener` at its managers. It is an instance of the Verilog that
    :func:`gradloom.rtl.verilog.emit_verilog` writes, so what is packaged is what was verified.

    Parameters
    ----------
    config : :class:`Config`
        With beats narrower than :data:`PORT_BYTES`.

    Members
    -------
    m_axi_*, m1_axi_*, m2_axi_*, m3_axi_*, s_axil_*, irq
        As those of :class:`gradloom.rtl.accelerator.Accelerator`, data of :data:`PORT_BYTES`.

    Raises
    ------
    :exc:`ValueError`
        If the machine's own beats are as wide.
    """

    def __init__(self, config: Config) -> None:
        if not is_narrow(config):
            raise ValueError(f"{config.name} has beats of {config.beat_bytes} bytes, which need no widening to {PORT_BYTES}")
        self.config = config
        self.machine = machine_members(config)
        wide = {name: member for n in range(max(config.load_channels, config.store_channels))
                for name, member in flat_manager_members(PORT_BYTES, port_prefix(n)).items()}
        self.ports: dict[str, Member] = {name: wide.get(name, member) for name, member in self.machine.items()}
        super().__init__({**self.ports, "irq": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inner = Signature(self.machine).create(path=("machine",))
        m.submodules.machine = Instance(
            MACHINE, i_clk=ClockSignal(), i_rst=ResetSignal(), o_irq=self.irq,
            **{f"{'o' if member.flow == Out else 'i'}_{name}": getattr(inner, name) for name, member in self.machine.items()})
        connect_flat(m, inner, self, lite_members())
        for n in range(max(self.config.load_channels, self.config.store_channels)):
            beat = self.config.beat_bytes
            widener = shared_module.add(m, f"port{n}", "gradloom_port_widener", PortWidener(beat), beat)
            connect_manager(m, inner, widener.manager, port_prefix(n))
            self._port(m, widener.port, inner, port_prefix(n))
        return m

    def _port(self, m: Module, bus: wiring.PureInterface, inner: wiring.PureInterface, prefix: str) -> None:
        """The halves that the machine has."""
        for channel in ("ar", "aw"):
            if f"{prefix}{channel}valid" not in self.ports:
                continue
            address = getattr(bus, channel)
            own = {"valid": address.valid, "addr": address.p.addr, "len": address.p.len, "size": exact_log2(PORT_BYTES)}
            own |= {name: getattr(inner, f"{prefix}{channel}{name}") for name in ("id", "burst", "cache", "prot")}
            m.d.comb += [getattr(self, f"{prefix}{channel}{name}").eq(value) for name, value in own.items()]
            m.d.comb += address.ready.eq(getattr(self, f"{prefix}{channel}ready"))
        for channel, fields in (("r", ("data", "resp", "last")), ("b", ("resp",))):
            if f"{prefix}{channel}valid" in self.ports:
                source = getattr(bus, channel)
                m.d.comb += [source.valid.eq(getattr(self, f"{prefix}{channel}valid")),
                             getattr(self, f"{prefix}{channel}ready").eq(source.ready)]
                m.d.comb += [getattr(source.p, name).eq(getattr(self, f"{prefix}{channel}{name}")) for name in fields]
        if f"{prefix}wvalid" in self.ports:
            m.d.comb += [getattr(self, f"{prefix}w{name}").eq(getattr(bus.w.p, name)) for name in ("data", "strb", "last")]
            m.d.comb += [getattr(self, f"{prefix}wvalid").eq(bus.w.valid), bus.w.ready.eq(getattr(self, f"{prefix}wready"))]


def emit_axi32(config: Config) -> dict[str, str]:
    """Verilog files by name: one, ``gradloom_axi32.v``, that instantiates the machine of
    :func:`gradloom.rtl.verilog.emit_verilog`.

    Raises
    ------
    :exc:`~gradloom.rtl.verilog.EmissionError`
        If Yosys fails.
    """
    return emit_design(lambda: Axi32Machine(config), TOP32)
