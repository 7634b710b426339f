"""Where the Sequencer is in its program: the next words side by side, the program's bounds, jumps to another place."""

from amaranth.hdl import Cat, Module, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.isa import COMMANDS, pairs
from gradloom.rtl.sequencer.program_fetch import ProgramFetch

__all__ = ["AHEAD_WORDS", "HEADER_BYTES", "Program", "ProgramWindow"]

HEADER_BYTES = 16
AHEAD_WORDS = 4
"""Words of a command, two pairs, that are there before any of them is taken: an engine's queue depends on them."""
assert all(pairs(encoding.words) >= AHEAD_WORDS // 2 for encoding in COMMANDS.values())


class ProgramWindow(wiring.Component):
    """The next two pairs of words of the program side by side, so that a command is checked and routed before any word is taken.

    Members
    -------
    pairs : ``In(stream.Signature(64))``
        Words of the program.
    clear : ``In(1)``
        Forget all of them; the pair of this cycle, too.
    ahead : ``Out(ArrayLayout(32, AHEAD_WORDS))``
        The oldest first.
    valid, full : ``Out(1)``
        The first two words are there; all of them are.
    take : ``In(1)``
        The first two words are taken, if ``valid``.
    """

    def __init__(self) -> None:
        super().__init__({"pairs": In(stream.Signature(64)), "clear": In(1), "ahead": Out(ArrayLayout(32, AHEAD_WORDS)),
                          "valid": Out(1), "full": Out(1), "take": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = [Signal(64, name=f"held{n}", reset_less=True) for n in range(AHEAD_WORDS // 2)]
        level, left = Signal(range(len(held) + 1)), Signal(range(len(held) + 1))
        taken = self.take & self.valid
        m.d.comb += [self.ahead.eq(Cat(held)), self.valid.eq(level != 0), self.full.eq(level == len(held)),
                     left.eq(level - taken), self.pairs.ready.eq(left != len(held))]
        for n, pair in enumerate(held):
            with m.If(left == n):
                m.d.sync += pair.eq(self.pairs.payload)
            with m.Elif(taken):
                m.d.sync += pair.eq(held[min(n + 1, len(held) - 1)])
        with m.If(self.clear):
            m.d.sync += level.eq(0)
        with m.Else():
            m.d.sync += level.eq(left + (self.pairs.valid & self.pairs.ready))
        return m


class Program:
    """The program that is run, for the Sequencer's states.

    Parameters
    ----------
    address : :class:`amaranth.hdl.Value`
        Of its header, 32 bits.

    Attributes
    ----------
    window : :class:`ProgramWindow`
        Its next words.
    length : :class:`amaranth.hdl.Signal`
        Bytes behind the header.
    position : :class:`amaranth.hdl.Signal`
        Of the next command, in bytes from the first one.
    base, end : :class:`amaranth.hdl.Signal`
        Addresses of the first command, a cycle after the program's address is there, and behind the last one: registers, as jumps
        add to them. 33 and 34 bits: no sum wraps, so a program beyond the window of memory cannot pass for one inside.
    """

    def __init__(self, m: Module, fetch: ProgramFetch, window: ProgramWindow, address: Value) -> None:
        self.fetch, self.window = fetch, window
        self.length = Signal(32)
        self.position = Signal(32)
        self.base = Signal(33, name="code_base")
        self.end = Signal(34, name="program_end")
        m.d.sync += self.base.eq(address + HEADER_BYTES)

    def has(self, m: Module, length: ValueLike) -> None:
        """In this state, learn the number of bytes behind the header."""
        m.d.sync += [self.length.eq(length), self.end.eq(self.base + length)]

    def read(self, m: Module, address: ValueLike, limit: ValueLike) -> None:
        """In this state, go on with the words from byte ``address`` to ``limit`` (exclusive) of the memory."""
        m.d.comb += [self.fetch.jump.eq(1), self.fetch.address.eq(address), self.fetch.limit.eq(limit)]

    def go_to(self, m: Module, position: ValueLike) -> None:
        """In this state, go on with the command at that position."""
        self.read(m, self.base + position, self.end)
