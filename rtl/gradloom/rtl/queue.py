"""The command queue of one engine."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.rtl.command import CommandPort
from gradloom.rtl.isa import COMMANDS, MAX_WORDS, SEMAPHORES, Engine

__all__ = ["CommandQueue", "command_words"]


def command_words(engine: Engine) -> int:
    """Words of the longest command of ``engine``."""
    return max(MAX_WORDS if command.tail else command.words
               for opcode, command in COMMANDS.items() if opcode >> 4 == engine)


class CommandQueue(wiring.Component):
    """FIFO of command words, and the collected next command beside the running one.

    The next command is collected while the engine runs the previous one. With its semaphores at hand it starts in the
    cycle after ``done``, so back-to-back commands cost the engine one cycle. ``port.cmd`` is stable from ``start`` to
    ``done``. The lengths of the commands have been checked by the Sequencer.

    Parameters
    ----------
    depth : :class:`int`
        Words of the FIFO.
    words : :class:`int`
        Words of the engine's longest command; ``port.cmd`` is 0 beyond.

    Members
    -------
    i : ``In(stream.Signature(32))``
        Per command: its byte offset in the program, then its words.
    port : ``Out(CommandPort())``
    request, needs, grant
        Request to :class:`gradloom.rtl.semaphores.Semaphores`; the request stands until the grant.
    signal : ``Out(16)``
        Semaphores that the finished command signals, in the cycle of ``done``.
    idle : ``Out(1)``
        No command is queued, collected or running.
    busy : ``Out(1)``
        A command runs (from ``start`` to ``done``, both included).
    waiting : ``Out(1)``
        The engine is idle and its next command lacks a semaphore.
    tag, offset : ``Out(16)``, ``Out(32)``
        Tag and program offset of the running command.
    fault : ``Out(8)``
        The engine's fault code, non-zero for one cycle.
    """

    def __init__(self, *, depth: int, words: int = MAX_WORDS) -> None:
        self.depth = depth
        self.words = words
        super().__init__({
            "i": In(stream.Signature(32)),
            "port": Out(CommandPort()),
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
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=32, depth=self.depth)
        connect(m, flipped(self.i), fifo.w_stream)

        next_words = [Signal(32, name=f"next{n}", reset_less=True) for n in range(self.words)]
        next_offset = Signal(32, reset_less=True)
        count = Signal(range(MAX_WORDS + 2))
        full = Signal()
        length = next_words[0][8:16]
        words = [Signal(32, name=f"word{n}", reset_less=True) for n in range(self.words)]
        running = Signal()

        take = Signal()
        last = Signal()
        word = fifo.r_stream.payload
        m.d.comb += [
            take.eq(fifo.r_stream.valid & (~full | self.grant)),
            fifo.r_stream.ready.eq(take),
            last.eq((count == length) & (count > 1)),
        ]
        with m.If(self.grant):
            m.d.sync += full.eq(0)
        with m.If(take):
            m.d.sync += count.eq(Mux(last, 0, count + 1))
            with m.If(count == 0):
                m.d.sync += next_offset.eq(word)
            for n, target in enumerate(next_words):
                with m.If(count == n + 1):
                    m.d.sync += target.eq(word)
            with m.If(last):
                m.d.sync += full.eq(1)

        finished = running & self.port.done
        m.d.comb += [
            self.request.eq(full & (~running | self.port.done)),
            self.needs.eq(next_words[1][:16]),
            self.waiting.eq(full & ~running & ~self.grant),
            self.signal.eq(Mux(finished, words[1][16:], 0)),
            self.busy.eq(running),
            self.idle.eq(~running & ~full & (count == 0) & (fifo.level == 0)),
            self.tag.eq(words[0][16:]),
            self.fault.eq(self.port.fault),
        ]
        with m.If(finished):
            m.d.sync += running.eq(0)
        m.d.sync += self.port.start.eq(self.grant)
        with m.If(self.grant):
            m.d.sync += [running.eq(1), self.offset.eq(next_offset)]
            m.d.sync += [target.eq(source) for target, source in zip(words, next_words, strict=True)]
        for n, source in enumerate(words):
            m.d.comb += self.port.cmd[32 * n:32 * n + 32].eq(source)
        return m
