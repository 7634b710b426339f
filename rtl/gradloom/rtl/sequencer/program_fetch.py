"""Reads the program from DRAM ahead of the Sequencer and splits its beats into pairs of words."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.pipeline import FETCH_AHEAD, FETCH_CHUNK
from gradloom.rtl.memory_path.axi import REQUEST, response_layout

__all__ = ["ProgramFetch"]

PAIR = 8
"""Bytes of a pair of words."""


class ProgramFetch(wiring.Component):
    """From a jump on, the words from ``address`` to ``limit`` in order, two at a time, read ahead as far as the FIFO holds.

    Requests are issued only for words that the FIFO has room for, so responses are always taken at the rate of two words
    a cycle. A jump empties the FIFO; responses to earlier requests are dropped as they come.

    Members
    -------
    jump : ``In(1)``, address, limit : ``In(32)``
        Go on at byte ``address`` up to ``limit`` (exclusive), both multiples of 8. No word of the old place is offered from
        the next cycle on. A beat that holds ``address`` or ``limit - 1`` is read whole.
    pairs : ``Out(stream.Signature(64))``
        Two words, the first one low.
    request : ``Out(stream.Signature(REQUEST))``
    response : ``In(stream.Signature(response_layout(config)))``
        In the order of the requests, ``last`` with the last beat of each.
    """

    def __init__(self, config: Config) -> None:
        self.beat_bytes = config.beat_bytes
        super().__init__({
            "jump": In(1), "address": In(32), "limit": In(32),
            "pairs": Out(stream.Signature(8 * PAIR)),
            "request": Out(stream.Signature(REQUEST)),
            "response": In(stream.Signature(response_layout(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.beat_bytes
        shift = beat.bit_length() - 1
        depth, chunk = 4 * FETCH_AHEAD // PAIR, FETCH_CHUNK // PAIR
        m.submodules.fifo = fifo = ResetInserter(self.jump)(SyncFIFOBuffered(width=8 * PAIR, depth=depth))
        connect(m, fifo.r_stream, flipped(self.pairs))

        place = Signal(33)
        end = Signal(33)
        room = Signal(range(depth + 1))
        chunk_end = Signal(33)
        m.d.comb += chunk_end.eq(Cat(Signal(6), (place >> 6) + 1))
        stop = Signal(33)
        # At most a chunk lies between: its few bits are all that is subtracted, and all that the splitter has to count.
        beats = Signal(range(FETCH_CHUNK // beat + 1))
        m.d.comb += [stop.eq(Mux(chunk_end < end, chunk_end, end)), beats.eq((stop - place) >> shift)]

        # Requests whose last beat has not come, and how many of them were made before the last jump.
        open_requests = Signal(range(depth))
        stale = Signal.like(open_requests)
        issue = Signal()
        finish = Signal()
        consume = Signal()
        m.d.comb += [
            issue.eq((place < end) & (room >= chunk) & (open_requests != depth - 1) & ~self.jump
                     & (~self.request.valid | self.request.ready)),
            finish.eq(self.response.valid & self.response.ready & self.response.p.last),
            consume.eq(self.pairs.valid & self.pairs.ready),
        ]
        open_next = Signal.like(open_requests)
        m.d.comb += open_next.eq(open_requests + issue - finish)
        m.d.sync += open_requests.eq(open_next)
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(issue):
            m.d.sync += [
                self.request.valid.eq(1),
                self.request.p.address.eq(place),
                self.request.p.beats.eq(beats),
                place.eq(stop),
            ]
        m.d.sync += room.eq(room + consume - Mux(issue, chunk, 0))
        with m.If(finish & (stale != 0)):
            m.d.sync += stale.eq(stale - 1)

        fill = Signal()
        m.d.comb += fill.eq(self.response.valid & (stale == 0))
        part = Signal(range(max(2, PAIR // beat, beat // PAIR)))
        if beat < PAIR:
            last = PAIR // beat - 1
            held = Signal(8 * (PAIR - beat))
            joined = Cat(held, self.response.p.data)
            m.d.comb += [fifo.w_data.eq(joined), fifo.w_en.eq(fill & (part == last)), self.response.ready.eq(1)]
            with m.If(fill):
                m.d.sync += [held.eq(joined[8 * beat:]), part.eq(Mux(part == last, 0, part + 1))]
        else:
            last = beat // PAIR - 1
            m.d.comb += [
                fifo.w_data.eq(self.response.p.data.word_select(part, 8 * PAIR)),
                fifo.w_en.eq(fill),
                self.response.ready.eq((stale != 0) | (part == last)),
            ]
            with m.If(fill):
                m.d.sync += part.eq(Mux(part == last, 0, part + 1))

        with m.If(self.jump):
            m.d.sync += [
                place.eq((self.address >> shift) << shift),
                end.eq(((self.limit + beat - 1) >> shift) << shift),
                room.eq(depth),
                stale.eq(open_next),
                part.eq(self.address[3:shift] if beat > PAIR else 0),
            ]
        return m
