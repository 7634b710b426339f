"""First stage of the A-Core: sums of gradients of every plane, beside the lanes (ETA, Algorithm 2, lines 10 to 12)."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl import emit
from gradloom.rtl.acore.align import lean_sum
from gradloom.rtl.acore.planes import Beat, StreamWalk
from gradloom.rtl.config import Config
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.pint import decode

__all__ = ["PLANE_BITS", "TOTAL_BITS", "ChannelSums", "FirstPass", "Totals"]

LANES = 2
PLANE_BITS = 43
"""Sum of products over a plane: 26 bits each, at most 2^17 of them."""
TOTAL_BITS = 50
"""Over 128 planes."""
_VALUE_BITS = 38
"""Sum of values over 128 planes."""

Totals = StructLayout({"product": signed(TOTAL_BITS), "kept": signed(_VALUE_BITS), "cut": signed(_VALUE_BITS)})
"""Sums of d b, d and a - d over all planes of a command."""


class ChannelSums(wiring.Component):
    """Sums of one channel, one beat (two lanes) a cycle; d = bit ? a : 0.

    Members
    -------
    a, b : ``In(8)`` x 2
        Bytes of the streams, in cycle 0 of a beat.
    bit : ``In(2)``
        Cycle 0.
    lanes : ``In(2)``
        Lanes that count; cycle 1.
    add, first, begin : ``In(1)``
        There is a beat, the first of its plane, the first of its command; cycle 4.
    plane : ``Out(signed(43))``
        Sum of d b over the plane up to this beat; cycle 5.
    totals : ``Out(Totals)``
    """

    def __init__(self) -> None:
        byte2 = ArrayLayout(8, LANES)
        super().__init__({
            "a": In(byte2), "b": In(byte2), "bit": In(LANES), "lanes": In(LANES), "add": In(1), "first": In(1),
            "begin": In(1), "plane": Out(signed(PLANE_BITS)), "totals": Out(Totals)})

    def elaborate(self, platform) -> Module:
        m = Module()
        kept, cut, products = [], [], []
        for i in range(LANES):
            a1, b1 = (delayed(m, decode(port[i]), f"{name}1_l{i}") for port, name in ((self.a, "a"), (self.b, "b")))
            bit1 = delayed(m, self.bit[i], f"bit1_l{i}")
            d = Mux(bit1 & self.lanes[i], a1, 0).as_signed()
            kept.append(d)
            cut.append(Mux(~bit1 & self.lanes[i], a1, 0).as_signed())
            d2, b2 = delayed(m, d, f"d2_l{i}"), delayed(m, b1, f"b2_l{i}")
            products.append(delayed(m, (d2 * b2).as_signed(), f"product3_l{i}"))
        pair = delayed(m, products[0] + products[1], "pair4")
        addends = {"product": pair, "kept": delayed(m, kept[0] + kept[1], "kept2", 3, reset=True),
                   "cut": delayed(m, cut[0] + cut[1], "cut2", 3, reset=True)}
        with m.If(self.add):
            m.d.sync += self.plane.eq(lean_sum(pair, Mux(self.first, 0, self.plane).as_signed()))
            m.d.sync += [self.totals[name].eq(lean_sum(addend, Mux(self.begin, 0, self.totals[name]).as_signed()))
                         for name, addend in addends.items()]
        return m


class FirstPass(wiring.Component):
    """Sweeps the planes of a RUN, one beat a cycle, and keeps the sums of the command before while the next one is swept.

    Even and odd addresses of a stream are memories of their own, which the lanes' sweep reads too. It goes first: where both want
    the same one, the first pass waits for a cycle, and from then on the two alternate.

    Parameters
    ----------
    fields : namespace
        Fields of the RUN command, stable from ``start`` to ``ready``.

    Members
    -------
    start, keep : ``In(1)``
        Begin; d = a whatever the bitmap says.
    ready : ``Out(1)``
        The sums of the last sweep are complete, ``7`` cycles after its last beat was issued; low in the cycle after ``start``.
    taken, aa_odd, ab_odd : ``In(1)``
        The lanes' sweep issues a beat in this cycle, whose streams lie at odd addresses.
    take : ``In(1)``
        Put the sums where the next stage reads them; while ``ready``.
    aa_addr, ab_addr, am_addr : ``Out(16)`` -> ``*_data`` ``In(16 G)`` in the next cycle
    plane : ``In(7)`` -> sums ``Out(signed(43))`` x G in the next cycle
        Sum of d b over a plane of the command that was taken.
    totals : ``Out(Totals)`` x G
        Over all planes of the command that was taken.
    """

    def __init__(self, config: Config, fields: SimpleNamespace) -> None:
        self.config = config
        self.fields = fields
        beat = 8 * config.beat_bytes
        super().__init__({
            "start": In(1), "keep": In(1), "ready": Out(1), "take": In(1), "taken": In(1), "aa_odd": In(1), "ab_odd": In(1),
            **{f"{name}_addr": Out(16) for name in ("aa", "ab", "am")}, **{f"{name}_data": In(beat) for name in ("aa", "ab", "am")},
            "plane": In(7), "sums": Out(ArrayLayout(signed(PLANE_BITS), config.group)),
            "totals": Out(ArrayLayout(Totals, config.group))})

    def elaborate(self, platform) -> Module:
        m = Module()
        group, f = self.config.group, self.fields
        m.submodules.walk = walk = StreamWalk(self.config, f)

        sweeping = Signal()
        keep = Signal()
        drain = Signal(range(9))
        issue = Signal(Beat)
        begin = Signal()
        met = self.taken & ((self.aa_odd == f.sa0[0] ^ walk.offset[0]) | (self.ab_odd == f.sb0[0] ^ walk.offset[0]))
        step = Signal()
        m.d.comb += [
            step.eq(sweeping & ~met), walk.start.eq(self.start), walk.step.eq(step), issue.eq(walk.beat), issue.v.eq(step),
            self.ready.eq(~sweeping & (drain == 0)),
        ]
        with m.If(self.start):
            m.d.sync += [sweeping.eq(1), keep.eq(self.keep), begin.eq(1)]
        with m.Elif(sweeping):
            m.d.sync += drain.eq(7)
            with m.If(step):
                m.d.sync += [begin.eq(0), sweeping.eq(~walk.beat.final)]
        with m.Elif(drain != 0):
            m.d.sync += drain.eq(drain - 1)

        m.d.sync += [self.aa_addr.eq(f.sa0 + walk.offset), self.ab_addr.eq(f.sb0 + walk.offset),
                     self.am_addr.eq(f.sm0 + walk.bits_addr)]
        beats, begins = Line(m, issue, "beat"), Line(m, begin, "begin")
        slot = Line(m, walk.bits_slot, "slot")[2]
        mask = self.am_data.word_select(slot, LANES * group) | keep.replicate(LANES * group)
        at1, at4, at5 = (Beat(beats[2 + i]) for i in (1, 4, 5))

        bank, bits = Signal(), ceil_log2(self.config.max_planes)
        m.submodules.plane_sums = memory = Memory(shape=PLANE_BITS * group, depth=2 << bits, init=[])
        write, read = memory.write_port(), memory.read_port()
        with m.If(self.take):
            m.d.sync += bank.eq(~bank)
        m.d.comb += [write.en.eq(at5.v & at5.last), write.addr.eq(at5.plane[:bits] | (bank << bits)),
                     read.addr.eq(self.plane[:bits] | (~bank << bits)), self.sums.as_value().eq(read.data)]
        for c in range(group):
            channel = emit.add(m, f"channel{c}", "channel_sums", ChannelSums())
            m.d.comb += [
                channel.bit.eq(mask[c::group]), channel.lanes.eq(at1.v.replicate(LANES) & (at1.v0 | (at1.v1 << 1))),
                channel.add.eq(at4.v), channel.first.eq(at4.first), channel.begin.eq(begins[6]),
                write.data[PLANE_BITS * c:PLANE_BITS * (c + 1)].eq(channel.plane),
            ]
            for lane in range(LANES):
                at = 8 * (lane * group + c)
                m.d.comb += [channel.a[lane].eq(self.aa_data[at:at + 8]), channel.b[lane].eq(self.ab_data[at:at + 8])]
            with m.If(self.take):
                m.d.sync += self.totals[c].eq(channel.totals)
        return m
