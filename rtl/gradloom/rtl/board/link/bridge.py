"""Executes requests, one after the other: memory over AXI4, registers over AXI4-Lite."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.contracts.config import Config
from gradloom.contracts.frame_format import MAX_DATA, MAX_ENTRIES, MEMORY_FIELDS, Access, Kind, Reply, Status
from gradloom.contracts.regmap import offset
from gradloom.rtl.board.link.receiver import RING_WORD
from gradloom.rtl.board.link.registers import RegisterManager, manager_members
from gradloom.rtl.memory_path.axi import connect_flat, constant_address_signals, read_members, write_members

__all__ = ["CHUNK_BEATS", "Bridge", "window_members"]

CHUNK_BEATS = 16
"""Longest burst. It fits into the buffer, so a burst never waits for the cable, and none crosses a multiple of 16 beats, let
alone 4 KiB (AXI4, section A3.4.1)."""
_INDEX_BITS = exact_log2(CHUNK_BEATS)
_HEADER_BYTES = sum(field.size for field in MEMORY_FIELDS)
_PIECE_BYTES = 8
_SMALL_BITS = 11
"""Bits of a length of bytes that fits a frame, plus what rounding to beats adds."""


def window_members() -> dict[str, object]:
    """Registers of the board: ``valid``, ``write``, ``address`` (in words) and ``wdata`` stay until ``ready``, with which ``rdata``
    comes."""
    return {"window_valid": Out(1), "window_write": Out(1), "window_address": Out(13), "window_wdata": Out(32),
            "window_ready": In(1), "window_rdata": In(32)}


class Bridge(wiring.Component):
    """Executes the requests of :mod:`gradloom.contracts.frame_format`.

    Parameters
    ----------
    config : :class:`Config`
        Its beats are those of the memory.
    memory_base, memory_bytes : :class:`int`
        What requests may touch; a power of two of bytes at a multiple of it.

    Members
    -------
    request : ``In(stream.Signature(RING_WORD))``
        Whole frames, from their kind on.
    data : ``Out(8)``, write : ``Out(1)``, last : ``Out(1)``
        Answers, from their kind on.
    room : ``In(1)``
        An answer may begin.
    open : ``In(1)``, begin : ``In(1)``, stop : ``In(1)``
        A session is open; a new one begins; end what runs at the next burst or access and begin nothing.
    irq : ``In(1)``
        The machine's interrupt; each of its rises is told, with STATUS.
    idle : ``Out(1)``
    m_axi_*, m_axil_*, window_*
        Memory; registers of the machine; registers of the board.
    """

    def __init__(self, config: Config, *, memory_base: int, memory_bytes: int) -> None:
        if memory_bytes < 4096 or memory_bytes & memory_bytes - 1 or memory_bytes > 1 << 32:
            raise ValueError(f"memory_bytes must be a power of two from 4096 to 2^32, not {memory_bytes!r}")
        if memory_base % memory_bytes or not 0 <= memory_base < 1 << 32:
            raise ValueError(f"memory_base must be a multiple of memory_bytes below 2^32, not {memory_base!r}")
        self.config, self.memory_base, self.memory_bytes = config, memory_base, memory_bytes
        super().__init__(read_members(config) | write_members(config) | manager_members() | window_members() | {
            "request": In(stream.Signature(RING_WORD)), "data": Out(8), "write": Out(1), "last": Out(1), "room": In(1),
            "open": In(1), "begin": In(1), "stop": In(1), "irq": In(1), "idle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._registers(m)
        self._interrupts(m)
        with m.FSM():
            self._frames(m)
            self._moves(m)
            self._bursts(m)
            self._scripts(m)
        return m

    def _registers(self, m: Module) -> None:
        """State that several kinds of requests share."""
        beat = self.config.beat_bytes
        self.lane_bits = exact_log2(beat)
        self.kind, self.status, self.entries = Signal(8), Signal(8), Signal(8)
        self.ended = Signal()  # no byte of the frame is left
        # Words of a frame come in through `target` and move on to `source` and `count`.
        self.count, self.source, self.target = Signal(32), Signal(32), Signal(32)
        self.left = Signal(4)
        self.beats = Signal(32 - self.lane_bits)
        self.index, self.most = Signal(_INDEX_BITS), Signal(_INDEX_BITS + 1)
        self.final = Signal()
        self.lane, self.first_lane, self.last_lane = (Signal(self.lane_bits) for _ in range(3))
        self.entry, self.half = Signal(16), Signal()
        self.failed = Signal()
        self.take = Signal()
        self.shift, self.shift_in = Signal(), Signal(8)
        self.keep_count = Signal()
        m.d.comb += [self.take.eq(self.request.valid & self.request.ready), self.shift_in.eq(self.request.p.data)]
        with m.If(self.take):
            m.d.sync += self.ended.eq(self.request.p.last)
        with m.If(self.shift):
            m.d.sync += [self.target.eq(Cat(self.target[8:], self.shift_in)), self.source.eq(Cat(self.source[8:], self.target[:8]))]
            with m.If(~self.keep_count):
                m.d.sync += self.count.eq(Cat(self.count[8:], self.source[:8]))

        m.submodules.buffer = buffer = Memory(shape=8 * beat, depth=CHUNK_BEATS, init=[])
        self.put, self.get = buffer.write_port(granularity=8), buffer.read_port(domain="comb")
        m.d.comb += [self.put.addr.eq(self.index), self.get.addr.eq(self.index), self.put.data.eq(self.m_axi_rdata)]

        self.reads = (self.kind == Kind.READ) | (self.kind == Kind.GATHER)
        self.writes = self.kind != Kind.READ
        m.d.comb += [*constant_address_signals(self, "ar", self.config), *constant_address_signals(self, "aw", self.config)]
        for channel, address in (("ar", self.source), ("aw", self.target)):
            m.d.comb += [getattr(self, f"m_axi_{channel}addr").eq(address[self.lane_bits:] << self.lane_bits),
                         getattr(self, f"m_axi_{channel}len").eq(self.most - 1)]

        m.submodules.manager = manager = self.manager = RegisterManager()
        connect_flat(m, manager, self, manager_members())
        m.d.comb += [manager.write.eq(self.entry[14:] == Access.WRITE), manager.address.eq(self.entry),
                     manager.value.eq(self.target), self.window_write.eq(manager.write), self.window_address.eq(self.entry),
                     self.window_wdata.eq(self.target)]

    def _interrupts(self, m: Module) -> None:
        before = Signal()
        self.interrupt = Signal()
        m.d.sync += before.eq(self.irq & self.open)
        with m.If(self.irq & self.open & ~before):
            m.d.sync += self.interrupt.eq(1)
        with m.If(self.begin):
            m.d.sync += [before.eq(0), self.interrupt.eq(0)]

    def _say(self, m: Module, byte: ValueLike) -> None:
        m.d.comb += [self.write.eq(1), self.data.eq(byte)]

    def _frames(self, m: Module) -> None:
        """Begin and end of a frame."""
        with m.State("IDLE"):
            m.d.comb += self.idle.eq(1)
            m.d.sync += [self.status.eq(Status.OK), self.entries.eq(0), self.failed.eq(0), self.half.eq(0),
                         self.keep_count.eq(0)]
            with m.If(self.room & ~self.stop & ~self.begin):
                with m.If(self.interrupt):
                    self._say(m, Reply.INTERRUPT)
                    m.d.sync += [self.interrupt.eq(0), self.ended.eq(1),
                                 self.entry.eq(Access.READ << 14 | offset("STATUS") >> 2)]
                    m.next = "ACCESS"
                with m.Elif(self.request.valid):
                    self._say(m, Reply.ANSWER)
                    m.d.comb += self.request.ready.eq(1)
                    m.d.sync += [self.kind.eq(self.request.p.data), self.left.eq(_HEADER_BYTES - 1)]
                    with m.Switch(self.request.p.data):
                        with m.Case(Kind.READ, Kind.WRITE, Kind.FILL, Kind.GATHER):
                            m.next = "LOAD"
                        with m.Case(Kind.SCRIPT):
                            m.next = "HEAD"
                        with m.Default():
                            m.d.sync += self.status.eq(Status.OPERATION)
                            m.next = "DRAIN"
        with m.State("LOAD"):
            m.d.comb += [self.request.ready.eq(~self.ended), self.shift.eq(self.take)]
            with m.If(self.ended):
                self._end(m, Status.LENGTH)
            with m.Elif(self.take):
                m.d.sync += self.left.eq(self.left - 1)
                with m.If(self.left == 0):
                    m.next = "PREPARE"
                    with m.If(self.kind == Kind.SCRIPT):
                        m.next = "ACCESS"
        with m.State("DRAIN"):
            m.d.comb += self.request.ready.eq(~self.ended)
            with m.If(self.ended):
                m.next = "ENTRIES"
        with m.State("ENTRIES"):
            self._say(m, self.entries)
            m.next = "STATUS"
        with m.State("STATUS"):
            self._say(m, self.status)
            m.d.comb += self.last.eq(1)
            m.next = "IDLE"

    def _end(self, m: Module, status: Status) -> None:
        m.d.sync += self.status.eq(status)
        m.next = "DRAIN"

    def _moves(self, m: Module) -> None:
        """Memory: a request is cut into bursts that both of its ends allow."""
        bits = self.lane_bits
        # A request within beats begins in some lane; fills and gathers are of whole beats.
        start = Mux(self.kind == Kind.READ, self.source[:bits], self.target[:bits])
        total = Signal(_SMALL_BITS)
        whole = ((self.source[:bits] == 0) | (self.kind == Kind.FILL)) & (self.target[:bits] == 0) & (self.count[:bits] == 0)
        small = (self.kind == Kind.READ) | (self.kind == Kind.WRITE)
        m.d.comb += total.eq(start + self.count[:_SMALL_BITS] + (self.config.beat_bytes - 1))
        with m.State("PREPARE"):
            m.d.sync += [self.beats.eq(Cat(total[bits:], self.count[_SMALL_BITS:])), self.last_lane.eq(total[:bits]),
                         self.first_lane.eq(start), self.keep_count.eq(1)]
            m.next = "CHUNK"
            with m.If(small & (self.count[_SMALL_BITS - 1:].any() | (self.count[:_SMALL_BITS - 1] == 0)
                               | (self.count[:_SMALL_BITS - 1] > MAX_DATA))):
                self._end(m, Status.LENGTH)
            with m.If(~small & ~whole):
                self._end(m, Status.ALIGNMENT)

        low = slice(bits, bits + _INDEX_BITS)
        from_source = Mux(self.reads, self.source[low], 0)
        from_target = Mux(self.writes, self.target[low], 0)
        room = Signal(_INDEX_BITS + 1)
        fits = ~self.beats[_INDEX_BITS + 1:].any() & (self.beats[:_INDEX_BITS + 1] <= room)
        m.d.comb += room.eq(CHUNK_BEATS - Mux(from_source > from_target, from_source, from_target))
        with m.State("CHUNK"):
            m.d.sync += [self.index.eq(0), self.lane.eq(self.first_lane), self.final.eq(fits),
                         self.most.eq(Mux(fits, self.beats, room))]
            with m.If(self.beats == 0):
                with m.If(self.kind == Kind.GATHER):
                    m.d.sync += [self.entries.eq(self.entries + 1), self.left.eq(_PIECE_BYTES - 1)]
                    m.next = "ENTRIES"
                    with m.If(~self.ended):
                        m.next = "LOAD"
                with m.Else():
                    m.next = "ENTRIES"
                    with m.If(~self.ended):
                        self._end(m, Status.LENGTH)
            with m.Elif(self.stop):
                self._end(m, Status.STOPPED)
            with m.Elif((self.reads & ~self._inside(self.source)) | (self.writes & ~self._inside(self.target))):
                self._end(m, Status.ADDRESS)
            with m.Elif(self.reads):
                m.next = "READ ADDRESS"
            with m.Else():
                m.next = "COLLECT"
        with m.State("NEXT"):
            step = self.most << bits
            for address in (self.source, self.target):
                m.d.sync += address.eq(Cat(Const(0, bits), (address + step)[bits:32]))
            # The value of a fill lies in the low byte of the source, which is no address.
            with m.If(self.kind == Kind.FILL):
                m.d.sync += self.source.eq(self.source)
            m.d.sync += [self.beats.eq(self.beats - self.most), self.first_lane.eq(0)]
            m.next = "CHUNK"

    def _inside(self, address: Signal) -> ValueLike:
        bits = exact_log2(self.memory_bytes)
        return address[bits:] == self.memory_base >> bits if bits < 32 else Const(1)

    def _bursts(self, m: Module) -> None:
        """One burst, between the buffer and the memory, and between the buffer and the frames."""
        lanes = range(self.config.beat_bytes)
        at_end = self.index == self.most - 1
        at_last_byte = at_end & (self.lane == Mux(self.final, self.last_lane, self.config.beat_bytes - 1))
        following = Cat(self.lane, self.index) + 1

        with m.State("READ ADDRESS"):
            m.d.comb += self.m_axi_arvalid.eq(1)
            with m.If(self.m_axi_arready):
                m.next = "READ DATA"
        with m.State("READ DATA"):
            m.d.comb += [self.m_axi_rready.eq(1), self.put.en.eq(self.m_axi_rvalid.replicate(len(lanes)))]
            with m.If(self.m_axi_rvalid):
                m.d.sync += [self.index.eq(self.index + 1), self.failed.eq(self.failed | self.m_axi_rresp[1])]
                with m.If(at_end):
                    m.d.sync += self.index.eq(0)
                    with m.If(self.failed | self.m_axi_rresp[1]):
                        self._end(m, Status.READ_RESPONSE)
                    with m.Elif(self.kind == Kind.GATHER):
                        m.next = "WRITE ADDRESS"
                    with m.Else():
                        m.next = "EMIT"
        with m.State("EMIT"):
            self._say(m, self.get.data.word_select(self.lane, 8))
            m.d.sync += Cat(self.lane, self.index).eq(following)
            with m.If(at_last_byte):
                m.next = "NEXT"
        with m.State("COLLECT"):
            fill = self.kind == Kind.FILL
            byte, there = Signal(8), Signal()
            m.d.comb += [
                self.request.ready.eq(~fill & ~self.ended), there.eq(fill | self.take),
                byte.eq(Mux(fill, self.source[:8], self.request.p.data)),
                self.put.data.eq(byte.replicate(len(lanes))),
                *(self.put.en[lane].eq(there & (self.lane == lane)) for lane in lanes),
            ]
            with m.If(there):
                m.d.sync += Cat(self.lane, self.index).eq(following)
                with m.If(at_last_byte):
                    m.d.sync += self.index.eq(0)
                    m.next = "WRITE ADDRESS"
            with m.Elif(self.ended):
                self._end(m, Status.LENGTH)
        with m.State("WRITE ADDRESS"):
            m.d.comb += self.m_axi_awvalid.eq(1)
            with m.If(self.m_axi_awready):
                m.next = "WRITE DATA"
        m.d.comb += [self.m_axi_wdata.eq(self.get.data), self.m_axi_wlast.eq(at_end), self.m_axi_bready.eq(1), *(
            self.m_axi_wstrb[lane].eq(((self.index != 0) | (self.first_lane <= lane))
                                      & (~(at_end & self.final) | (self.last_lane >= lane))) for lane in lanes)]
        with m.State("WRITE DATA"):
            m.d.comb += self.m_axi_wvalid.eq(1)
            with m.If(self.m_axi_wready):
                m.d.sync += self.index.eq(self.index + 1)
                with m.If(at_end):
                    m.next = "WRITE RESPONSE"
        with m.State("WRITE RESPONSE"), m.If(self.m_axi_bvalid):
            m.next = "NEXT"
            with m.If(self.m_axi_bresp[1]):
                self._end(m, Status.WRITE_RESPONSE)

    def _scripts(self, m: Module) -> None:
        """Accesses of registers."""
        kind, board = self.entry[14:], self.entry[13]
        manager = self.manager
        with m.State("HEAD"):
            refused = self.ended | (self.entries == MAX_ENTRIES)
            m.d.comb += self.request.ready.eq(~refused)
            with m.If(refused):
                self._end(m, Status.LENGTH)
            with m.Elif(self.take):
                m.d.sync += [self.entry.eq(Cat(self.entry[8:], self.request.p.data)), self.half.eq(~self.half)]
                with m.If(self.half):
                    m.d.sync += self.left.eq(Mux(self.request.p.data[6:] == Access.WRITE, 3, 11))
                    m.next = "LOAD"
                    with m.Switch(self.request.p.data[6:]):
                        with m.Case(Access.READ):
                            m.next = "ACCESS"
                        with m.Case(0):
                            self._end(m, Status.ENTRY)
        with m.State("ACCESS"):
            m.d.comb += manager.start.eq(~board)
            m.next = "WAIT"
        value, denied = Signal(32), Signal()
        with m.State("WAIT"):
            m.d.comb += self.window_valid.eq(board)
            m.d.sync += [value.eq(Mux(board, self.window_rdata, manager.result)), denied.eq(~board & manager.failed)]
            with m.If(Mux(board, self.window_ready, manager.done)):
                m.next = "LOOK"
        # In a cycle of its own: a value comes from afar, and is compared with what was wanted before anything follows.
        with m.State("LOOK"):
            with m.If(denied):
                self._end(m, Status.REGISTER)
            with m.Elif(kind == Access.WRITE):
                m.next = "ENTRY END"
            with m.Elif((kind == Access.POLL) & (((value ^ self.source) & self.count) != 0)):
                m.d.sync += self.target[:16].eq(self.target[:16] - 1)
                m.next = "ACCESS"
                with m.If((self.target[:16] == 0) | self.stop):
                    m.d.sync += [self.source.eq(value), self.left.eq(3), self.status.eq(Status.POLL)]
                    m.next = "ANSWER"
            with m.Else():
                m.d.sync += [self.source.eq(value), self.left.eq(3)]
                m.next = "ANSWER"
        with m.State("ANSWER"):
            self._say(m, self.source[:8])
            m.d.comb += self.shift.eq(1)
            m.d.sync += self.left.eq(self.left - 1)
            with m.If(self.left == 0):
                m.next = "ENTRY END"
                with m.If(self.status != Status.OK):
                    m.next = "DRAIN"
        with m.State("ENTRY END"):
            m.d.sync += self.entries.eq(self.entries + 1)
            m.next = "HEAD"
            with m.If(self.ended):
                m.next = "ENTRIES"

