"""A memory of block RAM behind AXI4, for small designs that need no other."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gradloom.rtl.board.memory.axi_bus import DECERR, LENGTH_BITS, OKAY, AxiSignature

__all__ = ["BlockRam"]


class BlockRam(wiring.Component):
    """AXI4 subordinate with ``size`` bytes from address 0; beyond them it answers DECERR and writes nothing.

    One beat a cycle of reads and writes together, in turns where both want one. A read beat comes 2 cycles after its address at the
    earliest. One burst of each side at a time, and 1 cycle between bursts of a side.

    Parameters
    ----------
    beat_bytes : :class:`int`
        Bytes of a data beat.
    size : :class:`int`
        Bytes, a power of two of at least two beats.

    Members
    -------
    bus : ``In(AxiSignature(beat_bytes))``
    """

    def __init__(self, beat_bytes: int, size: int) -> None:
        if not isinstance(size, int) or size < 2 * beat_bytes or size & (size - 1):
            raise ValueError(f"size of the block RAM must be a power of two and hold two beats ({2 * beat_bytes} bytes), "
                             f"not {size!r}")
        self.beat_bytes, self.size = beat_bytes, size
        super().__init__({"bus": In(AxiSignature(beat_bytes))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, low = self.bus, exact_log2(self.beat_bytes)
        bits = exact_log2(self.size) - low
        m.submodules.memory = memory = Memory(shape=8 * self.beat_bytes, depth=self.size // self.beat_bytes, init=[])
        write, read = memory.write_port(granularity=8), memory.read_port()

        def counters(channel: str, step: Signal) -> tuple[Signal, Signal, Signal]:
            """A burst under way, its beats to come, and the number of its beat; the highest bit: beyond the memory."""
            address = getattr(bus, channel)
            active, left, beat = Signal(name=f"{channel}_on"), Signal(LENGTH_BITS, name=f"{channel}_left"), Signal(
                bits + 1, name=f"{channel}_beat")
            m.d.comb += address.ready.eq(~active)
            with m.If(~active):
                m.d.sync += [active.eq(address.valid), left.eq(address.p.len),
                             beat.eq(address.p.addr[low:low + bits]), beat[bits].eq(address.p.addr[low + bits:].any())]
            with m.If(step):
                m.d.sync += [active.eq(left != 0), left.eq(left - 1), beat.eq(beat + 1)]
            return active, left, beat

        get, put = Signal(), Signal()
        reading, reads_left, read_beat = counters("ar", get)
        writing, _, write_beat = counters("aw", put)
        want_get, want_put = Signal(), Signal()
        write_first = Signal()
        m.d.comb += [
            want_get.eq(reading & (~bus.r.valid | bus.r.ready)),
            want_put.eq(writing & bus.w.valid & ~bus.b.valid),
            put.eq(want_put & (write_first | ~want_get)),
            get.eq(want_get & ~put),
            bus.w.ready.eq(writing & ~bus.b.valid & (write_first | ~want_get)),
            write.addr.eq(write_beat),
            write.data.eq(bus.w.p.data),
            write.en.eq(Mux(put & ~write_beat[bits], bus.w.p.strb, 0)),
            read.addr.eq(read_beat),
            read.en.eq(get),
            bus.r.p.data.eq(read.data),
        ]
        with m.If(put | get):
            m.d.sync += write_first.eq(get)
        with m.If(bus.r.ready):
            m.d.sync += bus.r.valid.eq(0)
        with m.If(get):
            m.d.sync += [bus.r.valid.eq(1), bus.r.p.last.eq(reads_left == 0), bus.r.p.resp.eq(Mux(read_beat[bits], DECERR, OKAY))]
        with m.If(bus.b.ready):
            m.d.sync += bus.b.valid.eq(0)
        with m.If(put & bus.w.p.last):
            m.d.sync += [bus.b.valid.eq(1), bus.b.p.resp.eq(Mux(write_beat[bits], DECERR, OKAY))]
        return m
