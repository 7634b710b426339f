"""First stage of the A-Core: sums of gradients of every plane, beside the lanes (ETA, Algorithm 2, lines 10 to 12)."""

import functools
import operator
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.contracts.config import Config
from gradloom.rtl import shared_module
from gradloom.rtl.acore.align import chosen, lean_sum
from gradloom.rtl.acore.buffer_ports import FirstPassReads, StreamUse
from gradloom.rtl.acore.plane_ports import PLANE_BITS, GradientSums, Totals
from gradloom.rtl.acore.stream_address import Beat, StreamAddressGenerator
from gradloom.rtl.acore.turns import Turns
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.pint import decode

__all__ = ["ChannelSums", "FirstPass"]

LANES = 2


class ChannelSums(wiring.Component):
    """Sums of one channel, one beat (two lanes) a cycle; d = bit ? a : 0. Of several channels in turns, with one lane a column a
    cycle (:mod:`gradloom.rtl.acore.turns`); their sums so far lie in distributed memory.

    Parameters
    ----------
    lanes, channels : :class:`int`

    Members
    -------
    a, b : ``In(8)`` x lanes
        Bytes of the streams, in cycle 0 of a beat.
    bit : ``In(lanes)``
        Cycle 0.
    lanes : ``In(lanes)``
        Lanes that count; cycle 1.
    add, first, begin : ``In(1)``
        There is a beat, the first of its plane, the first of its command; cycle 4.
    plane : ``Out(signed(43))``
        Sum of d b over the plane up to this beat; cycle 5.
    totals : ``Out(Totals)``
    channel, bank, at : ``In(range(channels))``, ``In(1)``, ``In(range(channels))``
        With several channels: that of cycle 4, and the half of the totals that is added to; ``totals`` are those of channel ``at``
        in the other half.
    """

    def __init__(self, lanes: int = LANES, channels: int = 1) -> None:
        self.lanes_of, self.channels = lanes, channels
        bytes_of = ArrayLayout(8, lanes)
        several = {"channel": In(range(channels)), "bank": In(1), "at": In(range(channels))} if channels > 1 else {}
        super().__init__({
            "a": In(bytes_of), "b": In(bytes_of), "bit": In(lanes), "lanes": In(lanes), "add": In(1), "first": In(1),
            "begin": In(1), "plane": Out(signed(PLANE_BITS)), "totals": Out(Totals), **several})

    def elaborate(self, platform) -> Module:
        m = Module()
        kept, cut, products = [], [], []
        for i in range(self.lanes_of):
            a1, b1 = (delayed(m, decode(port[i]), f"{name}1_l{i}") for port, name in ((self.a, "a"), (self.b, "b")))
            bit1 = delayed(m, self.bit[i], f"bit1_l{i}")
            d = Mux(bit1 & self.lanes[i], a1, 0).as_signed()
            kept.append(d)
            cut.append(Mux(~bit1 & self.lanes[i], a1, 0).as_signed())
            d2, b2 = delayed(m, d, f"d2_l{i}"), delayed(m, b1, f"b2_l{i}")
            products.append(delayed(m, (d2 * b2).as_signed(), f"product3_l{i}"))
        products, kept, cut = (functools.reduce(operator.add, lanes) for lanes in (products, kept, cut))
        pair = delayed(m, products, "pair4")
        addends = {"product": pair, "kept": delayed(m, kept, "kept2", 3, reset=True),
                   "cut": delayed(m, cut, "cut2", 3, reset=True)}
        if self.channels > 1:
            self._add_in_turns(m, addends)
            return m
        with m.If(self.add):
            m.d.sync += self.plane.eq(lean_sum(pair, Mux(self.first, 0, self.plane).as_signed()))
            m.d.sync += [self.totals[name].eq(lean_sum(addend, Mux(self.begin, 0, self.totals[name]).as_signed()))
                         for name, addend in addends.items()]
        return m

    def _add_in_turns(self, m: Module, addends: dict[str, Value]) -> None:
        memories = {"plane": (signed(PLANE_BITS), self.channels), "totals": (Totals, 2 * self.channels)}
        for name, (shape, depth) in memories.items():
            m.submodules[f"{name}_so_far"] = memory = Memory(shape=Shape.cast(shape).width, depth=depth, init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            bank = self.bank << ceil_log2(self.channels) if name == "totals" else 0
            m.d.comb += [write.en.eq(self.add), write.addr.eq(self.channel | bank), read.addr.eq(self.channel | bank)]
            if name == "plane":
                plane = Signal(shape)
                m.d.comb += [plane.eq(lean_sum(addends["product"], Mux(self.first, 0, read.data).as_signed())),
                             write.data.eq(plane)]
                m.d.sync += self.plane.eq(plane)
                continue
            before, after = Totals(read.data), Signal(Totals)
            m.d.comb += [after[total].eq(lean_sum(addend, Mux(self.begin, 0, before[total]).as_signed()))
                         for total, addend in addends.items()]
            taken = memory.read_port(domain="comb")
            m.d.comb += [write.data.eq(after), taken.addr.eq(self.at | ~self.bank << ceil_log2(self.channels)),
                         self.totals.eq(taken.data)]


class FirstPass(wiring.Component):
    """Sweeps the planes of a RUN, one beat a cycle or in turns as the lanes do (:mod:`gradloom.rtl.acore.turns`), and keeps the
    sums of the command before while the next one is swept.

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
    sweep : ``In(StreamUse())``
        What the lanes' sweep reads.
    take : ``In(1)``
        Put the sums where the next stage reads them; while ``ready``.
    reads : ``Out(FirstPassReads(config))``
    gradient_sums : ``In(GradientSums(config))``
        Of the command that was taken.
    """

    def __init__(self, config: Config, fields: SimpleNamespace) -> None:
        self.config, self.turns = config, Turns(config)
        self.fields = fields
        super().__init__({
            "start": In(1), "keep": In(1), "ready": Out(1), "take": In(1), "sweep": In(StreamUse()),
            "reads": Out(FirstPassReads(config)), "gradient_sums": In(GradientSums(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        group, f, turns = self.config.group, self.fields, self.turns
        m.submodules.walk = walk = StreamAddressGenerator(self.config, f)

        sweeping = Signal()
        keep = Signal()
        drain = Signal(range(9))
        issue = Signal(Beat)
        begin = Signal()
        sweep, of = self.sweep, self.gradient_sums
        met = sweep.reads & (sweep.both | (sweep.aa_odd == f.sa0[0] ^ walk.offset[0]) | (sweep.ab_odd == f.sb0[0] ^ walk.offset[0]))
        step = Signal()
        beat_done = step
        if turns.count > 1:
            turn, beat_done = Signal(turns.bits), Signal()
            m.d.comb += beat_done.eq(step & turns.last(turn))
            with m.If(self.start):
                m.d.sync += turn.eq(0)
            with m.Elif(step):
                m.d.sync += turn.eq(Mux(beat_done, 0, turn + 1))
        m.d.comb += [
            step.eq(sweeping & ~met), walk.start.eq(self.start), walk.step.eq(beat_done), issue.eq(walk.beat), issue.v.eq(step),
            self.ready.eq(~sweeping & (drain == 0)),
        ]
        with m.If(self.start):
            m.d.sync += [sweeping.eq(1), keep.eq(self.keep), begin.eq(1)]
        with m.Elif(sweeping):
            m.d.sync += drain.eq(7)
            with m.If(beat_done):
                m.d.sync += [begin.eq(0), sweeping.eq(~walk.beat.final)]
        with m.Elif(drain != 0):
            m.d.sync += drain.eq(drain - 1)

        m.d.sync += [self.reads.aa.addr.eq(f.sa0 + walk.offset), self.reads.ab.addr.eq(f.sb0 + walk.offset),
                     self.reads.am.addr.eq(f.sm0 + walk.bits_addr)]
        beats, begins = Line(m, issue, "beat"), Line(m, begin, "begin")
        slot = Line(m, walk.bits_slot, "slot")[2]
        at_turn = Line(m, turn, "turn") if turns.count > 1 else [Const(0, 0)] * 8
        mask = turns.picked(self.reads.am.data.word_select(slot, LANES * group), 1, at_turn[2])
        mask = mask | keep.replicate(len(mask))
        bytes_a, bytes_b = (turns.picked(data, 8, at_turn[2]) for data in (self.reads.aa.data, self.reads.ab.data))
        at1, at4, at5 = (Beat(beats[2 + i]) for i in (1, 4, 5))
        bank, bits, within = Signal(), ceil_log2(self.config.max_planes), ceil_log2(turns.channels)
        m.submodules.plane_sums = memory = Memory(shape=PLANE_BITS * self.config.apus, depth=2 << bits + within, init=[])
        write, read = memory.write_port(), memory.read_port()
        with m.If(self.take):
            m.d.sync += bank.eq(~bank)

        valid, first, begun, complete = at1.v0 | (at1.v1 << 1), at4.first, begins[6], at5.v & at5.last
        if turns.lanes < LANES:
            # Sums begin with the first column of a beat and are complete with the last.
            valid, opens = chosen(turns.column(at_turn[3]), [at1.v0, at1.v1]), ~turns.column(at_turn[6])
            first, begun, complete = first & opens, begun & opens, complete & turns.column(at_turn[7])

        def place(plane: Value, half: Value, channel: Value) -> Value:
            at = plane[:bits] | (half << bits)
            return Cat(channel, at) if turns.channels > 1 else at

        m.d.comb += [write.en.eq(complete), write.addr.eq(place(at5.plane, bank, turns.channel(at_turn[7]))),
                     read.addr.eq(place(of.plane, ~bank, of.channel if turns.channels > 1 else Const(0, 0))),
                     of.sums.as_value().eq(turns.of_every_channel(read.data, PLANE_BITS))]
        for a in range(self.config.apus):
            channel = shared_module.add(m, f"channel{a}", "channel_sums", ChannelSums(turns.lanes, turns.channels),
                                        (turns.lanes, turns.channels) if turns.count > 1 else ())
            m.d.comb += [
                channel.bit.eq(mask[a::self.config.apus]), channel.lanes.eq(at1.v.replicate(turns.lanes) & valid),
                channel.add.eq(at4.v), channel.first.eq(first), channel.begin.eq(begun),
                write.data[PLANE_BITS * a:PLANE_BITS * (a + 1)].eq(channel.plane),
            ]
            if turns.channels > 1:
                m.d.comb += [channel.channel.eq(turns.channel(at_turn[6])), channel.bank.eq(bank),
                             channel.at.eq(of.total_channel)]
            for lane in range(turns.lanes):
                at = 8 * (lane * self.config.apus + a)
                m.d.comb += [channel.a[lane].eq(bytes_a[at:at + 8]), channel.b[lane].eq(bytes_b[at:at + 8])]
            for c in range(a * turns.channels, (a + 1) * turns.channels):
                if turns.channels > 1:
                    m.d.comb += of.totals[c].eq(channel.totals)
                    continue
                with m.If(self.take):
                    m.d.sync += of.totals[c].eq(channel.totals)
        return m
