"""On-chip memory of an operand: beats in, a word of all columns of the array out, column after column."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.memories import make_memory

__all__ = ["BeatWrite", "OperandStore"]

BeatWrite = data.StructLayout({"valid": 1, "turned": 1, "addr": 16})
"""A beat that is to be written: its address in beats from the memory's first word; ``turned``: a byte for each word."""


class OperandStore(wiring.Component):
    """``depth`` words of ``columns`` x ``places`` bytes, a memory for each column.

    A step's address comes to column c c cycles after it came to column 0, so that nothing but an address waits for the sums that go
    from column to column. Only where a step may take the transpose of its word (``turns``) all columns are read at once, and the
    bytes wait.

    Parameters
    ----------
    columns, places : :class:`int`
        Of the array; places are its lanes or rows.
    depth : :class:`int`
        Words.
    beat_bytes : :class:`int`
    by_place : :class:`bool`
        A word lies in memory as [place][column] bytes, else as [column][place].
    turns : :class:`bool`
        Places and columns are as many, and may be exchanged.
    lutram_bits : :class:`int`
        As of :class:`gradloom.contracts.config.Config`.

    Members
    -------
    write : ``In(BeatWrite)``, data : ``In(8 * beat_bytes)``
        Stable until ``ready``. With ``turned``, where there is one place, byte i of beat ``columns`` * n + c goes to column c of
        word ``beat_bytes`` * n + i.
    ready : ``Out(1)``
        The beat is written with this cycle. A beat of several words takes a cycle for each.
    at : ``In(16)``, turn : ``In(1)``
        Cycle 0: word that is read; ``turn``, stable while reads are under way: exchange places and columns.
    word : ``Out(ArrayLayout(ArrayLayout(signed(8), places), columns))``
        Column c in cycle 1 + c.
    """

    def __init__(self, *, columns: int, places: int, depth: int, beat_bytes: int, by_place: bool = False, turns: bool = False,
                 lutram_bits: int = 0) -> None:
        self.columns, self.places, self.depth, self.beat_bytes = columns, places, depth, beat_bytes
        self.by_place, self.turns, self.lutram_bits = by_place, turns, lutram_bits
        super().__init__({
            "write": In(BeatWrite), "data": In(8 * beat_bytes), "ready": Out(1), "at": In(16), "turn": In(1),
            "word": Out(data.ArrayLayout(data.ArrayLayout(signed(8), places), columns))})

    @property
    def word_bytes(self) -> int:
        return self.columns * self.places

    def elaborate(self, platform: object) -> Module:
        m = Module()
        address_bits = exact_log2(self.depth)
        memories = []
        for column in range(self.columns):
            memory = make_memory(8 * self.places, self.depth, self.lutram_bits)
            m.submodules[f"memory{column}"] = memory
            memories.append(memory)
        self._write(m, [memory.write_port(granularity=8) for memory in memories], address_bits)

        reads = [memory.read_port() for memory in memories]
        if self.turns:
            m.d.comb += [read.addr.eq(self.at) for read in reads]
            for column in range(self.columns):
                for place in range(self.places):
                    straight, turned = reads[column].data.word_select(place, 8), reads[place].data.word_select(column, 8)
                    chosen = Signal(8, name=f"chosen{column}_{place}")
                    m.d.comb += [chosen.eq(Mux(self.turn, turned, straight)),
                                 self.word[column][place].eq(delayed(m, chosen, f"word{column}_{place}", column))]
        else:
            at = Line(m, self.at, "at")
            for column, read in enumerate(reads):
                m.d.comb += [read.addr.eq(at[column]), self.word[column].as_value().eq(read.data)]
        return m

    def _write(self, m: Module, ports: list, address_bits: int) -> None:
        """Beats into words: a part of one, or several of them."""
        turned = self.write.turned if self.places == 1 else Value.cast(0)
        words = max(1, self.beat_bytes // self.word_bytes)
        """Of a beat."""
        parts = max(1, self.word_bytes // self.beat_bytes)
        """Beats of a word."""
        most = self.beat_bytes if self.places == 1 else words
        part = Signal(range(most))
        last = Signal()
        m.d.comb += [last.eq(part == Mux(turned, self.beat_bytes - 1, words - 1)), self.ready.eq(last)]
        with m.If(self.write.valid):
            m.d.sync += part.eq(Mux(last, 0, part + 1))

        word = Signal(address_bits)
        sub = self.write.addr[:exact_log2(parts)]
        straight_word = Cat(part[:exact_log2(words)], self.write.addr) if words > 1 else self.write.addr[exact_log2(parts):]
        turned_word = Cat(part[:exact_log2(self.beat_bytes)], self.write.addr[exact_log2(self.columns):])
        m.d.comb += word.eq(Mux(turned, turned_word, straight_word))
        for column, port in enumerate(ports):
            m.d.comb += port.addr.eq(word)
            for place in range(self.places):
                index = place * self.columns + column if self.by_place else column * self.places + place
                beat, byte = divmod(index, self.beat_bytes)
                code = self.data.word_select(byte, 8) if words == 1 else self.data.word_select(part * self.word_bytes + byte, 8)
                here = self.write.valid & (sub == beat if parts > 1 else 1)
                if self.places == 1:
                    here = Mux(turned, self.write.valid & (self.write.addr[:exact_log2(self.columns)] == column), here)
                    code = Mux(turned, self.data.word_select(part, 8), code)
                m.d.comb += [port.en[place].eq(here), port.data.word_select(place, 8).eq(code)]
