"""Walks through the program, checks every command and gives every engine its own; the rest is executed by the Sequencer itself."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, unit_of, units
from gradloom.contracts.isa import (
    COMMANDS,
    MAX_WORDS,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SEMAPHORES,
    Dest,
    Engine,
    Field,
    Opcode,
    Source,
)
from gradloom.contracts.matrix_isa import commands_of
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.registers.register_ports import BaseAccess
from gradloom.rtl.sequencer.control_commands import ControlCommands
from gradloom.rtl.sequencer.program_fetch import ProgramFetch
from gradloom.rtl.sequencer.program_window import AHEAD_WORDS, HEADER_BYTES, Program, ProgramWindow
from gradloom.rtl.tensor_ports import ScaleRequest, SeedRequest

__all__ = ["Sequencer"]


def _field(opcode: Opcode, name: str) -> Field:
    return next(field for field in COMMANDS[opcode].fields if field.name == name)


def _transfer_field(name: str) -> Field:
    """A field that LOAD and STORE have in the same place."""
    load, store = _field(Opcode.LOAD, name), _field(Opcode.STORE, name)
    assert (load.word, load.lsb, load.width) == (store.word, store.lsb, store.width)
    return load


_BREG, _OFFSET = _transfer_field("breg"), _transfer_field("offset")
assert _BREG.word < AHEAD_WORDS <= _OFFSET.word and not _OFFSET.word % 2


class Sequencer(wiring.Component):
    """One program from header to END.

    Every command is checked (opcode, length, end of the program) before any word of it reaches a queue; its length is
    exact, or for one with a list at least the fixed part. A command of an engine is handed on at two words a cycle, behind its
    offset and a cycle in which it is checked. LOAD and STORE get the sum of base register and offset in their offset word, so base
    registers follow the order of the program.

    Members
    -------
    start : ``In(1)``
        Run the program at ``program``; only after a reset of the domain or at its first use.
    halt : ``In(1)``
        Freeze: nothing changes any more until the reset.
    program, window_base, window_limit : ``In(32)``
        Registers; the program must lie inside the window.
    done : ``Out(1)``
        One cycle: END was reached and every engine is idle.
    error : ``Out(8)``
        Non-zero in one cycle, the one after the fault: :class:`gradloom.contracts.regmap.ErrorCode`.
    offset, tag : ``Out(32)``, ``Out(16)``
        Byte offset and tag of the command at hand.
    waiting, progress : ``Out(1)``
        A Sequencer command waits for a semaphore; words were taken from the program.
    request, response
        Client of the read manager, as in :class:`gradloom.rtl.sequencer.program_fetch.ProgramFetch`.
    queue : n ``Out(stream.Signature(64))``, idle : ``In(n)``
        The engines' queues, in the order of :func:`gradloom.contracts.engines.units`.
    sem_request : ``Out(1)``, sem_wait : ``Out(32)``, sem_grant : ``In(1)``, sem_signal : ``Out(32)``
        See :class:`gradloom.rtl.sequencer.semaphores.Semaphores`.
    bases : ``Out(BaseAccess())``
        Base registers.
    step : ``In(32)``, last_step : ``In(1)``, loop : ``Out(1)``
        ``loop`` ends a step: ``step`` counts up; ``last_step`` says that no step is left after this one.
    hyper_write : ``Out(1)``, hyper_word : ``Out(32)``
        First word of this step's entry of the hyperparameter table.
    seed : ``Out(SeedRequest())``
        To :class:`gradloom.rtl.sequencer.seed_unit.SeedUnit`.
    scale : ``Out(ScaleRequest())``
        To :class:`gradloom.rtl.sequencer.scale_unit.ScaleUnit`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.units = units(config)
        self.fetch = ProgramFetch(config)
        super().__init__({
            "start": In(1), "halt": In(1),
            "program": In(32), "window_base": In(32), "window_limit": In(32),
            "done": Out(1), "error": Out(8), "offset": Out(32), "tag": Out(16), "waiting": Out(1), "progress": Out(1),
            "request": self.fetch.signature.members["request"],
            "response": self.fetch.signature.members["response"],
            "queue": Out(stream.Signature(64)).array(len(self.units)), "idle": In(len(self.units)),
            "sem_request": Out(1), "sem_wait": Out(SEMAPHORES), "sem_grant": In(1), "sem_signal": Out(SEMAPHORES),
            "bases": Out(BaseAccess()), "step": In(32), "last_step": In(1), "loop": Out(1),
            "hyper_write": Out(1), "hyper_word": Out(32), "seed": Out(SeedRequest()), "scale": Out(ScaleRequest()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fetch = fetch = self.fetch
        m.submodules.window = window = ProgramWindow()
        connect(m, fetch.request, flipped(self.request))
        connect(m, fetch.response, flipped(self.response))
        connect(m, fetch.pairs, window.pairs)
        word, valid, take = window.ahead[0], window.valid, window.take
        m.d.comb += [window.clear.eq(fetch.jump), self.progress.eq(valid & take)]

        place = Signal(32)
        m.d.comb += self.offset.eq(place)
        program = Program(m, fetch, window, self.program)
        position = program.position

        words = [Signal(32, name=f"command{n}") for n in range(AHEAD_WORDS + 1)]
        opcode, size = words[0][:8], words[0][8:16]
        count = Signal(8)
        m.d.comb += [self.tag.eq(words[0][16:]), self.sem_wait.eq(words[1])]

        # In the cycle after: what is compared comes late, and what the machine does with a fault is long. Offset and tag hold. It
        # is 0 a cycle after a reset began, without being reset: it is cleared always, and the wires of both would be one.
        fault = Signal(8, reset_less=True)
        m.d.sync += fault.eq(0)
        m.d.comb += self.error.eq(fault)

        def fail(code: ErrorCode) -> None:
            m.d.sync += fault.eq(code)
            m.next = "HALTED"

        known = Signal()
        with m.Switch(word[:8]):
            for code, encoding in commands_of(self.config).items():
                with m.Case(code):
                    most = MAX_WORDS if encoding.tail else encoding.words
                    m.d.comb += known.eq((word[8:16] >= encoding.words) & (word[8:16] <= most))
        # Registers of what is compared, or added to: all their operands hold for two cycles before.
        left, room, selected = Signal(32), Signal(33), Signal(32)
        outside = Signal()
        m.d.comb += self.bases.at[0].eq(words[_BREG.word][_BREG.lsb:][:_BREG.width])
        m.d.sync += [
            left.eq(program.length - position),
            room.eq(self.window_limit - program.base),
            outside.eq((self.program[:6] != 0) | (self.program < self.window_base)
                       | (self.program + HEADER_BYTES > self.window_limit)),
            selected.eq(self.bases.read[0]),
        ]

        target = self._route(m, opcode, words)
        own = ControlCommands(m, self, program, tensors=self.config.tensors, words=words, count=count, fail=fail)

        with m.If(~self.halt), m.FSM():
            with m.State("IDLE"), m.If(self.start):
                m.next = "START"
            with m.State("START"):
                with m.If(outside):
                    fail(ErrorCode.PROGRAM_ADDRESS)
                with m.Else():
                    m.d.comb += self.seed.begin.eq(1)
                    program.read(m, self.program, program.base)
                    m.next = "HEADER"
            with m.State("HEADER"), m.If(window.full):
                program.has(m, window.ahead[2])
                m.next = "BEGIN"
                with m.If((word != PROGRAM_MAGIC) | (window.ahead[1] != PROGRAM_VERSION) | (window.ahead[2][:3] != 0)
                          | (window.ahead[3] != self.config.digest())):
                    fail(ErrorCode.PROGRAM_HEADER)
            with m.State("BEGIN"):
                with m.If(program.length > room):
                    fail(ErrorCode.PROGRAM_ADDRESS)
                with m.Else():
                    program.read(m, program.base, program.end)
                    m.next = "OPCODE"

            with m.State("OPCODE"):
                m.d.comb += self.offset.eq(position)
                m.d.sync += place.eq(position)
                with m.If(left == 0):
                    fail(ErrorCode.MALFORMED_COMMAND)
                with m.Elif(valid):
                    m.d.comb += self.tag.eq(word[16:])
                    with m.If(~known | (Cat(Const(0, 2), word[8:16]) > left)):
                        m.d.sync += words[0].eq(word)  # its tag
                        fail(ErrorCode.MALFORMED_COMMAND)
                    with m.Elif(window.full):
                        m.d.sync += [*(words[n].eq(window.ahead[n]) for n in range(AHEAD_WORDS)), count.eq(0),
                                     position.eq(position + Cat(Const(0, 3), word[8:16] + 1 >> 1))]
                        m.next = "FORWARD"
                        with m.If(word[4:8] == Engine.SEQ):
                            m.d.comb += take.eq(1)
                            m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += take.eq(1)
                m.d.sync += count.eq(AHEAD_WORDS)
                m.next = "ACQUIRE"

            # The queue gets the command's offset, then its words: transfer n holds pair n - 1.
            with m.State("FORWARD"):
                payload = Signal(64)
                offered = Signal()
                begin = count == 0
                m.d.comb += [offered.eq(valid | begin), payload.eq(Cat(word, window.ahead[1]))]
                with m.Switch(count):
                    with m.Case(0):
                        m.d.comb += payload.eq(self.offset)
                    with m.Case(_OFFSET.word // 2 + 1), m.If((opcode == Opcode.LOAD) | (opcode == Opcode.STORE)):
                        m.d.comb += payload[:32].eq(selected + word)
                for n, queue in enumerate(self.queue):
                    m.d.comb += queue.payload.eq(payload)
                    with m.If(target == n):
                        m.d.comb += [queue.valid.eq(offered), take.eq(queue.ready & ~begin)]
                        with m.If(offered & queue.ready):
                            m.d.sync += count.eq(count + 1)
                            with m.If(count == (size + 1 >> 1)):
                                m.next = "OPCODE"

            own.add_states(m)
            with m.State("HALTED"):
                pass
        return m

    def _route(self, m: Module, opcode: Value, words: list[Signal]) -> Signal:
        """Number of the queue that the command in ``words`` goes to."""
        target = Signal(range(len(self.units)))

        def to(unit: Unit) -> None:
            m.d.comb += target.eq(self.units.index(unit))

        ways = _field(Opcode.LOAD, "way")
        way = words[ways.word][ways.lsb:][:ways.width]
        with m.Switch(opcode[4:]):
            for opcode_of, memories, name in ((Opcode.LOAD, Dest, "dest"), (Opcode.STORE, Source, "src")):
                field = _field(opcode_of, name)
                with m.Case(opcode_of >> 4):
                    to(Unit(opcode_of >> 4))
                    with m.Switch(words[field.word][field.lsb:][:field.width]):
                        for memory in memories:
                            with m.Case(memory):
                                to(unit_of(self.config, opcode_of, memory))
                                for n in range(1, 1 << ways.width if opcode_of == Opcode.LOAD else 1):
                                    with m.If(way == n):
                                        to(unit_of(self.config, opcode_of, memory, n))
            for unit in (Unit.CCORE, Unit.ACORE):
                if unit in self.units:
                    with m.Case(unit):
                        to(unit)
        return target
