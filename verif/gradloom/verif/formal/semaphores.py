"""Specification of the semaphores."""

import types

from amaranth.hdl import Array, Assert, Assume, Cat, Cover, Module, ResetSignal, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.isa import SEMAPHORES
from gradloom.rtl.sequencer import semaphores
from gradloom.verif.formal.statements import constant

__all__ = ["SemaphoreSpec"]

_REQUESTERS = 2
_LARGEST = 255


class SemaphoreSpec(wiring.Component):
    """Of the requests whose semaphores are all above 0 the lowest is granted, and no other. A semaphore holds its signals less the
    grants that needed it, never less than 0 and none lost, however many come with a grant; one that passes 255 is an overflow,
    and nothing else is.

    One semaphore of free choice is counted; ``prove`` over 1 cycle covers every state.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a grant and two signals of one semaphore in one cycle.
    """

    def __init__(self, design: types.ModuleType = semaphores, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"request": In(_REQUESTERS), "follow": In(range(SEMAPHORES)),
                          **{f"needs{n}": In(SEMAPHORES) for n in range(_REQUESTERS)},
                          **{f"signal{n}": In(SEMAPHORES) for n in range(_REQUESTERS)}})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Semaphores(_REQUESTERS)
        needs = [getattr(self, f"needs{n}") for n in range(_REQUESTERS)]
        signals = [getattr(self, f"signal{n}") for n in range(_REQUESTERS)]
        m.d.comb += [dut.request.eq(self.request), Assume(~ResetSignal())]
        for n in range(_REQUESTERS):
            m.d.comb += [dut.needs[n].eq(needs[n]), dut.signal[n].eq(signals[n])]
        constant(m, self.follow)

        ahead: Value = Signal(name="nobody")
        for n in range(_REQUESTERS):
            eligible = self.request[n] & ((needs[n] & dut.ready) == needs[n])
            m.d.comb += Assert(dut.grant[n] == (eligible & ~ahead))
            ahead = ahead | eligible

        def after(count: Value, bit: Value | int) -> Signal:
            """What becomes of a semaphore, as an integer."""
            total = Signal(signed(12))
            taken = sum((dut.grant[n] & needs[n].bit_select(bit, 1) for n in range(_REQUESTERS)), start=0)
            m.d.comb += total.eq(count + sum(signal.bit_select(bit, 1) for signal in signals) - taken)
            return total

        count = Signal(8)
        update = after(count, self.follow)
        m.d.sync += count.eq(update)
        over, ended = Signal(), Signal()
        m.d.sync += [
            over.eq(Cat(after(counter - dut.taken[n], n) > _LARGEST for n, counter in enumerate(dut.counters)).any()),
            ended.eq(over | ended),
        ]
        held, lately = Array(dut.counters)[self.follow], dut.taken.bit_select(self.follow, 1)
        m.d.comb += [
            Assume(~ended),  # the counters are wrong behind an overflow
            Assert(over | (held == count + lately)),
            Assert(over | (dut.ready.bit_select(self.follow, 1) == (count != 0))),
            *(Assert(over | ((counter <= _LARGEST + 1) & (counter >= dut.taken[n])
                             & (dut.one[n] == (counter >= 1)) & (dut.two[n] == (counter >= 2))))
              for n, counter in enumerate(dut.counters)),
            Assert(over | (update >= 0)),
            Assert(dut.overflow == over),
        ]
        if self.cover:
            both = signals[0].bit_select(self.follow, 1) & signals[1].bit_select(self.follow, 1)
            m.d.comb += Cover(dut.grant[1] & needs[1].bit_select(self.follow, 1) & both & (count == 2))
        return m
