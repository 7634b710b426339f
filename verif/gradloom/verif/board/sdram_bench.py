"""An SDRAM controller, alone or behind packer and arbiter, against the pin-level model and a byte array."""

import dataclasses
from collections.abc import Callable, Sequence

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.sdram_timing import SdramPart
from gradloom.rtl.board.memory.sdram import SdramController, pin_members
from gradloom.sim.sdram_model import Counts, SdramModel, model_settings
from gradloom.verif.board.axi_traffic import Burst, Manager, Scoreboard, Traffic
from gradloom.verif.board.packed import Driver, Ports, simulate

__all__ = ["CLOCK", "Outcome", "Padded", "PinDriver", "run_bursts", "run_traffic", "small_part"]

CLOCK = 100_000_000


def small_part(word_bits: int = 16, **changes: object) -> SdramPart:
    """A part with the rules of real ones at 100 MHz, and a geometry, a power-up and a retention time that a short run exhausts."""
    fields: dict[str, object] = dict(
        name="small", word_bits=word_bits, columns=64, rows=16, banks=4, t_rp=20, t_rcd=20, t_ras=44, t_rc=70, t_rfc=66, t_rrd=15,
        t_wr=15, t_ck={2: 10, 3: 7.5}, t_ac=6, t_oh=2.7, t_hz=6, retention=16 * 1800, power_up=3000, init_refreshes=3)
    return SdramPart(**(fields | changes))  # type: ignore[arg-type]


@dataclasses.dataclass
class Outcome:
    """``cycles`` without the power-up; ``violations`` of the model; what the managers did."""

    cycles: int
    violations: list[str]
    counts: Counts
    managers: list[Manager]
    memory: bytes


class Padded(wiring.Component):
    """A controller made with ``pad_registers`` behind registers in its pads, those of :class:`amaranth.lib.io.FFBuffer`."""

    def __init__(self, controller: SdramController) -> None:
        self.controller = controller
        super().__init__(dict(controller.signature.members))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.controller = inner = self.controller
        pins = pin_members(inner.part)
        for name, member in pins.items():
            ours, theirs = getattr(self, name), getattr(inner, name)
            m.d.sync += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        wiring.connect(m, wiring.flipped(self.bus), inner.bus)
        m.d.comb += self.ready.eq(inner.ready)
        return m


class PinDriver:
    """The model at a controller's pins. ``wires`` changes what it sees: faults of a board."""

    def __init__(self, model: SdramModel, wires: Callable[[Ports], None] | None = None) -> None:
        self.model, self.wires = model, wires

    def __call__(self, ports: Ports) -> None:
        seen = Ports(ports) if self.wires else ports
        if self.wires:
            self.wires(seen)
        control = 0
        for bit, name in enumerate(("dq_oe", "we_n", "cas_n", "ras_n", "cs_n", "cke")):
            control |= seen[name] << bit
        ports["dq_i"] = self.model.cycle(control, seen["ba"], seen["a"], seen["dqm"], seen["dq_o"])


class _WhenReady:
    """Counts the cycles after power-up."""

    def __init__(self) -> None:
        self.cycles = 0

    def drive(self, ports: Ports) -> None:
        pass

    def sample(self, ports: Ports) -> None:
        self.cycles += ports["ready"]


def run_bursts(dut: wiring.Component, part: SdramPart, bursts: Sequence[list[Burst]], beat: int, *,
               prefixes: Sequence[str] = ("bus",), clock: int = CLOCK, capture: int = 0, limit: int = 100_000,
               settle: int = 0, model_part: SdramPart | None = None, traffic: Sequence[Traffic] = (),
               first_violation: bool = False) -> Outcome:
    """Runs bursts of managers of ``beat`` bytes, then ``settle`` cycles.

    Parameters
    ----------
    model_part : :class:`~gradloom.contracts.sdram_timing.SdramPart`
        The memory at the pins if it is another one than the controller was made for.
    first_violation : :class:`bool`
        Ends at the model's first one.
    """
    real = model_part or part
    with SdramModel(model_settings(real, real.timing(clock), capture=capture)) as model:
        image = bytes((n * 37 + (n >> 8) * 11) & 255 for n in range(model.size))
        model.data[:] = image
        board = Scoreboard(image)
        managers = [Manager.of(prefix, beat, each, board) for prefix, each in zip(prefixes, traffic, strict=True)] if traffic else [
            Manager(prefix, beat, each, board) for prefix, each in zip(prefixes, bursts, strict=True)]
        counter = _WhenReady()
        drivers: list[Driver] = [*managers, counter]
        rest = settle

        def until() -> bool:
            nonlocal rest
            if all(manager.done() for manager in managers):
                rest -= 1
            return rest < 0 or (first_violation and bool(model.violations))

        simulate(dut, drivers, until, limit=limit, pins=PinDriver(model))
        return Outcome(counter.cycles, model.violations, model.counts, managers, bytes(model.data))


def run_traffic(dut: wiring.Component, part: SdramPart, traffic: Sequence[Traffic], beat: int, *,
                prefixes: Sequence[str] = ("bus",), clock: int = CLOCK, capture: int = 0, limit: int = 100_000) -> Outcome:
    """Runs random traffic; the memory must end as the byte array.

    Raises
    ------
    :exc:`AssertionError`
        If an answer is wrong, or the memory's bytes at the end.
    """
    outcome = run_bursts(dut, part, [], beat, prefixes=prefixes, clock=clock, capture=capture, limit=limit,
                         traffic=traffic, settle=20)
    board = outcome.managers[0].board
    wrong = next((n for n, (one, other) in enumerate(zip(outcome.memory, board.image, strict=True)) if one != other), None)
    assert wrong is None, f"the memory holds {outcome.memory[wrong]:#x} at {wrong:#x}, expected {board.image[wrong]:#x}"
    return outcome
