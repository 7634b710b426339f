"""Between the Loaders and the memories: channels that fill one memory take turns at its banks."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.buses import LoadBus
from gradloom.rtl.channels import LOAD_MAP
from gradloom.rtl.config import Config

__all__ = ["LoadArbiter"]


class LoadArbiter(wiring.Component):
    """Every bank has one write port. A beat is refused, and its Loader offers it again, while a channel of a lower number offers
    one for the same bank of the same memory.

    The fixed order makes two loads of successive rows or blocks part by themselves: the one that waits ends up a bank behind,
    and from then on both go from bank to bank at full speed. With turns they would share one bank after the other. The first
    channel, whose AXI4 port also brings the program, never waits. Combinational.

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
            ahead = (other for k, other in enumerate(self.loader[:n]) if set(memories[k]) & set(memories[n]))
            met = Cat(other.valid & (other.dest == bus.dest) & (other.bank == bus.bank) for other in ahead)
            m.d.comb += [
                self.ready[n].eq(~met.any()),
                out.valid.eq(bus.valid & self.ready[n]),
                *(getattr(out, name).eq(getattr(bus, name)) for name in ("dest", "bank", "addr", "sub", "data")),
            ]
        return m
