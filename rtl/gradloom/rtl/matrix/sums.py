"""What leaves the array: sums over k, over lanes, and over commands; their memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from gradloom.contracts.matrix_config import SUM_BYTES, MatrixConfig
from gradloom.rtl.ccore.mac import SUM_BITS
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.matrix.array_column import lane_sums

__all__ = ["Leaving", "Sums"]

_BITS = 8 * SUM_BYTES
_PRODUCT_BITS = 16
Leaving = data.StructLayout({"valid": 1, "first": 1, "last": 1, "acc": 1, "merge": 1, "p": 16})
"""Of what leaves the last column: of a sum over k its first and its last part; ``acc``: is added to what P holds at ``p``;
``merge``: over all lanes, ``p`` counts sums."""


class Sums(wiring.Component):
    """Sums over k in registers (of a stationary operand), then through the tree of lanes, where ``merge`` says so, to P of
    ``p_depth`` words.

    A word of P that one step of a command adds to must not be that of another of its steps: what is read has not been written by
    steps of fewer than :attr:`latency` cycles before.

    Members
    -------
    leaving : ``In(Leaving)``, sums : ``In(lane_sums(lanes, rows))``
        Cycle 0.
    overflow : ``Out(1)``
        A sum left its 32 bits: of a cycle of those in which it is there.
    en : ``In(1)``, addr : ``In(16)``, beat : ``Out(8 * beat_bytes)``
        Reads of the Storer: the beat comes two cycles after its address (:class:`gradloom.rtl.memory_path.buses.StoreBus`).
    """

    def __init__(self, config: MatrixConfig) -> None:
        self.config = config
        super().__init__({"leaving": In(Leaving), "sums": In(lane_sums(config.lanes, config.rows)), "overflow": Out(1),
                          "en": In(1), "addr": In(16), "beat": Out(8 * config.beat_bytes)})

    @property
    def levels(self) -> int:
        """Of the tree of lanes."""
        return exact_log2(self.config.lanes)

    @property
    def latency(self) -> int:
        """Cycles from what leaves the array to where a read of P sees it."""
        return 4 + self.levels

    @property
    def _sum_bits(self) -> int:
        """Of what leaves the array, at most."""
        if self.config.stationary == "output":
            return SUM_BITS
        return _PRODUCT_BITS + ceil_log2(self.config.columns)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        places = [(lane, row) for lane in range(config.lanes) for row in range(config.rows)]
        totals = [Signal(signed(_BITS), name=f"total{lane}_{row}", reset_less=True) for lane, row in places]
        left = Signal(len(places))
        for n, (lane, row) in enumerate(places):
            # A stationary output leaves as a whole.
            before = Mux(self.leaving.first, 0, totals[n]) if config.stationary == "operand" else Const(0, signed(_BITS))
            found = before + self.sums[lane][row][:self._sum_bits].as_signed()
            m.d.comb += left[n].eq(_leaves(found))
            with m.If(self.leaving.valid):
                m.d.sync += totals[n].eq(found)
        # An overflow is told a cycle later, when it is no longer behind adders.
        left_then = Signal()
        m.d.sync += left_then.eq(self.leaving.valid & left.any())

        ended = Signal(Leaving)
        m.d.sync += [ended.eq(self.leaving), ended.valid.eq(self.leaving.valid & self.leaving.last)]
        merged, put = self._tree(m, totals, ended)
        self._memory(m, totals, merged, put, left_then)
        return m

    def _tree(self, m: Module, totals: list[Signal], ended: Value) -> tuple[Value, Value]:
        """The sum of all lanes, and what is put into P: at once, or behind the tree."""
        if not self.levels:
            return totals[0], ended
        # One lane may hold 2^31, and all of them are counted: wide enough for none to be lost.
        values: list[Value] = [total.as_signed() for total in totals]
        for level in range(self.levels):
            sums = [Signal(signed(_BITS + level + 1), name=f"tree{level}_{n}", reset_less=True) for n in range(len(values) // 2)]
            m.d.sync += [total.eq(values[2 * n] + values[2 * n + 1]) for n, total in enumerate(sums)]
            values = list(sums)
        put = Signal(Leaving)
        line = Line(m, Cat(ended.valid & ended.merge, ended.acc, ended.p), "behind_tree", reset=True)[self.levels]
        m.d.comb += put.eq(ended)
        with m.If(line[0]):
            m.d.comb += [put.valid.eq(1), put.acc.eq(line[1]), put.merge.eq(1), put.p.eq(line[2:])]
        with m.Elif(ended.merge):
            m.d.comb += put.valid.eq(0)
        return values[0], put

    def _memory(self, m: Module, totals: list[Signal], merged: Value, put: Value, left_then: Value) -> None:
        config = self.config
        count = len(totals)
        m.submodules.memory = memory = Memory(shape=_BITS * count, depth=config.p_depth, init=[])
        write, own, stores = memory.write_port(granularity=_BITS), memory.read_port(), memory.read_port()
        slots, address_bits = exact_log2(count), exact_log2(config.p_depth)
        place = Signal(address_bits)
        m.d.comb += [place.eq(Mux(put.merge, put.p[slots:], put.p)), own.addr.eq(place)]

        # P is read while the sum waits a cycle, and both are added.
        valid = delayed(m, put.valid, "valid", 1, reset=True)
        acc, merge, at, slot = (delayed(m, value, name) for value, name in (
            (put.acc, "acc"), (put.merge, "merge"), (place, "at"), (put.p[:slots] if slots else Value.cast(0), "slot")))
        merged_bits = len(Value.cast(merged))
        over = Signal(count)
        writes = delayed(m, valid, "writes", 1, reset=True)
        m.d.sync += write.addr.eq(at)
        enabled = Signal(count)
        for n, total in enumerate(totals):
            waiting = Signal(signed(merged_bits), name=f"waiting{n}", reset_less=True)
            m.d.sync += waiting.eq(Mux(put.merge, merged, total) if self.levels else total)
            found = waiting + Mux(acc, own.data.word_select(n, _BITS).as_signed(), 0)
            here = ~merge | (slot == n) if self.levels else Value.cast(1)
            m.d.comb += over[n].eq(valid & here & _leaves(found))
            m.d.sync += [write.data.word_select(n, _BITS).eq(found), enabled[n].eq(here)]
        m.d.comb += write.en.eq(Mux(writes, enabled, 0))
        m.d.sync += self.overflow.eq(left_then | over.any())

        parts = exact_log2(config.p_bytes // config.beat_bytes)
        sub = Signal(max(1, parts))
        m.d.comb += [stores.addr.eq(self.addr[parts:]), stores.en.eq(self.en)]
        m.d.sync += [sub.eq(self.addr[:parts]), self.beat.eq(stores.data.word_select(sub if parts else 0, 8 * config.beat_bytes))]


def _leaves(value: Value) -> Value:
    """Whether a signed value does not fit the bits of a sum."""
    top = value[_BITS - 1:]
    return top.any() & ~top.all()
