"""The A-Core's outputs: beats of the lanes to successive addresses of OA (codes and rests), OB, OM, XOUT and LOGIT."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Member, Out

from gradloom.contracts.config import Config
from gradloom.rtl.acore.buffer_ports import ResultWrite, ResultWrites
from gradloom.rtl.acore.stream_address import Beat
from gradloom.rtl.acore.turns import Turns

__all__ = ["OUTPUTS", "ResultStream", "ResultWriter"]

LANES = 2
OUTPUTS = {"oa": 8, "rest": 8, "ob": 8, "om": 1, "xout": 64}
"""Outputs of both lanes, with the bits of a value."""


class ResultStream(wiring.Signature):
    """Beats of one output, at the time at which its values leave the lanes (as seen by the lanes).

    Parameters
    ----------
    shape : shape-like
        Of the values of all APUs.
    turn_bits : :class:`int`
        Of a turn; 0 where there is one.

    Members
    -------
    go : ``Out(1)``
        A command begins: its first beat comes in the next cycle or later.
    first : ``Out(16)``
        First address; with ``go``.
    beat : ``Out(Beat)``
        The beat, valid if it is to be written.
    turn : ``Out(turn_bits)``, where there are several
        Its turn (:class:`gradloom.rtl.acore.turns.Turns`).
    data : ``Out(shape)``
        [apu][lane], logit: [apu] signed 24. Lane 1 of ob and om is written as 0 if it is not valid.
    """

    def __init__(self, shape: ShapeLike, turn_bits: int) -> None:
        super().__init__({"go": Out(1), "first": Out(16), "beat": Out(Beat), "data": Out(shape),
                          **({"turn": Out(turn_bits)} if turn_bits else {})})


class ResultWriter(wiring.Component):
    """Each output is contiguous, so it has an address counter that starts anew with every command.

    Members
    -------
    oa, rest, ob, om, xout, logit : ``In(ResultStream(...))``
    writes : ``Out(ResultWrites(config))``
        To :class:`gradloom.rtl.acore.buffers.Buffers`; om as a whole, of all others the parts of the turn.
    logit_step : ``In(16)``
        Addresses from plane to plane; with ``logit.go``.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.turns = config, Turns(config)

        def stream(shape: ShapeLike) -> Member:
            return In(ResultStream(ArrayLayout(shape, config.apus), self.turns.bits))

        super().__init__({name: stream(ArrayLayout(bits, config.apu_lanes)) for name, bits in OUTPUTS.items()} | {
            "logit": stream(signed(24)), "logit_step": In(16), "writes": Out(ResultWrites(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        writes = self.writes
        for name, stream, write in (("oa", self.oa, writes.oa), ("rest", self.rest, writes.rest), ("ob", self.ob, writes.ob),
                                    ("xout", self.xout, writes.xout)):
            self._count(m, name, stream, write, stream.beat.v, 1)
            m.d.comb += write.data.eq(Cat(*self._gathered(name, stream)))

        step = Signal(16)
        with m.If(self.logit.go):
            m.d.sync += step.eq(self.logit_step)
        self._count(m, "logit", self.logit, writes.logit, self.logit.beat.v & self.logit.beat.first, step)
        m.d.comb += writes.logit.data.eq(Cat(Cat(value, value[-1].replicate(8)) for value in (
            self.logit.data[c // self.turns.channels] for c in range(self.config.group))))
        self._bitmap(m)
        return m

    def _count(self, m: Module, name: str, stream: ResultStream, to: ResultWrite, write: Value, step: Value | int) -> None:
        address = Signal(16, name=f"{name}_address")
        done, parts = write, write
        if self.turns.count > 1 and name != "om":
            done = write & self.turns.last(stream.turn)
            parts = Cat(write & (stream.turn == part) for part in range(self.turns.count))
        with m.If(stream.go):
            m.d.sync += address.eq(stream.first)
        with m.Elif(done):
            m.d.sync += address.eq(address + step)
        m.d.comb += [to.we.eq(parts), to.addr.eq(address)]

    def _gathered(self, name: str, stream: ResultStream) -> Sequence[Value]:
        """Values lane by lane, 0 where the lane is not valid; of a turn, every place has the value that belongs to one of them."""
        # Codes and rests of such a lane are 0 already; weight gradients always have both lanes, unless G = 1.
        masked = {"oa": False, "rest": False, "xout": self.config.group == 1}.get(name, True)
        return [stream.data[c // self.turns.channels][lane % self.turns.lanes] &
                (stream.beat.v1 if lane and masked else Const(1, 1)).replicate(OUTPUTS[name])
                for lane in range(LANES) for c in range(self.config.group)]

    def _bitmap(self, m: Module) -> None:
        """Eight beats of bits make one bitmap beat; a plane's last one may be shorter."""
        width = LANES * self.config.group
        slot = Signal(3)
        gathered = Signal(8 * width)
        now = Signal(8 * width)
        stream, bits, done = self.om, self._gathered("om", self.om), None
        beat = stream.beat
        full = beat.v & ((slot == 7) | beat.last)
        if self.turns.count > 1:
            bits = [bit & (stream.turn == part) for bit, part in zip(bits, self.turns.parts(), strict=True)]
            done = self.turns.last(stream.turn)
            full &= done
        m.d.comb += [now.eq(gathered | (Cat(*bits) << (slot * width))), self.writes.om.data.eq(now)]
        self._count(m, "om", stream, self.writes.om, full, 1)
        with m.If(stream.go):
            m.d.sync += [slot.eq(0), gathered.eq(0)]
        with m.Elif(beat.v):
            m.d.sync += [slot.eq(Mux(full, 0, slot + (1 if done is None else done))), gathered.eq(Mux(full, 0, now))]
