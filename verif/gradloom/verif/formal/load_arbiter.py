"""Specifications of the load arbiter: who goes first in a cycle, and how long the first channel waits."""

import dataclasses
import types

from amaranth.hdl import Assert, Assume, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import LOAD_MAP
from gradloom.contracts.isa import Dest
from gradloom.rtl.memory_path import load_arbiter
from gradloom.verif.formal.statements import held

__all__ = ["WAITED", "ArbiterSpec", "WaitSpec"]

_CONFIG = dataclasses.replace(PRESETS["ulx3s"], load_channels=3)
_CHANNELS = range(_CONFIG.load_channels)
_FIELDS = {"valid": 1, "dest": 4, "bank": 4, "addr": 16, "sub": 4, "data": 16 * _CONFIG.group}
WAITED = (_CONFIG.load_channels - 1) * (_CONFIG.block_beats - 1)
"""Cycles that channel 0 waits at most: the rest of a block of each other channel."""


def _connect(m: Module, spec: wiring.Component, dut: wiring.Component) -> None:
    for n in _CHANNELS:
        m.d.comb += [
            *(getattr(dut.loader[n], name).eq(getattr(spec, f"{name}{n}")) for name in _FIELDS),
            # A channel's commands are those of its memories.
            Assume(sum((dut.loader[n].dest == memory for memory in LOAD_MAP[len(_CHANNELS)][n]), start=0) != 0),
        ]


class ArbiterSpec(wiring.Component):
    """No bank gets two beats in a cycle; a beat is refused only where one that goes first is written to its bank: one within a
    block before one that begins, then the lowest channel. What is written is what was offered. Combinational: one cycle covers all.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a beat of channel 2 that goes before those of channels 0 and 1.
    """

    def __init__(self, design: types.ModuleType = load_arbiter, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({f"{name}{n}": In(width) for n in _CHANNELS for name, width in _FIELDS.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.LoadArbiter(_CONFIG)
        _connect(m, self, dut)
        for n in _CHANNELS:
            bus, out = dut.loader[n], dut.memory[n]
            m.d.comb += [Assert(out.valid == (bus.valid & dut.ready[n])),
                         *(Assert(getattr(out, name) == getattr(bus, name)) for name in _FIELDS if name != "valid")]
            blame: Value = Signal(name=f"nobody{n}")
            for k in _CHANNELS:
                if k == n:
                    continue
                other = dut.loader[k]
                meet = other.valid & bus.valid & (other.dest == bus.dest) & (other.bank == bus.bank)
                m.d.comb += Assert(~(meet & dut.ready[k] & dut.ready[n]))
                first = Mux((other.sub != 0) == (bus.sub != 0), k < n, other.sub != 0)
                blame = blame | (meet & dut.ready[k] & first)
            m.d.comb += Assert(~bus.valid | dut.ready[n] | blame)
        if self.cover:
            m.d.comb += Cover(dut.memory[2].valid & self.valid0 & self.valid1 & ~dut.ready[:2].any())
        return m


class WaitSpec(wiring.Component):
    """Channel 0 waits for the rest of a block of each other channel at most, while Loaders offer a refused beat again and walk
    through blocks. For bounded checks.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a wait of :data:`WAITED` cycles.
    """

    def __init__(self, design: types.ModuleType = load_arbiter, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({f"{name}{n}": In(width) for n in _CHANNELS for name, width in _FIELDS.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.LoadArbiter(_CONFIG)
        _connect(m, self, dut)
        m.d.comb += Assume(~ResetSignal())
        for n in _CHANNELS:
            bus = dut.loader[n]
            held(m, bus.valid, dut.ready[n], [bus.dest, bus.bank, bus.sub], f"bus{n}", Assume)
            sub, bank = Signal(4, name=f"sub{n}_next"), Signal(4, name=f"bank{n}_begun")
            written = bus.valid & dut.ready[n]
            with m.If(written):
                m.d.sync += [sub.eq(Mux(bus.sub == _CONFIG.block_beats - 1, 0, bus.sub + 1)), bank.eq(bus.bank)]
            m.d.comb += [Assume(~bus.valid | (bus.dest == Dest.WBUF) & (bus.sub == sub)),
                         Assume(~bus.valid | (sub == 0) | (bus.bank == bank))]
        wait = Signal(8)
        m.d.sync += wait.eq(Mux(self.valid0 & ~dut.ready[0], wait + 1, 0))
        m.d.comb += Assert(wait <= WAITED)
        if self.cover:
            m.d.comb += Cover(wait == WAITED)
        return m
