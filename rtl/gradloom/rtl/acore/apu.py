"""Auxiliary processing unit: the two lanes of one channel (ETA, section IV-C, figure 10), or of several in turns.

A lane is a linear pipeline; the organisation network of the paper is the multiplexer in front of each stage, set by the
microinstruction (:mod:`gradloom.contracts.microcode`). A setting changes between the last beat of one command and the first beat of
the next one, in each stage at another time: ``FRONT`` and ``BACK`` say in which stage a setting is used.
"""

import functools

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import enum, wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.microcode import Y2, Y3, Compare, Multiplicand, Multiplier, Term2
from gradloom.rtl import shared_module
from gradloom.rtl.acore.align import WIDE, AlignNarrow, ProductAlign, lean_sum, saturated
from gradloom.rtl.acore.converter import LENGTH_BITS, Converter, below, larger
from gradloom.rtl.acore.dither import Dither
from gradloom.rtl.acore.plane_ports import PlaneScalars
from gradloom.rtl.acore.pool import Pool
from gradloom.rtl.acore.poolwalk import Tap
from gradloom.rtl.delay import delayed
from gradloom.rtl.pint import V_BITS, all_equal, decode

__all__ = ["ADD1", "ADD2", "BACK", "CHANNEL_BACK", "CHANNEL_FRONT", "CODE1", "CODE2", "CONVERTER_SHIFT_BITS", "LANES", "STAT1",
           "STAT2", "STEP_BITS", "Apu", "ChannelSettings", "Source", "front", "settings_layout"]

LANES = 2
ADD1 = 10
"""Stage in which t is valid; encoder 1 follows. Stages E0, E1, ... begin there, or with ``long`` behind encoder 1."""
CODE1 = ADD1 + Converter.LATENCY
"""Stage of output B."""
ADD2 = 5
"""E stage in which y is valid; bit and r follow in E6, then encoder 2."""
STAT1 = ADD1 + Converter.LENGTH_LATENCY + 1
"""Stage of encoder 1's statistic."""
STAT2 = ADD2 + 1 + Converter.LENGTH_LATENCY + 1
"""E stage of encoder 2's statistic."""
CODE2 = ADD2 + 1 + Converter.LATENCY
"""E stage of output A and of a logit."""
CONVERTER_SHIFT_BITS = 12
"""Bits of a converter's shift before le is added."""
STEP_BITS = 22
"""Bits of a product that is aligned."""

_MUL1 = 2
"""Stage of MUL1's operands."""
_CONVERTER = signed(CONVERTER_SHIFT_BITS)
FRONT = {
    "keep": (1, 0), "pool_max": (1, 1), "pool_match": (1, 1), "scaled": (1, 1), "factor": (ProductAlign.FACTOR_BITS, 1),
    "check": (1, _MUL1), "coarse1": (2, _MUL1 + ProductAlign.COARSE), "fine1": (4, _MUL1 + ProductAlign.COARSE + 1),
    "over1": (8, _MUL1 + ProductAlign.COARSE + 1),
    "t3": (1, 5), "power3": (16, 6), "over3": (V_BITS - 1, 6), "rows3": (12, 7), "momentum": (8, 7), "seed1": (32, 7),
    "t2": (2, 8),
    "c1": (_CONVERTER, ADD1 - 1), "c1le": (1, ADD1 - 1), "r1": (1, ADD1), "f1": (1, ADD1), "index": (1, CODE1)}
"""Settings by name: shape, and stage in which they are used."""
BACK = {
    "long": (1, 0), "m2a": (1, 0), "m2b": (2, 0), "lm": (8, 0), "rests": (1, 1), "based": (1, 2), "y2": (2, 3), "y3": (2, 2),
    "powery": (16, 2), "overy": (STEP_BITS - 1, 2), "rowsy": (12, 3), "seed2": (32, 3), "base_t": (1, 4), "minus": (1, 4),
    "cmp": (2, ADD2), "c2": (_CONVERTER, ADD2), "c2le": (1, ADD2), "r2": (1, ADD2 + 1), "f2": (1, ADD2 + 1),
    "feedback": (1, ADD2 + 1), "whole": (1, ADD2 + 1)}
"""The same, E stages."""
CHANNEL_FRONT = {"offset1": (24, 6), "r": (signed(WIDE), 8)}
CHANNEL_BACK = {"gamma": (signed(16), 0), "offset2": (24, 2), "beta": (signed(16), 3), "tau": (signed(16), ADD2)}
"""The same, one of each a channel."""
_LUT_FRONT = {"octet1": (3, _MUL1 + ProductAlign.COARSE), "fraction1": (7, _MUL1 + ProductAlign.COARSE + 1),
              "low1": (3, _MUL1 + ProductAlign.COARSE + 2)}
ChannelSettings = StructLayout({name: shape for name, (shape, _) in (CHANNEL_FRONT | CHANNEL_BACK).items()})


def front(config: Config) -> dict[str, tuple[ShapeLike, int]]:
    """``FRONT`` of a machine: where multiplexers shift, with the settings of that."""
    return FRONT | (_LUT_FRONT if config.apu_shifters == "lut" else {})


def settings_layout(config: Config) -> StructLayout:
    """All settings that are not a channel's."""
    return StructLayout({name: shape for name, (shape, _) in (front(config) | BACK).items()})


def _scaled_rest(a: Value, rest: Value) -> Value:
    """``rest`` of ``a`` in units of 2^-8: shifted by its segment, that of what was rounded to ``a``; combinational.

    A negative rest lay below a, so where a is a bound of segments, in the one below it.
    """
    below = rest[-1]
    bounds = [(bits, (a == 1 << bits) & below, (a == -(1 << bits)) & below) for bits in (3, 9)]
    low, middle = ((all_equal(a[bits:]) | upper) & ~lower for bits, upper, lower in bounds)
    signed_rest = rest.as_signed()
    return Mux(low, signed_rest, Mux(middle, signed_rest << 3, signed_rest << 6)).as_signed()


class Source(enum.Enum, shape=2):
    """What x of a lane is taken from."""

    ZERO = 0
    PSUM = 1
    DW = 2
    POOL = 3


class Apu(wiring.Component):
    """Two lanes of one channel. Operands of a beat arrive together in stage 0; nothing ever stalls.

    With ``apu_channels`` and ``apu_lanes`` another channel, and with one lane another column, comes in each turn of a beat
    (:mod:`gradloom.rtl.acore.turns`): what is given here "x 2" is then x ``apu_lanes`` but for the bytes, whose two columns a pool
    takes together.

    Members
    -------
    settings, channel : ``In(settings_layout(config))``, ``In(ChannelSettings)``
        ``scaled``: MUL1's factor is the plane register scale, else ``factor``. Shifts are in the form that
        :mod:`gradloom.rtl.acore.align` wants, of ADD1's product 1, of its third term 3, of ADD2's y.
        ``check``: x has to fit MUL1. ``t3``: align(d) is added. ``index``: output B is the position of the maximum.
        ``based``: MUL2's product is the base of y; ``base_t``: t is. ``minus``: the aligned product is subtracted.
        ``whole``: the result is a logit. ``rests``: a has rests; ``feedback``: so has what encoder 2 gives.
    source : ``In(2)`` x 2
        x of a lane: :class:`Source`. Stage 0.
    turn, column : ``In``, ``In(1)``
        Turn of the operands, where there are several, and with one lane their column; stage 0.
    psum, dw : ``In(signed(psum_width))``, ``In(signed(wg_width))`` x 2
    xin : ``In(signed(64))`` x 2
        Added to x.
    a, b : ``In(8)`` x 2
        Bytes of the streams.
    mask : ``In(2)``
        Bits of the bitmap stream.
    rest : ``In(8)`` x 2
        Its bytes.
    tap : ``In(Tap)``
        Pooling tap in ``a``, ``b``.
    plane : ``In(PlaneScalars)``
        Plane registers for the beat in stage 1.
    idx1, idx2 : ``In(24)`` x 2
        Element indices of channel 0 in stages 6 and E2.
    enable1, enable2 : ``In(2)``
        Lanes that are encoded, else code and statistic are 0; stages ``ADD1`` and E6.
    wide : ``Out(64)`` x 2
        x in stage 2.
    code1 : ``Out(8)`` x 2
        Stage ``CODE1``.
    bit : ``Out(2)``
        Stage E6.
    logit : ``Out(signed(24))``
        Integer of encoder 2 of lane 0; stage E``CODE2``.
    code2, rest2 : ``Out(8)`` x 2
        Stage E``CODE2``.
    stat1, stat2 : ``Out(7)``
        Larger ``length`` of both lanes' converters in stages ``STAT1`` and E``STAT2``.
    wide_operand, lost_t, lost_y : ``Out(2)``
        An operand of MUL1 left 48 bits (stage 3), t (stage ``ADD1``) or y (stage E``ADD2``) 64 bits.
    """

    def __init__(self, config: Config) -> None:
        self.lanes, self.turns, self.lut = config.apu_lanes, config.turns, config.apu_shifters == "lut"
        lanes, byte2 = self.lanes, ArrayLayout(8, LANES)
        codes = ArrayLayout(8, lanes)
        super().__init__({
            "settings": In(settings_layout(config)), "channel": In(ChannelSettings), "source": In(ArrayLayout(Source, lanes)),
            "psum": In(ArrayLayout(signed(config.psum_width), lanes)), "dw": In(ArrayLayout(signed(config.wg_width), lanes)),
            "xin": In(ArrayLayout(signed(WIDE), lanes)),
            "a": In(byte2), "b": In(byte2), "rest": In(byte2), "mask": In(lanes), "tap": In(Tap), "plane": In(PlaneScalars),
            "idx1": In(ArrayLayout(24, lanes)), "idx2": In(ArrayLayout(24, lanes)), "enable1": In(lanes), "enable2": In(lanes),
            "wide": Out(ArrayLayout(WIDE, lanes)), "code1": Out(codes), "bit": Out(lanes), "logit": Out(signed(24)),
            "code2": Out(codes), "rest2": Out(codes), "stat1": Out(LENGTH_BITS), "stat2": Out(LENGTH_BITS),
            "wide_operand": Out(lanes), "lost_t": Out(lanes), "lost_y": Out(lanes),
            **({"turn": In(range(self.turns))} if self.turns > 1 else {}), **({"column": In(1)} if lanes < LANES else {})})

    def elaborate(self, platform) -> Module:
        m = Module()
        settings, plane = self.settings, self.plane
        m.submodules.pool = self.pool = Pool(self.lanes, self.turns)
        m.d.comb += [self.pool.tap.eq(self.tap), self.pool.a.eq(self.a), self.pool.b.eq(self.b),
                     self.pool.maximum.eq(settings.pool_max), self.pool.match.eq(settings.pool_match)]
        if self.turns > 1:
            m.d.comb += self.pool.turn.eq(self.turn)
        if self.lanes < LANES:
            m.d.comb += self.pool.column.eq(self.column)

        # Stage 2 on.
        self.factor = delayed(m, Mux(settings.scaled, plane.scale.as_unsigned(), settings.factor), "factor")
        le = delayed(m, plane.le, "le", ADD1 - 2, reset=True)
        self.below1 = delayed(m, below(settings.c1 + Mux(settings.c1le, le, 0)), "below_1")
        late_le = delayed(m, le, "late_le", ADD2 + 1, reset=True)
        self.below2 = delayed(m, below(settings.c2 + Mux(settings.c2le, late_le, 0)), "below_2")
        self.mean = delayed(m, plane.mean, "mean", ADD1 - 1, reset=True)
        self.gl = delayed(m, plane.scale, "gl", ADD1 - 1, reset=True)
        lanes = [self._lane(m, lane) for lane in range(self.lanes)]
        for which, stat in enumerate((self.stat1, self.stat2)):
            m.d.sync += stat.eq(functools.reduce(larger, [encoders[which].length for encoders in lanes]))
        return m

    def _lane(self, m: Module, lane: int) -> tuple[Converter, Converter]:
        def stage(value, name, stages=1):
            return delayed(m, value, f"{name}_l{lane}", stages, reset=stages > 2)

        a2, b2, d2, t, encoder1 = self._front(m, lane, stage)
        a, b, d = (stage(value, f"{name}{ADD1}", ADD1 - 2) for value, name in ((a2, "a"), (b2, "b"), (d2, "d")))
        rest = Mux(self.column, self.rest[1], self.rest[0]) if self.lanes < LANES else self.rest[lane]
        # Only the long path has rests: this is e_a2's time there. On the short path it would be that of earlier bytes.
        rest = stage(Mux(self.settings.rests, stage(rest, "rest", CODE1 + 1), 0), "e_rest2")
        encoder2 = self._back(m, lane, stage, a, b, d, t, encoder1, rest)
        return encoder1, encoder2

    def _front(self, m: Module, lane: int, stage):
        """Decode, MUL1, ADD1, encoder 1: a, b, d in stage 2, t in stage ``ADD1``."""
        settings = self.settings
        a, b = (Mux(self.column, port[1], port[0]) if self.lanes < LANES else port[lane] for port in (self.a, self.b))
        a1, b1 = stage(decode(a), "a1"), stage(decode(b), "b1")
        bit1 = stage(self.mask[lane] | settings.keep, "bit1")
        a2, b2 = stage(a1, "a2"), stage(b1, "b2")
        d2 = stage(Mux(bit1, a1, 0).as_signed(), "d2")
        operand = Signal(signed(WIDE), name=f"operand_l{lane}")
        with m.Switch(self.source[lane]):
            with m.Case(Source.PSUM):
                m.d.comb += operand.eq(self.psum[lane])
            with m.Case(Source.DW):
                m.d.comb += operand.eq(self.dw[lane])
            with m.Case(Source.POOL):
                m.d.comb += operand.eq(self.pool.value[lane])
        x2 = stage(lean_sum(self.xin[lane], operand)[:WIDE].as_signed(), "x", 2)
        m.d.comb += self.wide[lane].eq(x2)

        top = x2[ProductAlign.X_BITS - 1:]
        m.d.comb += self.wide_operand[lane].eq(stage(top.any() & ~top.all() & settings.check, "wider"))
        align1 = shared_module.add(m, f"align1_l{lane}", f"product_align{'_lut' * self.lut}", ProductAlign(lut=self.lut))
        align3 = self._align_narrow(m, f"align3_l{lane}", V_BITS)
        d6 = stage(Mux(settings.t3, stage(d2, "d5", 3), 0).as_signed(), "d6")
        m.d.comb += [align1.x.eq(x2), align1.factor.eq(self.factor), align3.x.eq(d6)]
        m.d.comb += [align1.coarse.eq(settings.coarse1), align1.fine.eq(settings.fine1), align1.over.eq(settings.over1)]
        if self.lut:
            m.d.comb += [align1.octet.eq(settings.octet1), align1.fraction.eq(settings.fraction1), align1.low.eq(settings.low1)]
        m.d.comb += [align3.power.eq(settings.power3), align3.over.eq(settings.over3), align3.rows.eq(settings.rows3)]
        push8 = stage(settings.momentum * stage(b2, "b7", 5), "push8")
        term2 = Signal(signed(WIDE), name=f"term2_l{lane}")
        with m.Switch(settings.t2):
            with m.Case(Term2.R):
                m.d.comb += term2.eq(self.channel.r)
            with m.Case(Term2.MOMENTUM):
                m.d.comb += term2.eq(push8 << 8)
        others9 = stage(lean_sum(align3.y, term2), "others9")
        limit = Cat((~align1.negative).replicate(WIDE - 1), align1.negative)
        t, lost = self._sum(m, f"t_l{lane}", lean_sum(others9, Mux(align1.beyond, limit, align1.y).as_signed()))
        m.d.comb += self.lost_t[lane].eq(lost)
        encoder1 = self._encoder(m, 1, lane, t, self.below1)
        code1 = Mux(settings.index, stage(self.pool.index[lane], "index", CODE1 - 1), encoder1.code)
        m.d.comb += self.code1[lane].eq(code1)
        return a2, b2, d2, t, encoder1

    def _back(self, m: Module, lane: int, stage, a: Value, b: Value, d: Value, t: Value, encoder1, rest: Value) -> Converter:
        """MUL2, ADD2, Compare, encoder 2; a, b, d and t are those of stage ``ADD1``, ``rest`` is of stage E2."""
        settings, channel = self.settings, self.channel
        multiplicand = Signal(signed(18), name=f"multiplicand_l{lane}", reset_less=True)
        multiplier = Signal(signed(16), name=f"multiplier_l{lane}", reset_less=True)
        # d 2^4 - sgn(b) mean, as one addition with a carry.
        minus = b > 0
        toward = Mux(b == 0, 0, self.mean ^ minus.replicate(len(self.mean)).as_signed()).as_signed()
        u = (Cat(minus, d << 4).as_signed() + Cat(minus, toward).as_signed())[1:].as_signed()
        m.d.sync += multiplicand.eq(Mux(settings.m2a == Multiplicand.U, saturated(u, 18), encoder1.v))
        with m.Switch(settings.m2b):
            with m.Case(Multiplier.SCALE):
                m.d.sync += multiplier.eq(self.gl)
            with m.Case(Multiplier.LM):
                m.d.sync += multiplier.eq(settings.lm)
            with m.Default():
                m.d.sync += multiplier.eq(channel.gamma)
        product2 = stage((multiplicand * multiplier).as_signed(), "product2")
        e_a2 = stage(Mux(settings.long, stage(a, "late_a", Converter.LATENCY), a).as_signed(), "e_a2", 2)

        step2 = Signal(signed(STEP_BITS), name=f"step2_l{lane}")
        with m.Switch(settings.y3):
            with m.Case(Y3.A):
                m.d.comb += step2.eq(e_a2)
            with m.Case(Y3.PRODUCT):
                m.d.comb += step2.eq(product2[:STEP_BITS].as_signed())
        aligny = self._align_narrow(m, f"aligny_l{lane}", STEP_BITS)
        m.d.comb += [aligny.x.eq(step2), aligny.power.eq(settings.powery), aligny.over.eq(settings.overy),
                     aligny.rows.eq(settings.rowsy)]
        # A rest takes the place of a product that is no base: a << 16, to which it belongs, follows.
        product3 = stage(Mux(settings.based, product2, _scaled_rest(e_a2, rest) << 8).as_signed(), "product3")
        e_a3 = stage(e_a2, "e_a3")
        y2 = Mux(settings.y2 == Y2.BETA, channel.beta << 8, Mux(settings.y2 == Y2.A, e_a3 << 16, 0)).as_signed()
        narrow4 = stage(lean_sum(product3, y2), "narrow4")
        minus = settings.minus
        other = Mux(settings.base_t, stage(t, "t4", 4), aligny.y ^ minus.replicate(WIDE).as_signed()).as_signed()
        y, lost = self._sum(m, f"y_l{lane}", (Cat(minus, narrow4).as_signed() + Cat(minus, other).as_signed())[1:])
        m.d.comb += self.lost_y[lane].eq(lost)
        tau = settings.cmp == Compare.TAU
        limit = Signal(signed(25), name=f"limit_l{lane}")
        m.d.comb += limit.eq(Mux(tau, channel.tau << 8, 1))
        narrow = y[24:].all() == y[24:].any()
        reached = Mux(narrow, y[:25].as_signed() >= limit, ~y[-1])
        bit5 = reached | (settings.cmp == Compare.NONE)
        m.d.comb += self.bit[lane].eq(stage(bit5, "bit6"))
        r6 = stage(Mux(bit5, y, Mux(tau, channel.tau << 8, 0)).as_signed(), "r6")
        encoder2 = self._encoder(m, 2, lane, r6, self.below2, whole=lane == 0)
        m.d.comb += [self.code2[lane].eq(encoder2.code), self.rest2[lane].eq(encoder2.rest),
                     encoder2.feedback.eq(settings.feedback)]
        if lane == 0:
            m.d.comb += [encoder2.whole.eq(settings.whole), self.logit.eq(encoder2.integer)]
        return encoder2

    def _align_narrow(self, m: Module, name: str, width: int):
        return shared_module.add(m, name, f"align_narrow{'_lut' * self.lut}", AlignNarrow(width, lut=self.lut), width)

    def _sum(self, m: Module, name: str, exact: Value) -> tuple[Signal, Signal]:
        """Registered sum in 64 bits, and whether it left them (behind an align that saturated)."""
        total = Signal(signed(WIDE), name=name, reset_less=True)
        lost = Signal(name=f"{name}_lost", reset_less=True)
        top = exact[WIDE - 1:]
        m.d.sync += [total.eq(exact), lost.eq(top.any() & ~top.all())]
        return total, lost

    def _encoder(self, m: Module, which: int, lane: int, value: Value, below: Value, *, whole: bool = False) -> Converter:
        settings = self.settings
        rests = which == 2
        kind = "converter" + "_rests" * rests + "_whole" * whole
        encoder = shared_module.add(m, f"encoder{which}_l{lane}", kind, Converter(whole=whole, rests=rests))
        dither = shared_module.add(m, f"dither{which}_l{lane}", "dither", Dither())
        idx = self.idx1 if which == 1 else self.idx2
        m.d.comb += [
            dither.seed.eq(settings[f"seed{which}"]),
            dither.idx.eq(delayed(m, (idx[lane] + self.channel[f"offset{which}"])[:24], f"idx{which}_l{lane}")),
            encoder.a.eq(value), encoder.enable.eq(self.enable1[lane] if which == 1 else self.enable2[lane]),
            encoder.below.eq(below), encoder.x24.eq(dither.x24),
            encoder.stochastic.eq(settings[f"r{which}"]), encoder.f16.eq(settings[f"f{which}"]),
        ]
        return encoder
