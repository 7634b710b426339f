"""Specification of the program's way from the memory to the Sequencer's window."""

import types
from itertools import pairwise
from types import SimpleNamespace

from amaranth.hdl import Array, Assert, Assume, Cat, Const, Cover, Module, Mux, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect

from gradloom.rtl.sequencer import program_window
from gradloom.verif.formal.run import planted_bug
from gradloom.verif.formal.statements import held, past

__all__ = ["FetchSpec", "small_fetch"]

_REQUESTS = 3
"""Requests that the memory holds."""
_SPAN = 40
"""Bytes between a jump's ends, at most."""
_PATIENCE = 4


def small_fetch(*changes: str) -> types.ModuleType:
    """A copy of the module with a FIFO of two chunks, and a bug as of :func:`gradloom.verif.formal.run.planted_bug`."""
    depth = "import FETCH_AHEAD, FETCH_CHUNK\n", "import FETCH_CHUNK\nFETCH_AHEAD = 32\n"
    return planted_bug("gradloom.rtl.sequencer.program_fetch", *depth, *changes)


class FetchSpec(wiring.Component):
    """The window shows the words from the place of the last jump on, in order, none twice and none left out, up to its limit and no
    further, whatever was under way before. Requests stay between the ends of the jump, of which whole beats are read, and
    cross no multiple of 64; one that waits is held. For bounded checks.

    A word of this memory, 4 KiB, holds its own address.

    Parameters
    ----------
    beat : :class:`int`
        Bytes of a beat, at least 4.
    cover : :class:`bool`
        Reaches instead: words of two jumps, the second made while answers to the first are under way; a jump's last word.
    """

    def __init__(self, fetch: types.ModuleType | None = None, window: types.ModuleType = program_window, *, beat: int,
                 cover: bool = False) -> None:
        self.fetch, self.window, self.beat, self.cover = fetch or small_fetch(), window, beat, cover
        super().__init__({"jump": In(1), "address": In(12), "limit": In(12), "take": In(1), "accept": In(1), "answer": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.beat
        m.submodules.fetch = fetch = self.fetch.ProgramFetch(SimpleNamespace(beat_bytes=beat, group=beat // 2))
        m.submodules.window = window = self.window.ProgramWindow()
        connect(m, fetch.pairs, window.pairs)
        room = Signal()
        request = fetch.request
        m.d.comb += [
            fetch.jump.eq(self.jump), fetch.address.eq(self.address), fetch.limit.eq(self.limit), window.clear.eq(self.jump),
            window.take.eq(self.take), request.ready.eq(self.accept & room), Assume(~ResetSignal()),
            Assume((self.address[:3] == 0) & (self.limit[:3] == 0) & (self.address < self.limit)),
            Assume(self.limit - self.address <= _SPAN),
        ]
        held(m, request.valid, request.ready, [request.p.address, request.p.beats], "request")

        place, floor, ceiling = Signal(32), Signal(32), Signal(32)
        with m.If(self.jump):
            up = self.limit + beat - 1
            m.d.sync += [place.eq(self.address), floor.eq(self.address & -beat), ceiling.eq(up & -beat)]
        with m.Elif(self.take & window.valid):
            m.d.sync += place.eq(place + 8)
        m.d.comb += [
            *(Assert(~window.valid | (window.ahead[n] == place + 4 * n)) for n in range(2)),
            *(Assert(~window.full | (window.ahead[n] == place + 4 * n)) for n in range(2, 4)),
            Assert(~window.valid | (place + 8 <= ceiling)), Assert(~window.full | (place + 16 <= ceiling)),
            Assert(~window.full | window.valid),
        ]
        appears = request.valid & ~past(m, request.valid & ~request.ready, "request_old")
        end = request.p.address + request.p.beats * beat
        with m.If(appears):
            m.d.comb += [Assert(request.p.beats != 0), Assert(request.p.address >= floor), Assert(end <= ceiling),
                         Assert(request.p.address[6:] == (end - 1)[6:32])]

        # The memory: requests in order, a beat at a time.
        queued = Signal(range(_REQUESTS + 1))
        at = [Signal(12, name=f"at{n}") for n in range(_REQUESTS)]
        left = [Signal(17, name=f"left{n}") for n in range(_REQUESTS)]
        response = fetch.response
        held(m, response.valid, response.ready, [], "answer", Assume)
        data = Cat(*((at[0] + 4 * n)[:12].as_unsigned() | Const(0, 32) for n in range(beat // 4)))
        m.d.comb += [room.eq(queued != _REQUESTS), response.valid.eq(self.answer & (queued != 0)), response.p.data.eq(data),
                     response.p.last.eq(left[0] == 1)]
        moved = response.valid & response.ready
        gone = moved & response.p.last
        new = Signal(range(_REQUESTS + 1))
        m.d.comb += new.eq(queued - gone)
        with m.If(moved):
            m.d.sync += [at[0].eq(at[0] + beat), left[0].eq(left[0] - 1)]
        with m.If(gone):
            m.d.sync += [older.eq(newer) for kept in (at, left) for older, newer in pairwise(kept)]
        with m.If(request.valid & request.ready):
            m.d.sync += [Array(at)[new].eq(request.p.address), Array(left)[new].eq(request.p.beats)]
        m.d.sync += queued.eq(new + (request.valid & request.ready))

        stuck = Signal(4)
        quiet = (queued == 0) & ~request.valid & ~window.valid & (place < ceiling) & ~self.jump
        m.d.sync += stuck.eq(Mux(quiet, stuck + 1, 0))
        m.d.comb += Assert(stuck < _PATIENCE)
        if self.cover:
            again, jumped = Signal(), Signal()
            m.d.sync += [jumped.eq(jumped | self.jump), again.eq(again | (self.jump & jumped & (queued != 0)))]
            m.d.comb += [Cover(again & window.full & (place != floor)), Cover(window.valid & (place + 8 == ceiling))]
        return m
