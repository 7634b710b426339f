"""Third stage of the A-Core, its data: the lanes of all channels, their settings on the way, statistics, completion.

Where a beat comes in turns (:mod:`gradloom.rtl.acore.turns`), what is said of a beat here holds for each of its turns.
"""

import functools
from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode, XSource
from gradloom.contracts.microcode import Y3, Base, Factor, Operand, OutB, Term3
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl import shared_module
from gradloom.rtl.acore.align import chosen, narrow_settings, product_fraction, product_over
from gradloom.rtl.acore.apu import (
    ADD1,
    ADD2,
    BACK,
    CHANNEL_BACK,
    CHANNEL_FRONT,
    CODE1,
    CODE2,
    LANES,
    STAT1,
    STAT2,
    STEP_BITS,
    Apu,
    ChannelSettings,
    Source,
    front,
    settings_layout,
)
from gradloom.rtl.acore.buffer_ports import ResultWrites, StreamData
from gradloom.rtl.acore.converter import LENGTH_BITS, Converter, larger, statistic
from gradloom.rtl.acore.plane_ports import PlaneScalarsRead
from gradloom.rtl.acore.result_writer import ResultStream, ResultWriter
from gradloom.rtl.acore.stream_address import Beat
from gradloom.rtl.acore.sweep import FETCH, issue_layout, prepared
from gradloom.rtl.acore.turns import Turns
from gradloom.rtl.command import decode
from gradloom.rtl.core_reads import gradient_lanes, psum_lanes
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.pint import V_BITS
from gradloom.rtl.registers.register_ports import Hyperparameters
from gradloom.rtl.tensor_ports import StatisticUpdate

__all__ = ["Lanes"]

_WIDE_STAGE = 2
_BIT_STAGE = ADD2 + 1
_MERGING = 2
"""Registered levels of pairs before the statistics of all channels meet."""


class Lanes(wiring.Component):
    """A beat takes 26 cycles from its issue to output A, with ``long`` 33; ``done`` comes 3 cycles after the last one.

    Settings change in each stage when ``go`` passes it, so that the first beat of a command follows the last one of
    the command before through the pipeline.

    Members
    -------
    go, present, issue : ``In``
        From :class:`gradloom.rtl.acore.sweep.Sweep`.
    streams : ``In(StreamData(config))``
        Two cycles after the issue.
    psums, gradients : ``In(psum_lanes(config))``, ``In(gradient_lanes(config))``
        What was read of the C-Core's results; ``FETCH`` cycles after the issue.
    planes : ``Out(PlaneScalarsRead(config))``
    hyper : ``In(Hyperparameters())``
    statistics : ``Out(StatisticUpdate())``
    done, fault : ``Out(1)``, ``Out(8)``
        The command's last output is written; the fault is not 0 in this cycle if there was one.
    results : ``Out(ResultWrites(config))``
    """

    def __init__(self, config: Config) -> None:
        self.config, self.turns = config, Turns(config)
        self.outputs = ResultWriter(config)
        super().__init__({
            "go": In(1), "present": In(prepared(config)), "issue": In(issue_layout(config)),
            "streams": In(StreamData(config)), "psums": In(psum_lanes(config)), "gradients": In(gradient_lanes(config)),
            "planes": Out(PlaneScalarsRead(config)), "hyper": In(Hyperparameters()), "statistics": Out(StatisticUpdate()),
            "done": Out(1), "fault": Out(8), "results": Out(ResultWrites(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        present = self.present
        self.run, self.op = decode(Opcode.RUN, present.cmd), present.op
        self.apus = [shared_module.add(m, f"apu{c}", "apu", Apu(self.config), self.config) for c in range(self.config.apus)]

        # Beats and the change of settings, by stage; the E stages begin behind encoder 1 for the long path.
        self.go_line = Line(m, Cat(self.go, self.op.long), "go", reset=True)
        beats = Line(m, Cat(self.issue.beat, self.op.long), "beat", reset=True)
        short, late = beats[FETCH + ADD1], beats[FETCH + CODE1]
        behind = Signal()
        first = Signal(Beat)
        m.d.comb += [behind.eq(late[-1] & Beat(late[:-1]).v),
                     first.eq(Mux(behind, late[:-1], short[:-1])), first.v.eq(behind | (Beat(short[:-1]).v & ~short[-1]))]
        go_short, go_late = self.go_line[FETCH + ADD1], self.go_line[FETCH + CODE1]
        self.e_go_line = Line(m, (go_short[0] & ~go_short[1]) | (go_late[0] & go_late[1]), "e_go", reset=True)
        e_beats = Line(m, first, "e_beat", reset=True)
        self.behind = behind
        self.beat = lambda stage: Beat(beats[FETCH + stage][:-1])
        self.e_beat = lambda stage: Beat(e_beats[stage])
        self.turn = self.e_turn = self.tap_turn = lambda stage: Const(0, 0)
        if self.turns.count > 1:
            turns, tap_turns = Line(m, self.issue.turn, "turn"), Line(m, self.issue.tap_turn, "tap_turn")
            e_turns = Line(m, Mux(behind, turns[FETCH + CODE1], turns[FETCH + ADD1]), "e_turn")
            self.turn, self.tap_turn, self.e_turn = lambda stage: turns[FETCH + stage], lambda stage: tap_turns[FETCH + stage], (
                lambda stage: e_turns[stage])

        self._settings(m)
        self._operands(m)
        self._indices(m)
        self._outputs(m)
        bad = self._overflow(m)
        self._complete(m, bad)
        return m

    # -- settings --------------------------------------------------------------------------------------------------------

    def _at(self, m: Module, stage: int, value: Value, name: str) -> Signal:
        """``value`` of the command whose beats are in ``stage``."""
        register = Signal(Value.cast(value).shape(), name=name, reset_less=True)
        with m.If(self.go_line[FETCH + stage][0]):
            m.d.sync += register.eq(value)
        return register

    def _e_at(self, m: Module, stage: int, value: Value, name: str) -> Signal:
        """The same for an E stage."""
        register = Signal(Value.cast(value).shape(), name=f"e_{name}", reset_less=True)
        with m.If(self.e_go_line[stage]):
            m.d.sync += register.eq(value)
        return register

    def _settings(self, m: Module) -> None:
        run, op, present = self.run, self.op, self.present
        lut = self.config.apu_shifters == "lut"
        inverse = Mux(op.factor == Factor.INV, run.inv, 1)
        values = {name: op[name] for name in ("keep", "t2", "c1le", "long", "m2a", "m2b", "y2", "y3", "cmp", "c2le")}
        values |= {name: present[name] for name in ("c1", "c2", "seed1", "seed2")}
        values |= {
            "rests": op.rest, "feedback": op.rest,
            "pool_max": (run.pool == 1) & run.pmax, "pool_match": (run.pool == 2) & run.pmax, "scaled": op.factor == Factor.Q,
            "factor": inverse if lut else inverse << present.sh1[:3],
            "octet1": present.sh1[3:6], "fraction1": product_fraction(present.sh1), "low1": present.sh1[:3],
            "coarse1": present.sh1[5:], "fine1": present.sh1[3:5].replicate(2), "over1": product_over(present.sh1),
            # What is only exported may be wider than what MUL1 takes.
            "check": op.wa | op.wm | op.wl | (op.wb != OutB.NONE), "momentum": self.hyper.momentum, "lm": self.hyper.lm,
            "t3": (op.t3 == Term3.D) | ((op.t3 == Term3.DECAY) & ~self.hyper.decay_off), "index": op.wb == OutB.INDEX,
            "r1": run.r1, "r2": run.r2, "f1": run.f1[4], "f2": run.f2[4], "whole": op.wl,
            "based": op.base == Base.PRODUCT, "base_t": op.base == Base.T,
            "minus": (op.y3 == Y3.PRODUCT) & (op.base != Base.T)}
        for which, amount, width in (("3", present.sh3, V_BITS), ("y", present.shy, STEP_BITS)):
            values |= {f"{name}{which}": value for name, value in narrow_settings(amount, width, lut=lut).items()}
        settings = Signal(settings_layout(self.config))
        m.d.comb += [settings[name].eq(self._at(m, stage, values[name], name)) for name, (_, stage) in front(self.config).items()]
        m.d.comb += [settings[name].eq(self._e_at(m, stage, values[name], name)) for name, (_, stage) in BACK.items()]
        sources = {"offset1": "offsets", "offset2": "offsets"}
        for a, apu in enumerate(self.apus):
            m.d.comb += apu.settings.eq(settings)
            served = range(a * self.turns.channels, (a + 1) * self.turns.channels)
            for name in ChannelSettings.members:
                ahead = name in CHANNEL_FRONT
                stage = (CHANNEL_FRONT if ahead else CHANNEL_BACK)[name][1]
                taken = [(self._at if ahead else self._e_at)(m, stage, present[sources.get(name, name)][c], f"{name}_{c}")
                         for c in served]
                turn = (self.turn if ahead else self.e_turn)(stage)
                m.d.comb += apu.channel[name].eq(chosen(self.turns.channel(turn), taken))

    # -- operands --------------------------------------------------------------------------------------------------------

    def _operands(self, m: Module) -> None:
        run, group = self.run, self.config.group
        adds = self._at(m, -1, run.xin & (run.xsrc == XSource.DW), "adds")
        sources = {XSource.PSUM: Source.PSUM, XSource.DW: Source.DW}
        taken = Signal(Source)
        with m.Switch(self.op.x):
            with m.Case(Operand.IN), m.Switch(run.xsrc):
                for xsrc, source in sources.items():
                    with m.Case(xsrc):
                        m.d.comb += taken.eq(source)
            with m.Case(Operand.POOL):
                m.d.comb += taken.eq(Source.POOL)
        source = self._at(m, 0, Value.cast(taken), "source")
        turns, before, now = self.turns, self.tap_turn(-1), self.tap_turn(0)
        slots, streams, eighth = Line(m, self.issue.slot, "slot"), self.streams, self.streams.am
        if turns.count > 1:
            eighth = turns.picked(streams.am.word_select(slots[FETCH - 1], LANES * group), 1, before)
        data = {"a": turns.picked(streams.aa, 8, before, whole=True), "b": turns.picked(streams.ab, 8, before, whole=True),
                "m": eighth, "xin": turns.picked(streams.xin, 64, before)}
        bytes_a, bytes_b, bits, addend = (Signal.like(value, name=f"{name}_operand", reset_less=True)
                                          for name, value in data.items())
        m.d.sync += [bytes_a.eq(data["a"]), bytes_b.eq(data["b"]), bits.eq(data["m"]), addend.eq(Mux(adds, data["xin"], 0))]
        rests = delayed(m, turns.picked(streams.rest, 8, before, whole=True), "rests_operand")
        slot, zeros = slots[FETCH] if turns.count == 1 else 0, Line(m, self.issue.zeros, "zeros")[FETCH]
        tap = Line(m, self.issue.tap, "tap", reset=True)[FETCH]
        mask = Signal(turns.lanes * len(self.apus))
        m.d.comb += [mask.eq(bits.word_select(slot, len(mask))),
                     self.planes.at.eq(self.beat(0).plane | (self._at(m, 0, self.present.bank, "bank") << 7))]
        planes = [plane.as_value() for plane in self.planes.scalars]
        for a, apu in enumerate(self.apus):
            m.d.comb += [apu.tap.eq(tap), apu.plane.eq(turns.of_channel(a, self.turn(1), planes))]
            if turns.count > 1:
                m.d.comb += apu.turn.eq(now)
            if turns.lanes < LANES:
                m.d.comb += apu.column.eq(turns.column(now))
            psums, sums = ([turns.of_channel(a, now, list(column)) for column in read] for read in (self.psums, self.gradients))
            zero, psum, dw = (turns.of_columns(now, list(values)) for values in (zeros, psums, sums))
            for lane in range(LANES):
                at = lane * len(self.apus) + a
                if lane < turns.lanes:
                    m.d.comb += [
                        Value.cast(apu.source[lane]).eq(Mux(zero[lane], 0, source)),
                        apu.psum[lane].eq(psum[lane]), apu.dw[lane].eq(dw[lane]),
                        apu.xin[lane].eq(addend[64 * at:64 * at + 64]),
                    ]
                m.d.comb += [port[lane].eq(of[8 * at:8 * at + 8])
                             for port, of in ((apu.a, bytes_a), (apu.b, bytes_b), (apu.rest, rests))]
                if lane < turns.lanes:
                    m.d.comb += apu.mask[lane].eq(mask[at])

    def _indices(self, m: Module) -> None:
        """Element indices of channel 0 for the dithers."""
        run = self.run
        at1, at2 = CHANNEL_FRONT["offset1"][1], CHANNEL_BACK["offset2"][1]
        step = Mux(run.xsrc == XSource.DW, run.s_lane, 1)
        index = Line(m, self.issue.idx, "idx")
        idx1 = index[FETCH + at1]
        idx2 = Mux(self._e_at(m, at2, self.op.long, "long_idx"), index[FETCH + CODE1 + at2], index[FETCH + ADD1 + at2])
        next1 = idx1 + self._at(m, at1, step, "step")
        next2 = idx2 + self._e_at(m, at2, step, "step")
        first, second = (self.turns.of_columns(turn, pair)
                         for turn, pair in ((self.turn(at1), [idx1, next1]), (self.e_turn(at2), [idx2, next2])))
        for apu in self.apus:
            m.d.comb += [port[lane].eq(value) for port, values in ((apu.idx1, first), (apu.idx2, second))
                         for lane, value in enumerate(values)]

    # -- results ---------------------------------------------------------------------------------------------------------

    def _outputs(self, m: Module) -> None:
        run, op = self.run, self.op
        m.submodules.outputs = outputs = self.outputs

        connect(m, outputs.writes, flipped(self.results))

        def leaves(name: str, stream: ResultStream, go: Value, first: Value, beat: Beat, turn: Value, enable: Value,
                   values: list[Value]) -> None:
            gated = Signal(Beat, name=f"{name}_gated")
            m.d.comb += [gated.eq(beat), gated.v.eq(beat.v & enable), stream.go.eq(go), stream.first.eq(first),
                         stream.beat.eq(gated)]
            if self.turns.count > 1:
                m.d.comb += stream.turn.eq(turn)
            m.d.comb += [stream.data[a].eq(value) for a, value in enumerate(values)]

        def go(stage: int) -> Value:
            return self.go_line[FETCH + stage][0]

        e_go = self.e_go_line
        enable_b = self._at(m, CODE1, op.wb != OutB.NONE, "wb")
        enable_a = self._e_at(m, CODE2, op.wa, "wa")
        last, bit_last = self.e_turn(CODE2), self.e_turn(_BIT_STAGE)
        apus = self.apus
        leaves("oa", outputs.oa, e_go[CODE2], run.oa0, self.e_beat(CODE2), last, enable_a, [apu.code2 for apu in apus])
        leaves("rest", outputs.rest, e_go[CODE2], run.om0, self.e_beat(CODE2), last, self._e_at(m, CODE2, op.rest, "rest"),
               [apu.rest2 for apu in apus])
        leaves("ob", outputs.ob, go(CODE1), run.ob0, self.beat(CODE1), self.turn(CODE1), enable_b, [apu.code1 for apu in apus])
        leaves("om", outputs.om, e_go[_BIT_STAGE], run.om0, self.e_beat(_BIT_STAGE), bit_last,
               self._e_at(m, _BIT_STAGE, op.wm, "wm"), [apu.bit for apu in apus])
        leaves("xout", outputs.xout, go(_WIDE_STAGE), run.dwbase, self.beat(_WIDE_STAGE), self.turn(_WIDE_STAGE),
               self._at(m, _WIDE_STAGE, op.wx, "wx"), [apu.wide for apu in apus])
        leaves("logit", outputs.logit, e_go[CODE2], run.ob0, self.e_beat(CODE2), last, self._e_at(m, CODE2, op.wl, "wl"),
               [apu.logit for apu in apus])
        m.d.comb += outputs.logit_step.eq(run.om0)

        enable1 = self._valid(ADD1) & self._at(m, ADD1, op.wb == OutB.CODE1, "encodes").replicate(self.turns.lanes)
        enable2 = self._valid(_BIT_STAGE, behind=True) & (
            self._e_at(m, _BIT_STAGE, op.wa | op.wl, "encodes").replicate(self.turns.lanes))
        for apu in self.apus:
            m.d.comb += [apu.enable1.eq(enable1), apu.enable2.eq(enable2)]

    def _valid(self, stage: int, *, behind: bool = False) -> Value:
        """By lane, whether there is a value; ``behind``: in an E stage."""
        beat, turn = (self.e_beat(stage), self.e_turn(stage)) if behind else (self.beat(stage), self.turn(stage))
        valid = self.turns.of_columns(turn, [beat.v0, beat.v1])
        return Cat(*valid) & beat.v.replicate(len(valid))

    def _overflow(self, m: Module) -> Value:
        """Whether anything went wrong with the beat in E stage ``CODE2``, on its way through the lanes."""
        def flagged(flags: Iterable[Value], stage: int, *, behind: bool = False) -> Value:
            lanes = 0
            for flag in flags:
                lanes = lanes | flag
            return (lanes & self._valid(stage, behind=behind)).any()

        bad = Line(m, flagged((apu.wide_operand for apu in self.apus), 3), "bad3")[ADD1 - 3] | flagged(
            (apu.lost_t for apu in self.apus), ADD1)
        bad = Mux(self.behind, Line(m, bad, "bad10")[Converter.LATENCY], bad)
        bad = Line(m, bad, "bad_e0")[ADD2] | flagged((apu.lost_y for apu in self.apus), ADD2, behind=True)
        return Line(m, bad, "bad_e5")[CODE2 - ADD2]

    def _complete(self, m: Module, bad: Value) -> None:
        """Statistics of the command's encoders, then ``done``."""
        run = self.run
        taken = [Signal(LENGTH_BITS, name=f"taken{i}") for i in (1, 2)]
        for target, name, lengths, clear, beat in (
                (taken[0], "stat1", [apu.stat1 for apu in self.apus],
                 self.go_line[FETCH + STAT1 + _MERGING][0], self.beat(STAT1 + _MERGING + 1)),
                (taken[1], "stat2", [apu.stat2 for apu in self.apus],
                 self.e_go_line[STAT2 + _MERGING], self.e_beat(STAT2 + _MERGING + 1))):
            merged = Signal(LENGTH_BITS, name=f"merged_{name}")
            for level in range(_MERGING):
                lengths = [delayed(m, functools.reduce(larger, lengths[i:i + 2]), f"{name}_{level}_{i}")
                           for i in range(0, len(lengths), 2)]
            m.d.sync += merged.eq(larger(Mux(clear, 0, merged), functools.reduce(larger, lengths)))
            with m.If(beat.v & beat.final):
                m.d.sync += target.eq(merged)
        last = self.e_beat(CODE2)

        sticky = Signal()
        with m.If(self.e_go_line[CODE2]):
            m.d.sync += sticky.eq(0)
        with m.Elif(last.v):
            m.d.sync += sticky.eq(sticky | bad)
        tids = [self._e_at(m, CODE2, tid, f"tid{i}") for i, tid in enumerate((run.t1, run.t2))]
        brought = self._e_at(m, CODE2, self.present.fault, "fault")
        final = Line(m, last.v & last.final, "final2", reset=True)
        f16 = [self._e_at(m, CODE2, bit, f"f16_{i}") for i, bit in enumerate((run.f1[4], run.f2[4]))]
        tids_then, f16_then, fault_then = [Signal.like(tid) for tid in tids], Signal(2), Signal(8)
        with m.If(final[0]):
            m.d.sync += [then.eq(now) for then, now in zip(tids_then, tids, strict=True)]
            m.d.sync += f16_then.eq(Cat(*f16))
            m.d.sync += fault_then.eq(Mux((brought == 0) & (sticky | bad), ErrorCode.GRADIENT_SUM_OVERFLOW, brought))
        second = final[2]
        length = statistic(Mux(second, taken[1], taken[0]), Mux(second, f16_then[1], f16_then[0]))
        m.d.comb += [
            self.statistics.valid.eq((final[1] & (tids_then[0] != 0)) | (second & (tids_then[1] != 0))),
            self.statistics.tid.eq(Mux(second, tids_then[1], tids_then[0])),
            # Of a statistic only the bit length counts.
            self.statistics.value.eq((1 << length) >> 1),
            self.done.eq(final[3]), self.fault.eq(Mux(final[3], fault_then, 0)),
        ]
