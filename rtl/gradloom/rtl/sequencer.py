"""Reads the program, executes the Sequencer's own commands and gives every engine its commands."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, ValueLike, signed
from amaranth.lib import stream, wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.rtl.channels import Unit, unit_of, units
from gradloom.rtl.command import decode
from gradloom.rtl.config import Config
from gradloom.rtl.isa import (
    COMMANDS,
    MAX_WORDS,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SEMAPHORES,
    SHIFT_FIELDS,
    Dest,
    Engine,
    Field,
    Opcode,
    Source,
    pairs,
)
from gradloom.rtl.program_fetch import ProgramFetch
from gradloom.rtl.regmap import ErrorCode
from gradloom.rtl.scale_unit import ScaleOp

__all__ = ["Sequencer"]

HEADER_BYTES = 16
TID_RATE, TID_DECAY = 1, 3
"""Exponents that LDHYP sets: the learning rate's shift and the weight decay's shift."""
HEAD_WORDS = 4
"""Words of a command, two pairs, that are there before any of them is taken: an engine's queue depends on them."""
assert all(pairs(encoding.words) >= HEAD_WORDS // 2 for encoding in COMMANDS.values())
assert all(encoding.words <= HEAD_WORDS + 1 for code, encoding in COMMANDS.items() if code >> 4 == Engine.SEQ)


def _field(opcode: Opcode, name: str) -> Field:
    return next(field for field in COMMANDS[opcode].fields if field.name == name)


def _transfer_field(name: str) -> Field:
    """A field that LOAD and STORE have in the same place."""
    load, store = _field(Opcode.LOAD, name), _field(Opcode.STORE, name)
    assert (load.word, load.lsb, load.width) == (store.word, store.lsb, store.width)
    return load


_BREG, _OFFSET = _transfer_field("breg"), _transfer_field("offset")
assert _BREG.word < HEAD_WORDS and not _OFFSET.word % 2


class _Window(wiring.Component):
    """The next two pairs of words of the program side by side, so that a command is checked and routed before any word is taken.

    Members
    -------
    pairs : ``In(stream.Signature(64))``
        Words of the program.
    clear : ``In(1)``
        Forget all of them; the pair of this cycle, too.
    ahead : ``Out(ArrayLayout(32, HEAD_WORDS))``
        The oldest first.
    valid, full : ``Out(1)``
        The first two words are there; all of them are.
    take : ``In(1)``
        The first two words are taken, if ``valid``.
    """

    def __init__(self) -> None:
        super().__init__({"pairs": In(stream.Signature(64)), "clear": In(1), "ahead": Out(ArrayLayout(32, HEAD_WORDS)),
                          "valid": Out(1), "full": Out(1), "take": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = [Signal(64, name=f"held{n}", reset_less=True) for n in range(HEAD_WORDS // 2)]
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
        Non-zero in one cycle: :class:`gradloom.rtl.regmap.ErrorCode`.
    offset, tag : ``Out(32)``, ``Out(16)``
        Byte offset and tag of the command at hand.
    waiting, progress : ``Out(1)``
        A Sequencer command waits for a semaphore; words were taken from the program.
    request, response
        Client of the read manager, as in :class:`gradloom.rtl.program_fetch.ProgramFetch`.
    queue : n ``Out(stream.Signature(64))``, idle : ``In(n)``
        The engines' queues, in the order of :func:`gradloom.rtl.channels.units`.
    sem_request : ``Out(1)``, sem_wait : ``Out(32)``, sem_grant : ``In(1)``, sem_signal : ``Out(32)``
        See :class:`gradloom.rtl.semaphores.Semaphores`.
    base : ``In(ArrayLayout(32, 8))``; base_write : ``Out(1)``, base_index : ``Out(3)``, base_value : ``Out(32)``
    step : ``In(32)``, last_step : ``In(1)``, loop : ``Out(1)``
        ``loop`` ends a step: ``step`` counts up; ``last_step`` says that no step is left after this one.
    hyper_write : ``Out(1)``, hyper : ``Out(32)``
        First word of this step's entry of the hyperparameter table.
    seed_begin, seed_start : ``Out(1)``, seed_done : ``In(1)``
        See :class:`gradloom.rtl.seed_unit.SeedUnit`; its tensor number is ``scale_tid``.
    scale_start, scale_op, scale_tid, scale_target, scale_f, scale_value, scale_clear, scale_done, scale_result
        See :class:`gradloom.rtl.scale_unit.ScaleUnit`.
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
            "base": In(ArrayLayout(32, 8)), "base_write": Out(1), "base_index": Out(3), "base_value": Out(32),
            "step": In(32), "last_step": In(1), "loop": Out(1),
            "hyper_write": Out(1), "hyper": Out(32),
            "seed_begin": Out(1), "seed_start": Out(1), "seed_done": In(1),
            "scale_start": Out(1), "scale_op": Out(ScaleOp), "scale_tid": Out(11), "scale_target": Out(11),
            "scale_f": Out(5), "scale_value": Out(signed(16)), "scale_clear": Out(1),
            "scale_done": In(1), "scale_result": In(signed(16)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tensors = self.config.tensors
        m.submodules.fetch = fetch = self.fetch
        m.submodules.window = window = _Window()
        connect(m, fetch.request, flipped(self.request))
        connect(m, fetch.response, flipped(self.response))
        connect(m, fetch.pairs, window.pairs)
        word, valid, take = window.ahead[0], window.valid, window.take
        m.d.comb += [window.clear.eq(fetch.jump), self.progress.eq(valid & take)]

        length = Signal(32)
        position = Signal(32)
        place = Signal(32)
        m.d.comb += self.offset.eq(place)
        # 33 and 34 bits: no sum wraps, so a program beyond the window cannot pass for one inside.
        code_base = Signal(33)
        program_end = Signal(34)
        m.d.comb += [code_base.eq(self.program + HEADER_BYTES), program_end.eq(code_base + length)]

        words = [Signal(32, name=f"command{n}") for n in range(HEAD_WORDS + 1)]
        command = Cat(words)
        opcode, size = words[0][:8], words[0][8:16]
        count = Signal(8)
        m.d.comb += [self.tag.eq(words[0][16:]), self.sem_wait.eq(words[1])]

        def fail(code: ErrorCode) -> None:
            m.d.comb += self.error.eq(code)
            m.next = "HALTED"

        def jump(address: ValueLike, limit: ValueLike) -> None:
            m.d.comb += [fetch.jump.eq(1), fetch.address.eq(address), fetch.limit.eq(limit)]

        known = Signal()
        with m.Switch(word[:8]):
            for code, encoding in COMMANDS.items():
                with m.Case(code):
                    most = MAX_WORDS if encoding.tail else encoding.words
                    m.d.comb += known.eq((word[8:16] >= encoding.words) & (word[8:16] <= most))
        left = Signal(32)
        m.d.comb += left.eq(length - position)

        ldhyp = decode(Opcode.LDHYP, command)
        seed = decode(Opcode.SEED, command)
        scale = decode(Opcode.SCALE, command)
        expset = decode(Opcode.EXPSET, command)
        loop = decode(Opcode.LOOP, command)
        setbase = decode(Opcode.SETBASE, command)
        target = self._route(m, opcode, words)

        # A word that is read on the way: the hyperparameters, or one of a shift list.
        entry = Signal(32)
        term = SimpleNamespace(**{field.name: entry[field.lsb:][:field.width] for field in SHIFT_FIELDS})
        exponent = Signal(signed(16))
        entry_address = Signal(33)
        m.d.comb += entry_address.eq((Array(self.base)[ldhyp.breg] + ldhyp.offset + (self.step << 4))[:32])

        with m.If(~self.halt), m.FSM():
            with m.State("IDLE"), m.If(self.start):
                m.next = "START"
            with m.State("START"):
                with m.If((self.program[:6] != 0) | (self.program < self.window_base)
                          | (code_base > self.window_limit)):
                    fail(ErrorCode.PROGRAM_ADDRESS)
                with m.Else():
                    m.d.comb += self.seed_begin.eq(1)
                    jump(self.program, code_base)
                    m.next = "HEADER"
            with m.State("HEADER"), m.If(window.full):
                m.d.sync += length.eq(window.ahead[2])
                m.next = "BEGIN"
                with m.If((word != PROGRAM_MAGIC) | (window.ahead[1] != PROGRAM_VERSION) | (window.ahead[2][:3] != 0)
                          | (window.ahead[3] != self.config.digest())):
                    fail(ErrorCode.PROGRAM_HEADER)
            with m.State("BEGIN"):
                with m.If(program_end > self.window_limit):
                    fail(ErrorCode.PROGRAM_ADDRESS)
                with m.Else():
                    jump(code_base, program_end)
                    m.next = "OPCODE"

            with m.State("OPCODE"):
                m.d.comb += self.offset.eq(position)
                m.d.sync += place.eq(position)
                with m.If(left == 0):
                    fail(ErrorCode.MALFORMED_COMMAND)
                with m.Elif(valid):
                    m.d.comb += self.tag.eq(word[16:])
                    with m.If(~known | (Cat(Const(0, 2), word[8:16]) > left)):
                        fail(ErrorCode.MALFORMED_COMMAND)
                    with m.Elif(window.full):
                        m.d.sync += [*(words[n].eq(window.ahead[n]) for n in range(HEAD_WORDS)), count.eq(0),
                                     position.eq(position + Cat(Const(0, 3), pairs(word[8:16])))]
                        m.next = "FORWARD"
                        with m.If(word[4:8] == Engine.SEQ):
                            m.d.comb += take.eq(1)
                            m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += take.eq(1)
                m.d.sync += count.eq(HEAD_WORDS)
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
                        m.d.comb += payload[:32].eq(Array(self.base)[words[_BREG.word][_BREG.lsb:][:_BREG.width]] + word)
                for n, queue in enumerate(self.queue):
                    m.d.comb += queue.payload.eq(payload)
                    with m.If(target == n):
                        m.d.comb += [queue.valid.eq(offered), take.eq(queue.ready & ~begin)]
                        with m.If(offered & queue.ready):
                            m.d.sync += count.eq(count + 1)
                            with m.If(count == pairs(size)):
                                m.next = "OPCODE"

            with m.State("ACQUIRE"):
                m.d.comb += [self.sem_request.eq(1), self.waiting.eq(~self.sem_grant)]
                with m.If(self.sem_grant):
                    m.next = "OPERANDS"
            with m.State("OPERANDS"):
                m.d.sync += exponent.eq(0)
                with m.If((size <= HEAD_WORDS) | (opcode == Opcode.EXPSET)):
                    m.next = "EXECUTE"
                with m.Else():
                    m.d.comb += take.eq(1)
                    with m.If(valid):
                        m.d.sync += words[HEAD_WORDS].eq(word)
                        m.next = "EXECUTE"
            with m.State("EXECUTE"):
                m.next = "SIGNAL"
                m.d.comb += [self.base_index.eq(setbase.breg), self.base_value.eq(setbase.value)]
                with m.Switch(opcode):
                    with m.Case(Opcode.END):
                        m.next = "END"
                    with m.Case(Opcode.BARRIER), m.If(~self.idle.all()):
                        m.next = "EXECUTE"
                    with m.Case(Opcode.SETBASE):
                        m.d.comb += self.base_write.eq(1)
                    with m.Case(Opcode.ADDBASE):
                        m.d.comb += [self.base_write.eq(1),
                                     self.base_value.eq(Array(self.base)[setbase.breg] + setbase.value)]
                    with m.Case(Opcode.LOOP):
                        with m.If((loop.target[:3] != 0) | (loop.target >= length)):
                            fail(ErrorCode.ILLEGAL_FIELD)
                        with m.Else():
                            m.d.comb += [self.loop.eq(1), self.seed_begin.eq(1)]
                            with m.If(~self.last_step):
                                jump(code_base + loop.target, program_end)
                                m.d.sync += position.eq(loop.target)
                    with m.Case(Opcode.LDHYP):
                        with m.If(entry_address[:3] != 0):
                            fail(ErrorCode.ILLEGAL_FIELD)
                        with m.Elif((entry_address < self.window_base) | (entry_address + 8 > self.window_limit)):
                            fail(ErrorCode.READ_WINDOW)
                        with m.Else():
                            jump(entry_address, entry_address + 8)
                            m.next = "HYPER"
                    with m.Case(Opcode.SEED):
                        m.next = "SEED"
                        with m.If(seed.tid >= tensors):
                            fail(ErrorCode.ILLEGAL_FIELD)
                    with m.Case(Opcode.SCALE):
                        m.next = "SCALE"
                        with m.If((scale.tid >= tensors) | (scale.target >= tensors)):
                            fail(ErrorCode.ILLEGAL_FIELD)
                    with m.Case(Opcode.EXPSET):
                        m.next = "TERM"
                        with m.If(expset.target >= tensors):
                            fail(ErrorCode.ILLEGAL_FIELD)

            with m.State("END"), m.If(self.idle.all()):
                m.d.comb += self.done.eq(1)
                m.next = "HALTED"
            with m.State("HYPER"):
                m.d.comb += [take.eq(1), self.hyper_write.eq(valid), self.hyper.eq(word)]
                with m.If(valid):
                    m.d.sync += entry.eq(word)
                    jump(code_base + position, program_end)
                    m.next = "RATE"
            with m.State("RATE"):
                m.d.comb += [self.scale_start.eq(1), self.scale_op.eq(ScaleOp.SET), self.scale_target.eq(TID_RATE),
                             self.scale_value.eq(entry[8:16].as_signed())]
                with m.If(self.scale_done):
                    m.next = "DECAY"
            with m.State("DECAY"):
                m.d.comb += [self.scale_start.eq(1), self.scale_op.eq(ScaleOp.SET), self.scale_target.eq(TID_DECAY),
                             self.scale_value.eq(entry[24:])]
                with m.If(self.scale_done):
                    m.next = "SIGNAL"
            with m.State("SEED"):
                m.d.comb += [self.seed_start.eq(1), self.scale_tid.eq(seed.tid)]
                with m.If(self.seed_done):
                    m.next = "SIGNAL"
            with m.State("SCALE"):
                m.d.comb += [self.scale_start.eq(1), self.scale_op.eq(ScaleOp.SCALE), self.scale_tid.eq(scale.tid),
                             self.scale_target.eq(scale.target), self.scale_f.eq(scale.f)]
                with m.If(self.scale_done):
                    m.next = "SIGNAL"
            with m.State("TERM"):
                with m.If(count == size):
                    m.d.comb += [self.scale_start.eq(1), self.scale_op.eq(ScaleOp.SET),
                                 self.scale_target.eq(expset.target), self.scale_value.eq(exponent),
                                 self.scale_clear.eq(expset.clear)]
                    with m.If(self.scale_done):
                        m.next = "SIGNAL"
                with m.Else():
                    m.d.comb += take.eq(count[0] | (count + 1 == size))
                    with m.If(valid):
                        m.d.sync += [entry.eq(Mux(count[0], window.ahead[1], word)), count.eq(count + 1)]
                        m.next = "ADD"
            with m.State("ADD"):
                m.d.comb += [self.scale_start.eq(1), self.scale_op.eq(ScaleOp.ADD), self.scale_tid.eq(term.tid),
                             self.scale_value.eq(exponent + term.const.as_signed()), self.scale_clear.eq(term.neg)]
                with m.If(term.tid >= tensors):
                    fail(ErrorCode.ILLEGAL_FIELD)
                with m.Elif(self.scale_done):
                    m.d.sync += exponent.eq(self.scale_result)
                    m.next = "TERM"
            with m.State("SIGNAL"):
                m.d.comb += self.sem_signal.eq(words[2])
                m.next = "OPCODE"
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
                with m.Case(unit):
                    to(unit)
        return target
