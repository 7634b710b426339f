"""The A-Core's outputs: beats of the lanes to successive addresses of OA (codes and rests), OB, OM, XOUT and LOGIT."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.rtl.acore.planes import Beat
from gradloom.rtl.acore.turns import Turns

__all__ = ["OUTPUTS", "Outputs"]

LANES = 2
OUTPUTS = {"oa": 8, "rest": 8, "ob": 8, "om": 1, "xout": 64}
"""Outputs of both lanes, with the bits of a value."""


class Outputs(wiring.Component):
    """Each output is contiguous, so it has an address counter that starts anew with every command.

    Members
    -------
    For oa, rest, ob, om, xout and logit, each at the time at which its values leave the lanes:

    ``*_go`` : ``In(1)``
        A command begins: its first beat comes in the next cycle or later.
    ``*_first`` : ``In(16)``
        First address; with ``*_go``.
    ``*_beat`` : ``In(Beat)``
        The beat, valid if it is to be written.
    ``*_turn`` : ``In``
        Its turn (:class:`gradloom.rtl.acore.turns.Turns`), where there are several.
    ``*_data`` : ``In``
        [apu][lane], logit: [apu] signed 24. Lane 1 of ob and om is written as 0 if it is not valid.
    ``*_we``, ``*_waddr``, ``*_wdata`` : ``Out``
        To :class:`gradloom.rtl.acore.buffers.Buffers`; om as a whole, of all others the parts of the turn.
    logit_step : ``In(16)``
        Addresses from plane to plane; with ``logit_go``.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.turns = config, Turns(config)
        group, beat = config.group, 8 * config.beat_bytes
        members = {"logit_step": In(16), "logit_data": In(ArrayLayout(signed(24), config.apus)), "logit_wdata": Out(2 * beat)}
        for name, bits in OUTPUTS.items():
            members |= {f"{name}_data": In(ArrayLayout(ArrayLayout(bits, config.apu_lanes), config.apus)),
                        f"{name}_wdata": Out(bits * LANES * group if bits > 1 else beat)}
        for name in (*OUTPUTS, "logit"):
            members |= {f"{name}_go": In(1), f"{name}_first": In(16), f"{name}_beat": In(Beat),
                        f"{name}_we": Out(1 if name == "om" else self.turns.count), f"{name}_waddr": Out(16)}
            if self.turns.count > 1:
                members[f"{name}_turn"] = In(self.turns.bits)
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        for name in ("oa", "rest", "ob", "xout"):
            self._count(m, name, getattr(self, f"{name}_beat").v, 1)
            m.d.comb += getattr(self, f"{name}_wdata").eq(Cat(*self._gathered(name)))

        step = Signal(16)
        with m.If(self.logit_go):
            m.d.sync += step.eq(self.logit_step)
        self._count(m, "logit", self.logit_beat.v & self.logit_beat.first, step)
        m.d.comb += self.logit_wdata.eq(Cat(Cat(value, value[-1].replicate(8)) for value in (
            self.logit_data[c // self.turns.channels] for c in range(self.config.group))))
        self._bitmap(m)
        return m

    def _count(self, m: Module, name: str, write: Value, step: Value | int) -> None:
        address = Signal(16, name=f"{name}_address")
        turn = getattr(self, f"{name}_turn", None)
        done, parts = write, write
        if turn is not None and name != "om":
            done = write & self.turns.last(turn)
            parts = Cat(write & (turn == part) for part in range(self.turns.count))
        with m.If(getattr(self, f"{name}_go")):
            m.d.sync += address.eq(getattr(self, f"{name}_first"))
        with m.Elif(done):
            m.d.sync += address.eq(address + step)
        m.d.comb += [getattr(self, f"{name}_we").eq(parts), getattr(self, f"{name}_waddr").eq(address)]

    def _gathered(self, name: str) -> Sequence[Value]:
        """Values lane by lane, 0 where the lane is not valid; of a turn, every place has the value that belongs to one of them."""
        beat, values, bits = getattr(self, f"{name}_beat"), getattr(self, f"{name}_data"), OUTPUTS[name]
        # Codes and rests of such a lane are 0 already; weight gradients always have both lanes, unless G = 1.
        masked = {"oa": False, "rest": False, "xout": self.config.group == 1}.get(name, True)
        return [values[c // self.turns.channels][lane % self.turns.lanes] &
                (beat.v1 if lane and masked else Const(1, 1)).replicate(bits)
                for lane in range(LANES) for c in range(self.config.group)]

    def _bitmap(self, m: Module) -> None:
        """Eight beats of bits make one bitmap beat; a plane's last one may be shorter."""
        width = LANES * self.config.group
        slot = Signal(3)
        gathered = Signal(8 * width)
        now = Signal(8 * width)
        beat, bits, done = self.om_beat, self._gathered("om"), None
        full = beat.v & ((slot == 7) | beat.last)
        if self.turns.count > 1:
            bits = [bit & (self.om_turn == part) for bit, part in zip(bits, self.turns.parts(), strict=True)]
            done = self.turns.last(self.om_turn)
            full &= done
        m.d.comb += [now.eq(gathered | (Cat(*bits) << (slot * width))), self.om_wdata.eq(now)]
        self._count(m, "om", full, 1)
        with m.If(self.om_go):
            m.d.sync += [slot.eq(0), gathered.eq(0)]
        with m.Elif(beat.v):
            m.d.sync += [slot.eq(Mux(full, 0, slot + (1 if done is None else done))), gathered.eq(Mux(full, 0, now))]
