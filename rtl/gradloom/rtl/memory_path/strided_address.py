"""The run generator: the strided loops of a LOAD or STORE as a stream of contiguous requests."""

from collections.abc import Sequence
from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.contracts.config import Config
from gradloom.rtl.memory_path.axi import REQUEST

__all__ = ["BeatCounter", "Loops", "StridedAddressGenerator", "loops_of", "misaligned", "unknown_memory"]

Loops = StructLayout({"n0": 16, "n1": 16, "n2": 16, "stride1": 32, "stride2": 32})
"""Fields of LOAD and STORE that make runs: beats of a run, inner and outer iterations, each at least 1; bytes from run to run, and
from outer iteration to outer iteration."""


def misaligned(config: Config, *addresses: Value) -> Value:
    """1 if an address is no multiple of the beat."""
    low = exact_log2(config.beat_bytes)
    return Value.cast(sum((address[:low].any() for address in addresses), start=Value.cast(0))) != 0


def unknown_memory(number: Value, memories: Sequence[int]) -> Value:
    """1 if the machine has no memory of that number; ``memories`` are numbers without a gap between them."""
    low, high = min(memories), max(memories)
    assert sorted(memories) == list(range(low, high + 1))
    return (number < low) | (number > high) if low else number > high


def loops_of(cmd: SimpleNamespace) -> Value:
    """The fields of a LOAD or STORE (:func:`gradloom.rtl.command.decode`), as :data:`Loops`."""
    return Cat(cmd.n0, cmd.n1, cmd.n2, cmd.stride1, cmd.stride2)


class StridedAddressGenerator(wiring.Component):
    """Requests the runs of two nested loops: run (i2, i1) of ``n0`` beats starts at ``first + i2 stride2 + i1 stride1``
    modulo 2^32.

    The first request is offered in the cycle after ``start``, then one a cycle. All inputs but ``start`` are stable
    until ``busy`` falls.

    Members
    -------
    start : ``In(1)``
    first : ``In(32)``
        Byte address.
    loops : ``In(Loops)``
    request : ``Out(stream.Signature(REQUEST))``
    busy : ``Out(1)``
        Requests are left.
    """

    def __init__(self) -> None:
        super().__init__({
            "start": In(1), "first": In(32),
            "loops": In(Loops),
            "request": Out(stream.Signature(REQUEST)),
            "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        address = Signal(32, reset_less=True)
        outer = Signal(32, reset_less=True)
        m.submodules.counter = counter = BeatCounter(levels=2)
        loops = self.loops
        taken = self.request.valid & self.request.ready
        m.d.comb += [
            self.request.valid.eq(self.busy),
            self.request.p.address.eq(address),
            self.request.p.beats.eq(loops.n0),
            self.request.p.end.eq(counter.last[1]),
            counter.clear.eq(self.start),
            counter.step.eq(taken),
            counter.n[0].eq(loops.n1),
            counter.n[1].eq(loops.n2),
        ]
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), address.eq(self.first), outer.eq(self.first)]
        with m.Elif(taken):
            m.d.sync += address.eq(Mux(counter.last[0], outer + loops.stride2, address + loops.stride1))
            with m.If(counter.last[0]):
                m.d.sync += outer.eq(outer + loops.stride2)
            with m.If(counter.last[1]):
                m.d.sync += self.busy.eq(0)
        return m


class BeatCounter(wiring.Component):
    """Nested loop counters, innermost first.

    Members
    -------
    n : ``In(ArrayLayout(16, levels))``
        Iterations of each loop, at least 1, stable while counting.
    step : ``In(1)``
        One iteration of the innermost loop is done in this cycle.
    clear : ``In(1)``
        Back to the first iteration.
    last : ``Out(levels)``
        Bit i: the present iteration is the last of loops 0..i.
    """

    def __init__(self, *, levels: int) -> None:
        self.levels = levels
        super().__init__({"n": In(ArrayLayout(16, levels)), "step": In(1), "clear": In(1), "last": Out(levels)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inner_last = Value.cast(1)
        for level in range(self.levels):
            count = Signal(16, name=f"count{level}", reset_less=True)
            following = Signal(17, name=f"following{level}")
            at_end = Signal(name=f"at_end{level}")
            m.d.comb += [following.eq(count + 1), at_end.eq(following == self.n[level])]
            with m.If(self.step & inner_last):
                m.d.sync += count.eq(Mux(at_end, 0, following))
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            inner_last = inner_last & at_end
            m.d.comb += self.last[level].eq(inner_last)
        return m
