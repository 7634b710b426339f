"""Third stage of the A-Core, its control: takes a prepared command and issues its beats, one a cycle, or in turns
(:mod:`gradloom.rtl.acore.turns`)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode, XSource
from gradloom.contracts.microcode import Operand
from gradloom.contracts.pipeline import LONG_SWEEP, SWEEP_END
from gradloom.rtl.acore.align import SHIFT_BITS
from gradloom.rtl.acore.apu import ADD1, CODE1, CODE2, CONVERTER_SHIFT_BITS
from gradloom.rtl.acore.buffer_ports import StreamAddresses, StreamUse
from gradloom.rtl.acore.micro_layout import MicroLayout
from gradloom.rtl.acore.pool import POOL_LATENCY
from gradloom.rtl.acore.poolwalk import PoolWalk, Tap
from gradloom.rtl.acore.stream_address import Beat, PlaneAddressGenerator
from gradloom.rtl.acore.turns import Turns
from gradloom.rtl.command import HEAD_BITS, decode
from gradloom.rtl.core_reads import GradientRequest, PsumRequest
from gradloom.rtl.delay import Line, delayed

__all__ = ["FETCH", "Prepared", "Sweep", "issue_layout", "prepared"]

FETCH = 3
"""Cycles from the issue of a beat to its operands at the APUs (stage 0)."""
assert SWEEP_END == FETCH + ADD1 + CODE2 + 2 and LONG_SWEEP == CODE1 - ADD1
_SPAN = FETCH + CODE1 + CODE2
"""Cycles from ``go`` after which the last stage has taken its settings, so that the next command may replace them."""
_FINALS = 17
"""Least cycles from ``go`` to the command's last beat; so two last beats never meet in the statistics."""
_GAP = 7
"""Cycles in which a command on the short path must wait behind one with ``long``."""


def prepared(config: Config) -> StructLayout:
    """A command that is ready for the lanes: the words of RUN, its microinstruction and what the set-up made of them.

    ``sweep`` 0: there are no beats (``op`` is 0); one empty beat keeps the order of the commands. ``bank``: half of the plane
    registers.
    """
    group = config.group
    return StructLayout({
        "cmd": HEAD_BITS, "op": MicroLayout(), "sweep": 1, "bank": 1, "fault": 8, "row0": 16, "stride": 13,
        **dict.fromkeys(("sh1", "sh3", "shy"), SHIFT_BITS), **dict.fromkeys(("c1", "c2"), CONVERTER_SHIFT_BITS),
        "seed1": 32, "seed2": 32, "offsets": ArrayLayout(24, group), "gamma": ArrayLayout(16, group),
        "beta": ArrayLayout(16, group), "tau": ArrayLayout(16, group), "r": ArrayLayout(64, group)})


class Prepared(wiring.Signature):
    """``command`` is taken in a cycle in which ``valid`` and ``ready`` are high."""

    def __init__(self, config: Config) -> None:
        super().__init__({"valid": Out(1), "ready": In(1), "command": Out(prepared(config))})


def issue_layout(config: Config) -> StructLayout:
    """What leaves with a beat: the beat, a pooling tap, element index of lane 0 and channel 0, which eighth of the bitmap beat, and
    the lanes whose partial sum is nowhere stored (0).

    With several turns also that of what is read, ``tap_turn``, and that of the beat, which follows its taps. ``beat`` is final in
    the last turn alone.
    """
    turns = Turns(config)
    several = {"turn": turns.bits, "tap_turn": turns.bits} if turns.count > 1 else {}
    return StructLayout({"beat": Beat, "tap": Tap, "idx": 24, "slot": 3, "zeros": 2, **several})


class Sweep(wiring.Component):
    """Between the last beat of a command and the first one of the next are 2 cycles; with pools at most 23.

    A command on the short path behind one with ``long`` waits 7 cycles more. The present command's settings must have
    reached the lanes' last stage: from one command's first beat to the next one's are at least 35 cycles.

    Members
    -------
    i : ``In(Prepared)``
    go : ``Out(1)``
        A command begins: its first beat is issued in the next cycle or later.
    present : ``Out(prepared(config))``
        The command, from ``go`` on for at least 33 cycles and while its beats are issued.
    issue : ``Out(issue_layout(config))``
    use : ``Out(StreamUse())``
        With the issue.
    addresses : ``Out(StreamAddresses())``, psums : ``Out(PsumRequest())``, gradients : ``Out(GradientRequest())``
        Reads of the A-Core's streams and of the C-Core's results, one cycle after the issue.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.turns = config, Turns(config)
        super().__init__({
            "i": In(Prepared(config)), "go": Out(1), "present": Out(prepared(config)), "issue": Out(issue_layout(config)),
            "use": Out(StreamUse()), "addresses": Out(StreamAddresses()), "psums": Out(PsumRequest()),
            "gradients": Out(GradientRequest())})

    def elaborate(self, platform) -> Module:
        m = Module()
        present = self.present
        run, op = decode(Opcode.RUN, present.cmd), present.op
        m.submodules.walk = walk = PlaneAddressGenerator(self.config, run)
        m.submodules.pool = pool = PoolWalk(run, lut=self.config.apu_shifters == "lut")

        pooling = Signal()
        step, last = Signal(), Signal()
        # A turn is issued; in the last one of a beat, or of a tap, the walks go on.
        issued, turn_last = step, Const(1)
        if self.turns.count > 1:
            self.turn, issued, turn_last = Signal(self.turns.bits), Signal(), Signal()
            m.d.comb += turn_last.eq(self.turns.last(self.turn))
            with m.If(self.go):
                m.d.sync += self.turn.eq(0)
            with m.Elif(issued):
                m.d.sync += self.turn.eq(Mux(turn_last, 0, self.turn + 1))
        age = Signal(range(_SPAN + 1))
        gap = Signal(range(_GAP + 1))
        final, beat_done = walk.beat.final, pool.beat_done
        if self.turns.count > 1:
            # The walks stay for all turns of a beat, or tap, so that what ends it in the last one may come a cycle late: from a
            # register, which is where the longest paths through the walks end.
            final, beat_done = delayed(m, final, "final") & turn_last, delayed(m, beat_done, "beat_done")
        m.d.comb += [pooling.eq((op.x == Operand.POOL) & (run.pool != 0)), last.eq(final | ~present.sweep)]
        hold = (last & (age < _FINALS)) | (self.gradients.wait & (run.xsrc == XSource.DW))
        with m.If(self.go):
            m.d.sync += age.eq(0)
        with m.Elif(age != _SPAN):
            m.d.sync += age.eq(age + 1)
        with m.If(step & last & op.long):
            m.d.sync += gap.eq(_GAP)
        with m.Elif(gap != 0):
            m.d.sync += gap.eq(gap - 1)

        tapping = Signal()
        m.d.comb += [walk.start.eq(self.go), pool.start.eq(self.go), walk.row0.eq(present.row0), walk.stride.eq(present.stride),
                     pool.plane_beats.eq(present.row0), pool.row_last.eq(walk.row_last), pool.plane_last.eq(walk.beat.last),
                     pool.single.eq(~walk.beat.v1), walk.step.eq(step), pool.step.eq(tapping)]
        with m.FSM(name="sweep"):
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq((age == _SPAN) & ((gap == 0) | self.i.command.op.long))
                with m.If(self.i.ready & self.i.valid):
                    m.d.sync += present.eq(self.i.command)
                    m.next = "START"
            with m.State("START"):
                with m.If(pooling):
                    m.d.comb += pool.prepare.eq(1)
                    m.next = "POOL"
                with m.Else():
                    m.d.comb += self.go.eq(1)
                    m.next = "SWEEP"
            with m.State("POOL"), m.If(pool.ready):
                m.d.comb += self.go.eq(1)
                m.next = "SWEEP"
            with m.State("SWEEP"):
                if self.turns.count > 1:
                    # What has no beats has one turn.
                    done = (turn_last & (~pooling | beat_done)) | ~present.sweep
                    m.d.comb += [issued.eq(~hold), tapping.eq(issued & turn_last & pooling), step.eq(issued & done)]
                else:
                    with m.If(pooling):
                        m.d.comb += [tapping.eq(~hold), step.eq(tapping & pool.beat_done)]
                    with m.Else():
                        m.d.comb += step.eq(~hold)
                with m.If(step & last):
                    m.next = "IDLE"
                    with m.If(pooling):
                        m.next = "TAIL0"
            # The settings of a pool stay until its last beat has left.
            for i in range(POOL_LATENCY - 1):
                with m.State(f"TAIL{i}"):
                    m.next = f"TAIL{i + 1}" if i < POOL_LATENCY - 2 else "IDLE"
        if self.turns.count > 1:
            tapping, step = issued & pooling, issued & (~pooling | pool.beat_done)
        self._issue(m, run, op, walk, pool, pooling, step, last, tapping)
        return m

    def _issue(self, m: Module, run, op, walk, pool, pooling, step, last, tapping) -> None:
        """Of a turn; ``step``: of the beat, ``tapping``: of a tap."""
        beat = Signal(Beat)
        m.d.comb += [beat.eq(walk.beat), beat.v.eq(step), beat.final.eq(last)]
        # Only a pooling command's: the next command may be here before the last beat of the one before it is held no more.
        pooled = Signal(Beat)
        m.d.comb += pooled.eq(Mux(pooling, beat.as_value(), 0))
        held_beat = Beat(Line(m, pooled, "held_beat", reset=True)[POOL_LATENCY])
        held_idx = Line(m, walk.idx, "held_idx")[POOL_LATENCY]
        from_psum = run.xsrc == XSource.PSUM
        m.d.comb += [
            self.issue.beat.eq(Mux(pooling, held_beat.as_value(), beat.as_value())),
            self.issue.idx.eq(Mux(pooling, held_idx, walk.idx)),
            self.issue.tap.eq(pool.tap), self.issue.tap.v.eq(tapping),
            self.issue.slot.eq(walk.bits_slot), self.issue.zeros.eq(Cat(walk.psum.zero0, walk.psum.zero1) & from_psum.replicate(2)),
        ]
        if self.turns.count > 1:
            held_turn = Line(m, self.turn, "held_turn")[POOL_LATENCY]
            m.d.comb += [self.issue.turn.eq(Mux(pooling, held_turn, self.turn)), self.issue.tap_turn.eq(self.turn)]
        offset = Mux(pooling, pool.addr, walk.offset)
        wide = step & (op.x == Operand.IN)
        use, at, psums, gradients = self.use, self.addresses, self.psums, self.gradients
        m.d.comb += [use.reads.eq(Mux(pooling, tapping, step)), use.aa_odd.eq(run.sa0[0] ^ offset[0]),
                     use.ab_odd.eq(run.sb0[0] ^ offset[0]), use.both.eq(op.rest)]
        m.d.sync += [
            at.en.eq(use.reads),
            at.aa.eq(run.sa0 + offset), at.ab.eq(run.sb0 + offset),
            at.am.eq(run.sm0 + walk.bits_addr), at.rest.eq(run.sm0 + walk.offset), at.rests_en.eq(op.rest),
            at.xin.eq(run.dwbase + walk.offset),
            psums.en.eq(wide & from_psum), psums.half.eq(run.half), psums.wpu.eq(walk.psum.wpu),
            psums.bank0.eq(walk.psum.bank0), psums.addr0.eq(walk.psum.addr0),
            psums.bank1.eq(walk.psum.bank1), psums.addr1.eq(walk.psum.addr1),
            gradients.en.eq(wide & (run.xsrc == XSource.DW)), gradients.addr.eq(run.dwbase + walk.offset),
        ]
