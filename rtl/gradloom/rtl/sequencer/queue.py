"""The command queue of one engine."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.isa import HEADER_FIELDS, MAX_WORDS, SEMAPHORES, pairs
from gradloom.rtl.command import HEAD_WORDS, CommandPort
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.sequencer.tails import Tails

__all__ = ["CommandQueue"]


def _header(words: list[Signal], name: str) -> Value:
    field = next(field for field in HEADER_FIELDS if field.name == name)
    return words[field.word][field.lsb:field.lsb + field.width]


class CommandQueue(wiring.Component):
    """FIFO of command words, and the collected next command beside those that run.

    The next command is collected while the engine runs previous ones. With its semaphores at hand it starts in the
    cycle after ``done``, so back-to-back commands cost the engine one cycle. With ``in_flight`` above 1 it starts as soon
    as the engine is ``free``, and the queue remembers what the commands under way shall signal. The lengths of the
    commands have been checked by the Sequencer.

    The first words of a command, which an engine sees at once, are registers, twice: those of the next command and those of
    the one that has started last, or will be next. All words of longer ones also go to a memory, from which the engine reads
    them.

    Parameters
    ----------
    depth : :class:`int`
        Words of the FIFO, which holds them in pairs.
    words : :class:`int`
        Words with fields of the engine's commands (:func:`gradloom.rtl.command.head_words`); ``port.cmd`` is 0 beyond.
    in_flight : :class:`int`
        Commands that the engine may have under way.
    tails : :class:`Tails`, optional
        Keeps the words of commands that may be longer.

    Members
    -------
    i : ``In(stream.Signature(64))``
        Per command: its byte offset in the program, then its words, two at a time.
    port : ``Out(CommandPort())``, with ``tails`` its pairs of words, too
    request, needs, grant : ``Out(1)``, ``Out(32)``, ``In(1)``
        Request to :class:`gradloom.rtl.sequencer.semaphores.Semaphores`; the request stands until the grant.
    signal : ``Out(32)``
        Semaphores that the finished command signals, in the cycle of ``done``.
    idle : ``Out(1)``
        No command is queued, collected or running.
    busy : ``Out(1)``
        A command is under way (from ``start`` to ``done``, both included).
    waiting : ``Out(1)``
        The engine is idle and its next command lacks a semaphore.
    tag, offset : ``Out(16)``, ``Out(32)``
        Tag and program offset of the oldest command under way.
    fault : ``Out(8)``
        The engine's fault code, non-zero for one cycle.
    """

    def __init__(self, *, depth: int, words: int = HEAD_WORDS, in_flight: int = 1, tails: Tails | None = None) -> None:
        self.depth = depth
        self.words = words
        self.in_flight = in_flight
        self.tails = tails
        super().__init__({
            "i": In(stream.Signature(64)),
            "port": Out(CommandPort(tail=tails is not None)),
            "request": Out(1),
            "needs": Out(SEMAPHORES),
            "grant": In(1),
            "signal": Out(SEMAPHORES),
            "idle": Out(1),
            "busy": Out(1),
            "waiting": Out(1),
            "tag": Out(16),
            "offset": Out(32),
            "fault": Out(8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=64, depth=self.depth // 2)
        connect(m, flipped(self.i), fifo.w_stream)

        next_words = [Signal(32, name=f"next{n}", reset_less=True) for n in range(self.words)]
        offset, next_offset = Signal(32, reset_less=True), Signal(32, reset_less=True)  # of what comes, of what is collected
        count = Signal(range(pairs(MAX_WORDS) + 1))
        full = Signal()
        length = _header(next_words, "length")
        words = [Signal(32, name=f"word{n}", reset_less=True) for n in range(self.words)]
        running = Signal()

        take = Signal()
        last = Signal()
        pair = fifo.r_stream.payload
        # What is taken does not depend on a grant of the same cycle, which comes late: the next offset has a place of its own.
        arrives = take & (count != 0)
        m.d.comb += [
            take.eq(fifo.r_stream.valid & (~full | (count == 0))),
            fifo.r_stream.ready.eq(take),
            last.eq((count == (length + 1) >> 1) & (count > 1)),
        ]
        with m.If(self.grant):
            m.d.sync += full.eq(0)
        with m.If(take):
            m.d.sync += count.eq(Mux(last, 0, count + 1))
            with m.If(count == 0):
                m.d.sync += offset.eq(pair)
        with m.If(arrives):
            for n in range(pairs(self.words)):
                with m.If(count == n + 1):
                    m.d.sync += Cat(next_words[2 * n:2 * n + 2]).eq(pair)
            with m.If(last):
                m.d.sync += [full.eq(1), next_offset.eq(offset)]

        if self.tails is not None:
            m.submodules.tails = tails = self.tails
            m.d.comb += [
                tails.put.eq(arrives), tails.pair.eq(count - 1), tails.words.eq(pair), tails.next.eq(self.grant),
                self.port.slot.eq(tails.slot), tails.at.eq(self.port.tail_at), self.port.tail.eq(tails.read),
            ]

        finished = running & self.port.done
        m.d.comb += [
            self.needs.eq(_header(next_words, "wait")),
            self.waiting.eq(full & ~running & ~self.grant),
            self.busy.eq(running),
            self.idle.eq(~running & ~full & (count == 0) & (fifo.level == 0)),
            self.fault.eq(self.port.fault),
        ]
        m.d.sync += self.port.start.eq(self.grant)
        # From the request on, not with the grant, which comes late and has more to do: nobody looks at them before ``start``.
        with m.If(self.request):
            m.d.sync += [target.eq(source) for target, source in zip(words, next_words, strict=True)]
        for n, source in enumerate(words):
            m.d.comb += self.port.cmd[32 * n:32 * n + 32].eq(source)

        if self.in_flight == 1:
            m.d.comb += [
                self.request.eq(full & (~running | self.port.done)),
                self.signal.eq(Mux(finished, _header(words, "signal"), 0)),
                self.tag.eq(_header(words, "tag")),
            ]
            with m.If(self.grant):
                m.d.sync += [running.eq(1), self.offset.eq(next_offset)]
            with m.Elif(finished):
                m.d.sync += running.eq(0)
        else:
            under_way = Fifo(StructLayout({"signal": SEMAPHORES, "tag": 16, "offset": 32}), self.in_flight)
            m.submodules.under_way = under_way
            m.d.comb += [
                # In the cycle of a start the engine cannot yet say that it is busy.
                self.request.eq(full & self.port.free & ~self.port.start & under_way.i.ready),
                under_way.i.valid.eq(self.grant),
                under_way.i.p.signal.eq(_header(next_words, "signal")),
                under_way.i.p.tag.eq(_header(next_words, "tag")),
                under_way.i.p.offset.eq(next_offset),
                running.eq(under_way.o.valid),
                under_way.o.ready.eq(self.port.done),
                self.signal.eq(Mux(finished, under_way.o.p.signal, 0)),
                self.tag.eq(under_way.o.p.tag),
                self.offset.eq(under_way.o.p.offset),
            ]
        return m
