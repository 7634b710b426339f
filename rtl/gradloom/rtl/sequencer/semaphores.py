"""Counting semaphores that order the commands of different engines."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.isa import SEMAPHORES

__all__ = ["Semaphores"]

WIDTH = 8


def _ones(bits: Sequence[Value]) -> Value:
    total = bits[0]
    for bit in bits[1:]:
        total = total + bit
    return total


class Semaphores(wiring.Component):
    """Counters of 8 bits, 0 after reset.

    A request is granted in the cycle in which all its semaphores are above 0; they are lower in the next cycle. At most one
    request is granted a cycle, the lowest number first: a requester that was granted has a command to run before it asks
    again, so none is kept from its turn. Signals are counted at the end of their cycle, any number at once.

    Whom a grant depends on, and what depends on it, lies all over the machine. So a counter itself follows a grant a cycle
    later, and whether it is above 0 without what was taken last is told from two registers.

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
        self.counters = [Signal(WIDTH + 1, name=f"counter{n}") for n in range(SEMAPHORES)]
        """Before what the last cycle's grant took: 0 to 256."""
        self.taken = Signal(SEMAPHORES)
        """What that is: 1 of each semaphore that it needed."""
        self.one, self.two = Signal(SEMAPHORES), Signal(SEMAPHORES)
        """Which counters are at least that."""
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
        eligible = Signal(self.requesters)
        one, two, taken = self.one, self.two, self.taken
        m.d.comb += [
            self.ready.eq(Cat(Mux(taken[n], two[n], one[n]) for n in range(SEMAPHORES))),
            eligible.eq(Cat(self.request[r] & ~(self.needs[r] & ~self.ready).any() for r in range(self.requesters))),
            self.grant.eq(Cat(eligible[r] & ~eligible[:r].any() for r in range(self.requesters))),
        ]
        overflows = Signal(SEMAPHORES)
        for n, counter in enumerate(self.counters):
            signals = Cat(self.signal[r][n] for r in range(self.requesters))
            count = Signal(WIDTH + 1, name=f"count{n}")
            several = Signal(name=f"several{n}")
            change = Signal(signed(_ones([Const(1)] * self.requesters).shape().width + 1), name=f"change{n}")
            m.d.comb += [
                # Not three terms, which would be two chains of carries for each counter.
                change.eq(_ones(list(signals)) - taken[n]),
                count.eq(counter + change),
                several.eq(Cat(signals[r] & signals[:r].any() for r in range(1, self.requesters)).any()),
            ]
            m.d.sync += [
                taken[n].eq(Cat(self.grant[r] & self.needs[r][n] for r in range(self.requesters)).any()),
                counter.eq(count),
                # The same as of `count`, without the way through its carries: signals come late.
                one[n].eq(self.ready[n] | signals.any()),
                two[n].eq((counter > Mux(taken[n], 2, 1)) | (self.ready[n] & signals.any()) | several),
            ]
            # One more than the largest is none too many if one was taken in the same cycle.
            m.d.comb += overflows[n].eq(counter[WIDTH] & (counter[:WIDTH].any() | ~taken[n]))
        m.d.comb += self.overflow.eq(overflows.any())
        return m
