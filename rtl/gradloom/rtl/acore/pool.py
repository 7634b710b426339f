"""Pooling block of an auxiliary processing unit: maximum or sum of the taps of a window."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.acore.poolwalk import LANES, Tap
from gradloom.rtl.delay import delayed
from gradloom.rtl.pint import V_BITS, decode

__all__ = ["POOLED_BITS", "POOL_LATENCY", "Pool"]

POOLED_BITS = 22
POOL_LATENCY = 3
"""Cycles from the last tap of a beat to its values."""


class Pool(wiring.Component):
    """One stored beat a cycle; either of its columns may be a tap of either output position.

    Parameters
    ----------
    lanes : :class:`int`
        Output positions at a time; with 1 that of the turn.
    turns : :class:`int`
        A tap comes in so many turns, a channel and position in each, whose results so far lie in distributed memory.

    Members
    -------
    tap : ``In(Tap)``
        In stage 0.
    turn, column : ``In``, ``In(1)``
        Turn of the tap, and with one lane the output position; stage 0.
    a, b : ``In(8)`` x 2
        Bytes of the stored beat; stage 0.
    maximum, match : ``In(1)``
        Maximum, else sum; only taps whose byte of b is their number count. Stage 1.
    value : ``Out(signed(22))`` x lanes
        In stage 0 of the beat, which follows its last tap by ``POOL_LATENCY`` cycles.
    index : ``Out(8)`` x lanes
        Number of the first maximum; stage 1.
    """

    def __init__(self, lanes: int = LANES, turns: int = 1) -> None:
        self.lanes, self.turns = lanes, turns
        byte2 = ArrayLayout(8, LANES)
        super().__init__({
            "tap": In(Tap), "a": In(byte2), "b": In(byte2), "maximum": In(1), "match": In(1),
            "value": Out(ArrayLayout(signed(POOLED_BITS), lanes)), "index": Out(ArrayLayout(8, lanes)),
            **({"turn": In(range(turns))} if turns > 1 else {}), **({"column": In(1)} if lanes < LANES else {})})

    def elaborate(self, platform) -> Module:
        m = Module()
        tap = Tap(delayed(m, self.tap, "tap1"))
        values = [delayed(m, decode(self.a[column]), f"value1_{column}") for column in range(LANES)]
        positions = [delayed(m, self.b[column], f"position1_{column}") for column in range(LANES)]
        second = Signal()
        m.d.comb += second.eq(values[1] > values[0])
        tap2 = Tap(delayed(m, self.tap, "tap2", 2))
        maximum2 = delayed(m, self.maximum, "maximum2")
        turn2 = delayed(m, self.turn, "turn", 2) if self.turns > 1 else None
        column1 = delayed(m, self.column, "column1") if self.lanes < LANES else None
        for lane in range(self.lanes):
            k = list(tap.k[lane]) if column1 is None else [Mux(column1, tap.k[1][c], tap.k[0][c]) for c in range(LANES)]
            inside = tap.inside[lane] if column1 is None else Mux(column1, tap.inside[1].as_value(), tap.inside[0].as_value())
            counts = [inside[c] & (~self.match | (positions[c] == k[c])) for c in range(LANES)]
            # The two columns of the beat together; of equal ones the first is the maximum.
            pair = Signal(signed(V_BITS + 1), name=f"pair{lane}", reset_less=True)
            right = counts[1] & (second | ~counts[0])
            addends = [Mux(counts[c] & (~self.maximum | (right == c)), values[c], 0) for c in range(LANES)]
            m.d.sync += pair.eq(addends[0] + addends[1])
            any2 = delayed(m, counts[0] | counts[1], f"any2_{lane}")
            k2 = delayed(m, Mux(right, k[1], k[0]), f"k2_{lane}")
            self._gather(m, lane, tap2, pair, any2, k2, maximum2, turn2)
        return m

    def _gather(self, m: Module, lane: int, tap: Tap, pair: Signal, counts: Signal, k: Signal, maximum: Signal,
                turn: Value | None) -> None:
        """Beats of a window one after the other, from stage 2 on."""
        best = Signal(signed(POOLED_BITS), name=f"best{lane}", reset_less=True)
        best_k = Signal(8, name=f"best_k{lane}", reset_less=True)
        found = Signal(name=f"found{lane}", reset_less=True)
        held_k = Signal(8, name=f"held_k{lane}", reset_less=True)
        old = Signal(signed(POOLED_BITS), name=f"old{lane}")
        new = Signal(signed(POOLED_BITS), name=f"new{lane}")
        old_found, better = Signal(name=f"old_found{lane}"), Signal(name=f"better{lane}")
        new_k = Signal(8, name=f"new_k{lane}")
        m.d.comb += [
            old_found.eq(found & ~tap.first), old.eq(Mux(tap.first, 0, best)),
            better.eq(counts & (~old_found | (pair > best))),
            new_k.eq(Mux(better, k, Mux(old_found, best_k, 0))),
            new.eq(Mux(maximum, Mux(better, pair, old), old + pair)),
        ]
        if turn is None:
            with m.If(tap.v):
                m.d.sync += [best.eq(new), best_k.eq(new_k), found.eq(old_found | counts)]
        else:
            m.submodules[f"so_far{lane}"] = so_far = Memory(shape=POOLED_BITS + 9, depth=self.turns, init=[])
            read, write = so_far.read_port(domain="comb"), so_far.write_port()
            m.d.comb += [read.addr.eq(turn), Cat(best, best_k, found).eq(read.data), write.addr.eq(turn), write.en.eq(tap.v),
                         write.data.eq(Cat(new, new_k, old_found | counts))]
        with m.If(tap.v & tap.last):
            m.d.sync += [self.value[lane].eq(new), held_k.eq(new_k)]
        m.d.sync += self.index[lane].eq(held_k)
