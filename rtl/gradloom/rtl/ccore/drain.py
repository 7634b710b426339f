"""Drain of the weight gradients: sums over WPUs into the DW buffer (``docs/machine.md`` section 4)."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl.ccore.banks import address_bits
from gradloom.rtl.ccore.column_sequencer import array_control_layout
from gradloom.rtl.ccore.wpu import WPU_ASK
from gradloom.rtl.core_reads import GradientRead
from gradloom.rtl.memories import memory_apart

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

    def __init__(self, count: int, width: int, *, family: str = "any") -> None:
        self.inputs = count if family == "ecp5" else 6
        super().__init__({"i": In(data.ArrayLayout(width, count)), "o": Out(width)})

    def elaborate(self, platform) -> Module:
        m = Module()
        one = Signal.like(self.o, name="one", reset_less=True)
        # A tree of LUT6: kept wires, because synthesis makes one of LUT4 of as many levels, which ECP5 has.
        values = list(self.i)
        while len(values) > self.inputs:
            groups = []
            for first in range(0, len(values), self.inputs):
                group = Signal.like(self.o, name=f"group{len(values)}_{first}", attrs={"keep": 1})
                m.d.comb += group.eq(_any(values[first:first + self.inputs]))
                groups.append(group)
            values = groups
        m.d.sync += one.eq(_any(values))
        m.d.comb += self.o.eq(one)
        return m


class Drain(wiring.Component):
    """Blocks (r, k), r outer, each ``block_beats`` beats, one beat a cycle; lane l of beat b is output channel 2 b + l.

    A drain writes the channels of one lap. With two laps it writes that half of two beats a cycle: half h of beat b lies in memory
    (b mod 2) xor h at address 2 (b div 2) + h, so that both halves of a beat, and one half of two beats, are in two memories.

    The walk begins with the token and is delayed until its ``snap`` has reached the drain registers, so that tokens of the next
    tile follow while they are read.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a ``snap`` token to the first ``ask`` that sees it, at least 2.

    Members
    -------
    token : ``In(array_control_layout)``
        A token with ``snap`` starts the drain of PE rows ``drows``, taps below ``nk`` at beat ``dwbase`` (even with two laps),
        ``dgap`` blocks apart, of lap ``lap``; with ``dacc`` the sums are added to what the buffer holds.
    ready : ``Out(1)``
        A token of this cycle may ``snap``.
    done : ``Out(1)``
        The last beat is written (or there was none), and its overflow or fault is reported in this cycle at the latest.
    ask : ``Out(ArrayLayout(WPU_ASK, block_beats // laps))``
        Drain registers of PE row r and tap k of the output channels of beat b (two laps: beats 2 b and 2 b + 1) to read, at most
        one.
    d : ``In(ArrayLayout(ArrayLayout(ArrayLayout(signed(wg_width), cols), wpus), lanes))``
        The register that was asked for, of the lane's output channel and a WPU, column c 2 + c cycles after ``ask``.
    read : ``In(GradientRead(config))``
        The A-Core's; ``wait`` is for sums that are added to, which the drain itself reads in the next cycle.
    ovf : ``Out(1)``
        A sum over WPUs overflowed.
    fault : ``Out(1)``
        A beat beyond the buffer was dropped.

    Attributes
    ----------
    lanes : :class:`int`
        Output channels that are drained at once.
    """

    def __init__(self, config: Config, *, latency: int) -> None:
        self.config = config
        self.latency = latency
        self.lanes = min(2 * config.laps, config.clusters)
        column = data.ArrayLayout(signed(config.wg_width), config.cols)
        super().__init__({
            "token": In(array_control_layout(config)), "ready": Out(1), "done": Out(1),
            "ask": Out(data.ArrayLayout(WPU_ASK, config.block_beats // config.laps)),
            "d": In(data.ArrayLayout(data.ArrayLayout(column, config.wpus), self.lanes)),
            "read": In(GradientRead(config)), "ovf": Out(1), "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        cols, laps, width = config.cols, config.laps, config.wg_width
        asks = config.block_beats // laps
        token = self.token

        running, r, k = Signal(), Signal(2), Signal(2)
        rows, taps, add, gap = Signal(PE_ROWS), Signal(2), Signal(), Signal(8)
        beat = Signal(range(max(2, asks)))
        lap = Signal()
        address = Signal(16)
        beat_end, tap_end = Signal(), Signal()
        skip = ~Array((*rows, rows[0]))[r]
        issue, last = Signal(), Signal()
        m.d.comb += [beat_end.eq(beat == asks - 1), tap_end.eq(k + 1 == taps), issue.eq(running & ~skip),
                     last.eq(running & (r == PE_ROWS - 1) & (skip | (beat_end & tap_end))), self.ready.eq(~running | last)]
        with m.If(running):
            with m.If(skip | (beat_end & tap_end)):
                m.d.sync += [r.eq(r + 1), k.eq(0), beat.eq(0), running.eq(~last)]
            with m.Elif(beat_end):
                m.d.sync += [k.eq(k + 1), beat.eq(0)]
            with m.Else():
                m.d.sync += beat.eq(beat + 1)
        with m.If(issue):
            m.d.sync += address.eq(address + laps + Mux(beat_end, gap * config.block_beats, 0))
        with m.If(token.snap):
            m.d.sync += [running.eq(1), r.eq(0), k.eq(0), beat.eq(0), address.eq(token.dwbase), rows.eq(token.drows),
                         taps.eq(token.nk), add.eq(token.dacc), gap.eq(token.dgap), lap.eq(token.lap)]

        def delayed(value: Signal, cycles: int, name: str, *, reset_less: bool = True) -> Signal:
            for i in range(cycles):
                stage = Signal.like(value, name=f"{name}{i}", reset_less=reset_less)
                m.d.sync += stage.eq(value)
                value = stage
            return value

        # Behind ask, in column c 1 + c cycles: drain registers; 2 + c: the one of the beat (Gather); 3 + c: its sum over WPUs.
        # Cycle 2 + cols has all columns; cycle 3 + cols: with what the buffer held they are written.
        wait = self.latency - 1
        place = Signal(data.StructLayout({"r": 2, "k": 2, "beat": beat.shape(), "issue": 1}))
        m.d.comb += [place.r.eq(r), place.k.eq(k), place.beat.eq(beat), place.issue.eq(issue)]
        place = data.View(place.shape(), delayed(place.as_value(), wait - 1, "place", reset_less=False))
        ask = Signal.like(self.ask, name="asked")
        m.d.sync += [ask[b][row][tap].eq(place.issue & (place.beat == b) & (place.r == row) & (place.k == tap))
                     for b in range(asks) for row in range(PE_ROWS) for tap in range(PE_TAPS)]
        m.d.comb += self.ask.eq(ask)
        # Of the second lap the address is odd.
        place = Signal(16)
        m.d.comb += place.eq(address | lap if laps > 1 else address)
        valid = delayed(issue, wait + cols + 3, "valid", reset_less=False)
        address3 = delayed(place, wait + cols + 3, "address_at")
        done = delayed(last, wait + cols + 4, "last", reset_less=False)

        # A beat is read in cycle 1 + cols and written in cycle 3 + cols. The same beat comes again with another
        # command, whose words alone take longer than that. The A-Core leaves the read port free in the cycle after ``wait``.
        adds = Signal()
        m.d.comb += adds.eq(issue & add)
        before_old = delayed(adds, wait + cols, "adds_at", reset_less=False)
        old, add2 = (delayed(before_old, cycles, f"adds{cycles}_at", reset_less=False) for cycles in (1, 2))
        old_address = delayed(place, wait + cols + 1, "old_at")
        m.d.comb += self.read.request.wait.eq(before_old)
        total = Signal(2 * laps * cols * width, reset_less=True)
        fits = address3 < config.dw_depth
        held = self._memories(m, old, old_address, valid & fits, address3, total)

        nothing = Const(0, signed(width + 2))  # as wide as the sum: the narrower operand of an adder would need LUTs of its own
        overflows = []
        for c in range(cols):
            for lane in range(self.lanes):
                terms = [self.d[lane][w][c] for w in range(config.wpus)]
                wait_here = cols - 1 - c
                summed, two = Signal(signed(width + 2), name=f"summed{lane}_{c}", reset_less=True), terms[0] + sum(terms[1:2])
                if len(terms) == 3 and wait_here:
                    # One adder a cycle, where the last column is waited for anyway.
                    first, third = (Signal(signed(bits), name=f"{name}{lane}_{c}", reset_less=True)
                                    for name, bits in (("first", width + 1), ("third", width)))
                    m.d.sync += [first.eq(two), third.eq(terms[2]), summed.eq(first + third)]
                    wait_here -= 1
                else:
                    m.d.sync += summed.eq(two + sum(terms[2:]))
                before = held.word_select(lane * cols + c, width).as_signed()
                wide = Signal(signed(width + 3), name=f"wide{lane}_{c}")
                over = Signal(name=f"over{lane}_{c}", reset_less=True)
                m.d.comb += wide.eq(delayed(summed, wait_here, f"aligned{lane}_{c}_") + Mux(add2, before, nothing))
                m.d.sync += [total.word_select(lane * cols + c, width).eq(wide[:width]),
                             over.eq(~(wide[width - 1:].all() | ~wide[width - 1:].any()))]
                overflows.append(over)

        m.d.comb += self.done.eq(done)
        m.d.sync += [self.ovf.eq(valid & Cat(overflows).any()), self.fault.eq(valid & ~fits)]
        return m

    def _memories(self, m: Module, old: Value, old_address: Value, write: Value, address: Value, total: Value) -> Value:
        """The buffer. Returns what it holds of the lap at ``old_address``, one cycle after ``old``, in the order of ``total``."""
        config = self.config
        laps, half = config.laps, 2 * config.cols * config.wg_width
        bits = address_bits(config.dw_depth)
        request = self.read.request
        read: list[Value] = []
        for number in range(laps):
            m.submodules[f"memory{number}" if laps > 1 else "memory"] = memory = memory_apart(half, config.dw_depth, config.family)
            to, port = memory.write_port(), memory.read_port()
            # The A-Core's read: half (b mod 2) xor number of beat b.
            asked = Cat(request.addr[0] ^ number, request.addr[1:]) if laps > 1 else request.addr
            beat = Mux(address[0] ^ number, total[half:], total[:half]) if laps > 1 else total
            m.d.comb += [port.en.eq(request.en | old), port.addr.eq(Mux(old, old_address, asked)[:bits]),
                         to.en.eq(write), to.addr.eq(address[:bits]), to.data.eq(beat)]
            read.append(port.data)
        if laps == 1:
            m.d.sync += self.read.data.as_value().eq(read[0])
            return read[0]
        # Either two halves of a beat, swapped if it is odd, or one half of two beats, swapped in the second lap.
        swapped = Signal(reset_less=True)
        m.d.sync += swapped.eq(Mux(old, old_address, request.addr)[0])
        in_order = [Mux(swapped, read[place ^ 1], read[place]) for place in range(laps)]
        lane = half // 2
        m.d.sync += self.read.data.as_value().eq(Cat(of.word_select(number, lane) for number in range(2) for of in in_order))
        return Cat(in_order)
