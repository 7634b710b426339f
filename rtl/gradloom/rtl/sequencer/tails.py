"""Where a queue keeps the words of its commands that an engine reads one after the other."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.command import TailPlace
from gradloom.rtl.memories import memory_apart

__all__ = ["Tails"]


class Tails(wiring.Component):
    """All words of the commands that are collected or that an engine has yet to read; a slot each, by turns.

    A slot is written while its command is collected, and again by the fourth command behind it. It is read at the earliest two
    cycles after its last word came, so that no word is read in the cycle in which it is written.

    Parameters
    ----------
    family : :class:`str`
    lutram_bits : :class:`int`
        As :class:`gradloom.contracts.config.Config` says: what kind of memory it is.

    Members
    -------
    put, pair, words : ``In(1)``, ``In(5)``, ``In(64)``
        A pair of words of the command that is collected.
    next : ``In(1)``
        The collected command starts in the next cycle; the next one is collected from then on.
    slot : ``Out(2)``
        Of the command that has started last; changes in the cycle of its start.
    at : ``In(TailPlace)`` -> read ``Out(64)`` in the next cycle
    """

    def __init__(self, *, family: str = "any", lutram_bits: int = 0) -> None:
        self.family, self.lutram_bits = family, lutram_bits
        super().__init__({"put": In(1), "pair": In(TailPlace["pair"].width), "words": In(64), "next": In(1),
                          "slot": Out(TailPlace["slot"].width), "at": In(TailPlace), "read": Out(64)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.memory = memory_apart(64, 1 << TailPlace.size, self.family, lutram_bits=self.lutram_bits)
        m.submodules.memory = self.memory
        write, read = self.memory.write_port(), self.memory.read_port()
        collected, place = Signal.like(self.slot), Signal(TailPlace)
        m.d.comb += [
            place.pair.eq(self.pair), place.slot.eq(collected),
            write.en.eq(self.put), write.addr.eq(place), write.data.eq(self.words),
            read.addr.eq(self.at), self.read.eq(read.data),
        ]
        with m.If(self.next):
            m.d.sync += [self.slot.eq(collected), collected.eq(collected + 1)]
        return m
