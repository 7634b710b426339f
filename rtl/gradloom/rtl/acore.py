"""The auxiliary core: everything of a training step that is not a convolution (ETA, section IV-C, figure 10)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl import emit
from gradloom.rtl.align import Align, saturated
from gradloom.rtl.apu import ADD1, ADD2, CHECK, LANES, MUL2, X_STAGE, Apu
from gradloom.rtl.buffers import Buffers
from gradloom.rtl.buses import LoadBus, StoreBus
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.config import Config
from gradloom.rtl.converter import Converter
from gradloom.rtl.dither import Dither
from gradloom.rtl.divider import Divider
from gradloom.rtl.isa import COMMANDS, FIRST_SHIFT_WORD, MAX_WORDS, Opcode, PsumLayout, XSource
from gradloom.rtl.microcode import (
    MICRO_BITS,
    MICRO_WORDS,
    Accumulate,
    Destination,
    Kind,
    Loop,
    MicroLayout,
    Operand,
    OutB,
    Shift,
)
from gradloom.rtl.microprograms import WORDS
from gradloom.rtl.planes import Beat, PlaneWalk, row_stride
from gradloom.rtl.poolwalk import PoolWalk, Tap
from gradloom.rtl.softmax import Softmax

__all__ = ["FAULT_COMMAND", "FAULT_SUM", "ACore"]

FAULT_SUM = 0x12
"""A sum of gradients, or a weight gradient that enters the update, overflowed."""
FAULT_COMMAND = 0x20
"""A field of the command is illegal, or a microprogram runs past the program memory."""

FETCH = 3
"""Cycles from the issue of a beat to its operands at the APUs (stage 0)."""


class _Line:
    """A value and its delays, made as they are asked for."""

    def __init__(self, m: Module, value: Value, name: str) -> None:
        self.m, self.name, self.taps = m, name, [value]

    def __getitem__(self, cycles: int) -> Value:
        while len(self.taps) <= cycles:
            register = Signal(Value.cast(self.taps[-1]).shape(), name=f"{self.name}_{len(self.taps)}")
            self.m.d.sync += register.eq(self.taps[-1])
            self.taps.append(register)
        return self.taps[cycles]


class ACore(wiring.Component):
    """Executes RUN, UCODE and SOFTMAX.

    A RUN is set up (shift registers, seeds, walkers; as long as its shift list, at most 24 cycles), then its
    microinstructions run one after the other. A sweep issues one beat a cycle (pooling: one tap a cycle), and the next
    microinstruction begins when the last beat has left the pipeline, 36 cycles after its issue with an encoder's output
    and 19 without. A division takes 14 cycles a plane.

    Members
    -------
    port : ``In(CommandPort())``
    load : ``In(LoadBus).array(load_channels)``, store ``In(StoreBus).array(store_channels)``
    prd_* : partial sums from the C-Core, ``prd_en``, ``prd_half``, ``prd_wpu 2``, ``prd_bank0 2``, ``prd_addr0 16``,
        ``prd_bank1 2``, ``prd_addr1 16`` -> ``prd_data[lane][channel]`` two cycles later.
    drd_* : weight gradients, ``drd_en``, ``drd_addr 16`` -> ``drd_data[lane][channel]`` two cycles later.
    exp_en, exp_tid : ``Out(1)``, ``Out(11)`` -> exp_e ``In(signed(16))`` in the next cycle.
    seed_en, seed_tid : -> seed_value ``In(32)`` in the next cycle.
    stat_valid, stat_tid, stat_value : ``Out``
        OR ``stat_value`` (64 bits) into the tensor's statistic.
    lm, momentum : ``In(8)``
    decay_off : ``In(1)``
        Weight decay is off (n = 255).
    busy : ``Out(1)``
    """

    IN_FLIGHT = 1
    """Commands under way."""

    def __init__(self, config: Config) -> None:
        self.config = config
        group = config.group
        super().__init__({
            "port": In(CommandPort()), "load": In(LoadBus(config)).array(config.load_channels),
            "store": In(StoreBus(config)).array(config.store_channels),
            "prd_en": Out(1), "prd_half": Out(1), "prd_wpu": Out(2), "prd_bank0": Out(2), "prd_addr0": Out(16),
            "prd_bank1": Out(2), "prd_addr1": Out(16),
            "prd_data": In(ArrayLayout(ArrayLayout(signed(config.psum_width), group), LANES)),
            "drd_en": Out(1), "drd_addr": Out(16),
            "drd_data": In(ArrayLayout(ArrayLayout(signed(config.wg_width), group), LANES)),
            "exp_en": Out(1), "exp_tid": Out(11), "exp_e": In(signed(16)),
            "seed_en": Out(1), "seed_tid": Out(11), "seed_value": In(32),
            "stat_valid": Out(1), "stat_tid": Out(11), "stat_value": Out(64),
            "lm": In(8), "momentum": In(8), "decay_off": In(1), "busy": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        self.cmd = self.port.cmd
        self.run = decode(Opcode.RUN, self.cmd)
        m.submodules.buffers = self.buffers = Buffers(self.config)
        for outer, inner in ((self.load, self.buffers.load), (self.store, self.buffers.store)):
            for bus, inner_bus in zip(outer, inner, strict=True):
                wiring.connect(m, wiring.flipped(bus), inner_bus)
        m.submodules.walk = self.walk = PlaneWalk(self.config, self.run)
        m.submodules.pool = self.pool = PoolWalk(self.run)
        self.apus = [emit.add(m, f"apu{c}", "apu", Apu(self.config), self.config) for c in range(self.config.group)]

        self._control_signals()
        self._setup(m)
        self._sequence(m)
        self._softmax(m)
        self._operands(m)
        self._pipeline(m)
        self._outputs(m)
        return m

    def _control_signals(self) -> None:
        self.op = Signal(MicroLayout())
        self.sh = [Signal(signed(18), name=f"sh{i}") for i in range(8)]
        self.seeds = [Signal(32, name=f"seed{i}") for i in (1, 2)]
        self.idx_channel = [Signal(24, name=f"idx_channel{c}") for c in range(self.config.group)]
        self.row0 = Signal(16)            # offset of the first unit's row, or beats of a stored plane (pooling)
        self.stride = Signal(13)
        self.clear = Signal()             # start of a command
        self.begin = Signal()             # start of a microinstruction
        self.issue = Signal(Beat)         # beat that enters the fetch stages
        self.issue_tap = Signal()
        self.idle = Signal()              # the pipeline is empty
        self.counter = Signal(8)          # planes or entries of the present microinstruction
        self.plane_override = Signal()    # the counter, not a beat, selects the plane whose registers are read
        self.load_entry = Signal()
        self.store_entry = Signal()
        self.divide = Signal()
        self.by_plane = Signal()          # a LOAD or STORE of lam
        self.softmax_done = Signal()

    # -- before the first microinstruction -----------------------------------------------------------------------------

    def _illegal(self) -> Value:
        run = self.run
        empty = (run.pkern == 0) | (run.pstride == 0) | (run.pyi == 0) | (run.pxi == 0)
        pooled = (run.pool == 3) | ((run.pool != 0) & empty)
        kernel1 = (run.layout == PsumLayout.K1) | (run.layout == PsumLayout.K1_UP)
        partial = (run.xsrc == XSource.PSUM) & ((run.pw0 >= self.config.wpus) | (kernel1 & (run.pk == 3)))
        weights = (run.xsrc == XSource.DW) & ((run.nr == 0) | (run.nk == 0))
        depth = self.config.microcode_depth
        return ((run.planes == 0) | (run.planes > self.config.max_planes) | (run.nb == 0) | (run.xe == 0) | (run.xsrc == 3)
                | (run.uprog >= depth if depth < 1024 else 0) | pooled | partial | weights)

    def _setup(self, m: Module) -> None:
        """Shift registers, seeds, channel offsets and the one product of two fields, all at the same time."""
        run = self.run
        words = Array(self.cmd[32 * i:32 * i + 32] for i in range(MAX_WORDS))
        self.word_index = Signal(range(MAX_WORDS + 1))
        self.word = Signal(32)
        self.length = self.cmd[8:16]
        m.d.comb += self.word.eq(words[self.word_index])
        self.setup_step = Signal(5)
        self.in_setup = Signal()
        self.setup_done = Signal()

        # One shift word a cycle; its exponent arrives in the next.
        listed = Signal()
        pending = Signal()
        dst, neg, first, constant = Signal(3), Signal(), Signal(), Signal(signed(16))
        m.d.comb += [
            listed.eq(self.in_setup & (self.word_index < self.length) & (self.word_index < MAX_WORDS)),
            self.exp_en.eq(listed), self.exp_tid.eq(self.word[5:16]),
        ]
        m.d.sync += [pending.eq(listed), dst.eq(self.word[:3]), neg.eq(self.word[3]), first.eq(self.word[4]),
                     constant.eq(self.word[16:])]
        for i, sh in enumerate(self.sh):
            with m.If(self.clear):
                m.d.sync += sh.eq(0)
            with m.Elif(pending & (dst == i)):
                m.d.sync += sh.eq(Mux(first, 0, sh) + constant + Mux(neg, -self.exp_e, self.exp_e))

        with m.If(self.clear):
            m.d.comb += [self.seed_en.eq(1), self.seed_tid.eq(run.t1)]
        with m.Else():
            m.d.comb += [self.seed_en.eq(self.in_setup & (self.setup_step == 0)), self.seed_tid.eq(run.t2)]
        for i, seed in enumerate(self.seeds):
            with m.If(self.in_setup & (self.setup_step == i)):
                m.d.sync += seed.eq(self.seed_value)

        offset = Signal(24)
        m.d.sync += offset.eq(Mux(self.clear, 0, offset + run.s_ch))
        for c, channel in enumerate(self.idx_channel):
            with m.If(self.in_setup & (self.setup_step == c)):
                m.d.sync += channel.eq(offset)

        stride, group, statements = row_stride(run)
        m.d.comb += statements
        multiplicand, multiplier = Signal(16), Signal(16)
        with m.If(self.clear):
            m.d.sync += [self.row0.eq(0), self.stride.eq(stride)]
            with m.If(run.pool != 0):
                m.d.sync += [multiplicand.eq((run.pxi + 1) >> 1), multiplier.eq(run.pyi)]
            with m.Else():
                m.d.sync += [multiplicand.eq(stride), multiplier.eq(group)]
        with m.Elif(multiplier != 0):
            m.d.sync += [multiplicand.eq(multiplicand << 1), multiplier.eq(multiplier >> 1)]
            with m.If(multiplier[0]):
                m.d.sync += self.row0.eq(self.row0 + multiplicand)

        steps = max(2, self.config.group)
        m.d.comb += [
            self.pool.prepare.eq(self.clear), self.pool.plane_beats.eq(self.row0), self.walk.row0.eq(self.row0),
            self.walk.stride.eq(self.stride),
            self.setup_done.eq((multiplier == 0) & ~listed & ~pending & (self.setup_step >= steps)
                               & ((run.pool == 0) | self.pool.ready)),
        ]
        m.submodules.epsilon = epsilon = Align(16)
        self.epsilon = Signal(64)
        m.d.comb += [epsilon.x.eq(run.n), epsilon.n.eq(saturated(self.sh[0], 9))]
        m.d.sync += self.epsilon.eq(Mux(epsilon.y == 0, 1, epsilon.y))

    # -- microinstructions ---------------------------------------------------------------------------------------------

    def _sequence(self, m: Module) -> None:
        run, op, config = self.run, self.op, self.config
        depth = config.microcode_depth
        stored = [WORDS[i:i + MICRO_WORDS] for i in range(0, len(WORDS), MICRO_WORDS)]
        init = [sum(word << (32 * i) for i, word in enumerate(micro)) for micro in stored]
        m.submodules.program = program = Memory(shape=MICRO_BITS, depth=depth, init=init[:depth])
        fetch = program.read_port()
        write = program.write_port(granularity=32)
        pc = Signal(range(depth))
        ucode = decode(Opcode.UCODE, self.cmd)
        target = Signal(17)
        m.d.comb += [fetch.addr.eq(pc), write.addr.eq(target[2:]), write.data.eq(self.word.replicate(3))]

        overflow = Signal()
        stat = [Signal(64, name=f"stat{i}") for i in (1, 2)]
        m.d.comb += overflow.eq(Cat(apu.overflow for apu in self.apus).any())
        for which, value in enumerate(stat, 1):
            merged = 0
            for apu in self.apus:
                merged = merged | (apu.stat1 if which == 1 else apu.stat2)
            m.d.sync += value.eq(merged)

        fault = Signal(8)
        limit = Signal(8)
        phase = Signal(range(Divider.LATENCY + 1))
        m.d.comb += [
            self.by_plane.eq(op.loop == Loop.PLANES),
            limit.eq(Mux(self.by_plane | (op.kind == Kind.DIVIDE), run.planes,
                         Mux((op.kind == Kind.SWEEP), 1, op.count))),
        ]
        pooling = (op.x == Operand.POOL) & (run.pool != 0)
        step = Signal()

        with m.FSM(name="acore") as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"), m.If(self.port.start):
                m.d.sync += [fault.eq(0), self.setup_step.eq(0)]
                with m.Switch(self.cmd[:8]):
                    with m.Case(Opcode.RUN):
                        m.d.comb += self.clear.eq(1)
                        m.d.sync += [self.word_index.eq(FIRST_SHIFT_WORD), pc.eq(run.uprog)]
                        m.next = "SETUP"
                        with m.If(self._illegal()):
                            m.d.sync += fault.eq(FAULT_COMMAND)
                            m.next = "DONE"
                    with m.Case(Opcode.UCODE):
                        m.d.sync += [self.word_index.eq(COMMANDS[Opcode.UCODE].words), target.eq(ucode.address)]
                        m.next = "UCODE"
                    with m.Case(Opcode.SOFTMAX):
                        m.next = "SOFTMAX"
                    with m.Default():
                        m.d.sync += fault.eq(FAULT_COMMAND)
                        m.next = "DONE"
            with m.State("SETUP"):
                m.d.comb += self.in_setup.eq(1)
                m.d.sync += self.setup_step.eq(self.setup_step + (self.setup_step != 31))
                with m.If(self.word_index < MAX_WORDS):
                    m.d.sync += self.word_index.eq(self.word_index + 1)
                with m.If(self.setup_done):
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += self.begin.eq(1)
                m.d.sync += [op.eq(fetch.data), self.counter.eq(0)]
                m.next = "GO"
            with m.State("GO"), m.Switch(op.kind):
                with m.Case(Kind.SWEEP):
                    m.next = "SWEEP"
                with m.Case(Kind.DIVIDE):
                    m.d.comb += self.plane_override.eq(1)
                    m.next = "DIVIDE"
                with m.Case(Kind.LOAD):
                    m.next = "LOAD"
                with m.Case(Kind.STORE):
                    m.next = "STORE"
            with m.State("SWEEP"):
                with m.If(op.loop == Loop.BEATS):
                    with m.If(pooling):
                        m.d.comb += [self.issue_tap.eq(1), self.pool.step.eq(1), step.eq(self.pool.beat_done)]
                    with m.Else():
                        m.d.comb += step.eq(1)
                    m.d.comb += [self.walk.step.eq(step), self.issue.eq(self.walk.beat), self.issue.v.eq(step)]
                    with m.If(step & self.walk.final):
                        m.next = "DRAIN"
                with m.Else():
                    m.d.comb += [self.issue.v.eq(1), self.issue.v0.eq(1), self.issue.first.eq(1), self.issue.last.eq(1),
                                 self.issue.plane.eq(self.counter)]
                    m.d.sync += self.counter.eq(self.counter + 1)
                    with m.If(self.counter + 1 >= limit):
                        m.next = "DRAIN"
            with m.State("DIVIDE"):
                m.d.comb += [self.plane_override.eq(1), self.divide.eq(phase == 0)]
                m.d.sync += phase.eq(phase + 1)
                with m.If(phase == Divider.LATENCY):
                    m.d.sync += [phase.eq(0), self.counter.eq(self.counter + 1)]
                    m.next = "DIVIDE_NEXT"
            with m.State("DIVIDE_NEXT"):
                m.d.comb += self.plane_override.eq(1)
                m.next = "DIVIDE"
                with m.If(self.counter == limit):
                    m.next = "NEXT"
            with m.State("LOAD"):
                m.d.comb += self.load_entry.eq(self.counter != limit)
                m.d.sync += self.counter.eq(self.counter + 1)
                with m.If(self.counter == limit):
                    m.next = "NEXT"
            with m.State("STORE"):
                m.d.comb += self.plane_override.eq(1)
                m.next = "STORE_WRITE"
                with m.If((self.counter == limit) | run.dry):
                    m.next = "NEXT"
            with m.State("STORE_WRITE"):
                m.d.comb += [self.plane_override.eq(1), self.store_entry.eq(1)]
                with m.If(self.buffers.p_ready):
                    m.d.sync += self.counter.eq(self.counter + 1)
                    m.next = "STORE"
            with m.State("DRAIN"), m.If(self.idle):
                m.next = "NEXT"
            with m.State("NEXT"):
                m.d.sync += pc.eq(pc + 1)
                m.next = "FETCH"
                with m.If(op.end):
                    m.next = "STAT1"
                with m.Elif(pc == depth - 1):
                    m.d.sync += fault.eq(FAULT_COMMAND)
                    m.next = "DONE"
            for which, tid, after in ((1, run.t1, "STAT2"), (2, run.t2, "DONE")):
                with m.State(f"STAT{which}"):
                    m.d.comb += [self.stat_valid.eq(tid != 0), self.stat_tid.eq(tid), self.stat_value.eq(stat[which - 1])]
                    m.next = after
                    if after == "DONE":
                        with m.If(overflow):
                            m.d.sync += fault.eq(FAULT_SUM)
            with m.State("UCODE"):
                with m.If((self.word_index >= self.length) | (self.word_index >= MAX_WORDS)):
                    m.next = "DONE"
                with m.Elif(target >= depth * MICRO_WORDS):
                    m.d.sync += fault.eq(FAULT_COMMAND)
                    m.next = "DONE"
                with m.Else():
                    m.d.comb += write.en.eq(1 << target[:2])
                    m.d.sync += [self.word_index.eq(self.word_index + 1), target.eq(target + 1)]
            with m.State("SOFTMAX"), m.If(self.softmax_done):
                m.next = "IDLE"
            with m.State("DONE"):
                m.d.comb += [self.port.done.eq(1), self.port.fault.eq(fault)]
                m.next = "IDLE"

        m.d.comb += [self.walk.start.eq(self.begin), self.pool.start.eq(self.begin),
                     self.pool.row_last.eq(self.walk.row_last), self.pool.plane_last.eq(self.walk.beat.last)]

    def _softmax(self, m: Module) -> None:
        m.submodules.softmax = softmax = Softmax(self.config)
        self.softmax = softmax
        buffers = self.buffers
        m.d.comb += [
            softmax.port.start.eq(self.port.start & (self.cmd[:8] == Opcode.SOFTMAX)),
            softmax.port.cmd.eq(self.cmd),
            self.softmax_done.eq(softmax.port.done),
            buffers.logit_addr.eq(softmax.lrd_addr),
            Value.cast(softmax.lrd_data).eq(buffers.logit_data),
            buffers.label_addr.eq(softmax.lab_addr),
            softmax.lab_data.eq(buffers.label_data),
        ]
        with m.If(softmax.port.done):
            m.d.comb += self.port.done.eq(1)
        with m.If(softmax.port.fault != 0):
            m.d.comb += self.port.fault.eq(softmax.port.fault)

    # -- operands ------------------------------------------------------------------------------------------------------

    def _operands(self, m: Module) -> None:
        """Addresses leave a cycle after the issue, bytes and sums reach the APUs ``FETCH`` cycles after it."""
        run, walk, buffers, group = self.run, self.walk, self.buffers, self.config.group
        offset = Mux(self.issue_tap, self.pool.addr, walk.offset)
        from_psum, from_dw = run.xsrc == XSource.PSUM, run.xsrc == XSource.DW
        wide = Signal(16)
        m.d.sync += [
            buffers.aa_addr.eq(run.sa0 + offset), buffers.ab_addr.eq(run.sb0 + offset),
            buffers.am_addr.eq(run.sm0 + walk.bits_addr), wide.eq(run.dwbase + walk.offset),
            self.prd_en.eq(self.issue.v & (self.op.x == Operand.IN) & from_psum),
            self.prd_half.eq(run.half), self.prd_wpu.eq(walk.psum.wpu),
            self.prd_bank0.eq(walk.psum.bank0), self.prd_addr0.eq(walk.psum.addr0),
            self.prd_bank1.eq(walk.psum.bank1), self.prd_addr1.eq(walk.psum.addr1),
            self.drd_en.eq(self.issue.v & (self.op.x == Operand.IN) & from_dw), self.drd_addr.eq(run.dwbase + walk.offset),
        ]
        m.d.comb += buffers.xin_addr.eq(wide)
        bytes_a, bytes_b, bits, addend = (Signal.like(data, name=f"{name}_operand", reset_less=True) for name, data in (
            ("a", buffers.aa_data), ("b", buffers.ab_data), ("m", buffers.am_data), ("xin", buffers.xin_data)))
        m.d.sync += [bytes_a.eq(buffers.aa_data), bytes_b.eq(buffers.ab_data), bits.eq(buffers.am_data),
                     addend.eq(Mux(run.xin & from_dw, buffers.xin_data, 0))]

        slot = _Line(m, walk.bits_slot, "slot")[FETCH]
        zeros = _Line(m, Cat(walk.psum.zero0, walk.psum.zero1) & from_psum.replicate(2), "zeros")[FETCH]
        mask = Signal(LANES * group)
        m.d.comb += mask.eq(bits.word_select(slot, LANES * group))
        for c, apu in enumerate(self.apus):
            for lane in range(LANES):
                psum = Mux(zeros[lane], 0, self.prd_data[lane][c]).as_signed()
                at = lane * group + c
                m.d.comb += [
                    apu.x[lane].eq(Mux(from_psum, psum, Mux(from_dw, self.drd_data[lane][c], 0))),
                    apu.xin[lane].eq(addend[64 * at:64 * at + 64]),
                    apu.a[lane].eq(bytes_a[8 * at:8 * at + 8]),
                    apu.b[lane].eq(bytes_b[8 * at:8 * at + 8]),
                    apu.mask[lane].eq(mask[at]),
                ]

    # -- the lanes' pipeline -------------------------------------------------------------------------------------------

    def _pipeline(self, m: Module) -> None:
        run, op, walk, buffers = self.run, self.op, self.walk, self.buffers
        held = Signal(Beat)
        m.d.sync += held.eq(self.issue)
        # The maximum or sum of a window is there one cycle after its last tap.
        pooling = (op.x == Operand.POOL) & (op.loop == Loop.BEATS)
        issued = Signal(Beat)
        m.d.comb += issued.eq(Mux(pooling, held, self.issue))
        beats = _Line(m, issued, "beat")
        stages = [Beat(beats[FETCH + i]) for i in range(ADD1 + 1)]
        # Beats of a sweep without encoder outputs end at MUL2: the next sweep may begin before they would come out.
        encoding = op.wa | op.wm | (op.wb == OutB.CODE1)
        code1_line = _Line(m, self._gated(m, stages[ADD1], encoding, "first"), "code1_beat")
        stages += [Beat(code1_line[i + 1]) for i in range(Converter.LATENCY)]
        second = Signal(Beat)
        m.d.comb += second.eq(Mux(op.long, stages[ADD1 + Converter.LATENCY], stages[ADD1]))
        e_line = _Line(m, second, "e_beat")
        e_stages = [Beat(e_line[i]) for i in range(MUL2 + 1)]
        code2_line = _Line(m, self._gated(m, e_stages[MUL2], encoding, "second"), "code2_beat")
        e_stages += [Beat(code2_line[i + 1]) for i in range(ADD2 - MUL2 + Converter.LATENCY)]
        self.stages, self.e_stages = stages, e_stages

        tap = Signal(Tap)
        m.d.comb += [tap.eq(self.pool.tap), tap.v.eq(self.issue_tap)]
        taps = Tap(_Line(m, tap, "tap")[FETCH])

        idx = Signal(24)
        idx_held = Signal(24)
        m.d.sync += idx_held.eq(walk.idx)
        m.d.comb += idx.eq(Mux(pooling, idx_held, walk.idx))
        index = _Line(m, idx, "idx")
        ahead = Dither.LATENCY + 1
        idx1 = index[FETCH + ADD1 - ahead]
        e_ahead = FETCH + ADD1 + ADD2 - ahead
        idx2 = Mux(op.long, index[e_ahead + Converter.LATENCY], index[e_ahead])
        lane_step = Mux(run.xsrc == XSource.DW, run.s_lane, 1)

        # The margins cover the registers of the sums.
        long_drain = FETCH + ADD1 + Converter.LATENCY + ADD2 + Converter.LATENCY + 5
        short_drain = FETCH + ADD1 + MUL2 + 6
        drain = Signal(range(long_drain + 1))
        m.d.comb += self.idle.eq(drain == 0)
        with m.If(self.issue.v):
            m.d.sync += drain.eq(Mux(encoding, long_drain, short_drain))
        with m.Elif(drain != 0):
            m.d.sync += drain.eq(drain - 1)

        counts1, counts2 = (Signal(LANES, name=f"count{i}") for i in (1, 2))
        after1, after2 = stages[ADD1 + Converter.LATENCY], e_stages[ADD2 + Converter.LATENCY]
        m.d.comb += [counts1.eq(Cat(after1.v0, after1.v1) & (after1.v & (op.wb == OutB.CODE1)).replicate(2)),
                     counts2.eq(Cat(after2.v0, after2.v1) & (after2.v & op.wa).replicate(2))]
        loaded = _Line(m, Cat(self.load_entry, self.counter), "loaded")[1]
        register = Signal(3)
        m.d.comb += [register.eq(op.reg + self.counter[:3]),
                     buffers.p_addr.eq(Mux(self.by_plane, run.pl0 + self.counter, run.pb0 + register))]
        register_late = _Line(m, register, "register")[1]
        plane = Mux(self.plane_override, self.counter, stages[0].plane)
        shifts = {name: self._shift(m, op[name], name) for name in ("sh1", "sh3", "shy", "c1", "c2")}
        sh1 = Mux(op.right1, -shifts["sh1"], shifts["sh1"]).as_signed()
        for c, apu in enumerate(self.apus):
            s = apu.setup
            m.d.comb += [
                apu.op.eq(op), apu.clear.eq(self.clear), apu.tap.eq(taps), apu.plane.eq(plane),
                apu.check.eq(Cat(stages[CHECK].v0, stages[CHECK].v1) & stages[CHECK].v.replicate(2)),
                apu.at_t.eq(stages[ADD1]),
                apu.at_y.eq(Cat(e_stages[ADD2].v0, e_stages[ADD2].v1) & e_stages[ADD2].v.replicate(2)),
                apu.at_acc.eq(Mux(op.acc == Accumulate.ABS, stages[CHECK], e_stages[MUL2])),
                apu.count1.eq(counts1), apu.count2.eq(counts2),
                apu.divide.eq(self.divide), apu.divide_plane.eq(self.counter),
                apu.load.eq(loaded[0] & ~self.by_plane), apu.load_lambda.eq(loaded[0] & self.by_plane),
                apu.load_reg.eq(register_late), apu.load_plane.eq(loaded[1:]),
                apu.entry.eq(buffers.p_data[64 * c:64 * c + 64]),
                apu.store_reg.eq(register), apu.store_lambda.eq(self.by_plane),
                s.epsilon.eq(self.epsilon), s.n.eq(run.n), s.inv.eq(run.inv), s.momentum.eq(self.momentum),
                s.lm.eq(self.lm), s.decay_off.eq(self.decay_off), s.r1.eq(run.r1), s.r2.eq(run.r2),
                s.f16_1.eq(run.f1[4]), s.f16_2.eq(run.f2[4]), s.seed1.eq(self.seeds[0]), s.seed2.eq(self.seeds[1]),
                s.idx_channel.eq(self.idx_channel[c]),
                s.pool_max.eq((run.pool == 1) & run.pmax), s.pool_match.eq((run.pool == 2) & run.pmax),
                s.sh1.eq(saturated(sh1, 9)), s.sh3.eq(saturated(shifts["sh3"], 9)), s.shy.eq(saturated(shifts["shy"], 9)),
                s.c1.eq(saturated(shifts["c1"], 12)), s.c2.eq(saturated(shifts["c2"], 12)),
                apu.idx1[0].eq(idx1), apu.idx1[1].eq(idx1 + lane_step), apu.idx2[0].eq(idx2), apu.idx2[1].eq(idx2 + lane_step),
            ]

    @staticmethod
    def _gated(m: Module, beat, enable: Value, name: str) -> Signal:
        gated = Signal(Beat, name=f"{name}_gated")
        m.d.comb += [gated.eq(beat), gated.v.eq(beat.v & enable)]
        return gated

    def _shift(self, m: Module, select: Value, name: str) -> Signal:
        value = Signal(signed(18), name=f"shift_{name}")
        with m.Switch(select):
            with m.Case(Shift.RIGHT8):
                m.d.sync += value.eq(-8)
            with m.Case(Shift.RIGHT16):
                m.d.sync += value.eq(-16)
            for i, sh in enumerate(self.sh):
                with m.Case(Shift.SH0 + i):
                    m.d.sync += value.eq(sh)
            with m.Default():
                m.d.sync += value.eq(0)
        return value

    # -- outputs -------------------------------------------------------------------------------------------------------

    def _outputs(self, m: Module) -> None:
        """Outputs are contiguous, so each has a counter that starts anew with every microinstruction."""
        run, op, buffers, softmax = self.run, self.op, self.buffers, self.softmax
        lanes = range(LANES)

        def counted(name: str, first: Value, write: Value, step=1) -> None:
            address = Signal(16, name=f"{name}_address")
            with m.If(self.begin):
                m.d.sync += address.eq(first)
            with m.Elif(write):
                m.d.sync += address.eq(address + step)
            m.d.comb += [getattr(buffers, f"{name}_we").eq(write), getattr(buffers, f"{name}_waddr").eq(address)]

        def gather(port: str, beat, width: int) -> Value:
            """Lane-major beat of the APUs' ``port``; a lane that is not valid gives zeros."""
            return Cat(getattr(apu, port)[lane] & (beat.v1 if lane else beat.v0).replicate(width)
                       for lane in lanes for apu in self.apus)

        code1, code2 = self.stages[ADD1 + Converter.LATENCY], self.e_stages[ADD2 + Converter.LATENCY]
        wide, compared, scalar = self.stages[X_STAGE], self.e_stages[ADD2], self.stages[ADD1]

        counted("oa", run.oa0, code2.v & op.wa)
        m.d.comb += buffers.oa_wdata.eq(gather("code2", code2, 8))
        with m.If(softmax.oa_we):
            m.d.comb += [buffers.oa_we.eq(1), buffers.oa_waddr.eq(softmax.oa_addr), buffers.oa_wdata.eq(softmax.oa_data)]

        raw = op.wb == OutB.INDEX
        counted("ob", run.ob0, (code1.v & (op.wb == OutB.CODE1)) | (self.stages[X_STAGE].v & raw))
        m.d.comb += buffers.ob_wdata.eq(Mux(raw, gather("index", wide, 8), gather("code1", code1, 8)))

        counted("xout", run.dwbase, wide.v & op.wx)
        m.d.comb += buffers.xout_wdata.eq(gather("wide", wide, 64))
        counted("logit", run.ob0, scalar.v & (op.dst == Destination.LOGIT), run.om0)
        m.d.comb += buffers.logit_wdata.eq(Cat(Cat(apu.logit, apu.logit[-1].replicate(8)) for apu in self.apus))

        # Eight beats of bits make one bitmap beat; a plane's last one may be shorter.
        width = LANES * self.config.group
        slot = Signal(3)
        gathered = Signal(8 * width)
        now = Signal(8 * width)
        bits = gather("bit", compared, 1)
        active = compared.v & op.wm
        full = active & ((slot == 7) | compared.last)
        m.d.comb += [now.eq(gathered | (bits << (slot * width))), buffers.om_wdata.eq(now)]
        counted("om", run.om0, full)
        with m.If(self.begin):
            m.d.sync += [slot.eq(0), gathered.eq(0)]
        with m.Elif(active):
            m.d.sync += [slot.eq(Mux(full, 0, slot + 1)), gathered.eq(Mux(full, 0, now))]

        m.d.comb += [buffers.p_we.eq(self.store_entry), buffers.p_waddr.eq(buffers.p_addr),
                     buffers.p_wdata.eq(Cat(apu.store for apu in self.apus))]
