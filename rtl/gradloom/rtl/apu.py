"""Auxiliary processing unit: the two lanes, registers and operation blocks of one channel (ETA, section IV-C, figure 10).

A lane is a linear pipeline; the organisation network of the paper is the multiplexer in front of each stage, set by the
microinstruction (:mod:`gradloom.rtl.microcode`), which stays the same while a sweep is in the pipeline.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl import emit
from gradloom.rtl.align import WIDE, Align, saturated
from gradloom.rtl.config import Config
from gradloom.rtl.converter import Converter
from gradloom.rtl.dither import Dither
from gradloom.rtl.divider import Divider
from gradloom.rtl.microcode import (
    Y2,
    Y3,
    Accumulate,
    Base,
    Compare,
    Destination,
    Factor,
    MicroLayout,
    Multiplicand,
    Multiplier,
    Operand,
    Register,
    Term2,
    Term3,
)
from gradloom.rtl.pint import V_BITS, decode
from gradloom.rtl.planes import Beat
from gradloom.rtl.poolwalk import Tap

__all__ = ["ADD1", "ADD2", "CHECK", "LANES", "MUL2", "PRODUCT_BITS", "X_STAGE", "Apu", "Setup"]

LANES = 2
X_STAGE = 2
"""Stage (cycles after the operands arrive) in which the wide operand is valid."""
CHECK = 3
"""Stage in which abs(x) is valid and a wide operand that MUL1 cannot take is reported."""
ADD1 = 7
"""Stage in which t is valid; encoder 1 follows. Stages E0, E1, ... follow it, or encoder 1."""
MUL2 = 2
"""E stage in which the product of MUL2 is valid."""
ADD2 = 6
"""E stage in which bit and r are valid; encoder 2 follows."""
PRODUCT_BITS = 48
"""Bits of x that enter MUL1; a wider x is saturated and reported."""

Setup = StructLayout({
    "epsilon": 64, "n": 15, "inv": 17, "momentum": 8, "lm": 8, "decay_off": 1, "r1": 1, "r2": 1, "f16_1": 1, "f16_2": 1,
    "seed1": 32, "seed2": 32, "idx_channel": 24, "pool_max": 1, "pool_match": 1,
    "sh1": signed(9), "sh3": signed(9), "shy": signed(9), "c1": signed(12), "c2": signed(12)})
"""Constants of a command; the shifts are those that the present microinstruction selects."""


def _stage(m: Module, value: Value, name: str, stages: int = 1) -> Value:
    """``value`` that many cycles later."""
    for i in range(stages):
        register = Signal(Value.cast(value).shape(), name=f"{name}_{i + 1}" if stages > 1 else name, reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


def _clamped_shift(value: Value) -> Value:
    return saturated(value, 9)


class Apu(wiring.Component):
    """Two lanes of one channel. Operands of a beat arrive together in stage 0; nothing ever stalls.

    Members
    -------
    op : ``In(MicroLayout())``
        Present microinstruction.
    setup : ``In(Setup)``
    clear : ``In(1)``
        Start of a command: sums, statistics and the overflow flag become 0.
    x : ``In(signed(48))`` x 2
        Partial sums or weight gradients.
    xin : ``In(signed(64))`` x 2
        Added to them.
    a, b : ``In(8)`` x 2
        Bytes of the streams.
    mask : ``In(2)``
        Bits of the bitmap stream.
    tap : ``In(Tap)``
        Pooling tap in ``a``, ``b``.
    plane : ``In(7)``
        Plane whose registers are read for the beat of stage 0.
    check : ``In(2)``
        Lanes whose beat is in stage 3.
    idx1, idx2 : ``In(24)`` x 2
        Element indices of channel 0, ``Dither.LATENCY + 1`` cycles before encoder 1, 2 takes the value.
    at_t : ``In(Beat)``
        Beat in stage ``ADD1``.
    at_y : ``In(2)``
        Lanes whose beat is in stage E``ADD2``.
    at_acc : ``In(Beat)``
        Beat whose abs(x) (stage 3) or product (stage E``MUL2``) is summed.
    count1, count2 : ``In(2)``
        Lanes whose encoder output counts in the statistics.
    divide : ``In(1)``
        Start the division of the plane read in the cycle before.
    divide_plane : ``In(7)``
    load : ``In(1)``, load_reg ``In(3)``, load_lambda ``In(1)``, load_plane ``In(7)``, entry ``In(64)``
        Register from the parameter buffer.
    store_reg : ``In(3)``, store_lambda ``In(1)`` -> store ``Out(64)``
        Register for the parameter buffer; lam of the plane read in the cycle before.
    wide : ``Out(64)`` x 2, index ``Out(8)`` x 2
        x, and position of the maximum, in stage 2.
    logit : ``Out(signed(24))``
        t of lane 0 in stage ``ADD1``.
    code1 : ``Out(8)`` x 2; bit ``Out(2)`` in stage E``ADD2``; code2 ``Out(8)`` x 2
    stat1, stat2 : ``Out(64)``
        OR of the statistics since ``clear``.
    overflow : ``Out(1)``
        Since ``clear``, a sum of gradients or of ADD1 or ADD2 left 64 bits, or an operand of MUL1 48 bits.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        byte2, plane = ArrayLayout(8, LANES), 7
        super().__init__({
            "op": In(MicroLayout()), "setup": In(Setup), "clear": In(1),
            "x": In(ArrayLayout(signed(PRODUCT_BITS), LANES)), "xin": In(ArrayLayout(signed(WIDE), LANES)),
            "a": In(byte2), "b": In(byte2), "mask": In(LANES), "tap": In(Tap), "plane": In(plane),
            "check": In(LANES),
            "idx1": In(ArrayLayout(24, LANES)), "idx2": In(ArrayLayout(24, LANES)),
            "at_t": In(Beat), "at_y": In(LANES), "at_acc": In(Beat), "count1": In(LANES), "count2": In(LANES),
            "divide": In(1), "divide_plane": In(plane),
            "load": In(1), "load_reg": In(3), "load_lambda": In(1), "load_plane": In(plane), "entry": In(64),
            "store_reg": In(3), "store_lambda": In(1), "store": Out(64),
            "wide": Out(ArrayLayout(WIDE, LANES)), "index": Out(byte2), "logit": Out(signed(24)),
            "code1": Out(byte2), "bit": Out(LANES), "code2": Out(byte2),
            "stat1": Out(64), "stat2": Out(64), "overflow": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        self._registers(m)
        self._pool(m)
        self._plane_scalars(m)
        lanes = [self._lane(m, lane) for lane in range(LANES)]
        self._accumulate(m, lanes)
        self._write_registers(m)
        return m

    # -- registers ---------------------------------------------------------------------------------------------------

    def _registers(self, m: Module) -> None:
        self.gamma = Signal(signed(16))
        self.beta = Signal(signed(16))
        self.tau = Signal(signed(16))
        self.velocity = Signal(signed(32))
        self.master = Signal(signed(32))
        self.r = Signal(signed(WIDE))
        self.sums = [Signal(signed(WIDE), name=name) for name in ("sg", "sb", "st")]
        self.t = Signal(signed(WIDE))

    def _plane_scalars(self, m: Module) -> None:
        """Plane registers: S 64, {le, q} 24, mean 24, gl 16 bits a plane; read in stage 0, so present in stage 1."""
        depth = self.config.max_planes
        self.planes = {}
        for name, width in (("s", 64), ("lam", 24), ("mean", 24), ("gl", 16)):
            memory = Memory(shape=width, depth=depth, init=[])
            m.submodules[f"plane_{name}"] = memory
            read = memory.read_port()
            m.d.comb += read.addr.eq(self.plane)
            self.planes[name] = (memory.write_port(), read.data)
        self.le = _stage(m, self.planes["lam"][1][16:24], "le", ADD1 - 2)
        self.le_late = _stage(m, self.le, "le_late", ADD2)
        self.mean = _stage(m, self.planes["mean"][1].as_signed(), "mean", ADD1 - 1)
        self.gl = _stage(m, self.planes["gl"][1].as_signed(), "gl", ADD1 - 1)

        divider = emit.add(m, "divider", "divider", Divider())
        m.d.comb += [divider.start.eq(self.divide), divider.s.eq(self.planes["s"][1]), divider.n.eq(self.setup.n)]
        self.divider = divider

    def _write_registers(self, m: Module) -> None:
        t = self.t
        at, dst = self.at_t, self.op.dst
        write = Signal()
        m.d.comb += write.eq(at.v)

        masters = self.load & (self.load_reg < Register.SG)
        with m.If(masters):
            m.d.sync += [self.master.eq(self.entry[:32]), self.velocity.eq(self.entry[32:])]
        for register, signal in ((Register.GAMMA, self.gamma), (Register.BETA, self.beta), (Register.TAU, self.tau)):
            with m.If(self.load & (self.load_reg == register)):
                m.d.sync += signal.eq(self.entry[12:28])
        for register, signal in zip((Register.SG, Register.SB, Register.ST), self.sums, strict=True):
            with m.If(self.load & (self.load_reg == register)):
                m.d.sync += signal.eq(self.entry)
            with m.If(self.store_reg == register):
                m.d.comb += self.store.eq(signal)
        with m.If(self.store_reg < Register.SG):
            m.d.comb += self.store.eq(Cat(self.master, self.velocity))
        with m.If(self.store_lambda):
            m.d.comb += self.store.eq(self.planes["lam"][1])

        with m.If(write), m.Switch(dst):
            with m.Case(Destination.R):
                m.d.sync += self.r.eq(t)
            with m.Case(Destination.GRAD):
                m.d.sync += self.r.eq(saturated(t, 32))
            with m.Case(Destination.V):
                m.d.sync += self.velocity.eq(saturated(t, 32))
            with m.Case(Destination.P):
                m.d.sync += self.master.eq(saturated(t, 28))
        with m.If(self.clear):
            m.d.sync += [*(s.eq(0) for s in self.sums), self.r.eq(0), self.velocity.eq(0), self.master.eq(0)]

        mean_write, gl_write = self.planes["mean"][0], self.planes["gl"][0]
        lam_write, s_write = self.planes["lam"][0], self.planes["s"][0]
        m.d.comb += [
            self.logit.eq(saturated(t, 24)),
            mean_write.en.eq(write & (dst == Destination.MEAN)), mean_write.addr.eq(at.plane),
            mean_write.data.eq(saturated(t, 24)),
            gl_write.en.eq(write & (dst == Destination.GL)), gl_write.addr.eq(at.plane), gl_write.data.eq(saturated(t, 16)),
            lam_write.en.eq(self.divider.done | self.load_lambda),
            lam_write.addr.eq(Mux(self.load_lambda, self.load_plane, self.divide_plane)),
            lam_write.data.eq(Mux(self.load_lambda, self.entry[:24], Cat(self.divider.q, self.divider.le))),
            s_write.en.eq(self.plane_done), s_write.addr.eq(self.plane_done_at), s_write.data.eq(self.plane_sum),
        ]
        with m.If(write & at.first & (dst == Destination.S)):
            m.d.comb += [s_write.en.eq(1), s_write.addr.eq(at.plane), s_write.data.eq(t)]

    # -- pooling -----------------------------------------------------------------------------------------------------

    def _pool(self, m: Module) -> None:
        """Maximum or sum of the taps of a window; the two output positions of a beat one after the other."""
        tap = _stage(m, self.tap.as_value(), "tap1")
        tap = Tap(tap)
        value = Signal(signed(V_BITS), reset_less=True)
        position = Signal(8, reset_less=True)
        m.d.sync += [value.eq(decode(self.a[self.tap.lane])), position.eq(self.b[self.tap.lane])]
        best = Signal(signed(22), reset_less=True)
        best_k = Signal(8, reset_less=True)
        found = Signal(reset_less=True)
        old_found = Signal()
        new = Signal(signed(22))
        new_k = Signal(8)
        counts = Signal()
        m.d.comb += [
            old_found.eq(found & ~tap.first),
            counts.eq(tap.inside & (~self.setup.pool_match | (position == tap.k))),
        ]
        with m.If(self.setup.pool_max):
            better = counts & (~old_found | (value > best))
            m.d.comb += [new.eq(Mux(better, value, Mux(old_found, best, 0))),
                         new_k.eq(Mux(better, tap.k, Mux(old_found, best_k, 0)))]
        with m.Else():
            m.d.comb += new.eq(Mux(tap.first, 0, best) + Mux(counts, value, 0))
        with m.If(tap.v):
            m.d.sync += [best.eq(new), best_k.eq(new_k), found.eq(old_found | counts)]
        self.pooled = []
        for lane in range(LANES):
            held = Signal(signed(22), name=f"pooled{lane}", reset_less=True)
            held_k = Signal(8, name=f"pooled_k{lane}", reset_less=True)
            with m.If(tap.v & tap.last & (tap.out == lane)):
                m.d.sync += [held.eq(new), held_k.eq(new_k)]
            m.d.sync += self.index[lane].eq(held_k)
            self.pooled.append(held)

    # -- a lane ------------------------------------------------------------------------------------------------------

    def _lane(self, m: Module, lane: int) -> dict[str, Value]:
        op, setup = self.op, self.setup
        scalar = lane == 0

        def stage(value, name, stages=1):
            return _stage(m, value, f"{name}_l{lane}", stages)

        # Stages 1 and 2: decode and select.
        a1, b1 = stage(decode(self.a[lane]), "a1"), stage(decode(self.b[lane]), "b1")
        bit1 = stage(self.mask[lane] | op.keep, "bit1")
        sum1 = stage((self.x[lane] + self.xin[lane])[:WIDE].as_signed(), "sum1")
        a2, b2 = stage(a1, "a2"), stage(b1, "b2")
        d2 = stage(Mux(bit1, a1, 0).as_signed(), "d2")
        x2 = Signal(signed(WIDE), name=f"x2_l{lane}", reset_less=True)
        f2 = Signal(signed(18), name=f"f2_l{lane}", reset_less=True)
        with m.Switch(op.x):
            with m.Case(Operand.IN):
                m.d.sync += x2.eq(sum1)
            with m.Case(Operand.POOL):
                m.d.sync += x2.eq(self.pooled[lane])
            if scalar:
                with m.Case(Operand.S):
                    m.d.sync += x2.eq(self.planes["s"][1].as_signed())
                with m.Case(Operand.SUM), m.Switch(op.reg):
                    for register, signal in zip((Register.SG, Register.SB, Register.ST), self.sums, strict=True):
                        with m.Case(register):
                            m.d.sync += x2.eq(signal)
                with m.Case(Operand.Q):
                    m.d.sync += x2.eq(self.planes["lam"][1][:16])
                with m.Case(Operand.P):
                    m.d.sync += x2.eq(self.master)
                with m.Case(Operand.V):
                    m.d.sync += x2.eq(self.velocity)
            with m.Default():
                m.d.sync += x2.eq(0)
        with m.Switch(op.factor):
            with m.Case(Factor.Q):
                m.d.sync += f2.eq(self.planes["lam"][1][:16])
            with m.Case(Factor.INV):
                m.d.sync += f2.eq(setup.inv)
            with m.Case(Factor.MOMENTUM):
                m.d.sync += f2.eq(setup.momentum)
            with m.Case(Factor.LM):
                m.d.sync += f2.eq(setup.lm)
            with m.Default():
                m.d.sync += f2.eq(self.gamma)
        m.d.comb += self.wide[lane].eq(x2)

        # Stages 3 and 4, MUL1: 18-bit slices of x, so that each partial product is one 18 x 18 multiplier.
        narrow = Signal(signed(PRODUCT_BITS), name=f"narrow_l{lane}")
        m.d.comb += narrow.eq(saturated(x2, PRODUCT_BITS))
        wide3 = stage((narrow != x2) & (op.factor != Factor.NONE), "wide3")
        slices = [Cat(narrow[:17], Const(0, 1)).as_signed(), Cat(narrow[17:34], Const(0, 1)).as_signed(),
                  narrow[34:].as_signed()]
        parts = [stage((part * f2).as_signed(), f"part{i}") for i, part in enumerate(slices)]
        x3 = stage(x2, "x3")
        product = (parts[0] + (parts[1] << 17) + (parts[2] << 34))[:WIDE].as_signed()
        p4 = stage(Mux(op.factor == Factor.NONE, x3, product).as_signed(), "p4")

        # Stages 5 to 7: align and add.
        align1 = emit.add(m, f"align1_l{lane}", "align", Align(WIDE), WIDE)
        align3 = emit.add(m, f"align3_l{lane}", "align", Align(V_BITS), V_BITS)
        a4, b4, d4 = stage(a2, "a4", 2), stage(b2, "b4", 2), stage(d2, "d4", 2)
        m.d.comb += [align1.x.eq(p4), align1.n.eq(setup.sh1), align3.x.eq(d4), align3.n.eq(setup.sh3)]
        a6, b6, d6 = stage(a4, "a6", 2), stage(b4, "b6", 2), stage(d4, "d6", 2)
        b5 = stage(b4, "b5")
        push6 = stage(setup.momentum * b5, "push6")
        term1 = Mux(op.minus1, -align1.y, align1.y)
        term2 = Signal(signed(WIDE), name=f"term2_l{lane}")
        with m.Switch(op.t2):
            with m.Case(Term2.R):
                m.d.comb += term2.eq(self.r)
            with m.Case(Term2.MOMENTUM):
                m.d.comb += term2.eq(push6 << 8)
            if scalar:
                with m.Case(Term2.P):
                    m.d.comb += term2.eq(self.master)
        with_term3 = (op.t3 == Term3.D) | ((op.t3 == Term3.DECAY) & ~setup.decay_off)
        term3 = Mux(with_term3, align3.y, 0).as_signed()
        t7, lost7 = self._sum(m, f"t_l{lane}", term1, term2, term3)
        if scalar:
            m.d.comb += self.t.eq(t7)
        a7, b7, d7 = stage(a6, "a7"), stage(b6, "b7"), stage(d6, "d7")

        # Encoder 1.
        sh1 = stage(_clamped_shift(setup.c1 + Mux(op.c1le, self.le, 0)), "sh1")
        encoder1 = self._encoder(m, 1, lane, t7, sh1)
        m.d.comb += self.code1[lane].eq(encoder1.code)
        a_late = stage(a7, "a_late", Converter.LATENCY)

        # Stages E1 and E2: MUL2.
        multiplicand = Signal(signed(18), name=f"multiplicand_l{lane}", reset_less=True)
        multiplier = Signal(signed(16), name=f"multiplier_l{lane}", reset_less=True)
        toward = Mux(b7 == 0, 0, Mux(b7[-1], -self.mean, self.mean)).as_signed()
        u = Signal(signed(26), name=f"u_l{lane}")
        m.d.comb += u.eq((d7 << 4) - toward)
        with m.Switch(op.m2a):
            with m.Case(Multiplicand.U):
                m.d.sync += multiplicand.eq(saturated(u, 18))
            with m.Case(Multiplicand.D):
                m.d.sync += multiplicand.eq(d7)
            with m.Default():
                m.d.sync += multiplicand.eq(encoder1.v)
        with m.Switch(op.m2b):
            with m.Case(Multiplier.GAMMA):
                m.d.sync += multiplier.eq(self.gamma)
            with m.Case(Multiplier.GL):
                m.d.sync += multiplier.eq(self.gl)
            with m.Case(Multiplier.LM):
                m.d.sync += multiplier.eq(setup.lm)
            with m.Default():
                m.d.sync += multiplier.eq(b7)
        e_a2 = stage(Mux(op.long, a_late, a7).as_signed(), "e_a2", 2)
        e_t2 = stage(t7, "e_t2", 2)
        product2 = stage((multiplicand * multiplier).as_signed(), "product2")

        # Stages E3 to E5: align and add; E6: compare and select.
        aligny = emit.add(m, f"aligny_l{lane}", "align", Align(len(product2)), len(product2))
        m.d.comb += [aligny.x.eq(Mux(op.y3 == Y3.A, e_a2, product2)), aligny.n.eq(setup.shy)]
        base = Mux(op.base == Base.T, e_t2, Mux(op.base == Base.PRODUCT, product2, 0)).as_signed()
        base4, e_a4 = stage(base, "base4", 2), stage(e_a2, "e_a4", 2)
        y2 = Mux(op.y2 == Y2.BETA, self.beta << 8, Mux(op.y2 == Y2.A, e_a4 << 16, 0)).as_signed()
        y3 = Mux(op.y3 == Y3.A, aligny.y, Mux(op.y3 == Y3.PRODUCT, -aligny.y, 0)).as_signed()
        y5, lost5 = self._sum(m, f"y_l{lane}", base4, y2, y3)
        threshold = Mux(op.cmp == Compare.TAU, self.tau << 8, 0).as_signed()
        bit5 = Mux(op.cmp == Compare.TAU, y5 >= threshold, (op.cmp != Compare.ZERO) | (y5 > 0))
        m.d.comb += self.bit[lane].eq(stage(bit5, "bit6"))
        r6 = stage(Mux(bit5, y5, threshold).as_signed(), "r6")
        sh2 = stage(_clamped_shift(setup.c2 + Mux(op.c2le, self.le_late, 0)), "sh2")
        encoder2 = self._encoder(m, 2, lane, r6, sh2)
        m.d.comb += self.code2[lane].eq(encoder2.code)
        return {"x2": x2, "a": a7, "d": d7, "product": product2, "wide": wide3, "stat1": encoder1.stat,
                "stat2": encoder2.stat, "lost_t": lost7, "lost_y": stage(lost5, "lost6")}

    def _sum(self, m: Module, name: str, *terms: Value) -> tuple[Signal, Signal]:
        """Registered 64-bit sum of three terms, and whether it left 64 bits (behind an align that saturated)."""
        exact = Signal(signed(WIDE + 2), name=f"{name}_exact")
        total = Signal(signed(WIDE), name=name, reset_less=True)
        lost = Signal(name=f"{name}_lost")
        m.d.comb += exact.eq(sum(terms[1:], terms[0]))
        m.d.sync += [total.eq(exact), lost.eq(exact[WIDE - 1:] != exact[WIDE - 1].replicate(3))]
        return total, lost

    def _encoder(self, m: Module, which: int, lane: int, value: Value, shift: Value) -> Converter:
        setup = self.setup
        encoder = emit.add(m, f"encoder{which}_l{lane}", "converter", Converter())
        dither = emit.add(m, f"dither{which}_l{lane}", "dither", Dither())
        idx = self.idx1 if which == 1 else self.idx2
        m.d.comb += [
            dither.seed.eq(setup.seed1 if which == 1 else setup.seed2),
            dither.idx.eq(_stage(m, (idx[lane] + setup.idx_channel)[:24], f"idx{which}_l{lane}")),
            encoder.a.eq(value), encoder.sh.eq(shift), encoder.x24.eq(dither.x24),
            encoder.stochastic.eq(setup.r1 if which == 1 else setup.r2),
            encoder.f16.eq(setup.f16_1 if which == 1 else setup.f16_2),
        ]
        return encoder

    # -- sums, statistics --------------------------------------------------------------------------------------------

    def _accumulate(self, m: Module, lanes: list[dict[str, Value]]) -> None:
        op = self.op
        overflow = Signal()
        m.d.comb += self.overflow.eq(overflow)

        def added(total: Signal, addend: Value) -> Signal:
            exact = Signal(signed(WIDE + 1), name=f"{total.name}_exact")
            m.d.comb += exact.eq(total + addend)
            return exact

        def valid(beat, lane):
            return beat.v1 if lane else beat.v0

        # Per plane: one register after the lanes' addends, one for the sum.
        at, addends = self.at_acc, []
        for i, lane in enumerate(lanes):
            absolute = _stage(m, abs(lane["x2"]), f"abs_l{i}")
            addend = Mux(op.acc == Accumulate.ABS, absolute.as_signed(), lane["product"])
            addends.append(Mux(at.v & valid(at, i), addend, 0).as_signed())
        addend = Signal(signed(50), reset_less=True)
        beat = Signal(Beat)
        plane_sum = Signal(signed(WIDE), reset_less=True)
        m.d.sync += [addend.eq(addends[0] + addends[1]), beat.eq(at)]
        initial = Mux(op.acc == Accumulate.ABS, self.setup.epsilon, 0).as_signed()
        total = Signal(signed(WIDE), name="plane_total")
        m.d.comb += total.eq(Mux(beat.first, initial, plane_sum))
        exact = added(total, addend)
        self.plane_done = Signal()
        self.plane_done_at = Signal(7)
        self.plane_sum = plane_sum
        counting = beat.v & (op.acc != Accumulate.NONE)
        m.d.sync += self.plane_done.eq(counting & beat.last)
        with m.If(counting):
            m.d.sync += [plane_sum.eq(saturated(exact, WIDE)), self.plane_done_at.eq(beat.plane)]

        # Per channel.
        kept = [Mux(self.at_t.v & valid(self.at_t, i), lane["d"], 0).as_signed() for i, lane in enumerate(lanes)]
        cut = [Mux(self.at_t.v & valid(self.at_t, i), lane["a"] - lane["d"], 0).as_signed() for i, lane in enumerate(lanes)]
        kept8, cut8 = _stage(m, kept[0] + kept[1], "kept8"), _stage(m, cut[0] + cut[1], "cut8")
        summing = Signal()
        m.d.sync += summing.eq(self.at_t.v & op.sums)
        enables = (self.plane_done & (op.acc == Accumulate.PRODUCT), summing, summing)
        for enable, total, value in zip(enables, self.sums, (plane_sum, kept8, cut8), strict=True):
            exact = added(total, value)
            with m.If(enable):
                m.d.sync += total.eq(saturated(exact, WIDE))
                with m.If(exact[WIDE] != exact[WIDE - 1]):
                    m.d.sync += overflow.eq(1)

        with m.If((self.check & Cat(lane["wide"] for lane in lanes)).any()):
            m.d.sync += overflow.eq(1)
        at_t = Cat(self.at_t.v0, self.at_t.v1) & self.at_t.v.replicate(LANES)
        for lanes_at, key in ((at_t, "lost_t"), (self.at_y, "lost_y")):
            with m.If((lanes_at & Cat(lane[key] for lane in lanes)).any()):
                m.d.sync += overflow.eq(1)
        with m.If(self.clear):
            m.d.sync += overflow.eq(0)

        for which, count in ((1, self.count1), (2, self.count2)):
            stat = Signal(64, name=f"stat{which}_register")
            values = [Mux(count[i], lane[f"stat{which}"], 0) for i, lane in enumerate(lanes)]
            m.d.comb += (self.stat1 if which == 1 else self.stat2).eq(stat)
            m.d.sync += stat.eq(Mux(self.clear, 0, stat | values[0] | values[1]))
