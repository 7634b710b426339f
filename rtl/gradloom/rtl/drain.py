"""Drain of the weight gradients: sums over WPUs into the DW buffer (``docs/machine.md`` section 4)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.banks import address_bits
from gradloom.rtl.colwalk import token_layout
from gradloom.rtl.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl.wpu import WPU_ASK

__all__ = ["Drain", "Gather"]


def _any(values: list[Value]) -> Value:
    """Bitwise OR of the values."""
    total = values[0]
    for value in values[1:]:
        total = total | value
    return total


class Gather(wiring.Component):
    """The one of many drain registers that was asked for; all others are 0.

    Members
    -------
    i : ``In(ArrayLayout(width, count))``
    o : ``Out(width)``
        One cycle later.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__({"i": In(data.ArrayLayout(width, count)), "o": Out(width)})

    def elaborate(self, platform) -> Module:
        m = Module()
        one = Signal.like(self.o, name="one", reset_less=True)
        # A tree of LUT6: kept wires, because synthesis makes one of LUT4 of as many levels.
        values = list(self.i)
        while len(values) > 6:
            groups = []
            for first in range(0, len(values), 6):
                group = Signal.like(self.o, name=f"group{len(values)}_{first}", attrs={"keep": 1})
                m.d.comb += group.eq(_any(values[first:first + 6]))
                groups.append(group)
            values = groups
        m.d.sync += one.eq(_any(values))
        m.d.comb += self.o.eq(one)
        return m


class Drain(wiring.Component):
    """Blocks (r, k), r outer, each ``block_beats`` beats, one beat a cycle; lane l of beat b is output channel 2 b + l.

    The walk begins with the token and is delayed until its ``snap`` has reached the drain registers, so that tokens of the next
    tile follow while they are read.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a ``snap`` token to the first ``ask`` that sees it, at least 2.

    Members
    -------
    token : ``In(token_layout)``
        A token with ``snap`` starts the drain of PE rows ``drows``, taps below ``nk`` at beat ``dwbase``, ``dgap`` blocks apart;
        with ``dacc`` the sums are added to what the buffer holds.
    ready : ``Out(1)``
        A token of this cycle may ``snap``.
    done : ``Out(1)``
        The last beat is written (or there was none), and its overflow or fault is reported in this cycle at the latest.
    ask : ``Out(ArrayLayout(WPU_ASK, block_beats))``
        Drain registers of PE row r and tap k of the output channels of beat b to read, at most one.
    d : ``In(ArrayLayout(ArrayLayout(ArrayLayout(signed(wg_width), G), wpus), lanes))``
        The register that was asked for, of the lane's output channel and a WPU, column c 2 + c cycles after ``ask``.
    en, addr : ``In(1)``, ``In(16)``
        The A-Core's read; not in the cycle after ``busy``.
    q : ``Out(ArrayLayout(ArrayLayout(signed(wg_width), G), 2))``
        Its beat two cycles later.
    busy : ``Out(1)``
        In the next cycle the drain itself reads the buffer, for sums that are added to.
    ovf : ``Out(1)``
        A sum over WPUs overflowed.
    fault : ``Out(1)``
        A beat beyond the buffer was dropped.
    """

    def __init__(self, config: Config, *, latency: int) -> None:
        self.config = config
        self.latency = latency
        lane = data.ArrayLayout(signed(config.wg_width), config.group)
        super().__init__({
            "token": In(token_layout(config)), "ready": Out(1), "done": Out(1),
            "ask": Out(data.ArrayLayout(WPU_ASK, config.block_beats)),
            "d": In(data.ArrayLayout(data.ArrayLayout(lane, config.wpus), min(2, config.group))),
            "en": In(1), "addr": In(16), "q": Out(data.ArrayLayout(lane, 2)), "busy": Out(1), "ovf": Out(1), "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        g, width = config.group, config.wg_width
        token = self.token

        running, r, k = Signal(), Signal(2), Signal(2)
        rows, taps, add, gap = Signal(PE_ROWS), Signal(2), Signal(), Signal(8)
        beat = Signal(range(max(2, config.block_beats)))
        address = Signal(16)
        beat_end, tap_end = Signal(), Signal()
        skip = ~Array((*rows, rows[0]))[r]
        issue, last = Signal(), Signal()
        m.d.comb += [beat_end.eq(beat == config.block_beats - 1), tap_end.eq(k + 1 == taps), issue.eq(running & ~skip),
                     last.eq(running & (r == PE_ROWS - 1) & (skip | (beat_end & tap_end))), self.ready.eq(~running | last)]
        with m.If(running):
            with m.If(skip | (beat_end & tap_end)):
                m.d.sync += [r.eq(r + 1), k.eq(0), beat.eq(0), running.eq(~last)]
            with m.Elif(beat_end):
                m.d.sync += [k.eq(k + 1), beat.eq(0)]
            with m.Else():
                m.d.sync += beat.eq(beat + 1)
        with m.If(issue):
            m.d.sync += address.eq(address + 1 + Mux(beat_end, gap * config.block_beats, 0))
        with m.If(token.snap):
            m.d.sync += [running.eq(1), r.eq(0), k.eq(0), beat.eq(0), address.eq(token.dwbase), rows.eq(token.drows),
                         taps.eq(token.nk), add.eq(token.dacc), gap.eq(token.dgap)]

        def delayed(value: Signal, cycles: int, name: str, *, reset_less: bool = True) -> Signal:
            for i in range(cycles):
                stage = Signal.like(value, name=f"{name}{i}", reset_less=reset_less)
                m.d.sync += stage.eq(value)
                value = stage
            return value

        # Behind ask, in column c 1 + c cycles: drain registers; 2 + c: the one of the beat (Gather); 3 + c: its sum over WPUs.
        # Cycle 2 + G has all columns; cycle 3 + G: with what the buffer held they are written.
        wait = self.latency - 1
        place = Signal(data.StructLayout({"r": 2, "k": 2, "beat": beat.shape(), "issue": 1}))
        m.d.comb += [place.r.eq(r), place.k.eq(k), place.beat.eq(beat), place.issue.eq(issue)]
        place = data.View(place.shape(), delayed(place.as_value(), wait - 1, "place", reset_less=False))
        ask = Signal.like(self.ask, name="asked")
        m.d.sync += [ask[b][row][tap].eq(place.issue & (place.beat == b) & (place.r == row) & (place.k == tap))
                     for b in range(config.block_beats) for row in range(PE_ROWS) for tap in range(PE_TAPS)]
        m.d.comb += self.ask.eq(ask)
        valid = delayed(issue, wait + g + 3, "valid", reset_less=False)
        address3 = delayed(address, wait + g + 3, "address_at")
        done = delayed(last, wait + g + 4, "last", reset_less=False)

        # A beat is read in cycle 1 + G and written in cycle 3 + G. The same beat comes again with another
        # command, whose words alone take longer than that. The A-Core leaves the read port free in the cycle after ``busy``.
        m.submodules.memory = memory = Memory(shape=2 * g * width, depth=config.dw_depth, init=[])
        write, port = memory.write_port(), memory.read_port()
        bits = address_bits(config.dw_depth)
        adds = Signal()
        m.d.comb += adds.eq(issue & add)
        before_old = delayed(adds, wait + g, "adds_at", reset_less=False)
        old, add2 = (delayed(before_old, cycles, f"adds{cycles}_at", reset_less=False) for cycles in (1, 2))
        old_address = delayed(address, wait + g + 1, "old_at")
        m.d.comb += [self.busy.eq(before_old), port.en.eq(self.en | old),
                     port.addr.eq(Mux(old, old_address, self.addr)[:bits])]

        total = Signal(2 * g * width, reset_less=True)
        nothing = Const(0, signed(width + 2))  # as wide as the sum: the narrower operand of an adder would need LUTs of its own
        overflows = []
        for c in range(g):
            for lane in range(min(2, g)):
                terms = [self.d[lane][w][c] for w in range(config.wpus)]
                wait_here = g - 1 - c
                summed, two = Signal(signed(width + 2), name=f"summed{lane}_{c}", reset_less=True), terms[0] + sum(terms[1:2])
                if len(terms) == 3 and wait_here:
                    # One adder a cycle, where the last column is waited for anyway.
                    first, third = (Signal(signed(bits), name=f"{name}{lane}_{c}", reset_less=True)
                                    for name, bits in (("first", width + 1), ("third", width)))
                    m.d.sync += [first.eq(two), third.eq(terms[2]), summed.eq(first + third)]
                    wait_here -= 1
                else:
                    m.d.sync += summed.eq(two + sum(terms[2:]))
                before = port.data.word_select(lane * g + c, width).as_signed()
                wide = Signal(signed(width + 3), name=f"wide{lane}_{c}")
                over = Signal(name=f"over{lane}_{c}", reset_less=True)
                m.d.comb += wide.eq(delayed(summed, wait_here, f"aligned{lane}_{c}_") + Mux(add2, before, nothing))
                m.d.sync += [total.word_select(lane * g + c, width).eq(wide[:width]),
                             over.eq(~(wide[width - 1:].all() | ~wide[width - 1:].any()))]
                overflows.append(over)

        fits = address3 < config.dw_depth
        m.d.comb += [write.en.eq(valid & fits), write.addr.eq(address3[:bits]), write.data.eq(total),
                     self.done.eq(done)]
        m.d.sync += [self.q.as_value().eq(port.data), self.ovf.eq(valid & Cat(overflows).any()),
                     self.fault.eq(valid & ~fits)]
        return m
