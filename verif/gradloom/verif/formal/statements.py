"""Statements that several specifications make: of the cycle before, of channels that wait, of inputs that stay."""

from collections.abc import Callable, Iterable

from amaranth.hdl import Assert, Assume, Module, Signal, Value

__all__ = ["constant", "held", "past"]


def past(m: Module, value: Value, name: str) -> Signal:
    """``value`` of the cycle before; 0 in the first one."""
    register = Signal(Value.cast(value).shape(), name=name)
    m.d.sync += register.eq(value)
    return register


def held(m: Module, valid: Value, ready: Value, payload: Iterable[Value], name: str,
         check: Callable[..., object] = Assert) -> None:
    """A channel that waits keeps ``valid`` and its payload (AXI4, section A3.2.1). With ``Assume`` the environment does."""
    waited = past(m, valid & ~ready, f"{name}_waited")
    m.d.comb += check(~waited | valid)
    for n, value in enumerate(payload):
        before = past(m, value, f"{name}_before{n}")
        m.d.comb += check(~waited | (value == before))


def constant(m: Module, *values: Value) -> None:
    """The environment never changes these inputs: registers that the host writes only while nothing runs, free choices."""
    begun = Signal(name="begun")
    m.d.sync += begun.eq(1)
    for n, value in enumerate(values):
        m.d.comb += Assume(~begun | (value == past(m, value, f"constant_before{n}")))
