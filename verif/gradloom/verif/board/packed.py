"""Amaranth's simulator with all ports of a component in two signals: a testbench in Python then costs two accesses a cycle."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

__all__ = ["Driver", "Ports", "simulate"]


class Ports(dict[str, int]):
    """Values of ports by name, levels joined by ``__`` (``bus__ar__valid``)."""


class Driver(Protocol):
    """Something at a component's ports."""

    def drive(self, ports: Ports) -> None:
        """Before the clock edge: set inputs, in sight of the outputs of registers as they were in the cycle before."""

    def sample(self, ports: Ports) -> None:
        """All has settled, the clock edge comes."""


class _Packed(wiring.Component):
    """A component and its ports as ``inputs`` and ``outputs``."""

    def __init__(self, dut: wiring.Component) -> None:
        super().__init__({})
        self.dut = dut
        self.fields: dict[bool, list[tuple[str, Value]]] = {True: [], False: []}
        for path, member, value in dut.signature.flatten(dut):
            self.fields[member.flow == In].append(("__".join(map(str, path)), Value.cast(value)))
        self.inputs = Signal(sum(len(value) for _, value in self.fields[True]))
        self.outputs = Signal(sum(len(value) for _, value in self.fields[False]))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = self.dut
        begun = Signal()
        m.d.sync += begun.eq(1)  # a component may have no register, and the testbench counts clocks
        m.d.comb += [Cat(value for _, value in self.fields[True]).eq(self.inputs),
                     self.outputs.eq(Cat(value for _, value in self.fields[False]))]
        return m


def simulate(dut: wiring.Component, drivers: Iterable[Driver], until: Callable[[], bool], *, limit: int,
             pins: Callable[[Ports], None] | None = None) -> int:
    """Run until a condition; returns the cycles.

    Parameters
    ----------
    pins : callable
        Sets inputs from outputs of registers of the same cycle.

    Raises
    ------
    :exc:`AssertionError`
        If the condition does not come within ``limit`` cycles.
    """
    packed, drivers = _Packed(dut), list(drivers)
    places: dict[bool, list[tuple[str, int, int]]] = {}
    for direction, fields in packed.fields.items():
        offset = 0
        places[direction] = []
        for name, value in fields:
            places[direction].append((name, offset, (1 << len(value)) - 1))
            offset += len(value)
    ports = Ports({name: 0 for rows in places.values() for name, _, _ in rows})
    cycles = 0

    def word() -> int:
        result = 0
        for name, offset, _ in places[True]:
            result |= ports[name] << offset
        return result

    def split(result: int) -> None:
        for name, offset, mask in places[False]:
            ports[name] = result >> offset & mask

    async def testbench(ctx: Any) -> None:
        nonlocal cycles
        before = 0
        split(ctx.get(packed.outputs))
        while not until():
            assert cycles < limit, f"not done in {limit} cycles"
            for driver in drivers:
                driver.drive(ports)
            if pins is not None:
                pins(ports)
            now = word()
            if now != before:
                ctx.set(packed.inputs, now)
                before = now
                split(ctx.get(packed.outputs))
            for driver in drivers:
                driver.sample(ports)
            await ctx.tick()
            split(ctx.get(packed.outputs))
            cycles += 1

    simulator = Simulator(packed)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return cycles
