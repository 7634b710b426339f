"""The board's end of the cable: frames to memory and registers."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.frame_format import (
    FIRST_BAUD,
    IDENTITY,
    LINK_REGISTERS,
    LINK_WINDOW,
    MAX_DATA,
    PROTOCOL,
    RING_BYTES,
    STEP_BITS,
    bit_step,
)
from gradloom.rtl.board.link.bridge import Bridge, window_members
from gradloom.rtl.board.link.receiver import FrameReceiver, RequestRing
from gradloom.rtl.board.link.registers import manager_members
from gradloom.rtl.board.link.session import Session
from gradloom.rtl.board.link.transmitter import Transmitter
from gradloom.rtl.board.link.uart import UartReceiver, UartTransmitter
from gradloom.rtl.memory_path.axi import connect_flat, read_members, write_members

__all__ = ["BoardLink", "UartLink", "identity_bytes"]


def identity_bytes(config: Config, *, board: str, clock: int, memory_base: int, memory_bytes: int, build: int) -> bytes:
    """Body of WELCOME.

    Parameters
    ----------
    board : :class:`str`
        Four letters.
    clock : :class:`int`
        Hz.
    build : :class:`int`
        64-bit hash of what the board was built from.
    """
    if len(board) != 4 or not board.isascii():
        raise ValueError(f"board must be four ASCII letters, not {board!r}")
    values = {"protocol": PROTOCOL, "beat_bytes": config.beat_bytes, "data_bytes": MAX_DATA, "ring_bytes": RING_BYTES,
              "board": int.from_bytes(board.encode(), "little"), "config": config.digest(), "memory_base": memory_base,
              "memory_bytes": memory_bytes % (1 << 32), "clock": clock, "build": build}
    return b"".join(values[field.name].to_bytes(field.size, "little") for field in IDENTITY)


class BoardLink(wiring.Component):
    """Everything between two streams of bytes and the buses of a board; no pins.

    Parameters
    ----------
    config : :class:`Config`
        The machine's.
    board, clock, memory_base, memory_bytes, build
        See :func:`identity_bytes`, and :class:`~gradloom.rtl.board.link.bridge.Bridge`.
    baud : :class:`int`
        First rate of the line.

    Members
    -------
    rx : ``In(stream.Signature(8))``, tx : ``Out(stream.Signature(8))``
        Bytes from and to the host.
    rx_error : ``In(1)``
        A byte was lost.
    tx_idle : ``In(1)``
        No bit is under way: the rate may change.
    line_break : ``In(1)``
        Go back to the first rate.
    bit_step : ``Out(16)``
        Rate of the line (:mod:`gradloom.rtl.board.link.uart`).
    irq : ``In(1)``
    m_axi_*, m_axil_*, window_*
        See :class:`~gradloom.rtl.board.link.bridge.Bridge`; ``window_address`` has bit 12 clear.
    """

    def __init__(self, config: Config, *, board: str = "SIM0", clock: int = 50_000_000, memory_base: int = 0,
                 memory_bytes: int = 1 << 25, build: int = 0, baud: int = FIRST_BAUD) -> None:
        self.first_step = bit_step(baud, clock)
        self.identity = identity_bytes(config, board=board, clock=clock, memory_base=memory_base, memory_bytes=memory_bytes,
                                       build=build)
        self.bridge = Bridge(config, memory_base=memory_base, memory_bytes=memory_bytes)
        super().__init__(read_members(config) | write_members(config) | manager_members() | window_members() | {
            "rx": In(stream.Signature(8)), "tx": Out(stream.Signature(8)), "rx_error": In(1), "tx_idle": In(1, init=1),
            "line_break": In(1), "bit_step": Out(STEP_BITS, init=self.first_step), "irq": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = FrameReceiver()
        m.submodules.ring = ring = RequestRing()
        m.submodules.session = session = Session()
        m.submodules.transmitter = transmitter = Transmitter(self.identity)
        m.submodules.bridge = bridge = self.bridge
        connect(m, flipped(self.rx), receiver.i)
        connect(m, transmitter.o, flipped(self.tx))
        connect(m, ring.o, bridge.request)
        m.d.comb += [
            session.session.eq(receiver.session), session.number.eq(receiver.number), session.ack.eq(receiver.ack),
            session.kind.eq(receiver.kind),
            ring.data.eq(receiver.data), ring.write.eq(receiver.write), ring.last.eq(receiver.last),
            transmitter.data.eq(bridge.data), transmitter.write.eq(bridge.write), transmitter.last.eq(bridge.last),
            transmitter.welcome.eq(session.welcome), transmitter.state.eq(session.state),
            transmitter.acknowledge.eq(session.acknowledge), transmitter.again.eq(session.again),
            transmitter.expected.eq(session.expected), transmitter.proposed.eq(session.proposed),
            transmitter.token.eq(session.token), transmitter.tag.eq(session.tag), transmitter.open.eq(session.open),
            receiver.hold.eq(session.opening), receiver.error.eq(self.rx_error),
            session.good.eq(receiver.good), session.full.eq(ring.full),
            ring.keep.eq(session.keep), ring.drop.eq(receiver.bad | (receiver.good & ~session.keep)), ring.clear.eq(session.begin),
            transmitter.session.eq(session.current), transmitter.ack.eq(receiver.ack), transmitter.clear.eq(session.begin),
            session.quiet.eq(bridge.idle & transmitter.between),
            bridge.room.eq(transmitter.room), bridge.open.eq(session.open), bridge.begin.eq(session.begin),
            bridge.stop.eq(session.opening), bridge.irq.eq(self.irq),
        ]
        connect_flat(m, bridge, self, read_members(bridge.config) | write_members(bridge.config) | manager_members())
        self._window(m, receiver, session, transmitter)
        return m

    def _window(self, m: Module, receiver: FrameReceiver, session: Session, transmitter: Transmitter) -> None:
        """The link's own registers lie in the upper half of the board's."""
        bridge = self.bridge
        wanted = Signal(STEP_BITS)
        pending, after = Signal(), Signal()
        faults = [Signal(8, name=name) for name in ("fault_frame", "fault_refused", "fault_crowded", "fault_byte")]
        for counter, event in zip(faults, (receiver.bad, session.refused, session.crowded, self.rx_error), strict=True):
            m.d.sync += counter.eq(counter + event)
        own = bridge.window_address[12]
        second = bridge.window_address[0]
        assert [register.offset for register in LINK_REGISTERS] == [0, 4] and LINK_WINDOW == 0xC000
        m.d.comb += [
            self.window_valid.eq(bridge.window_valid & ~own), self.window_write.eq(bridge.window_write),
            self.window_address.eq(bridge.window_address[:12]), self.window_wdata.eq(bridge.window_wdata),
            bridge.window_ready.eq(self.window_ready | own), bridge.window_rdata.eq(self.window_rdata),
        ]
        with m.If(own):
            m.d.comb += bridge.window_rdata.eq(self.bit_step)
            with m.If(second):
                m.d.comb += bridge.window_rdata.eq(Cat(faults))
            with m.If(bridge.window_valid & bridge.window_write & ~second):
                m.d.sync += [wanted.eq(bridge.window_wdata), pending.eq(1), after.eq(0)]
        # The answer to the request that changes the rate leaves at the old one: first it is whole, then it is sent.
        with m.If(pending & bridge.idle):
            m.d.sync += after.eq(1)
        with m.If(after & bridge.idle & transmitter.idle & ~self.tx.valid & self.tx_idle):
            m.d.sync += [self.bit_step.eq(wanted), pending.eq(0), after.eq(0)]
        with m.If(self.line_break):
            m.d.sync += [self.bit_step.eq(self.first_step), pending.eq(0), after.eq(0)]


class UartLink(wiring.Component):
    """A :class:`BoardLink` behind a UART.

    Members
    -------
    rx_pin : ``In(1)``, tx_pin : ``Out(1)``
        The line, 1 at rest.
    irq, m_axi_*, m_axil_*, window_*
        Those of :class:`BoardLink`.
    """

    def __init__(self, config: Config, **options: object) -> None:
        self.link = BoardLink(config, **options)
        self._through = read_members(config) | write_members(config) | manager_members() | window_members() | {"irq": In(1)}
        super().__init__(self._through | {"rx_pin": In(1, init=1), "tx_pin": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = self.link
        m.submodules.receiver = receiver = UartReceiver()
        m.submodules.transmitter = transmitter = UartTransmitter()
        connect(m, receiver.o, link.rx)
        connect(m, link.tx, transmitter.i)
        m.d.comb += [receiver.rx.eq(self.rx_pin), self.tx_pin.eq(transmitter.tx), receiver.bit_step.eq(link.bit_step),
                     transmitter.bit_step.eq(link.bit_step), link.rx_error.eq(receiver.error), link.tx_idle.eq(transmitter.idle),
                     link.line_break.eq(receiver.line_break)]
        connect_flat(m, link, self, self._through)
        return m
