"""Between the machine's AXI4 beats and the words of a memory: beats narrower than, as wide as, or wider than a word."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.rtl.board.memory.axi_bus import LENGTH_BITS, AxiSignature
from gradloom.rtl.fifo import Fifo

__all__ = ["Packer", "word_length_bits"]


def word_length_bits(beat_bytes: int, word_bytes: int) -> int:
    """Bits of the length of a burst of words: a burst of wide beats has several times as many words."""
    return LENGTH_BITS + max(0, exact_log2(beat_bytes) - exact_log2(word_bytes))


class Packer(wiring.Component):
    """Bursts of beats become bursts of words and back, both directions, at a word (or, of narrow beats, a beat) a cycle.

    Addresses and write responses pass combinationally. A wide beat is sent as its words, lowest first, without registers, and
    gathered from them with its last word passing combinationally; its response is the worst of its words'. Narrow beats fill a word
    from where the burst's address lies in it; the bytes of a word that a burst does not reach have no strobe, and what is read of
    them is dropped.

    Parameters
    ----------
    beat_bytes, word_bytes : :class:`int`
        Powers of two.
    outstanding : :class:`int`
        Of narrow beats: bursts of each side that may be under way; a further address waits.

    Members
    -------
    beats : ``In(AxiSignature(beat_bytes))``
    words : ``Out(AxiSignature(word_bytes, length_bits=word_length_bits(beat_bytes, word_bytes)))``
    """

    def __init__(self, beat_bytes: int, word_bytes: int, *, outstanding: int = 16) -> None:
        self.beat_bytes, self.word_bytes, self.outstanding = beat_bytes, word_bytes, outstanding
        super().__init__({"beats": In(AxiSignature(beat_bytes)),
                          "words": Out(AxiSignature(word_bytes, length_bits=word_length_bits(beat_bytes, word_bytes)))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.beat_bytes == self.word_bytes:
            wiring.connect(m, wiring.flipped(self.beats), wiring.flipped(self.words))
            return m
        m.d.comb += [
            self.beats.b.valid.eq(self.words.b.valid),
            self.beats.b.payload.eq(self.words.b.payload),
            self.words.b.ready.eq(self.beats.b.ready),
        ]
        if self.beat_bytes > self.word_bytes:
            self._wide(m, self.beat_bytes // self.word_bytes)
        else:
            self._narrow(m, self.word_bytes // self.beat_bytes)
        return m

    def _wide(self, m: Module, ratio: int) -> None:
        """A beat is ``ratio`` words."""
        beats, words, width = self.beats, self.words, 8 * self.word_bytes
        for beat, word in ((beats.ar, words.ar), (beats.aw, words.aw)):
            m.d.comb += [
                word.valid.eq(beat.valid),
                word.p.addr.eq(beat.p.addr),
                word.p.len.eq(Cat(Const(ratio - 1, exact_log2(ratio)), beat.p.len)),
                beat.ready.eq(word.ready),
            ]

        sent = Signal(range(ratio))
        last = sent == ratio - 1
        m.d.comb += [
            words.w.valid.eq(beats.w.valid),
            words.w.p.data.eq(beats.w.p.data.word_select(sent, width)),
            words.w.p.strb.eq(beats.w.p.strb.word_select(sent, self.word_bytes)),
            words.w.p.last.eq(beats.w.p.last & last),
            beats.w.ready.eq(words.w.ready & last),
        ]
        with m.If(words.w.valid & words.w.ready):
            m.d.sync += sent.eq(sent + 1)

        came = Signal(range(ratio))
        stored = Signal(width * (ratio - 1), reset_less=True)
        worst = Signal(2)
        final = came == ratio - 1
        response = worst | words.r.p.resp
        m.d.comb += [
            beats.r.valid.eq(words.r.valid & final),
            beats.r.p.data.eq(Cat(stored, words.r.p.data)),
            beats.r.p.resp.eq(response),
            beats.r.p.last.eq(words.r.p.last),
            words.r.ready.eq(~final | beats.r.ready),
        ]
        with m.If(words.r.valid & words.r.ready):
            m.d.sync += [came.eq(came + 1), worst.eq(Mux(final, 0, response))]
            with m.If(~final):
                m.d.sync += stored.eq(Cat(stored, words.r.p.data)[width:])

    def _narrow(self, m: Module, ratio: int) -> None:
        """A word is ``ratio`` beats."""
        beats, words, bits = self.beats, self.words, exact_log2(ratio)
        low = exact_log2(self.beat_bytes)
        places = StructLayout({"first": bits, "final": bits})
        m.submodules.reads = reads = Fifo(places, self.outstanding)
        m.submodules.writes = writes = Fifo(bits, self.outstanding)
        for name, beat, word, fifo in (("read", beats.ar, words.ar, reads), ("write", beats.aw, words.aw, writes)):
            first = beat.p.addr[low:low + bits]
            end = Signal(LENGTH_BITS + 1, name=f"{name}_end")
            m.d.comb += [
                end.eq(first + beat.p.len),
                word.valid.eq(beat.valid & fifo.i.ready),
                word.p.addr.eq(beat.p.addr),
                word.p.len.eq(end >> bits),
                beat.ready.eq(word.ready & fifo.i.ready),
                fifo.i.valid.eq(word.valid & word.ready),
            ]
            m.d.comb += [fifo.i.p.first.eq(first), fifo.i.p.final.eq(end)] if fifo is reads else [fifo.i.payload.eq(first)]
        self._read_words(m, reads, bits)
        self._write_words(m, writes, ratio, bits)

    def _place(self, m: Module, first: Value, moves: Value, last: Value, bits: int, name: str) -> Signal:
        """Where in its word the present beat of a burst lies that began at ``first``."""
        begun = Signal(name=f"{name}_begun")
        following, place = Signal(bits, name=f"{name}_next"), Signal(bits, name=f"{name}_place")
        m.d.comb += place.eq(Mux(begun, following, first))
        with m.If(moves):
            m.d.sync += [begun.eq(~last), following.eq(place + 1)]
        return place

    def _read_words(self, m: Module, bursts: Fifo, bits: int) -> None:
        beats, words = self.beats, self.words
        moves, last, full = Signal(), Signal(), Signal()
        place = self._place(m, bursts.o.p.first, moves, last, bits, "read")
        m.d.comb += [
            full.eq(place == 2**bits - 1),
            beats.r.valid.eq(words.r.valid & bursts.o.valid),
            beats.r.p.data.eq(words.r.p.data.word_select(place, 8 * self.beat_bytes)),
            beats.r.p.resp.eq(words.r.p.resp),
            last.eq(words.r.p.last & (place == bursts.o.p.final)),
            beats.r.p.last.eq(last),
            moves.eq(beats.r.valid & beats.r.ready),
            words.r.ready.eq(moves & (full | last)),
            bursts.o.ready.eq(moves & last),
        ]

    def _write_words(self, m: Module, bursts: Fifo, ratio: int, bits: int) -> None:
        beats, words, size = self.beats, self.words, self.beat_bytes
        moves, last, full = Signal(), Signal(), Signal()
        place = self._place(m, bursts.o.payload, moves, last, bits, "write")
        stored = Signal(8 * size * (ratio - 1), reset_less=True)
        strobes = Signal(size * (ratio - 1))
        m.d.comb += [
            full.eq(place == ratio - 1),
            last.eq(beats.w.p.last),
            words.w.valid.eq(beats.w.valid & bursts.o.valid & (full | last)),
            words.w.p.last.eq(last),
            beats.w.ready.eq(bursts.o.valid & (words.w.ready | ~(full | last))),
            moves.eq(beats.w.valid & beats.w.ready),
            bursts.o.ready.eq(moves & last),
        ]
        for n in range(ratio):
            here = place == n
            data, strobe = words.w.p.data.word_select(n, 8 * size), words.w.p.strb.word_select(n, size)
            if n == ratio - 1:
                m.d.comb += [data.eq(beats.w.p.data), strobe.eq(Mux(here, beats.w.p.strb, 0))]
                continue
            kept, kept_strobe = stored.word_select(n, 8 * size), strobes.word_select(n, size)
            m.d.comb += [data.eq(Mux(here, beats.w.p.data, kept)), strobe.eq(Mux(here, beats.w.p.strb, kept_strobe))]
            with m.If(moves & here):
                m.d.sync += [kept.eq(beats.w.p.data), kept_strobe.eq(beats.w.p.strb)]
        with m.If(moves & (full | last)):
            m.d.sync += strobes.eq(0)
