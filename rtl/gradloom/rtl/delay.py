"""Registers that only delay: a value and its later copies, made as they are asked for."""

from amaranth.hdl import Module, Signal, Value

__all__ = ["Line", "delayed"]


def delayed(m: Module, value: Value, name: str, cycles: int = 1, *, reset: bool = False) -> Value:
    """``value`` that many cycles later.

    Parameters
    ----------
    reset : :class:`bool`
        The copies are reset, so they stay flip-flops; without reset three or more become shift registers of LUTs.
    """
    for i in range(cycles):
        register = Signal(Value.cast(value).shape(), name=f"{name}_{i + 1}" if cycles > 1 else name, reset_less=not reset)
        m.d.sync += register.eq(value)
        value = register
    return value


class Line:
    """``line[n]`` is the value ``n`` cycles later.

    Parameters
    ----------
    reset : :class:`bool`
        The copies are reset; for valid bits.
    """

    def __init__(self, m: Module, value: Value, name: str, *, reset: bool = False) -> None:
        self.m, self.name, self.reset, self.taps = m, name, reset, [Value.cast(value)]

    def __getitem__(self, cycles: int) -> Value:
        while len(self.taps) <= cycles:
            register = Signal(self.taps[-1].shape(), name=f"{self.name}_{len(self.taps)}", reset_less=not self.reset)
            self.m.d.sync += register.eq(self.taps[-1])
            self.taps.append(register)
        return self.taps[cycles]
