"""First-pass sums: sum |X| of every plane, gathered while the last step writes its partial sums (``docs/machine.md`` section 4).

L1-FRN needs the sum of a whole plane before it can scale the first value of it (ETA, Algorithm 2); with these sums the A-Core
passes over the partial sums only once.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl import shared_module
from gradloom.rtl.ccore.abs_accumulator import SUM_BITS, AbsAccumulator
from gradloom.rtl.ccore.banks import address_bits
from gradloom.rtl.ccore.column_sequencer import array_control_layout
from gradloom.rtl.ccore.psum import HALVES, PSUM_BANKS
from gradloom.rtl.core_reads import PlaneSumRequest
from gradloom.rtl.memories import memory_apart

__all__ = ["OUTPUT_GROUPS", "SUM_BITS", "PlaneSumControl", "PlaneSumStore", "plane_sum_control_layout", "plane_sum_read_layout"]

OUTPUT_GROUPS = 3
"""Sums of one window: output groups of K1; the other layouts have one."""


def plane_sum_control_layout(config: Config) -> data.StructLayout:
    """What the :class:`PlaneSumStore` of one WPU gets from :class:`PlaneSumControl`, each field in its own cycle of
    :class:`~gradloom.rtl.ccore.psum.PsumStore`.

    Cycle 1: ``bank`` that group 0 is written to; ``open``: the sum starts anew. Cycle 2: ``add``, ``addr`` = {half, slot}.
    """
    return data.StructLayout({"bank": 2, "open": 1, "add": 1, "addr": _entry_bits(config)})


def plane_sum_read_layout(config: Config) -> data.StructLayout:
    """A read of the A-Core: ``addr`` = {half, slot}; one cycle later ``k``, the output group, and ``valid``."""
    return data.StructLayout({"addr": _entry_bits(config), "k": 2, "valid": 1})


def _entry_bits(config: Config) -> int:
    return address_bits(config.max_planes) + 1


class PlaneSumControl(wiring.Component):
    """Tells the stores when to add and where, and the A-Core's reads which stores hold a sum.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a token to its sums, as for :class:`gradloom.rtl.ccore.psum.PsumControl`.

    Members
    -------
    token : ``In(array_control_layout)``
    control : ``Out(ArrayLayout(plane_sum_control_layout, wpus))``
    request : ``In(PlaneSumRequest())``
        The A-Core's read.
    read : ``Out(ArrayLayout(plane_sum_read_layout, wpus))``
    fault : ``Out(1)``
        A unit of an image slot beyond ``max_planes``.
    """

    def __init__(self, config: Config, *, latency: int) -> None:
        self.config = config
        self.latency = latency
        wpus = config.wpus
        super().__init__({
            "token": In(array_control_layout(config)), "control": Out(data.ArrayLayout(plane_sum_control_layout(config), wpus)),
            "request": In(PlaneSumRequest()),
            "read": Out(data.ArrayLayout(plane_sum_read_layout(config), wpus)), "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        planes, wpus = self.config.max_planes, self.config.wpus
        bits = address_bits(planes)
        token = self.token

        payload = data.StructLayout({"bank": 2, "half": 1, "begin": 1, "opens": wpus, "slot": data.ArrayLayout(bits, wpus)})
        adds = [Signal(wpus, name=f"add{i}") for i in range(self.latency + 2)]
        values = [Signal(payload, name=f"value{i}", reset_less=True) for i in range(self.latency + 2)]
        k1 = token.sel[1:] == Pattern.K1
        m.d.sync += [
            adds[0].eq(token.mask & token.sum.replicate(wpus)), values[0].half.eq(token.half), values[0].begin.eq(token.begin),
            values[0].bank.eq(Mux(k1, Cat(0, token.odd), Cat(token.odd, token.group))),
            values[0].opens.eq(token.opens),
            *(values[0].slot[w].eq(token.slot[w][:bits]) for w in range(wpus)),
            self.fault.eq(token.sum & Cat(token.mask[w] & (token.slot[w] >= planes) for w in range(wpus)).any())]
        for i in range(1, len(adds)):
            m.d.sync += [adds[i].eq(adds[i - 1]), values[i].eq(values[i - 1])]
        add1, value1, add2, value2 = adds[-2], values[-2], adds[-1], values[-1]

        request = self.request
        plane = request.plane[:bits]
        k = Signal(2, reset_less=True)
        m.d.sync += k.eq(request.k)
        for w in range(wpus):
            control, read = self.control[w], self.read[w]
            m.d.comb += [control.bank.eq(value1.bank), control.open.eq(add1[w] & value1.opens[w]),
                         control.add.eq(add2[w]), control.addr.eq(Cat(value2.slot[w], value2.half)),
                         read.addr.eq(Cat(plane, request.half)), read.k.eq(k)]
            # A WPU without a unit in a slot still holds a sum of an earlier command there.
            held = []
            for h in range(HALVES):
                valid = Signal(planes, name=f"valid{w}_{h}")
                for slot in range(planes):
                    with m.If(add2[w] & (value2.half == h) & (value2.slot[w] == slot)):
                        m.d.sync += valid[slot].eq(1)
                    with m.Elif(add2.any() & value2.begin & (value2.half == h)):
                        m.d.sync += valid[slot].eq(0)
                held.append(valid.bit_select(plane, 1))
            valid1 = Signal(name=f"read_valid{w}", reset_less=True)
            m.d.sync += valid1.eq(Mux(request.half, held[1], held[0]) & request.en)
            m.d.comb += read.valid.eq(valid1)
        return m


class PlaneSumStore(wiring.Component):
    """The sums of one cluster of one WPU: 3 output groups x 2 halves x ``max_planes``.

    Every sum is also written to the memory, in cycle 3, so a sum is complete when its last window is.

    Members
    -------
    control : ``In(plane_sum_control_layout)``
    total : ``In(ArrayLayout(signed(psum_width), 4))``
        Cycle 1: partial sums that are written, per bank.
    read : ``In(plane_sum_read_layout)``
    q : ``Out(48)``
        One cycle after ``read.addr``; 0 if it is not valid.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "control": In(plane_sum_control_layout(config)),
            "total": In(data.ArrayLayout(signed(config.psum_width), PSUM_BANKS)),
            "read": In(plane_sum_read_layout(config)), "q": Out(SUM_BITS)})

    def elaborate(self, platform) -> Module:
        m = Module()
        width, family = self.config.psum_width, self.config.family
        control, total = self.control, self.total
        m.submodules.memory = memory = memory_apart(OUTPUT_GROUPS * SUM_BITS, 1 << _entry_bits(self.config), self.config.family)
        write, port = memory.write_port(), memory.read_port()

        # K1 writes group k to bank (k + bank) mod 4, bank 0 or 2; only group 0 can be in any bank.
        second = control.bank[1]
        sums = []
        for k, (value, other, choice) in enumerate(((Array(total)[control.bank], 0, 0), (total[1], total[3], second),
                                                    (total[2], total[0], second))):
            magnitude = shared_module.add(m, f"group{k}", "gradloom_magnitude", AbsAccumulator(width, family=family),
                                          width if family == "any" else (width, family))
            m.d.comb += [magnitude.a.eq(value), magnitude.c.eq(other), magnitude.second.eq(choice),
                         magnitude.open.eq(control.open), magnitude.add.eq(control.add)]
            sums.append(magnitude.sum)
        written = Signal()
        place = Signal.like(control.addr, name="place", reset_less=True)
        m.d.sync += [written.eq(control.add), place.eq(control.addr)]

        group = Signal(SUM_BITS)
        with m.Switch(self.read.k):
            for k in range(OUTPUT_GROUPS):
                with m.Case(k):
                    m.d.comb += group.eq(port.data.word_select(k, SUM_BITS))
        m.d.comb += [write.en.eq(written), write.addr.eq(place), write.data.eq(Cat(sums)),
                     port.en.eq(1), port.addr.eq(self.read.addr), self.q.eq(Mux(self.read.valid, group, 0))]
        return m
