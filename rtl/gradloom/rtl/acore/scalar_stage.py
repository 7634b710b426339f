"""Second stage of the A-Core: sets a command up, computes its scalars, and hands it to the lanes."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, FIRST_SHIFT_WORD, Opcode
from gradloom.contracts.microcode import (
    MICRO_BITS,
    MICRO_WORDS,
    Each,
    Kind,
    Register,
    ScalarDestination,
    ScalarOperand,
    Shift,
)
from gradloom.contracts.pipeline import dividers
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.acore.align import SHIFT_BITS, saturated
from gradloom.rtl.acore.apu import CONVERTER_SHIFT_BITS
from gradloom.rtl.acore.buffer_ports import ParameterWrite, SharedRead
from gradloom.rtl.acore.divider import divider_of
from gradloom.rtl.acore.micro_layout import MicroLayout
from gradloom.rtl.acore.plane_ports import GradientSums, PlaneScalarsRead
from gradloom.rtl.acore.scalars import Scalars
from gradloom.rtl.acore.shift_setup import ShiftSetup
from gradloom.rtl.acore.sweep import Prepared
from gradloom.rtl.acore.tail import TailReader
from gradloom.rtl.command import HEAD_BITS, TailPlace, decode
from gradloom.rtl.core_reads import PlaneSumRead
from gradloom.rtl.registers.register_ports import Hyperparameters
from gradloom.rtl.tensor_ports import ExponentRead, SeedRead

__all__ = ["ScalarStage"]


class ScalarStage(wiring.Component):
    """One command at a time: set-up (at most 20 cycles), beside it and behind it the LOAD and SCALAR microinstructions.

    They begin 3 cycles after the command's acceptance. A LOAD takes ``count`` cycles, a SCALAR one a value, a division 13 for every
    ``dividers`` channels; the next microinstruction is read meanwhile and follows without a gap, or one cycle later behind a single
    cycle. Only what waits for shift registers waits for the set-up's shifts. The results of the last SCALAR come 15 cycles after
    its last value, one later in the parameter buffer and 12 later from the dividers.

    Members
    -------
    valid, ready : ``In(1)``, ``Out(1)``
        A command is taken in a cycle in which both are high.
    cmd, slot, legal : ``In(HEAD_BITS)``, ``In(2)``, ``In(1)``
        With ``valid``: the command, where its words lie (:class:`gradloom.rtl.command.CommandPort`). One that is not legal passes
        with its fault.
    tail_at : ``Out(TailPlace)`` -> tail ``In(64)`` in the next cycle
        Reads shift list or microcode.
    o : ``Out(Prepared)``
    empty : ``In(1)``
        No command is behind this stage; UCODE and SOFTMAX wait for that.
    softmax_start, softmax_done : ``Out(1)``, ``In(1)``
    present : ``Out(HEAD_BITS)``
        The command that was taken.
    done, fault : ``Out(1)``, ``Out(8)``
        A UCODE command is done.
    micro_addr : ``Out(10)``, micro_grant ``In(1)`` -> micro_data ``In(96)``
        Read of the program memory, in the cycle after the grant.
    micro_we, micro_waddr, micro_word : ``Out(3)``, ``Out(10)``, ``Out(32)``
        Write of one word of a microinstruction.
    parameters : ``Out(SharedRead(64 G))``, parameter_writes : ``Out(ParameterWrite(config))``
        The parameter buffer.
    plane_sums : ``Out(PlaneSumRead(config))``, gradient_sums : ``Out(GradientSums(config))``
        Sums over planes, from the C-Core and from the first stage.
    exponents : ``Out(ExponentRead())``, seeds : ``Out(SeedRead())``, hyper : ``In(Hyperparameters())``
    planes : ``In(PlaneScalarsRead(config))``
        The lanes' read of the plane registers.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "valid": In(1), "ready": Out(1), "cmd": In(HEAD_BITS), "slot": In(TailPlace["slot"].width), "legal": In(1),
            "tail_at": Out(TailPlace), "tail": In(64), "o": Out(Prepared(config)), "empty": In(1),
            "softmax_start": Out(1), "softmax_done": In(1), "present": Out(HEAD_BITS), "done": Out(1), "fault": Out(8),
            "micro_addr": Out(10), "micro_grant": In(1), "micro_data": In(MICRO_BITS),
            "micro_we": Out(3), "micro_waddr": Out(10), "micro_word": Out(32),
            "parameters": Out(SharedRead(64 * config.group)), "parameter_writes": Out(ParameterWrite(config)),
            "plane_sums": Out(PlaneSumRead(config)), "gradient_sums": Out(GradientSums(config)), "exponents": Out(ExponentRead()),
            "seeds": Out(SeedRead()), "hyper": In(Hyperparameters()), "planes": In(PlaneScalarsRead(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        self.run = run = decode(Opcode.RUN, self.present)
        m.submodules.setup = self.setup = setup = ShiftSetup(self.config, run)
        m.submodules.scalars = self.scalars = scalars = Scalars(self.config)
        m.submodules.words = self.words = words = TailReader()
        m.d.comb += [words.slot.eq(self.slot), words.length.eq(run.length), self.tail_at.eq(words.at), words.pair.eq(self.tail)]
        for inner, outer in ((setup.exponents, self.exponents), (setup.seed, self.seeds), (scalars.writes, self.parameter_writes)):
            connect(m, inner, flipped(outer))
        connect(m, flipped(self.planes), scalars.planes)
        m.d.comb += [setup.word.eq(words.word), setup.listed.eq(words.listed),
                     scalars.n.eq(run.n), scalars.inv.eq(run.inv), scalars.dry.eq(run.dry),
                     scalars.lm.eq(self.hyper.lm), scalars.momentum.eq(self.hyper.momentum),
                     scalars.entry.eq(self.parameters.data), scalars.norms.eq(self.plane_sums.data),
                     scalars.sums.eq(self.gradient_sums.sums), scalars.totals.eq(self.gradient_sums.totals)]

        self.micro = Signal(MicroLayout())
        self.bank = Signal()
        self.sweep = Signal()
        self.code = Signal(8)
        self.counter = Signal(2)
        self.channel, self.plane_at = Signal(range(max(2, self.config.group))), Signal(8)
        self.loading, self.scalar = Signal(), Signal()
        self.channel_registers(m)
        last = self._scalar(m)
        self._control(m, last)
        self._hand_over(m)
        return m

    def _control(self, m: Module, last: Value) -> None:
        micro, setup, scalars, words, depth = self.micro, self.setup, self.scalars, self.words, self.config.microcode_depth
        # The next microinstruction, at ``pc``, is read while the present one is executed; ``fetched``: it is there.
        pc, fetched, take, advance = Signal(range(depth + 1)), Signal(), Signal(), Signal()
        # Shifts are selected in the cycle after the set-up.
        settled = Signal()
        m.d.sync += [settled.eq(setup.done & ~setup.start), fetched.eq(self.micro_grant)]
        m.d.comb += self.micro_addr.eq(pc)
        with m.If(scalars.overflow & (self.code == 0)):
            m.d.sync += self.code.eq(ErrorCode.GRADIENT_SUM_OVERFLOW)

        legal, begun, done = Signal(), Signal(), Signal()
        with m.FSM(name="prepare"):
            with m.State("IDLE"):
                m.d.comb += [self.ready.eq(1), words.take.eq(1)]
                m.d.sync += pc.eq(decode(Opcode.RUN, self.cmd).uprog)
                with m.If(self.valid):
                    m.d.sync += [self.present.eq(self.cmd), legal.eq(self.legal), self.bank.eq(~self.bank), self.code.eq(0)]
                    m.next = "START"
            with m.State("START"):
                m.d.comb += words.begin.eq(1)
                with m.Switch(self.present[:8]):
                    with m.Case(Opcode.UCODE):
                        # Its first word is there in the first cycle of UCODE.
                        m.d.comb += words.first.eq(COMMANDS[Opcode.UCODE].words - 1)
                        with m.If(self.empty):
                            m.next = "UCODE"
                    with m.Case(Opcode.SOFTMAX), m.If(self.empty):
                        m.d.comb += self.softmax_start.eq(1)
                        m.next = "SOFTMAX"
                    with m.Default():
                        m.d.comb += [words.first.eq(FIRST_SHIFT_WORD), setup.start.eq(1)]
                        with m.If(~legal):
                            m.d.sync += self.code.eq(ErrorCode.ILLEGAL_FIELD)
                            m.next = "HAND"
                        with m.Elif(self.micro_grant):
                            m.d.sync += pc.eq(pc + 1)
                            m.next = "FIRST"
            with m.State("FIRST"):
                m.d.comb += take.eq(1)
                m.next = "WORK"
            with m.State("WORK"):
                with m.Switch(micro.kind):
                    with m.Case(Kind.SUMS):
                        m.d.comb += done.eq(1)
                    with m.Case(Kind.SCALAR):
                        waits = (micro.ssh[3] & ~setup.shifted) | Mux(micro.chain, scalars.early, scalars.busy)
                        m.d.comb += [self.scalar.eq(begun | ~waits), done.eq(last)]
                        with m.If(scalars.issue):
                            m.d.sync += begun.eq(1)
                    with m.Case(Kind.LOAD), m.If(~scalars.busy):
                        m.d.comb += [self.loading.eq(self.parameters.free & (micro.count != 0)),
                                     done.eq((micro.count == 0) | (self.loading & (self.counter + 1 == micro.count)))]
                    with m.Case(Kind.SWEEP):
                        # Its shifts are selected in its first cycle.
                        m.d.sync += begun.eq(1)
                        m.d.comb += [self.sweep.eq(1), self.o.valid.eq(settled & begun & ~scalars.busy)]
                        with m.If(self.o.valid & self.o.ready):
                            m.next = "IDLE"
                with m.If(done):
                    with m.If(micro.end):
                        m.next = "HAND"
                    with m.Elif(pc == depth):
                        m.d.sync += self.code.eq(ErrorCode.ILLEGAL_FIELD)
                        m.next = "HAND"
                    with m.Else():
                        m.d.comb += advance.eq(fetched)
                        with m.If(~fetched):
                            m.next = "NEXT"
            with m.State("NEXT"):
                m.d.comb += advance.eq(fetched)
                with m.If(fetched):
                    m.next = "WORK"
            with m.State("HAND"):
                m.d.comb += self.o.valid.eq(settled & ~scalars.busy)
                with m.If(self.o.valid & self.o.ready):
                    m.next = "IDLE"
            self._ucode(m)
            with m.State("SOFTMAX"), m.If(self.softmax_done):
                m.next = "IDLE"
            with m.State("DONE"):
                m.d.comb += [self.done.eq(1), self.fault.eq(self.code)]
                m.next = "IDLE"
        with m.If(self.loading):
            m.d.sync += self.counter.eq(self.counter + 1)
        with m.If(advance):
            m.d.sync += [pc.eq(pc + 1), fetched.eq(0)]
        with m.If(take | advance):
            m.d.sync += [micro.eq(self.micro_data), begun.eq(0), self.counter.eq(0), self.channel.eq(0), self.plane_at.eq(0)]

    def _ucode(self, m: Module) -> None:
        """One word a cycle to the program memory."""
        ucode, words = decode(Opcode.UCODE, self.present), self.words
        target = Signal(17)
        m.d.comb += [target.eq(ucode.address + (words.place - COMMANDS[Opcode.UCODE].words)[:len(words.place)]),
                     self.micro_waddr.eq(target[2:]), self.micro_word.eq(words.word)]
        with m.State("UCODE"):
            with m.If(~words.listed):
                m.next = "DONE"
            with m.Elif(target >= self.config.microcode_depth * MICRO_WORDS):
                m.d.sync += self.code.eq(ErrorCode.ILLEGAL_FIELD)
                m.next = "DONE"
            with m.Else():
                m.d.comb += self.micro_we.eq(1 << target[:2])

    def _scalar(self, m: Module) -> Value:
        """Issue of the present SCALAR's values, one a cycle; returns whether this is the last one."""
        run, micro, scalars, group = self.run, self.micro, self.scalars, self.config.group
        op = scalars.op
        by_plane = (micro.each == Each.PLANE) & (micro.kind == Kind.SCALAR)
        m.d.comb += [
            op.operand.eq(micro.sx), op.factor.eq(micro.sf), op.minus.eq(micro.sminus), op.term.eq(micro.st2),
            op.total.eq(micro.reg - Register.SG), op.destination.eq(micro.sdst), op.r.eq(micro.r),
            op.channel.eq(self.channel), op.plane.eq(self.plane_at),
            op.entry.eq(Mux(by_plane, run.pl0 + self.plane_at, run.pb0 + micro.reg + self.counter)),
            scalars.shift.eq(self._amount(m, micro.ssh, "amount", SHIFT_BITS, negate=micro.sright)),
            self.parameters.addr.eq(op.entry), self.gradient_sums.plane.eq(self.plane_at), scalars.bank.eq(self.bank),
        ]
        if self.config.apu_channels > 1:
            m.d.comb += [self.gradient_sums.channel.eq(self.channel), self.gradient_sums.total_channel.eq(scalars.total_channel)]
        # The dividers take a burst of values, then nothing until they are free.
        count = dividers(self.config)
        latency = divider_of(self.config).LATENCY
        pace = Signal(range(latency + 1))
        paced = micro.sdst == ScalarDestination.DIVIDE
        m.d.comb += scalars.issue.eq(self.scalar & self.parameters.free & scalars.room & (~paced | (pace < count)))
        with m.If(self.scalar & ((pace >= count) | scalars.issue) & paced):
            m.d.sync += pace.eq(Mux(pace == latency, 0, pace + 1))
        with m.Elif(~self.scalar):
            m.d.sync += pace.eq(0)
        channel_last = self.channel == group - 1
        with m.If(scalars.issue):
            m.d.sync += [self.channel.eq(Mux(channel_last, 0, self.channel + 1)), self.plane_at.eq(self.plane_at + channel_last)]

        norm = scalars.issue & (micro.sx == ScalarOperand.NORM)
        slot1, request = Signal(9), self.plane_sums.request
        m.d.sync += [slot1.eq(Cat(norm, (run.ps0 + self.plane_at)[:8])), Cat(request.en, request.plane).eq(slot1)]
        m.d.comb += [request.half.eq(run.half), request.k.eq(run.pk)]
        whole = channel_last & (~by_plane | (self.plane_at == run.planes - 1))
        return scalars.issue & (whole | (micro.sdst == ScalarDestination.EPSILON))

    def channel_registers(self, m: Module) -> None:
        """gamma, beta, tau: bits 27:12 of a master."""
        entry = Signal(3)
        arrives = Signal()
        m.d.sync += [arrives.eq(self.loading), entry.eq(self.micro.reg + self.counter)]
        self.registers = {name: Signal(ArrayLayout(signed(16), self.config.group), name=name) for name in ("gamma", "beta", "tau")}
        for number, values in zip((Register.GAMMA, Register.BETA, Register.TAU), self.registers.values(), strict=True):
            with m.If(arrives & (entry == number)):
                m.d.sync += [values[c].eq(self.parameters.data[64 * c + 12:64 * c + 28]) for c in range(self.config.group)]
        m.d.comb += self.scalars.gamma.eq(self.registers["gamma"])

    def _amount(self, m: Module, select: Value, name: str, bits: int, *, negate: Value) -> Signal:
        """Shift amount that a microinstruction selects, in the next cycle."""
        value = Signal(signed(bits + 2), name=f"{name}_value")
        amount = Signal(signed(bits), name=name, reset_less=True)
        with m.Switch(select):
            with m.Case(Shift.RIGHT8):
                m.d.comb += value.eq(-8)
            with m.Case(Shift.RIGHT16):
                m.d.comb += value.eq(-16)
            for i in range(8):
                with m.Case(Shift.SH0 + i):
                    m.d.comb += value.eq(self.setup.limited[bits][i])
        m.d.sync += amount.eq(saturated(Mux(negate, -value, value).as_signed(), bits))
        return amount

    def _hand_over(self, m: Module) -> None:
        micro, setup, command = self.micro, self.setup, self.o.command
        for name in ("sh1", "sh3", "shy"):
            m.d.comb += command[name].eq(self._amount(m, micro[name], name, SHIFT_BITS, negate=0))
        m.d.comb += [
            command.c1.eq(self._amount(m, micro.c1, "c1", CONVERTER_SHIFT_BITS, negate=0)),
            command.c2.eq(self._amount(m, micro.c2, "c2", CONVERTER_SHIFT_BITS, negate=micro.c2left)),
            command.cmd.eq(self.present), command.op.eq(Mux(self.sweep, micro.as_value(), 0)),
            command.sweep.eq(self.sweep), command.bank.eq(self.bank), command.fault.eq(self.code),
            command.row0.eq(setup.row0), command.stride.eq(setup.stride), command.seed1.eq(setup.seeds[0]),
            command.seed2.eq(setup.seeds[1]), command.offsets.eq(setup.offsets), command.r.eq(self.scalars.r.as_value()),
        ]
        m.d.comb += [command[name].eq(values.as_value()) for name, values in self.registers.items()]
