"""Specification of the packer: every byte goes to its place, once and in order, in both directions."""

import types

from amaranth.hdl import Assert, Assume, Cat, Const, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gradloom.rtl.board.memory import packer
from gradloom.verif.formal.statements import held

__all__ = ["PackerSpec"]

_ADDRESS = 5
"""Bits of a byte address."""
_LENGTH = 2
"""Bits of a burst's length in beats."""
_BURSTS = 3


class _Walk:
    """The bursts of an address channel, the oldest first, and the address within the oldest."""

    def __init__(self, m: Module, *, put: Value, address: Value, length: Value, moves: Value, size: int, name: str) -> None:
        width = len(length)
        level, left = Signal(range(_BURSTS + 1), name=f"{name}_level"), Signal(range(_BURSTS + 1), name=f"{name}_left")
        entries = [Signal(_ADDRESS + width, name=f"{name}{n}") for n in range(_BURSTS)]
        done = Signal(width, name=f"{name}_done")
        self.here = level != 0
        self.last = done == entries[0][_ADDRESS:]
        self.address = Signal(_ADDRESS + 2, name=f"{name}_address")
        """Of the first byte of the beat, or word."""
        get = Signal(name=f"{name}_get")
        m.d.comb += [
            self.address.eq((entries[0][:_ADDRESS] >> exact_log2(size) << exact_log2(size)) + done * size),
            get.eq(moves & self.last), left.eq(level - get), Assert(~moves | self.here), Assume(~put | (left < _BURSTS)),
        ]
        m.d.sync += level.eq(left + put)
        for n, entry in enumerate(entries):
            following = entries[n + 1] if n + 1 < _BURSTS else entry
            m.d.sync += entry.eq(Mux(put & (left == n), Cat(address, length), Mux(get, following, entry)))
        with m.If(moves):
            m.d.sync += done.eq(Mux(self.last, 0, done + 1))


def _bytes(address: Value, size: int, salt: Value) -> Value:
    """What the memory holds from an address on: a byte tells its address. ``salt``, of free choice, turns all bits over."""
    return Cat(((address + n)[:_ADDRESS] ^ salt) for n in range(size))


class PackerSpec(wiring.Component):
    """For bounded checks. The memory's bytes tell their addresses, and so do those that are written, so that a byte in the wrong
    place is seen. Word bursts are those that hold the beats; a beat's strobes come with it, and no other byte has one.

    Parameters
    ----------
    beat, word : :class:`int`
        Bytes.
    write : :class:`bool`
        The write side, else the read side.
    cover : :class:`bool`
        Reaches instead: the end of a second burst of at least two beats.
    """

    def __init__(self, design: types.ModuleType = packer, *, beat: int, word: int, write: bool, cover: bool = False) -> None:
        self.design, self.beat, self.word, self.write, self.cover = design, beat, word, write, cover
        super().__init__({"valid": In(1), "address": In(_ADDRESS), "length": In(_LENGTH), "address_ready": In(1),
                          "data_valid": In(1), "data_ready": In(1), "response": In(2), "salt": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Packer(self.beat, self.word, outstanding=2)
        beats, words = (dut.beats.aw, dut.words.aw) if self.write else (dut.beats.ar, dut.words.ar)
        bits = exact_log2(self.beat)
        m.d.comb += [
            beats.valid.eq(self.valid), beats.p.addr.eq(self.address), beats.p.len.eq(self.length),
            words.ready.eq(self.address_ready), Assume(~ResetSignal()), Assume(self.address[:bits] == 0),
            # As a machine's bursts, these cross no multiple of the longest one, and none leaves the address bits.
            Assume(self.address + (self.length + 1) * self.beat <= 1 << _ADDRESS),
        ]
        held(m, beats.valid, beats.ready, [self.address, self.length], "beats", Assume)
        held(m, words.valid, words.ready, [words.payload.as_value()], "words")
        put = Signal()
        m.d.comb += [put.eq(words.valid & words.ready), Assert(put == (beats.valid & beats.ready))]

        # The words that hold the beats.
        shift = exact_log2(self.word)
        first, end = self.address >> shift, (self.address + self.length * self.beat + self.beat - 1) >> shift
        count = Signal(_ADDRESS)
        m.d.comb += [count.eq(end - first),
                     Assert(~put | ((words.p.len == count) & (words.p.addr >> shift == first)))]
        beat_moves, word_moves = Signal(), Signal()
        beat = _Walk(m, put=put, address=self.address, length=self.length, moves=beat_moves, size=self.beat, name="beat")
        word = _Walk(m, put=put, address=self.address, length=count, moves=word_moves, size=self.word, name="word")
        (self._writes if self.write else self._reads)(m, dut, beat, word, beat_moves, word_moves)
        if self.cover:
            ended = Signal(2)
            with m.If(beat_moves & beat.last):
                m.d.sync += ended.eq(ended + 1)
            m.d.comb += Cover((ended == 1) & beat_moves & beat.last & (beat.address[:_ADDRESS] != self.beat))
        return m

    def _reads(self, m: Module, dut: wiring.Component, beat: _Walk, word: _Walk, beat_moves: Signal, word_moves: Signal) -> None:
        up, down = dut.beats.r, dut.words.r
        salt = self.salt.replicate(_ADDRESS)
        m.d.comb += [
            down.valid.eq(self.data_valid), down.p.data.eq(_pad(_bytes(word.address, self.word, salt))), down.p.last.eq(word.last),
            down.p.resp.eq(self.response), up.ready.eq(self.data_ready), Assume(~self.data_valid | word.here),
            Assume((self.response == 0) | (self.response == 3)),
            beat_moves.eq(up.valid & up.ready), word_moves.eq(down.valid & down.ready),
        ]
        begun = Signal()
        m.d.sync += begun.eq(1)
        kept = Signal()
        m.d.sync += kept.eq(self.salt)
        m.d.comb += Assume(~begun | (kept == self.salt))
        held(m, down.valid, down.ready, [self.response], "word_data", Assume)
        held(m, up.valid, up.ready, [up.payload.as_value()], "beat_data")
        # The worst response of the words that came for this beat, or of the one word that holds it.
        worst = Signal(2)
        now = worst | self.response if self.beat > self.word else self.response
        with m.If(word_moves):
            m.d.sync += worst.eq(Mux(beat_moves, 0, now))
        m.d.comb += [
            Assert(~up.valid | (beat.here & (up.p.data == _pad(_bytes(beat.address, self.beat, salt))) & (up.p.last == beat.last))),
            Assert(~up.valid | (up.p.resp == now)),
        ]
        # A word whose beats were all handed on is taken, and one that is needed for the next beat is offered to it.
        m.d.comb += Assert(~(self.data_valid & word.here & up.ready) | word_moves | up.valid | ~beat.here)

    def _writes(self, m: Module, dut: wiring.Component, beat: _Walk, word: _Walk, beat_moves: Signal, word_moves: Signal) -> None:
        up, down = dut.beats.w, dut.words.w
        ratio = max(1, self.word // self.beat)
        m.d.comb += [
            # Data come with or after their address; a strobe is a hash of the byte's address.
            up.valid.eq(self.data_valid), up.p.last.eq(beat.last), Assume(~self.data_valid | beat.here),
            up.p.data.eq(_pad(_bytes(beat.address, self.beat, Const(0, _ADDRESS)))),
            up.p.strb.eq(_strobes(beat.address, self.beat)),
            down.ready.eq(self.data_ready), beat_moves.eq(up.valid & up.ready), word_moves.eq(down.valid & down.ready),
        ]
        held(m, up.valid, up.ready, [], "beat_data", Assume)
        held(m, down.valid, down.ready, [down.payload.as_value()], "word_data")
        if ratio == 1:
            expected: Value = _strobes(word.address, self.word)
        else:
            # Of a burst's first and last word, only the bytes of its beats; they were taken, or are offered now.
            came = Signal(ratio)
            place = beat.address[exact_log2(self.beat):exact_log2(self.word)]
            now = came | Mux(up.valid, 1 << place, 0)
            with m.If(beat_moves):
                m.d.sync += came.eq(Mux(word_moves, 0, now))
            mask = Cat(now[n].replicate(self.beat) for n in range(ratio))
            expected = _strobes(word.address, self.word) & mask
        data = _pad(_bytes(word.address, self.word, Const(0, _ADDRESS)))
        wide = Cat(expected[n].replicate(8) for n in range(self.word))
        m.d.comb += [
            Assert(~down.valid | word.here), Assert(~down.valid | (down.p.last == word.last)),
            Assert(~down.valid | (down.p.strb == expected)), Assert(~down.valid | ((down.p.data ^ data) & wide == 0)),
            # A word goes with the last beat that it holds.
            Assert(~(word_moves & (self.beat < self.word)) | beat_moves),
            Assert(~(word_moves & word.last) | (beat_moves & beat.last)),
        ]


def _pad(values: Value) -> Value:
    """Bytes of :data:`_ADDRESS` bits each, as bytes."""
    return Cat(Cat(values[n:n + _ADDRESS], Const(0, 8 - _ADDRESS)) for n in range(0, len(values), _ADDRESS))


def _strobes(address: Value, size: int) -> Value:
    return Cat((address + n)[:_ADDRESS].xor() | (address + n)[1] for n in range(size))
