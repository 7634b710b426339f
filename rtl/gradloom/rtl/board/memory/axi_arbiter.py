"""Several AXI4 managers share one subordinate."""

from collections.abc import Sequence

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.board.memory.axi_bus import AxiSignature
from gradloom.rtl.fifo import Fifo

__all__ = ["AxiArbiter", "Turn"]


class Turn(wiring.Component):
    """Whose turn it is: one of several offers, held until it is taken, then the next offer in circular order.

    An offer is chosen in the cycle after it comes if nobody else has the turn; whoever takes turns loses no cycle. An offer that
    waits sees each of the others go first once at most.

    Members
    -------
    offers : ``In(managers)``
    taken : ``In(1)``
        The chosen offer is accepted in this cycle.
    chosen : ``Out(range(managers))``
    """

    def __init__(self, managers: int) -> None:
        self.managers = managers
        super().__init__({"offers": In(managers), "taken": In(1), "chosen": Out(range(managers))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.Switch(self.chosen):
            for turn in range(self.managers):
                with m.Case(turn), m.If(self.taken | ~self.offers[turn]):
                    # The last assignment counts: the nearest offer behind this one.
                    for step in range(self.managers - 1, 0, -1):
                        other = (turn + step) % self.managers
                        with m.If(self.offers[other]):
                            m.d.sync += self.chosen.eq(other)
        return m


class AxiArbiter(wiring.Component):
    """Bursts of several managers to one subordinate, reads and writes apart; every response to whoever asked, in order.

    Fair: a burst waits for one burst of each other manager at most, then it is on the subordinate's address channel. Payloads pass
    combinationally; a burst of a manager that did not have the turn comes out 1 cycle later, and managers that take turns lose no
    cycle. Responses must come in the order of the addresses, as from any subordinate without ids.

    A manager must take its responses, and bring its write data, without waiting for another manager: both sides are in order, so
    whoever does not holds up all. It should ask to write only when it has the data.

    Parameters
    ----------
    managers : :class:`int`
        At least 1.
    beat_bytes : :class:`int`
        Bytes of a data beat of every manager and of the subordinate.
    outstanding : :class:`int`
        Bursts of each side that may be under way; a further address waits.

    Members
    -------
    manager : ``In(AxiSignature(beat_bytes)).array(managers)``
    memory : ``Out(AxiSignature(beat_bytes))``
    """

    def __init__(self, managers: int, beat_bytes: int, *, outstanding: int = 16) -> None:
        if not isinstance(managers, int) or managers < 1:
            raise ValueError(f"managers must be a positive integer, not {managers!r}")
        self.managers, self.outstanding = managers, outstanding
        bus = AxiSignature(beat_bytes)
        super().__init__({"manager": In(bus).array(managers), "memory": Out(bus)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.managers == 1:
            wiring.connect(m, wiring.flipped(self.manager[0]), wiring.flipped(self.memory))
            return m
        m.submodules.readers = readers = Fifo(range(self.managers), self.outstanding)
        m.submodules.writers = writers = Fifo(range(self.managers), self.outstanding)
        m.submodules.answers = answers = Fifo(range(self.managers), self.outstanding)
        self._addresses(m, "ar", [readers])
        self._addresses(m, "aw", [writers, answers])
        self._responses(m, "r", readers, self.memory.r.p.last)
        self._responses(m, "b", answers, 1)

        owner = writers.o.payload
        data = Array([manager.w for manager in self.manager])[owner]
        m.d.comb += [
            self.memory.w.valid.eq(data.valid & writers.o.valid),
            self.memory.w.payload.eq(data.payload),
            writers.o.ready.eq(self.memory.w.valid & self.memory.w.ready & self.memory.w.p.last),
        ]
        for n, manager in enumerate(self.manager):
            m.d.comb += manager.w.ready.eq(self.memory.w.ready & writers.o.valid & (owner == n))
        return m

    def _addresses(self, m: Module, channel: str, owners: Sequence[Fifo]) -> None:
        """One address channel; whose burst it was goes into ``owners``."""
        m.submodules[f"turn_{channel}"] = turn = Turn(self.managers)
        offers, memory = [getattr(manager, channel) for manager in self.manager], getattr(self.memory, channel)
        offer = Array(offers)[turn.chosen]
        space = Signal(name=f"space_{channel}")
        m.d.comb += [
            *(turn.offers[n].eq(offer.valid) for n, offer in enumerate(offers)),
            # The second of two FIFOs that are filled together is the one emptied last.
            space.eq(owners[-1].i.ready),
            memory.valid.eq(offer.valid & space),
            memory.payload.eq(offer.payload),
            turn.taken.eq(memory.valid & memory.ready),
            *(offer.ready.eq(memory.ready & space & (turn.chosen == n)) for n, offer in enumerate(offers)),
        ]
        for fifo in owners:
            m.d.comb += [fifo.i.valid.eq(turn.taken), fifo.i.payload.eq(turn.chosen)]

    def _responses(self, m: Module, channel: str, owners: Fifo, last: Value | int) -> None:
        """One response channel, to the manager that is first in ``owners`` up to ``last``."""
        responses, memory = [getattr(manager, channel) for manager in self.manager], getattr(self.memory, channel)
        for n, response in enumerate(responses):
            m.d.comb += [
                response.valid.eq(memory.valid & owners.o.valid & (owners.o.payload == n)),
                response.payload.eq(memory.payload),
            ]
        m.d.comb += [
            memory.ready.eq(Mux(owners.o.valid, Array(response.ready for response in responses)[owners.o.payload], 0)),
            owners.o.ready.eq(memory.valid & memory.ready & last),
        ]
