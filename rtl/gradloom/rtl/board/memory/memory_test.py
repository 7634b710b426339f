"""Self-test of a board's memory: an AXI4 manager that writes patterns, reads them back and keeps the first difference."""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.contracts.pipeline import BURST_BEATS
from gradloom.rtl.board.memory.axi_bus import AxiSignature

__all__ = ["MemoryTest", "Pattern"]

_LANE = 16
"""Bits of a word whose own number is an address pattern; no memory's words are narrower."""
_RANDOM_SEED = 0x2545F491
_BASE_PATTERN = 0xA55A

_TAPS = (31, 21, 1, 0)
"""Of a shift register of the longest period, 2^32 - 1 (polynomial x^32 + x^22 + x^2 + x + 1)."""


def _leap(state: Value) -> Value:
    """Such a register 16 steps on: a lane's worth of new bits, each of a few old ones."""
    bits = [frozenset([n]) for n in range(len(state))]  # which old bits each one is the sum of
    for _ in range(_LANE):
        bits = [reduce(xor, (bits[tap] for tap in _TAPS)), *bits[:-1]]
    return Cat(reduce(xor, (state[n] for n in sorted(terms))) for terms in bits)


class Pattern(enum.Enum, shape=2):
    """What is written and looked for.

    ``DATA``: a walking one, a walking zero, then pseudo-random words: data pins that are stuck, shorted or swapped, strobes.
    ``ADDRESS``: the number of each 16-bit word, its lower half, then its upper half: address pins that are stuck or swapped.
    ``REFRESH``: pseudo-random words, read after ``pause`` cycles: refreshes that are missing.
    ``PROBE``: one beat at each power of two of the range: which bits of an address do nothing, as those of columns, rows or banks
    that a part lacks.
    """

    DATA = 0
    ADDRESS = 1
    REFRESH = 2
    PROBE = 3


class MemoryTest(wiring.Component):
    """Writes all of a range, then reads all of it, pattern after pattern, in bursts of 64 beats, one at a time.

    In ``PROBE`` it writes a different beat at ``base`` + 2^k for every k inside the range, then one at ``base``, and reads the
    former. Where the last one is found instead, bit k is set in ``aliases``; anything else that differs is an error.

    Parameters
    ----------
    beat_bytes : :class:`int`
        Bytes of a data beat, at least 2.

    Members
    -------
    bus : ``Out(AxiSignature(beat_bytes))``
    start : ``In(1)``
        Begins a test; the results of the one before are forgotten. Ignored while ``busy``.
    mode : ``In(Pattern)``
    base, limit : ``In(32)``
        Bytes ``[base, limit)``, rounded down to multiples of 64 beats; ``base`` of a probe a multiple of its size. To be held
        while ``busy``, as ``mode`` and ``pause``.
    pause : ``In(32)``
        Cycles between the writes and the reads of ``REFRESH``.
    busy : ``Out(1)``
        From the cycle after ``start`` to the end.
    tested : ``Out(32)``
        Beats read: 0 if the range is empty, so that no errors means nothing.
    errors : ``Out(32)``
        Beats that differ, and error responses.
    first_bad : ``Out(32)``
        Address of the first one (of a write: of its burst).
    expected, found : ``Out(8 * beat_bytes)``
        Its data; of an error response to a write they say nothing.
    aliases : ``Out(32)``
        Address bits that do nothing (``PROBE``).
    """

    def __init__(self, beat_bytes: int) -> None:
        if not isinstance(beat_bytes, int) or beat_bytes < 2:
            raise ValueError(f"beat_bytes of the memory test must be a power of two from 2 on, not {beat_bytes!r}")
        self.beat_bytes = beat_bytes
        super().__init__({
            "bus": Out(AxiSignature(beat_bytes)), "start": In(1), "mode": In(Pattern), "base": In(32), "limit": In(32),
            "pause": In(32), "busy": Out(1), "tested": Out(32), "errors": Out(32), "first_bad": Out(32),
            "expected": Out(8 * beat_bytes), "found": Out(8 * beat_bytes), "aliases": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, low = self.bus, exact_log2(self.beat_bytes)
        burst = exact_log2(BURST_BEATS) + low
        probing = self.mode == Pattern.PROBE
        first, size = self.base[burst:], Signal(32 - burst)

        # Where the test is: pass, writes or reads, burst and beat; a probe's bit and its number, or its last write at the base.
        number, reading = Signal(2), Signal()
        place, left, beat = Signal(32 - burst), Signal(32 - burst), Signal(exact_log2(BURST_BEATS))
        bit, bit_number, at_base = Signal(32), Signal(5), Signal()
        walk, random = Signal(8 * self.beat_bytes), Signal(32)
        pattern = Signal(8 * self.beat_bytes)
        # What happens in a cycle; the FSM says it, and registers follow outside of it, which takes half of the gates.
        begin, restart, moves, next_burst, next_bit, pauses = (Signal(name=name) for name in (
            "begin", "restart", "moves", "next_burst", "next_bit", "pauses"))
        last = Signal()
        address = Cat(Const(0, burst), place) | Mux(probing & ~at_base, bit, 0)
        m.d.comb += [
            size.eq(self.limit[burst:] - first),
            last.eq(probing | (beat == BURST_BEATS - 1)),
            pattern.eq(self._pattern(number=number, index=Cat(beat, place), walk=walk, random=random, bit_number=bit_number,
                                     at_base=at_base)),
        ]
        for channel in (bus.ar, bus.aw):
            m.d.comb += [channel.p.addr.eq(address), channel.p.len.eq(Mux(probing, 0, BURST_BEATS - 1))]
        m.d.comb += [bus.w.p.data.eq(pattern), bus.w.p.strb.eq(-1), bus.w.p.last.eq(last)]
        with m.If(moves):
            m.d.sync += [beat.eq(beat + 1), walk.eq(walk.rotate_left(1)), random.eq(_leap(random))]
        with m.If(restart):
            # At the beginning of the range, with the patterns at theirs.
            m.d.sync += [place.eq(first), left.eq(size), beat.eq(0), bit.eq(self.beat_bytes), bit_number.eq(low), at_base.eq(0),
                         walk.eq(1), random.eq(_RANDOM_SEED)]

        with m.If(next_burst):
            m.d.sync += [place.eq(place + 1), left.eq(left - 1)]
        with m.If(next_bit):
            m.d.sync += [bit.eq(bit << 1), bit_number.eq(bit_number + 1)]
        with m.If(begin):
            m.d.sync += [reading.eq(0), number.eq(0)]
        with m.Elif(restart):
            m.d.sync += [reading.eq(~reading), number.eq(number + reading)]

        passes = Mux(self.mode == Pattern.DATA, 3, Mux(self.mode == Pattern.ADDRESS, 2, 1))
        paused = Signal(32)
        range_ends, probe_ends = Signal(), Signal()
        m.d.comb += [
            range_ends.eq(left == 1),
            # Up to the highest power of two below the size of the range.
            probe_ends.eq(bit[31] | (bit[burst - 1:31] >= size)),
            self.busy.eq(1),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.busy.eq(0)
                with m.If(self.start):
                    m.d.comb += [begin.eq(1), restart.eq(1)]
                    with m.If(first < self.limit[burst:]):
                        m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += [bus.ar.valid.eq(reading), bus.aw.valid.eq(~reading)]
                with m.If(Mux(reading, bus.ar.ready, bus.aw.ready)):
                    m.next = "MOVE"
            with m.State("MOVE"):
                m.d.comb += [bus.w.valid.eq(~reading), bus.r.ready.eq(reading),
                             moves.eq(Mux(reading, bus.r.valid, bus.w.ready))]
                with m.If(moves & last):
                    m.next = "ANSWER"
                    with m.If(reading):
                        m.next = "GO ON"
            with m.State("ANSWER"):
                m.d.comb += bus.b.ready.eq(1)
                with m.If(bus.b.valid):
                    m.next = "GO ON"
            with m.State("GO ON"):
                m.next = "ASK"
                with m.If(probing & (~reading & ~at_base | reading & ~probe_ends)):
                    m.d.comb += next_bit.eq(1)
                    m.d.sync += at_base.eq(~reading & probe_ends)
                with m.Elif(~probing & ~range_ends):
                    m.d.comb += next_burst.eq(1)
                with m.Else():
                    m.d.comb += restart.eq(1)
                    with m.If(~reading & (self.mode == Pattern.REFRESH)):
                        m.next = "PAUSE"
                    with m.If(reading & (number + 1 == passes)):
                        m.next = "IDLE"
            with m.State("PAUSE"):
                m.d.comb += pauses.eq(1)
                with m.If(paused == 0):
                    m.next = "ASK"
        m.d.sync += paused.eq(Mux(pauses, paused - 1, self.pause))

        self._compare(m, begin=begin, probing=probing, pattern=pattern, bit=bit,
                      address=address | Cat(Const(0, low), Mux(probing, 0, beat)))
        return m

    def _pattern(self, *, number: Signal, index: Value, walk: Signal, random: Signal, bit_number: Signal,
                 at_base: Signal) -> Value:
        """The data of a beat. ``index`` is its number in the memory."""
        lanes = 8 * self.beat_bytes // _LANE
        word = [Cat(Const(lane, exact_log2(lanes)), index) for lane in range(lanes)]
        lower, upper = Cat(one[:_LANE] for one in word), Cat(Cat(one[_LANE:], Const(0, _LANE))[:_LANE] for one in word)
        halves = Mux(number[0], upper, lower)
        spread = Cat(Cat(random[lane % 2 * _LANE:][:_LANE] ^ lane) for lane in range(lanes))
        walking = Mux(number == 0, walk, ~walk)
        # Of a probe, the number of its bit and that of the lane.
        probe = Cat(Cat(bit_number, Const(lane, _LANE - len(bit_number))) for lane in range(lanes))
        return Mux(self.mode == Pattern.PROBE, Mux(at_base, self._base_pattern(), probe), Mux(
            self.mode == Pattern.ADDRESS, halves, Mux((self.mode == Pattern.DATA) & (number != 2), walking, spread)))

    def _base_pattern(self) -> Value:
        return Cat(Const(_BASE_PATTERN, _LANE) for _ in range(0, 8 * self.beat_bytes, _LANE))

    def _compare(self, m: Module, *, begin: Value, probing: Value, pattern: Value, bit: Value, address: Value) -> None:
        """Results."""
        bus = self.bus
        read, answered = bus.r.valid & bus.r.ready, bus.b.valid & bus.b.ready
        alias = probing & (bus.r.p.data == self._base_pattern()) & (bus.r.p.resp == 0)
        bad = (read & ((bus.r.p.data != pattern) | (bus.r.p.resp != 0)) & ~alias) | (answered & (bus.b.p.resp != 0))
        with m.If(read):
            m.d.sync += self.tested.eq(self.tested + 1)
            with m.If(alias):
                m.d.sync += self.aliases.eq(self.aliases | bit)
        with m.If(bad):
            m.d.sync += self.errors.eq(self.errors + 1)
            with m.If(self.errors == 0):
                m.d.sync += [self.first_bad.eq(address), self.expected.eq(pattern), self.found.eq(bus.r.p.data)]
        with m.If(begin):
            m.d.sync += [self.errors.eq(0), self.tested.eq(0), self.aliases.eq(0)]
