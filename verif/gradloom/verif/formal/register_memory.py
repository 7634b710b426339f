"""Memories of registers with the ports of :class:`amaranth.lib.memory.Memory`, for proofs that speak of their rows."""

import contextlib
import types
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from amaranth.hdl import Array, Elaboratable, Module, Mux, Shape, ShapeLike, Signal

__all__ = ["FollowedMemory", "RegisterMemory", "replaced"]


@contextlib.contextmanager
def replaced(design: types.ModuleType, name: str, value: object) -> Iterator[None]:
    """Within this context the module's ``name`` is ``value``."""
    original = getattr(design, name)
    setattr(design, name, value)
    try:
        yield
    finally:
        setattr(design, name, original)


class RegisterMemory(Elaboratable):
    """Rows are registers. A read port returns the row as it was before a write in the same cycle, or with ``transparent_for`` as it
    is after it: what Amaranth promises of a memory of the domain ``sync``. A row beyond the last one reads 0.

    Members
    -------
    rows : list of :class:`Signal`
    """

    def __init__(self, shape: ShapeLike, depth: int, init: Sequence[int] = (), attrs: object = None) -> None:
        self.shape, self.depth = Shape.cast(shape), depth
        self.rows = [Signal(self.shape, name=f"row{i}", reset_less=True) for i in range(depth)]
        self._reads: list[tuple[SimpleNamespace, list[SimpleNamespace]]] = []
        self._writes: list[SimpleNamespace] = []

    def _port(self) -> SimpleNamespace:
        return SimpleNamespace(en=Signal(), addr=Signal(range(self.depth)), data=Signal(self.shape, reset_less=True))

    def read_port(self, *, transparent_for: Sequence[SimpleNamespace] = ()) -> SimpleNamespace:
        port = self._port()
        port.en = Signal(init=1)
        self._reads.append((port, list(transparent_for)))
        return port

    def write_port(self) -> SimpleNamespace:
        self._writes.append(self._port())
        return self._writes[-1]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = Array([*self.rows, *(0 for _ in range(self.depth, 1 << len(Signal(range(self.depth)))))])
        for port, transparent in self._reads:
            value = rows[port.addr]
            for write in transparent:
                value = Mux(write.en & (write.addr == port.addr), write.data, value)
            with m.If(port.en):
                m.d.sync += port.data.eq(value)
        for write in self._writes:
            for i, row in enumerate(self.rows):
                with m.If(write.en & (write.addr == i)):
                    m.d.sync += row.eq(write.data)
        return m


class FollowedMemory(Elaboratable):
    """A memory of which one row is followed; reads of the others return whatever ``other`` is.

    Parameters
    ----------
    follow : :class:`Signal`
        The row; constant, of free choice.
    other : :class:`Signal`
        Free in every cycle.

    Members
    -------
    row : :class:`Signal`
    """

    def __init__(self, shape: ShapeLike, depth: int, follow: Signal, other: Signal) -> None:
        self.shape, self.depth, self.follow, self.other = Shape.cast(shape), depth, follow, other
        self.row = Signal(self.shape, name="row", reset_less=True)
        self._reads: list[SimpleNamespace] = []
        self._writes: list[SimpleNamespace] = []

    def _port(self) -> SimpleNamespace:
        return SimpleNamespace(en=Signal(), addr=Signal(range(self.depth)), data=Signal(self.shape, reset_less=True))

    def read_port(self) -> SimpleNamespace:
        self._reads.append(self._port())
        self._reads[-1].en = Signal(init=1)
        return self._reads[-1]

    def write_port(self) -> SimpleNamespace:
        self._writes.append(self._port())
        return self._writes[-1]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for port in self._reads:
            with m.If(port.en):
                m.d.sync += port.data.eq(Mux(port.addr == self.follow, self.row, self.other))
        for write in self._writes:
            with m.If(write.en & (write.addr == self.follow)):
                m.d.sync += self.row.eq(write.data)
        return m
