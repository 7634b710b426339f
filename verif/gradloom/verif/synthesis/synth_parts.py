"""What :mod:`gradloom.verif.synth` synthesises: every component, at one size or several."""

import dataclasses
import functools
from collections.abc import Callable

from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.engines import units
from gradloom.contracts.isa import Engine
from gradloom.rtl import shared_module
from gradloom.rtl.acore.acore import ACore
from gradloom.rtl.acore.align import Align, Shifter
from gradloom.rtl.acore.apu import Apu
from gradloom.rtl.acore.converter import Converter
from gradloom.rtl.acore.dither import Dither
from gradloom.rtl.acore.divider import Divider
from gradloom.rtl.acore.first_pass import ChannelSums
from gradloom.rtl.acore.scalars import Scalars
from gradloom.rtl.acore.softmax import Softmax
from gradloom.rtl.ccore.ccore import CCore
from gradloom.rtl.ccore.drain import Drain
from gradloom.rtl.ccore.input_network import InputNetwork
from gradloom.rtl.ccore.mac import Mac
from gradloom.rtl.ccore.pe import Pe
from gradloom.rtl.ccore.psum import PsumStore
from gradloom.rtl.ccore.weight_network import WeightNetwork
from gradloom.rtl.ccore.window_registers import WeightRegisters, WindowRegisters
from gradloom.rtl.ccore.wpu import Wpu
from gradloom.rtl.command import head_words
from gradloom.rtl.memory_path.axi_read import ReadManager
from gradloom.rtl.memory_path.axi_write import WriteManager
from gradloom.rtl.memory_path.loader import Loader
from gradloom.rtl.memory_path.storer import Storer
from gradloom.rtl.pint import V_BITS, decode
from gradloom.rtl.registers.control import Control
from gradloom.rtl.registers.counters import Counters
from gradloom.rtl.registers.csr import Csr
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.rtl.sequencer.scale_unit import ScaleUnit
from gradloom.rtl.sequencer.seed_unit import SeedUnit
from gradloom.rtl.sequencer.semaphores import Semaphores
from gradloom.rtl.sequencer.sequencer import Sequencer
from gradloom.rtl.sequencer.tails import Tails
from gradloom.rtl.verilog import TOP, emit_verilog

__all__ = ["MACHINES", "PARTS", "Decoder", "Part", "component_part", "machine_part"]


class Decoder(wiring.Component):
    """The combinational PINT decoder, 8-bit ``code`` to signed(13) ``v``."""

    def __init__(self) -> None:
        super().__init__({"code": In(8), "v": Out(signed(V_BITS))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.v.eq(decode(self.code))
        return m


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One row of the table.

    Parameters
    ----------
    name : :class:`str`
        Component and size; unique.
    top : :class:`str`
        Its Verilog module.
    emit : callable
        Returns the Verilog of the component and of everything below it.
    """

    name: str
    top: str
    emit: Callable[[], str]


def component_part(name: str, build: Callable[[], wiring.Component], *, top: str = "part") -> Part:
    """A part that is a component."""
    return Part(name=name, top=top, emit=lambda: shared_module.convert(build, top))


def machine_part(config: Config) -> Part:
    """A part that is a whole machine."""
    return Part(name=f"machine {config.name}", top=TOP, emit=lambda: "\n".join(emit_verilog(config).values()))


def _parts() -> list[Part]:
    nano, small, ulx3s = (PRESETS[name] for name in ("nano", "small", "ulx3s"))
    post_shift = dataclasses.replace(ulx3s, name="ulx3s post_shift", mac="post_shift")
    parts: list[Part] = []

    def part(name: str, build: Callable[..., wiring.Component], *arguments: object, **named: object) -> None:
        parts.append(component_part(name, functools.partial(build, *arguments, **named)))

    part("PINT decoder", Decoder)
    part("PINT converter", Converter)
    part("dither", Dither)
    part("shifter 64", Shifter)
    part("align 64", Align)
    part("divider", Divider)
    for mac in ("decode_once", "post_shift"):
        part(f"MAC {mac}", Mac, mac)
        part(f"PE {mac}", Pe, mac)
    for config in (ulx3s, post_shift):
        part(f"windows G=4 {config.mac}", WindowRegisters, config)
        part(f"weights G=4 {config.mac}", WeightRegisters, config)
        part(f"WPU G=4 {config.mac}", Wpu, config)
    for config in (nano, ulx3s):
        part(f"partial-sum store {config.name}", PsumStore, config)
        part(f"feed {config.name}", InputNetwork, config)
        part(f"weight network {config.name}", WeightNetwork, config)
    part("drain ulx3s", Drain, ulx3s, latency=InputNetwork.LATENCY + Wpu.SNAP_LATENCY)
    part("C-Core nano", CCore, nano)
    part("C-Core small", CCore, small)
    part("APU nano", Apu, nano)
    part("first pass of a channel", ChannelSums)
    part("scalars nano", Scalars, nano)
    part("softmax nano", Softmax, nano)
    part("A-Core nano", ACore, nano)
    for config in (nano, ulx3s):
        part(f"Loader {config.name}", Loader, config)
        part(f"Storer {config.name}", Storer, config)
        part(f"read manager {config.name}", ReadManager, config)
        part(f"write manager {config.name}", WriteManager, config)
    part("Sequencer nano", Sequencer, nano)
    part("command queue A-Core", lambda: CommandQueue(
        depth=nano.queue_words, words=head_words(Engine.ACORE), in_flight=ACore.IN_FLIGHT, tails=Tails()))
    part("semaphores", Semaphores, 1 + len(units(nano)))
    part("scale unit nano", ScaleUnit, nano.tensors)
    part("seed unit nano", SeedUnit, nano.tensors)
    part("CSR nano", Csr, nano)
    part("control", Control)
    part("counters nano", Counters, nano)
    return parts


PARTS: list[Part] = _parts()
MACHINES: list[Part] = [machine_part(PRESETS["nano"])]
