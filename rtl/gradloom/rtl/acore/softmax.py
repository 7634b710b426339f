"""Loss gradient of a batch of logits: softmax cross-entropy or squared error (docs/arithmetic.md, softmax).

It is the one function of a training step that crosses channels, so it has a unit beside the A-Core's lanes.
"""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.acore.buffer_ports import MemoryRead, ResultWrite, SharedRead
from gradloom.rtl.acore.converter import Rounder
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.pint import CODE_BITS, code_of

__all__ = ["Softmax"]

_EXP = [round(32768 * 2 ** (-i / 256)) for i in range(256)]
_EXP_BITS = 16
_QUOTIENT_DIGITS = 8
"""Radix-4 digits of the fraction of p = floor(2^16 ex / sum)."""
_QUOTIENT = _QUOTIENT_DIGITS + 2
"""Cycles from the read of an exponential to its quotient."""
_SERIAL = 2 * _QUOTIENT_DIGITS + 2
"""Cycles of a quotient that is made a bit a cycle, from the read of its exponential on; the last step is in the last one."""
_ERROR_BITS = 34
_READ = 2
"""Cycles from an address of the logit buffer to its data."""


def _delay(m: Module, value: Value, cycles: int, name: str) -> Signal:
    """``value`` that many cycles later, in registers that are reset."""
    for i in range(cycles):
        register = Signal(Value.cast(value).shape(), name=f"{name}_{i + 1}")
        m.d.sync += register.eq(value)
        value = register
    return value


class Softmax(wiring.Component):
    """Reads logits (Q8) and labels, writes the encoded error of every class.

    Softmax: d = min(lmax - l, 32767), t = (369 d) >> 8, ex = LUT[t & 255] >> min(t >> 8, 16),
    p = floor(2^16 ex / sum), code of p - 65536 onehot at shift 4 (exponent -12).
    Squared: code of l - 256 onehot at shift 0 (exponent -8). Both round to nearest with F = 8.
    An image takes a cycle a class for the maximum, one for the sum and one (``divider_bits`` = 1: 18) for the quotients (squared:
    one in all).

    Parameters
    ----------
    config : :class:`Config`
        ``clusters`` (G), ``max_classes`` and ``divider_bits`` count.

    Members
    -------
    port : ``In(CommandPort())``
        SOFTMAX commands. In the cycle of ``done``, ``fault`` is LABEL_RANGE if a label is not below the
        number of classes, ILLEGAL_FIELD if that number is 0 or above ``max_classes``.
    logits : ``Out(SharedRead(ArrayLayout(signed(32), G)))``
        Logit buffer, data 2 cycles after the address. Class c of image n: channel c mod G at
        logit0 + n ceil(classes / G) + c div G.
    reading : ``Out(1)``
        The address counts; nobody else needs to know.
    labels : ``Out(MemoryRead(16))``
        Label of an image.
    oa : ``Out(ResultWrite(1, 16 G))``
        Output A: beats [image][class group], lane 0 the codes of G classes, lane 1 and padding classes 0.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        g = config.group
        super().__init__({
            "port": In(CommandPort()),
            "logits": Out(SharedRead(data.ArrayLayout(signed(32), g))), "reading": Out(1),
            "labels": Out(MemoryRead(16)), "oa": Out(ResultWrite(1, 2 * CODE_BITS * g)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        cmd = decode(Opcode.SOFTMAX, self.port.cmd)
        # Position of the class that is read, and what the control asks for: a sweep over an image's classes begins, or is that for
        # the maximum, for the sum of the exponentials, for squared errors; quotients are made.
        self.index = Signal(12, name="index")
        self.channel = Signal(range(max(2, self.config.group)), name="channel")
        self.begin, self.maximize, self.exponentiate, self.squaring = (Signal(name=name) for name in (
            "begin", "maximize", "exponentiate", "squaring"))
        self.divide = Signal(name="divide")
        self.base, self.address = Signal(16, name="base"), Signal(16, name="address")
        last, read = self._sweep(m, cmd)

        arrived = _delay(m, Cat(read, last, self.index), _READ, "arrived")
        valid, final, number = arrived[0], arrived[0] & arrived[1], arrived[2:]
        where = _delay(m, self.channel, _READ, "where")
        logit = Signal(signed(32))
        m.d.comb += logit.eq(Array(self.logits.data[c] for c in range(self.config.group))[where])

        self.fresh, self.label, self.total = Signal(name="fresh"), Signal(16, name="label"), Signal(
            _EXP_BITS + ceil_log2(self.config.max_classes) + 1, name="total")
        maximum = self._maximum(m, valid, logit)
        fetched, summed = self._exponentials(m, maximum, logit, valid, final, number)
        quotient, latency, divided_class = self._quotients(m, fetched)
        error, error_valid, error_last, error_channel = self._errors(
            m, cmd, (logit, number, where, valid, final), quotient, latency, divided_class, last)
        code_last = self._codes(m, cmd, error, error_valid, error_last, error_channel)
        self._control(m, cmd, last, final, summed, divided_class, code_last)
        return m

    def _sweep(self, m: Module, cmd: SimpleNamespace) -> tuple[Signal, Signal]:
        """One read sweep over the classes of an image, from a pulse of ``begin`` until the last class. Returns whether the present
        class is the last one, and whether it is read in this cycle."""
        index, channel, base, address, begin = self.index, self.channel, self.base, self.address, self.begin
        g = self.config.group
        sweep, read = Signal(), Signal()
        last = Signal()
        m.d.comb += [last.eq(index == cmd.classes - 1), self.reading.eq(sweep), self.logits.addr.eq(address),
                     read.eq(sweep & self.logits.free)]
        with m.If(begin):
            m.d.sync += [sweep.eq(1), index.eq(0), channel.eq(0), address.eq(base)]
        with m.Elif(read):
            m.d.sync += [index.eq(index + 1), channel.eq(channel + 1), sweep.eq(~last)]
            with m.If((channel == g - 1) | last):
                m.d.sync += [channel.eq(0), address.eq(address + 1)]
        return last, read

    def _maximum(self, m: Module, valid: Value, logit: Signal) -> Signal:
        """Largest logit of an image, complete a cycle after its last one."""
        fresh, maximize = self.fresh, self.maximize
        maximum = Signal(signed(32))
        with m.If(valid & maximize):
            m.d.sync += fresh.eq(0)
            with m.If(fresh | (logit > maximum)):
                m.d.sync += maximum.eq(logit)
        return maximum

    def _exponentials(self, m: Module, maximum: Signal, logit: Signal, valid: Value, final: Value,
                      number: Value) -> tuple[Value, Signal]:
        """Exponentials, one a cycle, into a buffer and a sum. Returns that of class ``index`` a cycle ago, and whether the sum is
        complete in the next cycle."""
        total, exponentiate, index = self.total, self.exponentiate, self.index
        depth = self.config.max_classes
        m.submodules.exponentials = exponentials = memory.Memory(shape=_EXP_BITS, depth=depth, init=[])
        stored, fetched = exponentials.write_port(), exponentials.read_port()
        m.submodules.table = table = memory.Memory(shape=_EXP_BITS, depth=256, init=_EXP)
        entry = table.read_port()

        difference = Signal(33)
        distance = Signal(15)
        t = Signal(16)
        exponential = Signal(_EXP_BITS)
        product = distance * 369
        if self.config.apu_shifters == "lut":
            # 369 = 3 (128 - 5), by adders, as multipliers are short.
            triple = distance + (distance << 1)
            product = ((triple << 7) - (triple + (triple << 2)))[:24]
        m.d.comb += [difference.eq(maximum - logit), t.eq(product >> 8), entry.addr.eq(t[:8])]
        m.d.sync += [distance.eq(Mux(difference[15:].any(), 32767, difference)),
                     exponential.eq(entry.data >> _delay(m, Mux(t[8:] > 16, 16, t[8:])[:5], 1, "fall"))]
        arrived = _delay(m, Cat(valid & exponentiate, final, number), 3, "summand")
        m.d.comb += [stored.en.eq(arrived[0]), stored.addr.eq(arrived[2:]), stored.data.eq(exponential)]
        with m.If(arrived[0]):
            m.d.sync += total.eq(total + exponential)
        summed = Signal()
        m.d.comb += [summed.eq(arrived[0] & arrived[1]), fetched.addr.eq(index)]
        return fetched.data, summed

    def _quotients(self, m: Module, ex: Value) -> tuple[Value, int, Value]:
        """Division, radix 4, a class a cycle: ex <= sum, so p has an integer bit (ex = sum) and eight digits of fraction. Returns
        p, how many cycles after its class it comes, and whether a class is done in this cycle."""
        divide, index, channel, total = self.divide, self.index, self.channel, self.total
        g = self.config.group
        divided_class = divide
        if self.config.divider_bits == 1:
            divided_class, phase = Signal(), Signal(range(_SERIAL))
            m.d.comb += divided_class.eq(phase == _SERIAL - 1)
            with m.If(divide):
                m.d.sync += phase.eq(Mux(divided_class, 0, phase + 1))
        with m.If(divided_class):
            m.d.sync += [index.eq(index + 1), channel.eq(Mux(channel == g - 1, 0, channel + 1))]
        if self.config.divider_bits == 1:
            return self._serial_quotient(m, phase, ex, total), 1, divided_class
        return self._quotient(m, ex, total), _QUOTIENT, divided_class

    def _errors(self, m: Module, cmd: SimpleNamespace, arriving: tuple[Value, ...], quotient: Value, latency: int,
                divided_class: Value, last: Signal) -> tuple[Value, Value, Value, Value]:
        """The value that enters the encoder: whether there is one, whether it is of the image's last class, and its channel."""
        channel, index, label, squaring = self.channel, self.index, self.label, self.squaring
        logit, number, where, valid, final = arriving
        was = _delay(m, Cat(last, channel, index), latency, "was")
        divided = _delay(m, divided_class, latency, "divided")
        error = Signal(signed(_ERROR_BITS))
        error_valid, error_last = Signal(), Signal()
        error_channel = Signal.like(channel)
        with m.If(cmd.squared):
            m.d.comb += [error.eq(logit - Mux(number == label, 256, 0)), error_valid.eq(valid & squaring),
                         error_last.eq(final), error_channel.eq(where)]
        with m.Else():
            m.d.comb += [error.eq(quotient - Mux(was[1 + len(channel):] == label, 65536, 0)),
                         error_valid.eq(divided), error_last.eq(was[0]),
                         error_channel.eq(was[1:1 + len(channel)])]
        if self.config.divider_bits == 1:
            # Where a class takes many cycles anyway, one more between the memory of the logits and the encoder.
            error = _delay(m, error, 1, "error")
            error_valid, error_last, error_channel = (_delay(m, value, 1, f"error_{name}") for name, value in (
                ("valid", error_valid), ("last", error_last), ("channel", error_channel)))
        return error, error_valid, error_last, error_channel

    def _codes(self, m: Module, cmd: SimpleNamespace, error: Value, error_valid: Value, error_last: Value,
               error_channel: Value) -> Value:
        """Encoder and packer: codes to output A. Returns whether the code that leaves is the image's last one."""
        g = self.config.group
        m.submodules.rounder = rounder = Rounder(_ERROR_BITS + 9)
        m.d.comb += rounder.g.eq(Mux(cmd.squared, error << 9, error << 5))
        leaving = _delay(m, Cat(error_valid, error_last, error_channel), Rounder.LATENCY, "leaving")
        code_valid, code_last, code_channel = leaving[0], leaving[1], leaving[2:]

        self.codes, packed = (Signal(CODE_BITS * g, name=name) for name in ("codes", "packed"))
        codes = self.codes
        m.d.comb += [packed.eq(codes), self.oa.data.eq(packed)]
        for c in range(g):
            with m.If(code_channel == c):
                m.d.comb += packed[CODE_BITS * c:CODE_BITS * (c + 1)].eq(code_of(rounder.v))
        self.written = written = Signal(16, name="written")
        m.d.comb += [self.oa.we.eq(code_valid & (code_last | (code_channel == g - 1))),
                     self.oa.addr.eq(written)]
        with m.If(code_valid):
            m.d.sync += codes.eq(Mux(self.oa.we, 0, packed))
        with m.If(self.oa.we):
            m.d.sync += written.eq(written + 1)
        return code_last

    def _control(self, m: Module, cmd: SimpleNamespace, last: Signal, final: Value, summed: Signal, divided_class: Value,
                 code_last: Value) -> None:
        """Image after image: maximum, sum, quotients; or squared errors."""
        index, channel, base, address = self.index, self.channel, self.base, self.address
        codes, written = self.codes, self.written
        begin, maximize, exponentiate, divide, squaring = (
            self.begin, self.maximize, self.exponentiate, self.divide, self.squaring)
        fresh, label, total, depth = self.fresh, self.label, self.total, self.config.max_classes
        image = Signal(16)
        m.d.comb += self.labels.addr.eq(image)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [image.eq(0), base.eq(cmd.logit0), written.eq(cmd.oa0), codes.eq(0)]
                with m.If(self.port.start):
                    m.next = "IMAGE"
            with m.State("IMAGE"):
                m.next = "LABEL"
                with m.If(image == cmd.images):
                    m.d.comb += self.port.done.eq(1)
                    m.next = "IDLE"
            with m.State("LABEL"):
                m.d.sync += [label.eq(self.labels.data), fresh.eq(1), total.eq(0)]
                with m.If((cmd.classes == 0) | (cmd.classes > depth)):
                    m.d.comb += [self.port.done.eq(1), self.port.fault.eq(ErrorCode.ILLEGAL_FIELD)]
                    m.next = "IDLE"
                with m.Elif(self.labels.data >= cmd.classes):
                    m.d.comb += [self.port.done.eq(1), self.port.fault.eq(ErrorCode.LABEL_RANGE)]
                    m.next = "IDLE"
                with m.Else():
                    m.d.comb += begin.eq(1)
                    m.next = "MAXIMUM"
                    with m.If(cmd.squared):
                        m.next = "SQUARE"
            with m.State("MAXIMUM"):
                m.d.comb += maximize.eq(1)
                with m.If(final):
                    m.d.comb += begin.eq(1)
                    m.next = "SUM"
            with m.State("SUM"):
                m.d.comb += exponentiate.eq(1)
                with m.If(summed):
                    m.d.sync += [index.eq(0), channel.eq(0)]
                    m.next = "DIVIDE"
            with m.State("DIVIDE"):
                m.d.comb += divide.eq(1)
                with m.If(last if self.config.divider_bits == 2 else last & divided_class):
                    m.next = "FLUSH"
            with m.State("SQUARE"):
                m.d.comb += squaring.eq(1)
                with m.If(final):
                    m.next = "FLUSH"
            with m.State("FLUSH"), m.If(self.oa.we & code_last):
                m.d.sync += [image.eq(image + 1), base.eq(address)]
                m.next = "IMAGE"

    def _quotient(self, m: Module, ex: Value, total: Signal) -> Value:
        """floor(2^16 ex / total), ``_QUOTIENT`` - 1 cycles later; ``total`` stays, and its triple is known a cycle after it."""
        triple = Signal(len(total) + 2)
        m.d.sync += triple.eq(total + (total << 1))
        whole = ex == total
        remainder, quotient = Signal(len(total), name="remainder0"), Signal(1, name="quotient0")
        m.d.sync += [remainder.eq(Mux(whole, 0, ex)), quotient.eq(whole)]
        for n in range(1, _QUOTIENT_DIGITS + 1):
            digit, shifted = Signal(2, name=f"digit{n}"), remainder << 2
            with m.If(shifted >= triple):
                m.d.comb += digit.eq(3)
            with m.Elif(shifted >= (total << 1)):
                m.d.comb += digit.eq(2)
            with m.Elif(shifted >= total):
                m.d.comb += digit.eq(1)
            part = Mux(digit[1], Mux(digit[0], triple, total << 1), Mux(digit[0], total, 0))
            left, digits = Signal(len(total), name=f"remainder{n}"), Signal(2 * n + 1, name=f"quotient{n}")
            m.d.sync += [left.eq(shifted - part), digits.eq(Cat(digit, quotient))]
            remainder, quotient = left, digits
        return quotient

    def _serial_quotient(self, m: Module, phase: Value, ex: Value, total: Value) -> Value:
        """The same by one subtractor, a bit a cycle; complete in the cycle after the last ``phase``. ``ex`` is there in phase 1."""
        remainder, quotient = Signal(len(total)), Signal(2 * _QUOTIENT_DIGITS + 1)
        whole = ex == total
        trial = Signal(len(total) + 2)
        m.d.comb += trial.eq((remainder << 1) - total)
        with m.If(phase == 1):
            m.d.sync += [remainder.eq(Mux(whole, 0, ex)), quotient.eq(whole)]
        with m.Else():
            m.d.sync += [remainder.eq(Mux(trial[-1], remainder << 1, trial)), quotient.eq(Cat(~trial[-1], quotient))]
        return quotient
