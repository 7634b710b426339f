"""Set-up of a RUN command: shift registers from the exponent file, seeds, channel offsets, the place of the first unit."""

from types import SimpleNamespace

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, View
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.rtl.acore.align import SHIFT_BITS, saturated
from gradloom.rtl.acore.apu import CONVERTER_SHIFT_BITS
from gradloom.rtl.acore.stream_address import row_stride
from gradloom.rtl.tensor_ports import ExponentRead, SeedRead

__all__ = ["AMOUNT_BITS", "SHIFT_REGISTER_BITS", "ShiftSetup"]

SHIFT_REGISTER_BITS = 18
AMOUNT_BITS = (SHIFT_BITS, CONVERTER_SHIFT_BITS)
"""Widths of the shift amounts that are selected from the registers."""
_PRODUCT = 16


class ShiftSetup(wiring.Component):
    """One word of the shift list a cycle, everything else beside it; at most 20 cycles.

    Parameters
    ----------
    fields : namespace
        Fields of the RUN command, stable from ``start`` on as long as the results are used.

    Members
    -------
    start : ``In(1)``
    done : ``Out(1)``
        The results hold; low from the cycle after ``start``.
    shifted : ``Out(1)``
        ``sh`` does, which is sooner.
    word, listed : ``In(32)``, ``In(1)``
        The first word of the shift list in each cycle of ``start``, then one word after the other; whether the list has it.
    exponents : ``Out(ExponentRead())``, seed : ``Out(SeedRead())``
    sh : ``Out(signed(18))`` x 8
        SH0 .. SH7.
    sh_7, sh_12 : ``Out(signed(8))`` x 8, ``Out(signed(13))`` x 8
        The same limited to one bit more than a shift amount has, so that their negatives saturate as those of ``sh`` do. Several
        amounts are selected at once, and the wires of all registers to all of them are where an FPGA's routing is fullest.
    seeds : ``Out(32)`` x 2
        Of the tensors of converters 1 and 2.
    offsets : ``Out(24)`` x G
        Element index of each channel relative to channel 0.
    row0 : ``Out(16)``
        Bank words before the first unit's row; pooling: beats of a stored plane.
    stride : ``Out(13)``
        Bank words from row to row.
    """

    def __init__(self, config: Config, fields: SimpleNamespace) -> None:
        self.config = config
        self.fields = fields
        super().__init__({
            "start": In(1), "done": Out(1), "shifted": Out(1), "word": In(32), "listed": In(1),
            "exponents": Out(ExponentRead()), "seed": Out(SeedRead()),
            "sh": Out(ArrayLayout(signed(SHIFT_REGISTER_BITS), 8)),
            **{f"sh_{bits}": Out(ArrayLayout(signed(bits + 1), 8)) for bits in AMOUNT_BITS}, "seeds": Out(ArrayLayout(32, 2)),
            "offsets": Out(ArrayLayout(24, config.group)), "row0": Out(16), "stride": Out(13)})

    @property
    def limited(self) -> dict[int, View]:
        """``sh_7`` and ``sh_12``, by the bits of the amounts that are selected from them."""
        return dict(zip(AMOUNT_BITS, (self.sh_7, self.sh_12), strict=True))

    def elaborate(self, platform) -> Module:
        m = Module()
        busy = Signal()
        step = Signal(5)
        m.d.sync += step.eq(Mux(self.start, 0, step + (step != 31)))
        listing, multiplying = self._shifts(m), self._multiply(m)
        steps = max(2, self.config.group)
        m.d.comb += [self.done.eq(~busy), self.shifted.eq(~listing)]
        with m.If(self.start):
            m.d.sync += busy.eq(1)
        with m.Elif(~listing & ~multiplying & (step >= steps)):
            m.d.sync += busy.eq(0)

        run = self.fields
        m.d.comb += [self.seed.en.eq(self.start | (busy & (step == 0))), self.seed.tid.eq(Mux(self.start, run.t1, run.t2))]
        for i in range(2):
            with m.If(busy & (step == i)):
                m.d.sync += self.seeds[i].eq(self.seed.value)
        offset = Signal(24)
        m.d.sync += offset.eq(Mux(self.start, 0, offset + run.s_ch))
        for c in range(self.config.group):
            with m.If(busy & (step == c)):
                m.d.sync += self.offsets[c].eq(offset)
        return m

    def _shifts(self, m: Module) -> Value:
        """One shift word a cycle from ``start`` on; its exponent arrives in the next, and is added in the one after.

        What comes out of a memory is late in its cycle: it meets one adder there, and the register that it changes in the next.
        """
        going, listed, word = Signal(), Signal(), self.word
        m.d.comb += [listed.eq((self.start | going) & self.listed), self.exponents.en.eq(listed), self.exponents.tid.eq(word[5:16])]
        m.d.sync += going.eq(listed)

        arriving, adding = Signal(), Signal()
        fields = Signal(5)
        target, negative, first, constant = Signal(3), Signal(), Signal(), Signal(signed(16))
        change = Signal(signed(SHIFT_REGISTER_BITS))
        m.d.sync += [arriving.eq(listed), fields.eq(word[:5]), constant.eq(word[16:])]
        m.d.comb += negative.eq(fields[3])
        # While ``start`` stays, the first word is listed again and again: only the last time counts.
        m.d.sync += [adding.eq(arriving & ~self.start), target.eq(fields[:3]), first.eq(fields[4]),
                     change.eq(constant + Mux(negative, -self.exponents.e, self.exponents.e))]
        before, after = Signal(signed(SHIFT_REGISTER_BITS)), Signal(signed(SHIFT_REGISTER_BITS))
        with m.If(~first):
            m.d.comb += before.eq(self.sh[target])
        m.d.comb += after.eq(before + change)
        registers = [(self.sh, after), *((limited, saturated(after, bits + 1)) for bits, limited in self.limited.items())]
        for i in range(8):
            with m.If(self.start):
                m.d.sync += [register[i].eq(0) for register, _ in registers]
            with m.Elif(adding & (target == i)):
                m.d.sync += [register[i].eq(value) for register, value in registers]
        return listed | arriving | adding

    def _multiply(self, m: Module) -> Value:
        """The one product of two fields, bit by bit."""
        run = self.fields
        stride, rows, statements = row_stride(run)
        m.d.comb += statements
        multiplicand, multiplier = Signal(_PRODUCT), Signal(_PRODUCT)
        with m.If(self.start):
            m.d.sync += [self.row0.eq(0), self.stride.eq(stride),
                         multiplicand.eq(Mux(run.pool != 0, (run.pxi + 1) >> 1, stride)),
                         multiplier.eq(Mux(run.pool != 0, run.pyi, rows))]
        with m.Elif(multiplier != 0):
            m.d.sync += [multiplicand.eq(multiplicand << 1), multiplier.eq(multiplier >> 1)]
            with m.If(multiplier[0]):
                m.d.sync += self.row0.eq(self.row0 + multiplicand)
        return multiplier != 0
