"""Memories that give the wrong bits where a word is read in the cycle in which it is written: what a block RAM of ECP5 may do."""

from collections.abc import Iterator
from contextlib import contextmanager

from amaranth.hdl import Cat, MemoryInstance, Module, Signal
from amaranth.lib.memory import Memory

from gradloom.rtl import memories

__all__ = ["CollidingMemory", "colliding"]


class CollidingMemory(Memory):
    """A memory that, if it says that no word is read while it is written (:func:`gradloom.rtl.memories.memory_apart`), gives every
    bit of such a word inverted; any other one is as always."""

    def elaborate(self, platform: object) -> Module | MemoryInstance:
        if not self.attrs.get("no_rw_check"):
            return super().elaborate(platform)
        m = Module()
        self.data.freeze()
        m.submodules.words = words = MemoryInstance(data=self.data, attrs=self.attrs)
        for port in self.write_ports:
            words.write_port(domain=port.domain, addr=port.addr, data=port.data, en=port.en)
        for number, port in enumerate(self.read_ports):
            right = Signal.like(port.data, name=f"right{number}")
            words.read_port(domain=port.domain, data=right, addr=port.addr, en=port.en, transparent_for=())
            hit = Cat(other.en & (other.addr == port.addr) for other in self.write_ports).any()
            if port.domain != "comb":
                late = Signal(name=f"late{number}")
                with m.If(port.en):
                    m.d[port.domain] += late.eq(hit)
                hit = late
            m.d.comb += port.data.eq(right ^ hit.replicate(len(right)))
        return m


@contextmanager
def colliding() -> Iterator[None]:
    """Within this context memories of machines are such."""
    memories.Memory, plain = CollidingMemory, memories.Memory
    try:
        yield
    finally:
        memories.Memory = plain
