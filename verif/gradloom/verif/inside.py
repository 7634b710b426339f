"""Registers inside a simulated part, by name: tests preset counters and sums that only long runs would bring so far."""

from amaranth.hdl import Signal
from amaranth.sim import Simulator

__all__ = ["inside"]


def inside(simulator: Simulator, name: str, width: int | None = None) -> list[Signal]:
    """Registers (and inputs) of that name and width anywhere in the design, in no order.

    Raises
    ------
    :exc:`LookupError`
        If there is none: the source has changed.
    """
    # Amaranth shows the signals of a simulated design nowhere else.
    state = simulator._engine._state  # type: ignore[attr-defined]
    found = [signal for signal in simulator._design.signal_lca  # type: ignore[attr-defined]
             if signal.name == name and width in (None, len(signal)) and not state.slots[state.get_signal(signal)].is_comb]
    if not found:
        raise LookupError(f"there is no register {name!r} of {width or 'any'} bits in the simulated part")
    return found
