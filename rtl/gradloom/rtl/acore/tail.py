"""The list of words behind a command's fields, read one a cycle from the memory in which its queue keeps them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.isa import FIRST_SHIFT_WORD, MAX_WORDS
from gradloom.rtl.command import TailPlace

__all__ = ["TailReader"]


class TailReader(wiring.Component):
    """One word a cycle from ``begin`` on.

    The memory takes a cycle, so the pair of the next cycle's word is asked for. Before ``begin`` that is the first pair of a shift
    list, which begins with an even word: it serves the cycles of ``begin``, however many they are, and the one behind them. A list
    that begins elsewhere has its first word in the cycle behind ``begin``, with ``first`` one less.

    Members
    -------
    take, slot : ``In(1)``, ``In(2)``
        No command is read: ``slot`` is that of the next one, at the latest in the last cycle of ``take``, which is the one before
        ``begin``.
    begin, first : ``In(1)``, ``In(6)``
        ``place`` is ``first`` in this cycle, and in each cycle after it one more. ``first`` is ``FIRST_SHIFT_WORD``, or one less
        than an even word.
    length : ``In(8)``
        Words of the command.
    place, word : ``Out(6)``, ``Out(32)``
        Number of a word, and the word.
    listed : ``Out(1)``
        The command has it.
    at : ``Out(TailPlace)`` -> pair ``In(64)`` in the next cycle
    """

    def __init__(self) -> None:
        places = range(MAX_WORDS + 1)
        super().__init__({
            "take": In(1), "slot": In(TailPlace["slot"].width), "begin": In(1), "first": In(places), "length": In(8),
            "place": Out(places), "word": Out(32), "listed": Out(1), "at": Out(TailPlace), "pair": In(64)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        after, slot = Signal.like(self.place), Signal.like(self.slot)
        m.d.sync += after.eq(self.place + 1)
        with m.If(self.take):
            m.d.sync += slot.eq(self.slot)
        m.d.comb += [
            self.place.eq(Mux(self.begin, self.first, after)),
            self.word.eq(self.pair.word_select(self.place[0], 32)),
            self.listed.eq((self.place < self.length) & (self.place < MAX_WORDS)),
            self.at.slot.eq(Mux(self.take, self.slot, slot)),
            self.at.pair.eq(Mux(self.take, FIRST_SHIFT_WORD, self.place + 1) >> 1),
        ]
        return m
