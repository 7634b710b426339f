"""A network compiled for a machine: its program, its memory, and what a step is estimated to cost."""

import dataclasses
import functools
from typing import Any

from gradloom.api._errors import plain_errors
from gradloom.api._given import Source, name_of
from gradloom.contracts.config import Config
from gradloom.host.bench.bench_measure import dram_cost, estimate, peak_bytes
from gradloom.host.bench.bench_record import ETA_CLOCK_MHZ, figures
from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.opening import STEPS_PER_START, MemoryOptions
from gradloom.host.knobs import choose
from gradloom.host.machine_program import MachineProgram
from gradloom.host.program.disassembler import disassemble
from gradloom.host.requests import CONFIG, COUNT, NETWORK, SCHEDULE, Range, Types, check_fields, check_types, given_network
from gradloom.host.runs.reporting import Listener
from gradloom.host.schedule import compile_network
from gradloom.models.network import Network

__all__ = ["CompiledProgram", "LayerCost", "MemoryRegion", "compile"]

_STEPS = Range(1, STEPS_PER_START, f"1..{STEPS_PER_START}, the most of one start", whole=True)


@dataclasses.dataclass(frozen=True)
class MemoryRegion:
    """One tensor in the machine's memory.

    Parameters
    ----------
    layer, tensor : :class:`str`
        Such as "conv1" and "w"; the layer is "input" for images and labels, "" for what belongs to none.
    address, bytes : :class:`int`
        From the start of the memory; copies for several steps included.
    shape : tuple of :class:`int`
        Of the tensor, without padding.
    """

    layer: str
    tensor: str
    address: int
    bytes: int
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """What one phase of a layer costs in a training step.

    Parameters
    ----------
    layer, phase : :class:`str`
        The phase is "FP" (forward), "BP" (error), "norm BP" or "WG + WU" (weight gradient and update).
    cycles : :class:`int`
        For which the phase keeps the array, estimated; 0 of a phase without a convolution, which runs beside others.
    pe_use : :class:`float`, optional
        Useful multiplications in these cycles, of those that the array could do; ``None`` without a convolution.
    """

    layer: str
    phase: str
    cycles: int
    pe_use: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledProgram:
    """What :func:`compile` returns.

    Parameters
    ----------
    network : :class:`Network`
    config : :class:`Config`
        The machine.
    batch : :class:`int`
        Images of a step.
    """

    network: Network
    config: Config
    batch: int
    _plan: MachineProgram = dataclasses.field(repr=False)
    _memory: MemoryOptions = dataclasses.field(repr=False)

    @functools.cached_property
    def program(self) -> bytes:
        """The program as the machine reads it: a header, then words of 32 bits, little-endian (docs/program.md)."""
        return self._plan.program()

    @property
    def digest(self) -> str:
        """SHA-256 of all that the machine is told to do."""
        return self._plan.digest()

    @property
    def commands(self) -> int:
        """Commands of the program."""
        return len(self._plan.instructions)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the machine's memory that tensors and program take."""
        return self._plan.size

    @property
    def memory_map(self) -> tuple[MemoryRegion, ...]:
        """Where every tensor lies, by address; the program lies behind them."""
        regions = sorted(self._plan.memory.regions.values(), key=lambda region: region.address)
        return tuple(MemoryRegion(region.layer, region.name, region.address, region.size, tuple(region.shape))
                     for region in regions)

    def listing(self) -> str:
        """The program as text, a command a line, each behind its byte offset."""
        return disassemble(self._plan.instructions, addresses=True)

    @property
    def cycles(self) -> int:
        """Cycles of a training step, estimated by the cost model: the second of one start, or the only one."""
        return int(self._figures["total"]["cycles"])

    @property
    def pe_use(self) -> float:
        """Useful multiplications of a step, of those that the array could do in its cycles; estimated."""
        return float(self._figures["total"]["pe_use"])

    @property
    def layers(self) -> tuple[LayerCost, ...]:
        """What every phase of every layer costs, in the order in which they begin; estimated."""
        return tuple(LayerCost(row["layer"], row["phase"], row["span_cycles"], row["pe_use"])
                     for row in self._figures["layers"] if row["layer"])

    @property
    def cycles_by_layer(self) -> dict[str, int]:
        """Cycles for which every layer with a convolution keeps the array, all phases together; estimated.

        They sum to :attr:`cycles` but for what lies before a step's first convolution and behind its last one.
        """
        found: dict[str, int] = {}
        for row in self.layers:
            if row.cycles:
                found[row.layer] = found.get(row.layer, 0) + row.cycles
        order = {layer.name: place for place, layer in enumerate(self.network.layers)}
        return dict(sorted(found.items(), key=lambda item: order[item[0]]))

    @functools.cached_property
    def _figures(self) -> dict[str, Any]:
        timeline = estimate(self._plan, dram_cost(self._memory), min(2, self._plan.slots))
        return figures(timeline, self.network, self.config, self.batch, clock_mhz=ETA_CLOCK_MHZ,
                       peak_bytes=peak_bytes(self.config, self._memory))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Request:
    network: Network | str
    config: Config | str
    batch: int | None = None
    steps: int
    schedule: str | None = None
    memory: MemoryOptions

    def __post_init__(self) -> None:
        check_types(self, network=NETWORK, config=CONFIG, schedule=SCHEDULE, memory=Types(MemoryOptions, "a MemoryOptions"))
        check_fields(self, batch=COUNT, steps=_STEPS)


@plain_errors()
def compile(network: Network | Source, config: Config | Source = "small", batch: int | None = None, *,
            steps: int = STEPS_PER_START, schedule: Source | None = None, memory: MemoryOptions | None = None,
            ) -> CompiledProgram:
    """Compile the training step of a network for a machine. Nothing is simulated.

    Parameters
    ----------
    network : :class:`Network`, or name or file
        A network, or what :func:`load_network` takes.
    config : :class:`Config`, or name or file
        A machine, or what :func:`load_config` takes.
    batch : :class:`int`, optional
        Images of a step; default: the network's.
    steps : :class:`int`
        Most steps of one start of the machine, 1 to 8: so many batches have a place in memory.
    schedule : name or file, optional
        A file of ``gradloom tune``, or "rules" for the scheduler's rules alone; default: the schedule that comes with
        the package for this network, machine and batch, if there is one.
    memory : :class:`MemoryOptions`, optional
        The DRAM that cycles are estimated for.

    Returns
    -------
    :class:`CompiledProgram`
        Cycles are estimated when they are first asked for, which takes about as long as compiling.

    Raises
    ------
    :exc:`UserError`
        If a value is out of its range or the network does not fit the machine; the message names layer, resource and
        sizes.
    """
    asked = _Request(network=name_of(network), config=name_of(config), batch=batch, steps=steps,
                     schedule=name_of(schedule), memory=MemoryOptions() if memory is None else memory)
    found, machine = given_network(asked.network), machine_config("rtl", asked.config)
    images = found.train.batch if asked.batch is None else asked.batch
    knobs = choose(asked.schedule, found, machine, images, Listener().notice)
    plan = compile_network(found, machine, images, slots=asked.steps, table=asked.steps, knobs=knobs)
    return CompiledProgram(found, machine, images, plan, asked.memory)
