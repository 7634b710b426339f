"""A synchronous FIFO between two streams, with a clear."""

from amaranth.hdl import Module, Mux, Signal, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Fifo"]


class Fifo(wiring.Component):
    """First in, first out; one element in and one out per cycle.

    An element leaves 1 cycle after it came at the earliest. The memory is read combinationally, so it is distributed, or else a
    cycle ahead.

    Parameters
    ----------
    shape : shape-like
        Shape of an element.
    depth : :class:`int`
        Elements that it holds.
    block : :class:`bool`
        Block RAM, for many wide elements, beside some LUTs and flip-flops for each bit by which an element that comes into an empty
        FIFO goes past it.

    Members
    -------
    i : ``In(stream.Signature(shape))``
        Ready while fewer than ``depth`` elements are inside.
    o : ``Out(stream.Signature(shape))``
    level : ``Out(range(depth + 1))``
        Elements inside.
    clear : ``In(1)``
        Empties the FIFO at the end of the cycle; an element that comes in this cycle is lost.
    """

    def __init__(self, shape: object, depth: int, *, block: bool = False) -> None:
        if not isinstance(depth, int) or depth < 1:
            raise ValueError(f"FIFO depth must be a positive integer, not {depth!r}")
        self.shape = shape
        self.depth = depth
        self.block = block
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "level": Out(range(depth + 1)),
            "clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.shape, depth=self.depth, init=[])
        write = memory.write_port()
        write_at = Signal(range(self.depth))
        read_at = Signal(range(self.depth))

        def successor(pointer: Signal) -> ValueLike:
            return Mux(pointer == self.depth - 1, 0, pointer + 1)

        put = self.i.valid & self.i.ready
        get = self.o.valid & self.o.ready
        m.d.comb += [
            self.i.ready.eq(self.level != self.depth),
            write.en.eq(put),
            write.addr.eq(write_at),
            write.data.eq(self.i.payload),
        ]
        m.d.sync += self.level.eq(self.level + put - get)
        with m.If(put):
            m.d.sync += write_at.eq(successor(write_at))
        with m.If(get):
            m.d.sync += read_at.eq(successor(read_at))

        read = memory.read_port(transparent_for=[write]) if self.block else memory.read_port(domain="comb")
        m.d.comb += [
            read.addr.eq(Mux(get, successor(read_at), read_at) if self.block else read_at),
            self.o.valid.eq(self.level != 0),
            self.o.payload.eq(read.data),
        ]

        with m.If(self.clear):
            m.d.sync += [self.level.eq(0), write_at.eq(0), read_at.eq(0)]
        return m
