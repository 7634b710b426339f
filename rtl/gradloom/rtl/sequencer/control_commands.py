"""The Sequencer's own commands: the states that execute base registers, loops, hyperparameters, seeds and exponents."""

from collections.abc import Callable
from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring

from gradloom.contracts.isa import COMMANDS, SHIFT_FIELDS, Engine, Opcode
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.command import decode
from gradloom.rtl.sequencer.program_window import AHEAD_WORDS, Program
from gradloom.rtl.tensor_ports import ScaleOp

__all__ = ["ControlCommands"]

TID_RATE, TID_DECAY = 1, 3
"""Exponents that LDHYP sets: the learning rate's shift and the weight decay's shift."""
assert all(encoding.words <= AHEAD_WORDS + 1 for code, encoding in COMMANDS.items() if code >> 4 == Engine.SEQ)


class ControlCommands:
    """States of the Sequencer's FSM from ``ACQUIRE``, where it waits for a command's semaphores, to ``SIGNAL``, where it raises
    others, behind which comes ``OPCODE``; and ``END``.

    Parameters
    ----------
    m : :class:`amaranth.hdl.Module`
        The Sequencer's, outside its FSM.
    ports : :class:`amaranth.lib.wiring.Component`
        The Sequencer.
    tensors : :class:`int`
        Tensor numbers that there are.
    words : list of :class:`amaranth.hdl.Signal`
        The command, AHEAD_WORDS + 1 of 32 bits. The last one is read here if the command has it.
    count : :class:`amaranth.hdl.Signal`
        Words of the command that are taken: AHEAD_WORDS at ``ACQUIRE``.
    fail : callable
        In a state, ends the program with an error.
    """

    def __init__(self, m: Module, ports: wiring.Component, program: Program, *, tensors: int, words: list[Signal], count: Signal,
                 fail: Callable[[ErrorCode], None]) -> None:
        self.ports, self.program, self.tensors = ports, program, tensors
        self.words, self.count, self.fail = words, count, fail
        self.opcode, self.size = words[0][:8], words[0][8:16]
        command = Cat(words)
        self.ldhyp = decode(Opcode.LDHYP, command)
        self.seed = decode(Opcode.SEED, command)
        self.scale = decode(Opcode.SCALE, command)
        self.expset = decode(Opcode.EXPSET, command)
        self.loop = decode(Opcode.LOOP, command)
        self.setbase = decode(Opcode.SETBASE, command)
        # A word that is read on the way: the hyperparameters, or one of a shift list.
        self.entry = Signal(32)
        self.exponent = Signal(signed(16))
        # Of LDHYP and ADDBASE: the word that comes last is added to what has been there since the command was taken, the base two
        # cycles before OPERANDS. Of LOOP: its target is compared long before EXECUTE.
        selected, self.row, self.beyond = Signal(32), Signal(32), Signal()
        self.selected, self.entry_address, self.added = selected, Signal(32), Signal(32)
        # Exponents and seeds are asked for in different states: one choice of a tensor number serves both units.
        m.d.comb += [ports.bases.at[1].eq(self.ldhyp.breg), ports.seed.tid.eq(ports.scale.tid)]
        m.d.sync += [selected.eq(ports.bases.read[1]), self.row.eq(selected + (ports.step << 4)),
                     self.beyond.eq(self.loop.target >= program.length)]
        # Comparing takes long and what reads ahead starts at once: in the cycle after, before it asks for anything, and even if the
        # program is halted then, it is sent away from an address outside the window.
        self.refused = Signal(reset_less=True)
        m.d.sync += self.refused.eq(0)
        with m.If(self.refused):
            program.read(m, 0, 0)

    def add_states(self, m: Module) -> None:
        """To the FSM of which ``m`` is in the midst."""
        self._operands(m)
        self._execute(m)
        with m.State("END"), m.If(self.ports.idle.all()):
            m.d.comb += self.ports.done.eq(1)
            m.next = "HALTED"
        self._hyperparameters(m)
        self._seed_and_scale(m)
        self._exponent(m)
        with m.State("SIGNAL"):
            m.d.comb += self.ports.sem_signal.eq(self.words[2])
            m.next = "OPCODE"

    def _operands(self, m: Module) -> None:
        ports, window = self.ports, self.program.window
        with m.State("ACQUIRE"):
            m.d.comb += [ports.sem_request.eq(1), ports.waiting.eq(~ports.sem_grant)]
            with m.If(ports.sem_grant):
                m.next = "OPERANDS"
        with m.State("OPERANDS"):
            m.d.sync += self.exponent.eq(0)
            with m.If((self.size <= AHEAD_WORDS) | (self.opcode == Opcode.EXPSET)):
                m.next = "EXECUTE"
            with m.Else():
                m.d.comb += window.take.eq(1)
                with m.If(window.valid):
                    m.d.sync += [self.words[AHEAD_WORDS].eq(window.ahead[0]), self.entry_address.eq(window.ahead[0] + self.row),
                                 self.added.eq(window.ahead[0] + self.selected)]
                    m.next = "EXECUTE"

    def _execute(self, m: Module) -> None:
        """What a command does at once, or the state in which it goes on."""
        ports, program, setbase, loop = self.ports, self.program, self.setbase, self.loop
        with m.State("EXECUTE"):
            m.next = "SIGNAL"
            m.d.comb += [ports.bases.index.eq(setbase.breg), ports.bases.value.eq(setbase.value)]
            with m.Switch(self.opcode):
                with m.Case(Opcode.END):
                    m.next = "END"
                with m.Case(Opcode.BARRIER), m.If(~ports.idle.all()):
                    m.next = "EXECUTE"
                with m.Case(Opcode.SETBASE):
                    m.d.comb += ports.bases.write.eq(1)
                with m.Case(Opcode.ADDBASE):
                    m.d.comb += [ports.bases.write.eq(1), ports.bases.value.eq(self.added)]
                with m.Case(Opcode.LOOP):
                    with m.If((loop.target[:3] != 0) | self.beyond):
                        self.fail(ErrorCode.ILLEGAL_FIELD)
                    with m.Else():
                        m.d.comb += [ports.loop.eq(1), ports.seed.begin.eq(1)]
                        with m.If(~ports.last_step):
                            program.go_to(m, loop.target)
                            m.d.sync += program.position.eq(loop.target)
                with m.Case(Opcode.LDHYP):
                    # A multiple of 8, so that the 8 bytes are inside if whole ones of the window lie behind it.
                    address = self.entry_address
                    m.next = "HYPER"
                    with m.If(address[:3] != 0):
                        self.fail(ErrorCode.ILLEGAL_FIELD)
                    with m.Else():
                        program.read(m, address, address + 8)
                        m.d.sync += self.refused.eq((address < ports.window_base) | (address[3:] >= ports.window_limit[3:]))
                with m.Case(Opcode.SEED):
                    m.next = "SEED"
                    with m.If(self.seed.tid >= self.tensors):
                        self.fail(ErrorCode.ILLEGAL_FIELD)
                with m.Case(Opcode.SCALE):
                    m.next = "SCALE"
                    with m.If((self.scale.tid >= self.tensors) | (self.scale.target >= self.tensors)):
                        self.fail(ErrorCode.ILLEGAL_FIELD)
                with m.Case(Opcode.EXPSET):
                    m.next = "TERM"
                    with m.If(self.expset.target >= self.tensors):
                        self.fail(ErrorCode.ILLEGAL_FIELD)

    def _hyperparameters(self, m: Module) -> None:
        """Of LDHYP: the word that was asked for goes out, two exponents are set, and the program goes on where it was."""
        ports, program, entry = self.ports, self.program, self.entry
        window, word = program.window, program.window.ahead[0]
        with m.State("HYPER"):
            m.d.comb += [window.take.eq(1), ports.hyper_write.eq(window.valid), ports.hyper_word.eq(word)]
            with m.If(window.valid):
                m.d.sync += entry.eq(word)
                program.go_to(m, program.position)
                m.next = "RATE"
            with m.If(self.refused):
                self.fail(ErrorCode.READ_WINDOW)
        with m.State("RATE"):
            m.d.comb += [ports.scale.start.eq(1), ports.scale.op.eq(ScaleOp.SET), ports.scale.target.eq(TID_RATE),
                         ports.scale.value.eq(entry[8:16].as_signed())]
            with m.If(ports.scale.done):
                m.next = "DECAY"
        with m.State("DECAY"):
            m.d.comb += [ports.scale.start.eq(1), ports.scale.op.eq(ScaleOp.SET), ports.scale.target.eq(TID_DECAY),
                         ports.scale.value.eq(entry[24:])]
            with m.If(ports.scale.done):
                m.next = "SIGNAL"

    def _seed_and_scale(self, m: Module) -> None:
        ports, scale = self.ports, self.scale
        with m.State("SEED"):
            m.d.comb += [ports.seed.start.eq(1), ports.scale.tid.eq(self.seed.tid)]
            with m.If(ports.seed.done):
                m.next = "SIGNAL"
        with m.State("SCALE"):
            m.d.comb += [ports.scale.start.eq(1), ports.scale.op.eq(ScaleOp.SCALE), ports.scale.tid.eq(scale.tid),
                         ports.scale.target.eq(scale.target), ports.scale.f.eq(scale.f)]
            with m.If(ports.scale.done):
                m.next = "SIGNAL"

    def _exponent(self, m: Module) -> None:
        """Of EXPSET: its list, one term after the other, then their sum to the exponent."""
        ports, window, count, exponent, expset = self.ports, self.program.window, self.count, self.exponent, self.expset
        term = SimpleNamespace(**{field.name: self.entry[field.lsb:][:field.width] for field in SHIFT_FIELDS})
        with m.State("TERM"):
            with m.If(count == self.size):
                m.d.comb += [ports.scale.start.eq(1), ports.scale.op.eq(ScaleOp.SET), ports.scale.target.eq(expset.target),
                             ports.scale.value.eq(exponent), ports.scale.clear.eq(expset.clear)]
                with m.If(ports.scale.done):
                    m.next = "SIGNAL"
            with m.Else():
                m.d.comb += window.take.eq(count[0] | (count + 1 == self.size))
                with m.If(window.valid):
                    m.d.sync += [self.entry.eq(Mux(count[0], window.ahead[1], window.ahead[0])), count.eq(count + 1)]
                    m.next = "ADD"
        with m.State("ADD"):
            m.d.comb += [ports.scale.start.eq(1), ports.scale.op.eq(ScaleOp.ADD), ports.scale.tid.eq(term.tid),
                         ports.scale.value.eq(exponent + term.const.as_signed()), ports.scale.clear.eq(term.neg)]
            with m.If(term.tid >= self.tensors):
                self.fail(ErrorCode.ILLEGAL_FIELD)
            with m.Elif(ports.scale.done):
                m.d.sync += exponent.eq(ports.scale.result)
                m.next = "TERM"
