"""Counting semaphores that order the commands of different engines."""

from amaranth.hdl import Cat, Const, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.rtl.isa import SEMAPHORES

__all__ = ["Semaphores"]

WIDTH = 8


def _ones(bits: list[Signal]) -> Signal:
    total = bits[0]
    for bit in bits[1:]:
        total = total + bit
    return total


class Semaphores(wiring.Component):
    """Counters of 8 bits, 0 after reset.

    A request is granted in the cycle in which all its semaphores are above 0; they are decremented at the end of that
    cycle. At most one request is granted a cycle, the lowest number first: a requester that was granted has a command to
    run before it asks again, so none is kept from its turn. Signals are counted at the end of their cycle, any number at
    once.

    Parameters
    ----------
    requesters : :class:`int`
        Sequencer and engines.

    Members
    -------
    request : ``In(requesters)``
    needs : ``In(ArrayLayout(32, requesters))``
        Semaphores that the request needs; an empty mask is granted like any other.
    grant : ``Out(requesters)``
        Combinational, at most one bit.
    signal : ``In(ArrayLayout(32, requesters))``
        Semaphores that are incremented; a mask holds for one cycle.
    ready : ``Out(32)``
        Semaphores above 0.
    overflow : ``Out(1)``
        A semaphore would have passed 255 in the last cycle: the program is at fault, and the counter is wrong until the reset.
    """

    def __init__(self, requesters: int) -> None:
        self.requesters = requesters
        self.counters = [Signal(WIDTH, name=f"counter{n}") for n in range(SEMAPHORES)]
        super().__init__({
            "request": In(requesters),
            "needs": In(ArrayLayout(SEMAPHORES, requesters)),
            "grant": Out(requesters),
            "signal": In(ArrayLayout(SEMAPHORES, requesters)),
            "ready": Out(SEMAPHORES),
            "overflow": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counters = self.counters
        eligible = Signal(self.requesters)
        m.d.comb += [
            eligible.eq(Cat(self.request[r] & ~(self.needs[r] & ~self.ready).any() for r in range(self.requesters))),
            self.grant.eq(Cat(eligible[r] & ~eligible[:r].any() for r in range(self.requesters))),
        ]
        overflows = Signal(SEMAPHORES)
        for n, counter in enumerate(counters):
            taken = Cat(self.grant[r] & self.needs[r][n] for r in range(self.requesters)).any()
            # At least -1, and only with the counter above 0: a carry into the next bit is a sum above 255.
            change = Signal(signed(_ones([Const(1)] * self.requesters).shape().width + 1), name=f"change{n}")
            update = Signal(WIDTH + 1, name=f"update{n}")
            m.d.comb += [
                change.eq(_ones([self.signal[r][n] for r in range(self.requesters)]) - taken),
                update.eq(counter + change),
            ]
            # `ready` is a register too: what is granted depends on all of them, and much on what is granted. A carry is kept before
            # all are looked at together.
            m.d.sync += [counter.eq(update), self.ready[n].eq(update[:WIDTH].any()), overflows[n].eq(update[WIDTH])]
        m.d.comb += self.overflow.eq(overflows.any())
        return m
