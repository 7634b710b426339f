"""Between the Loaders and the memories: channels that fill one memory take turns at its banks."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.engines import LOAD_MAP
from gradloom.rtl.memory_path.buses import LoadBus

__all__ = ["LoadArbiter"]


class LoadArbiter(wiring.Component):
    """Every bank has one write port. Of the channels that offer a beat for one bank of one memory in a cycle, one that is within a
    block or an entry (``sub`` is not 0) goes first, then the one of the lower number. The others are refused, and their Loaders
    offer the same beat again.

    The fixed order makes loads of successive blocks part by themselves: the one that waits ends up a bank behind, and from then
    on all go from bank to bank at full speed. With turns they would share one bank after the other. A block that has begun goes
    through, so that they lie whole blocks apart: between two channels half a block apart a third one finds no bank free for a
    whole block, and would take three times as long for each. Nobody waits for a channel that has no beat to offer: another one may
    begin its block in the same bank meanwhile. So the first one, whose AXI4 port also brings the program, waits for the rest of a
    block of each other channel at most. Combinational.

    Members
    -------
    loader : ``In(LoadBus).array(load_channels)``
    ready : ``Out(load_channels)``
        The beat on that bus is written.
    memory : ``Out(LoadBus).array(load_channels)``
        The same buses with ``valid`` only in a cycle of ``ready``; they never carry two beats for one bank.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        buses = LoadBus(config)
        super().__init__({"loader": In(buses).array(config.load_channels), "ready": Out(config.load_channels),
                          "memory": Out(buses).array(config.load_channels)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memories = LOAD_MAP[self.config.load_channels]
        for n, (bus, out) in enumerate(zip(self.loader, self.memory, strict=True)):
            met = Cat(other.valid & (other.dest == bus.dest) & (other.bank == bus.bank) & self._first(k, n)
                      for k, other in enumerate(self.loader) if k != n and set(memories[k]) & set(memories[n]))
            m.d.comb += [
                self.ready[n].eq(~met.any()),
                out.valid.eq(bus.valid & self.ready[n]),
                out.dest.eq(bus.dest), out.bank.eq(bus.bank), out.addr.eq(bus.addr), out.sub.eq(bus.sub), out.data.eq(bus.data),
            ]
        return m

    def _first(self, this: int, other: int) -> Value:
        """Whether one channel goes before another one."""
        within, behind = self.loader[this].sub.any(), self.loader[other].sub.any()
        return within | ~behind if this < other else within & ~behind
