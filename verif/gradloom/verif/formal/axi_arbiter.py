"""Specifications of the AXI4 arbiter: whose turn it is, for all time; who gets what, in bounded checks."""

import types

from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.board.memory import axi_arbiter
from gradloom.verif.formal.statements import held, past

__all__ = ["ArbiterSpec", "TurnSpec"]

_MANAGERS = 3


class TurnSpec(wiring.Component):
    """The choice is held while its offer waits; a waiting offer sees each other manager go first once at most; and no cycle passes
    in which nobody's offer is chosen although one waited in the cycle before. By induction.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: an offer that waited for both others.
    """

    def __init__(self, design: types.ModuleType = axi_arbiter, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"offers": In(_MANAGERS), "take": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Turn(_MANAGERS)
        offered = Signal()
        m.d.comb += [
            dut.offers.eq(self.offers),
            offered.eq(self.offers.bit_select(dut.chosen, 1)),
            dut.taken.eq(offered & self.take),
            Assume(~ResetSignal()),
            Assert(dut.chosen < _MANAGERS),
        ]
        for n in range(_MANAGERS):
            mine = dut.taken & (dut.chosen == n)
            held(m, self.offers[n], mine, [], f"offer{n}", Assume)
            # Others that went first while this one waited, and how far in the circle the choice is from it.
            waited, distance = Signal(3, name=f"waited{n}"), Signal(3, name=f"distance{n}")
            m.d.comb += [distance.eq(Mux(dut.chosen <= n, n - dut.chosen, n + _MANAGERS - dut.chosen)[:3]),
                         Assert(waited + distance <= _MANAGERS - 1)]
            m.d.sync += waited.eq(Mux(self.offers[n] & ~mine, waited + (dut.taken & (dut.chosen != n)), 0))
            if self.cover:
                m.d.comb += Cover(waited == _MANAGERS - 1)
        chosen_before = past(m, dut.chosen, "chosen_before")
        m.d.comb += [
            Assert(~past(m, offered & ~dut.taken, "kept") | (dut.chosen == chosen_before)),
            Assert(~past(m, (self.offers & ~(1 << dut.chosen)[:_MANAGERS]).any() & ~offered, "other_waits") | offered),
        ]
        return m


class ArbiterSpec(wiring.Component):
    """An address on the memory's side is one of a manager, taken from it in the same cycle, and of no other. Responses and write
    data are those of the bursts in the order of their addresses: the owners' order is kept here, too. For bounded checks of two
    managers with two bursts under way.

    Parameters
    ----------
    write : :class:`bool`
        The write side, else the read side.
    cover : :class:`bool`
        Reaches instead: responses for both managers, of a burst of two beats.
    """

    def __init__(self, design: types.ModuleType = axi_arbiter, *, write: bool, cover: bool = False) -> None:
        self.design, self.write, self.cover = design, write, cover
        super().__init__({**{f"{name}{n}": In(width) for n in range(2) for name, width in (
            ("valid", 1), ("address", 3), ("data_valid", 1), ("data", 3), ("last", 1), ("ready", 1))},
            "address_ready": In(1), "data_ready": In(1), "answers": In(1), "answer": In(2), "answer_last": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.AxiArbiter(2, 2, outstanding=2)
        memory = dut.memory
        channel = memory.aw if self.write else memory.ar
        addresses = [manager.aw if self.write else manager.ar for manager in dut.manager]
        for n, (manager, address) in enumerate(zip(dut.manager, addresses, strict=True)):
            valid, number = getattr(self, f"valid{n}"), getattr(self, f"address{n}")
            m.d.comb += [
                address.valid.eq(valid), address.p.addr.eq(number), address.p.len.eq(number),
                manager.w.valid.eq(getattr(self, f"data_valid{n}")), manager.w.p.data.eq(getattr(self, f"data{n}")),
                manager.w.p.strb.eq(getattr(self, f"data{n}")), manager.w.p.last.eq(getattr(self, f"last{n}")),
                manager.r.ready.eq(getattr(self, f"ready{n}")), manager.b.ready.eq(getattr(self, f"ready{n}")),
            ]
            held(m, valid, address.ready, [number], f"address{n}", Assume)
            held(m, manager.w.valid, manager.w.ready, [manager.w.payload.as_value()], f"data{n}", Assume)
        m.d.comb += [channel.ready.eq(self.address_ready), Assume(~ResetSignal())]
        held(m, channel.valid, channel.ready, [channel.payload.as_value()], "memory_address")

        taken = [address.valid & address.ready for address in addresses]
        goes = channel.valid & channel.ready
        m.d.comb += [
            Assert(Cat(taken) != 0b11), Assert(goes == (taken[0] | taken[1])),
            *(Assert(~one | (channel.payload.as_value() == address.payload.as_value())) for one, address in zip(taken, addresses,
                                                                                                              strict=True)),
        ]
        if self.write:
            data_last = memory.w.valid & memory.w.ready & memory.w.p.last
            m.d.comb += memory.w.ready.eq(self.data_ready)
            owner = self._owners(m, "data", goes, taken[1], data_last)
            self._data(m, dut, owner)
            # The memory answers a burst whose data it has.
            ended = self._owners(m, "answers", data_last, owner[1], memory.b.valid & memory.b.ready)
            self._responses(m, "b", dut, ended, 1)
        else:
            reads = self._owners(m, "reads", goes, taken[1], memory.r.valid & memory.r.ready & self.answer_last)
            self._responses(m, "r", dut, reads, self.answer_last)
        return m

    def _owners(self, m: Module, name: str, put: Value, value: Value, get: Value) -> tuple[Value, Value]:
        """Whether a burst is under way, and the manager of the oldest one."""
        level, owners = Signal(2, name=f"{name}_level"), Signal(3, name=f"{name}_owners")
        left = Signal(2, name=f"{name}_left")
        m.d.comb += [left.eq(level - get), Assert(~get | (level != 0)), Assert(~put | (left < 3))]
        m.d.sync += [level.eq(left + put), owners.eq(Mux(get, owners >> 1, owners) & ~(Mux(put, 1, 0) << left)[:3]
                                                     | (Mux(put & value, 1, 0) << left)[:3])]
        return level != 0, owners[0]

    def _data(self, m: Module, dut: wiring.Component, owner: tuple[Value, Value]) -> None:
        """Write data are those of the oldest burst whose data have not all come."""
        under_way, who = owner
        for n, manager in enumerate(dut.manager):
            mine = under_way & (who == n)
            m.d.comb += [Assert((manager.w.valid & manager.w.ready) == (mine & dut.memory.w.valid & dut.memory.w.ready)),
                         Assert(~(mine & dut.memory.w.valid) | (dut.memory.w.payload.as_value() == manager.w.payload.as_value())),
                         Assert(~mine | (dut.memory.w.valid == manager.w.valid))]
        m.d.comb += Assert(~dut.memory.w.valid | under_way)

    def _responses(self, m: Module, name: str, dut: wiring.Component, owner: tuple[Value, Value], last: Value | int) -> None:
        under_way, who = owner
        memory = getattr(dut.memory, name)
        m.d.comb += [memory.valid.eq(self.answers), memory.p.resp.eq(self.answer), Assume(~self.answers | under_way)]
        if name == "r":
            m.d.comb += [memory.p.data.eq(self.answer), memory.p.last.eq(last)]
        held(m, memory.valid, memory.ready, [memory.payload.as_value()], "response", Assume)
        for n, manager in enumerate(dut.manager):
            response = getattr(manager, name)
            mine = self.answers & (who == n)
            m.d.comb += [Assert(response.valid == mine), Assert(~mine | (response.payload.as_value() == memory.payload.as_value())),
                         Assert(~mine | (memory.ready == response.ready))]
        if self.cover:
            served, before = Signal(2), past(m, self.answers & memory.ready, "answered")
            with m.If(self.answers & memory.ready & last):
                m.d.sync += served.eq(served | Mux(who, 2, 1))
            m.d.comb += Cover((served == 3) & before)
