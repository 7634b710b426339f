"""The A-Core's numbers per channel and plane: one pipeline for all channels, plane registers, the Division block.

Lanes need one beat a cycle, scalars a few values a plane; so they pass one multiplier, aligner and adder one after the other,
while the lanes sweep the planes of the command before.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.contracts.config import Config
from gradloom.contracts.microcode import ScalarDestination, ScalarFactor, ScalarOperand, ScalarTerm
from gradloom.contracts.pipeline import SCALAR_LATENCY, dividers
from gradloom.rtl import shared_module
from gradloom.rtl.acore.align import SHIFT_BITS, WIDE, Align, saturated
from gradloom.rtl.acore.buffer_ports import ParameterWrite
from gradloom.rtl.acore.divider import divider_of
from gradloom.rtl.acore.plane_ports import PLANE_BITS, TOTAL_BITS, PlaneScalarsRead, Totals
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.fifo import Fifo

__all__ = ["CHANNEL_BITS", "FACTOR_BITS", "PRODUCT_BITS", "REGISTERS", "ScalarOp", "Scalars", "wide_product"]

PRODUCT_BITS = 48
"""Bits of a wide operand that enter a multiplier; a wider one is reported."""
FACTOR_BITS = 18
CHANNEL_BITS = 4
"""Bits of a channel's number in its group."""
NORM_BITS = 48
"""Sum of abs(X) over a plane, from the C-Core."""
REGISTERS = 4
"""Registers R of a channel."""
_TERM_TO_END = 2
"""Stages from the addition of the term to the result."""

ScalarOp = StructLayout({
    "operand": 3, "factor": 3, "minus": 1, "term": 3, "total": 2, "destination": 3, "r": range(REGISTERS),
    "channel": CHANNEL_BITS, "plane": 7, "entry": 16})
"""One scalar: as the fields of a SCALAR microinstruction say, ``total`` = reg - 3, for one channel and plane."""


def wide_product(m: Module, x: Value, factor: Value, name: str) -> tuple[Value, Value]:
    """``x`` (its low 48 bits) times ``factor`` (18 bits), two cycles later, and whether ``x`` has more bits, one later.

    17-bit slices, so that each partial product is one 18 x 18 multiplier.
    """
    top = x[PRODUCT_BITS - 1:]
    wider = delayed(m, top.any() & ~top.all(), f"{name}_wider")
    slices = [Cat(x[:17], Const(0, 1)).as_signed(), Cat(x[17:34], Const(0, 1)).as_signed(), x[34:PRODUCT_BITS].as_signed()]
    low, middle, high = (delayed(m, (part * factor).as_signed(), f"{name}_part{i}") for i, part in enumerate(slices))
    # With a factor without sign the lowest product ends where the highest one begins.
    outer = low + (high << 34) if factor.shape().signed else Cat(low[:34], high).as_signed()
    return delayed(m, (outer + (middle << 17))[:WIDE].as_signed(), f"{name}_product"), wider


class Scalars(wiring.Component):
    """One scalar a cycle, ``LATENCY`` cycles; a division its divider's latency more, with a cycle beyond that from one on the same
    divider to the next.

    A SCALAR's values come one after the other, those of a plane in the order of the channels. So the first one need not wait until
    all results of an earlier SCALAR are there, but only until each will be when its own channel's turn comes.

    Members
    -------
    issue, op : ``In(1)``, ``In(ScalarOp)``
        While ``room``.
    shift : ``In(signed(7))``
        Of the product, in the cycle after ``issue``.
    room : ``Out(1)``
        The results of all scalars under way find a place in the queue to the parameter buffer.
    early : ``Out(1)``
        The first value of a SCALAR as ``op`` says would miss what an earlier one gives: its register ``op.r``, unless that is 0,
        or epsilon.
    busy : ``Out(1)``
        Results are outstanding, or not yet written.
    bank : ``In(1)``
        Half of the plane registers that is written.
    dry : ``In(1)``
        The parameter buffer is not written.
    n, inv, momentum, lm : ``In(15)``, ``In(17)``, ``In(8)``, ``In(8)``
    entry : ``In(64 G)``
        Parameter-buffer entry ``op.entry`` in the cycle after ``issue``.
    sums : ``In(signed(43))`` x G
        Sums of the plane, in the cycle after ``issue``.
    norms : ``In(48)`` x G
        Four cycles after ``issue``.
    totals : ``In(Totals)`` x G, gamma : ``In(signed(16))`` x G
    total_channel : ``Out(range(apu_channels))``
        Where an APU serves several channels: the one of each whose totals are looked at in this cycle.
    r : ``Out(signed(64))`` x G
        Register 0 of every channel.
    overflow : ``Out(1)``
        One cycle: a result left 64 bits, or a factor's operand 48 bits.
    writes : ``Out(ParameterWrite(config))``
        Results for the parameter buffer, one channel at a time.
    planes : ``In(PlaneScalarsRead(config))``
        The lanes' read of the plane registers.
    """

    LATENCY = SCALAR_LATENCY
    QUEUE = 32

    def __init__(self, config: Config) -> None:
        self.config = config
        group = config.group
        super().__init__({
            "issue": In(1), "op": In(ScalarOp), "shift": In(signed(SHIFT_BITS)), "room": Out(1), "early": Out(1), "busy": Out(1),
            "bank": In(1), "dry": In(1),
            "n": In(15), "inv": In(17), "momentum": In(8), "lm": In(8), "entry": In(64 * group),
            "sums": In(ArrayLayout(signed(PLANE_BITS), group)), "norms": In(ArrayLayout(NORM_BITS, group)),
            "totals": In(ArrayLayout(Totals, group)), "gamma": In(ArrayLayout(signed(16), group)),
            "r": Out(ArrayLayout(signed(WIDE), group)), "overflow": Out(1),
            "writes": Out(ParameterWrite(config)), "planes": In(PlaneScalarsRead(config)),
            **({"total_channel": Out(range(config.apu_channels))} if config.apu_channels > 1 else {})})

    def elaborate(self, platform) -> Module:
        m = Module()
        self.ops = Line(m, self.op, "op", reset=True)
        self.valid = Line(m, self.issue, "valid", reset=True)
        self.epsilon = Signal(signed(WIDE))
        self.r_write, self.r_next = Signal(), Signal(signed(WIDE))
        t, entry, r = self._compute(m)
        self._division(m, t)
        self._plane_registers(m, t, entry)
        self._parameter_queue(m, t, r)
        self._early(m)
        op = ScalarOp(self.ops[self.LATENCY])
        short = op.destination == ScalarDestination.R32
        m.d.comb += [self.r_write.eq(self.valid[self.LATENCY] & (short | (op.destination == ScalarDestination.R))),
                     self.r_next.eq(Mux(short, saturated(t, 32), t))]
        for c in range(self.config.group):
            with m.If(self.r_write & (op.r == 0) & (op.channel == c)):
                m.d.sync += self.r[c].eq(self.r_next)
        with m.If(self.valid[self.LATENCY] & (op.destination == ScalarDestination.EPSILON)):
            m.d.sync += self.epsilon.eq(t | (t == 0))
        return m

    def _early(self, m: Module) -> None:
        def under_way(stages: int) -> list[tuple[Value, ScalarOp]]:
            """Scalars that were issued up to so many cycles ago."""
            return [(self.valid[stage], ScalarOp(self.ops[stage])) for stage in range(1, stages + 1)]

        # R is read a cycle after the issue and holds LATENCY + 1 cycles after it. A channel's two scalars are LATENCY cycles apart
        # if the earlier SCALAR's last value, which came G - 1 cycles or more behind its channel 0, has left these stages.
        registers = [valid & (op.r == self.op.r) & (self.op.r != 0) for valid, op in under_way(self.LATENCY - self.config.group)]
        # The only value of epsilon is added two stages before the end.
        epsilon = [valid & (op.destination == ScalarDestination.EPSILON) for valid, op in under_way(_TERM_TO_END)]
        m.d.comb += self.early.eq(Cat(*registers, *epsilon).any())

    def _compute(self, m: Module) -> tuple[Value, Value, Value]:
        """t, and entry and R of the channel, ``LATENCY`` cycles after the issue."""
        group = self.config.group

        def op(cycles: int):
            return ScalarOp(self.ops[cycles])

        def chosen(values: list[Value], cycles: int, name: str) -> Value:
            selected = Signal(values[0].shape(), name=name, reset_less=True)
            with m.Switch(op(cycles).channel):
                for c, value in enumerate(values):
                    with m.Case(c):
                        m.d.sync += selected.eq(value)
            return selected

        entry2 = chosen([self.entry[64 * c:64 * c + 64] for c in range(group)], 1, "entry2")
        sum2 = chosen([self.sums[c] for c in range(group)], 1, "sum2")
        r2 = self._channel_r(m)
        gamma3 = chosen([self.gamma[c] for c in range(group)], 2, "gamma3")
        totals = [chosen([self.totals[c][name] for c in range(group)], self.LATENCY - 4, f"total_{name}")
                  for name in ("product", "kept", "cut")]
        if self.config.apu_channels > 1:
            m.d.comb += self.total_channel.eq(op(self.LATENCY - 4).channel)
        total = Signal(signed(TOTAL_BITS), reset_less=True)
        with m.Switch(op(self.LATENCY - 3).total):
            # Register PLANE is behind ST and adds up products, as SG does.
            for i, value in (((0, 3), totals[0]), ((1,), totals[1]), ((2,), totals[2])):
                with m.Case(*i):
                    m.d.sync += total.eq(value)

        x3 = Signal(signed(WIDE), reset_less=True)
        with m.Switch(op(2).operand):
            with m.Case(ScalarOperand.ENTRY):
                m.d.sync += x3.eq(entry2)
            with m.Case(ScalarOperand.MASTER):
                m.d.sync += x3.eq(entry2[:32].as_signed())
            with m.Case(ScalarOperand.VELOCITY):
                m.d.sync += x3.eq(entry2[32:].as_signed())
            with m.Case(ScalarOperand.R):
                m.d.sync += x3.eq(r2)
            with m.Case(ScalarOperand.Q):
                m.d.sync += x3.eq(entry2[:16])
            with m.Case(ScalarOperand.PLANE):
                m.d.sync += x3.eq(sum2)
            with m.Default():
                m.d.sync += x3.eq(self.n)
        x4 = delayed(m, x3, "x4")
        norm5 = chosen([self.norms[c] for c in range(group)], 4, "norm5")
        x5 = delayed(m, x4, "x5")
        gamma4 = delayed(m, gamma3, "gamma4")
        factor5 = Signal(signed(FACTOR_BITS), reset_less=True)
        with m.Switch(op(4).factor):
            with m.Case(ScalarFactor.INV):
                m.d.sync += factor5.eq(self.inv)
            with m.Case(ScalarFactor.MOMENTUM):
                m.d.sync += factor5.eq(self.momentum)
            with m.Case(ScalarFactor.LM):
                m.d.sync += factor5.eq(self.lm)
            with m.Default():
                m.d.sync += factor5.eq(gamma4)
        x = Mux(op(5).operand == ScalarOperand.NORM, norm5, x5).as_signed()
        product, wider = wide_product(m, x, factor5, "scalar")
        plain = op(7).factor == ScalarFactor.NONE
        x7 = Mux(plain, delayed(m, x, "x6", 2), product).as_signed()

        m.submodules.align = align = Align()
        m.d.comb += [align.x.eq(x7), align.n.eq(Line(m, self.shift, "shift", reset=True)[6])]
        entry = Line(m, entry2, "entry", reset=True)[self.LATENCY - 4]
        r = Line(m, r2, "r", reset=True)[self.LATENCY - 4]
        ready = self.LATENCY - _TERM_TO_END
        term = Signal(signed(WIDE))
        with m.Switch(op(ready).term):
            with m.Case(ScalarTerm.R):
                m.d.comb += term.eq(r)
            with m.Case(ScalarTerm.MASTER):
                m.d.comb += term.eq(entry[:32].as_signed())
            with m.Case(ScalarTerm.TOTAL):
                m.d.comb += term.eq(total)
            with m.Case(ScalarTerm.EPSILON):
                m.d.comb += term.eq(self.epsilon)
            with m.Case(ScalarTerm.ONE):
                m.d.comb += term.eq(1)
        exact = Signal(signed(WIDE + 1), reset_less=True)
        minus = op(ready).minus
        product = align.y ^ minus.replicate(WIDE).as_signed()
        m.d.sync += exact.eq((Cat(minus, term).as_signed() + Cat(minus, product).as_signed())[1:])
        silent = op(ready + 1).destination == ScalarDestination.DIVIDE
        lost = Line(m, wider & (op(6).factor != ScalarFactor.NONE), "lost")[ready + 1 - 6] | (exact[-1] != exact[-2]) & ~silent
        m.d.sync += self.overflow.eq(self.valid[ready + 1] & lost)
        t = delayed(m, saturated(exact, WIDE), "t")
        return t, delayed(m, entry, "entry_last", 2), delayed(m, r, "r_last", 2)

    def _channel_r(self, m: Module) -> Value:
        """R of the channel two cycles after the issue, from distributed memory."""
        bits = ceil_log2(self.config.group)

        def place(cycles: int) -> Value:
            op = ScalarOp(self.ops[cycles])
            return op.channel[:bits] | (op.r << bits)

        m.submodules.copy = copy = Memory(shape=signed(WIDE), depth=REGISTERS << bits, init=[])
        write, read = copy.write_port(), copy.read_port(domain="comb")
        m.d.comb += [write.addr.eq(place(self.LATENCY)), write.data.eq(self.r_next), write.en.eq(self.r_write),
                     read.addr.eq(place(1))]
        return delayed(m, read.data.as_signed(), "r2")

    def _division(self, m: Module, t: Value) -> None:
        op, valid = ScalarOp(self.ops[self.LATENCY]), self.valid[self.LATENCY]
        count = dividers(self.config)
        busy = []
        self.divided, self.quotient = Signal(), Signal(24)
        self.divided_op = Signal(ScalarOp)
        for i in range(count):
            divider = shared_module.add(m, f"divider{i}", "divider" if self.config.divider_bits == 2 else "serial_divider",
                                        divider_of(self.config)())
            start = valid & (op.destination == ScalarDestination.DIVIDE) & (op.channel % count == i)
            divided_op = Signal(ScalarOp, name=f"divided_op{i}")
            m.d.comb += [divider.start.eq(start), divider.s.eq(t), divider.n.eq(self.n)]
            with m.If(start):
                m.d.sync += divided_op.eq(op)
            with m.If(divider.done):
                m.d.comb += [self.divided.eq(1), self.quotient.eq(Cat(divider.q, divider.le)), self.divided_op.eq(divided_op)]
            busy.append(divider.busy)
        drain = Signal(range(self.LATENCY + 1))
        with m.If(self.issue):
            m.d.sync += drain.eq(self.LATENCY)
        with m.Elif(drain != 0):
            m.d.sync += drain.eq(drain - 1)
        self.working = Signal()
        m.d.comb += self.working.eq((drain != 0) | Cat(*busy).any())

    def _plane_registers(self, m: Module, t: Value, entry: Value) -> None:
        group, bits = self.config.group, ceil_log2(self.config.max_planes)
        op, valid = ScalarOp(self.ops[self.LATENCY]), self.valid[self.LATENCY]
        scaled = valid & (op.destination == ScalarDestination.SCALE)
        values = {
            "scale": (16, scaled | self.divided, Mux(self.divided, self.quotient[:16], t[:16])),
            "le": (8, scaled | self.divided, Mux(self.divided, self.quotient[16:], entry[16:24])),
            "mean": (24, valid & (op.destination == ScalarDestination.MEAN), saturated(t[1:].as_signed(), 24)),
        }
        for name, (width, enable, value) in values.items():
            memory = Memory(shape=width * group, depth=2 << bits, init=[])
            m.submodules[f"plane_{name}"] = memory
            write, read = memory.write_port(granularity=width), memory.read_port()
            where = op if name == "mean" else ScalarOp(Mux(self.divided, self.divided_op.as_value(), op.as_value()))
            m.d.comb += [
                write.addr.eq(where.plane[:bits] | (self.bank << bits)), write.en.eq(enable << where.channel),
                write.data.eq(value[:width].replicate(group)), read.addr.eq(self.planes.at[:bits] | (self.planes.at[7] << bits)),
            ]
            for c in range(group):
                m.d.comb += self.planes.scalars[c][name].eq(read.data[width * c:width * (c + 1)])

    def _parameter_queue(self, m: Module, t: Value, r: Value) -> None:
        op, valid = ScalarOp(self.ops[self.LATENCY]), self.valid[self.LATENCY]
        m.submodules.queue = queue = Fifo(StructLayout({"addr": 16, "channel": CHANNEL_BITS, "data": 64}), self.QUEUE)
        stored = (op.destination == ScalarDestination.PARAMETER) | (op.destination == ScalarDestination.ENTRY)
        now = ScalarOp(Mux(self.divided, self.divided_op.as_value(), op.as_value()))
        parameter = Cat(Mux(op.destination == ScalarDestination.PARAMETER, saturated(t, 28).as_signed(), t)[:32],
                        Mux(op.destination == ScalarDestination.PARAMETER, r[:32], t[32:]))
        m.d.comb += [
            queue.i.valid.eq(((valid & stored) | self.divided) & ~self.dry),
            queue.i.p.addr.eq(now.entry), queue.i.p.channel.eq(now.channel),
            queue.i.p.data.eq(Mux(self.divided, self.quotient, parameter)),
            # Up to LATENCY scalars and the divisions are under way.
            self.room.eq(queue.level < self.QUEUE - self.LATENCY - 1 - dividers(self.config)),
            self.busy.eq(self.working | queue.o.valid),
            self.writes.valid.eq(queue.o.valid), queue.o.ready.eq(self.writes.ready), self.writes.addr.eq(queue.o.p.addr),
            self.writes.channel.eq(1 << queue.o.p.channel), self.writes.data.eq(queue.o.p.data),
        ]
