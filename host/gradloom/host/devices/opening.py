"""Devices by their names: the only place that knows what each name stands for."""

import argparse
import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradloom.contracts.config import Config
from gradloom.host.devices.board_choice import BoardChoice, board_choice
from gradloom.host.devices.board_opening import open_board
from gradloom.host.devices.device import is_emulator
from gradloom.host.devices.limits import sum_widths
from gradloom.host.devices.model_device import ModelDevice
from gradloom.host.devices.models import GoldenModel, emulator
from gradloom.host.devices.network_device import NetworkDevice
from gradloom.host.devices.runner import ProgramRunner, largest_batch
from gradloom.host.environment import check_device
from gradloom.host.files import UserError
from gradloom.host.knobs import Knobs
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.requests import BANDWIDTH, LATENCY, STALLS, FieldError, Types, check_fields, check_types
from gradloom.models.network import Network
from gradloom.models.state import State

if TYPE_CHECKING:
    from gradloom.sim.rtl_device import RtlDevice

__all__ = ["STEPS_PER_START", "MemoryOptions", "board_runner", "open_network_device", "rtl_device"]

STEPS_PER_START = 8
"""Most steps of one start of the machine; the host only polls the status meanwhile."""
_OPTIONS = {"latency": "--dram-latency", "bytes_per_cycle": "--dram-bytes-per-cycle", "stalls": "--stalls",
            "trace_cycles": "--trace-cycles"}
"""What the command line calls the fields of :class:`MemoryOptions`."""


@dataclasses.dataclass(frozen=True)
class MemoryOptions:
    """The DRAM model of a simulated device.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a read's address to its first beat.
    bytes_per_cycle : :class:`float`, optional
        Reads and writes together; ``None`` is a beat each way and cycle.
    stalls : :class:`float`
        Probability of a random stall on every AXI4 channel and cycle.
    trace : path, optional
        FST waveform to write; ``trace_cycles`` is its (first, last) cycle.

    Raises
    ------
    :exc:`~gradloom.host.requests.FieldError`
        If a value is out of its range.
    """

    latency: int = 40
    bytes_per_cycle: float | None = None
    stalls: float = 0.0
    trace: Path | None = None
    trace_cycles: tuple[int, int] = (0, 20000)

    def __post_init__(self) -> None:
        check_fields(self, latency=LATENCY, bytes_per_cycle=BANDWIDTH, stalls=STALLS)
        check_types(self, trace=Types((Path, str), "a file"))
        if self.trace is not None:
            object.__setattr__(self, "trace", Path(self.trace))
        match self.trace_cycles:
            case (int(first), int(last)):
                pass
            case other:
                raise FieldError("trace_cycles", f"must be a pair of cycles, FROM and TO, not {other!r}")
        if not 0 <= first < last:
            raise FieldError("trace_cycles", f"must be FROM:TO with 0 <= FROM < TO, not '{first}:{last}'")

    @classmethod
    def from_arguments(cls, options: argparse.Namespace) -> "MemoryOptions":
        """The options of a command line, and whether its device has a waveform to write."""
        try:
            first, last = (int(part) for part in options.trace_cycles.split(":"))
        except ValueError:
            raise UserError(f"--trace-cycles must be FROM:TO in cycles, not {options.trace_cycles!r}") from None
        try:
            memory = cls(
                options.dram_latency, options.dram_bytes_per_cycle, options.stalls, options.trace_fst, (first, last)
            )
        except FieldError as error:
            raise UserError(f"{_OPTIONS[error.field]} {error.rule}") from None
        if memory.trace is not None:
            memory.check_trace(options.device)
        return memory

    def check_trace(self, device: str) -> None:
        """See that this device has a waveform, and that none is overwritten.

        Raises
        ------
        :exc:`UserError`
            If not.
        """
        if self.trace is None:
            return
        if device != "rtl":
            raise UserError("--trace-fst records the simulated hardware: give --device rtl with it")
        if self.trace.exists():
            raise UserError(f"{self.trace} exists already: give another --trace-fst, nothing is overwritten")

    def record(self) -> dict[str, Any]:
        """What a run's record keeps (a waveform belongs to one session, not to the run)."""
        return {"latency": self.latency, "bytes_per_cycle": self.bytes_per_cycle, "stalls": self.stalls}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "MemoryOptions":
        return cls(record["latency"], record["bytes_per_cycle"], record["stalls"])


def rtl_device(config: Config, size: int, memory: MemoryOptions) -> "RtlDevice":
    """The simulated machine with ``size`` bytes of memory; it may take minutes to build."""
    from gradloom.sim.rtl_device import DramModel, RtlDevice
    from gradloom.sim.verilate import BuildError

    bandwidth = None if memory.bytes_per_cycle is None else Fraction(memory.bytes_per_cycle).limit_denominator(1000)
    model = DramModel(bandwidth=bandwidth, latency=memory.latency, write_latency=memory.latency, stall=memory.stalls)
    try:
        device = RtlDevice(config, dram_bytes=size, dram=model, track_writes=True, trace=memory.trace is not None)
    except BuildError as error:
        raise UserError(f"the simulator cannot be built ({error}): run gradloom doctor") from None
    if memory.trace is not None:
        first, last = memory.trace_cycles
        try:
            device.trace(memory.trace, first=first, cycles=last - first)
        except RuntimeError:
            device.close()
            raise UserError(f"--trace-fst {memory.trace} cannot be written: give a file in a folder that exists") from None
    return device


def open_network_device(name: str, network: Network, config: Config, batch: int, state: State, memory: MemoryOptions, *,
                        export_dw: bool, knobs: Knobs | None) -> NetworkDevice:
    """A network on the device of that name (:func:`~gradloom.host.devices.device.device_name`).

    Parameters
    ----------
    config : :class:`~gradloom.contracts.config.Config`
        The machine, or the one that a software model stands for: its sums have this machine's widths.
    state : :class:`~gradloom.models.state.State`
        Where a software model begins; a machine has none before one is loaded.
    memory : :class:`MemoryOptions`
        Of the simulated machine.
    export_dw : :class:`bool`
        A machine stores the weight gradients, too.
    knobs : :class:`~gradloom.host.knobs.Knobs`, optional
        Of the machine's schedule.

    Raises
    ------
    :exc:`UserError`
        If the device cannot be had here, or the network does not fit it.
    """
    if name == "golden":
        return ModelDevice(network, GoldenModel(network, state, sum_widths(network, config)))
    if is_emulator(name):
        return ModelDevice(network, emulator(network, state, name, sum_widths(network, config)))
    choice = board_choice(name)
    if choice is None:
        check_device(name, config, memory.trace)
        return ProgramRunner(network, config, batch, STEPS_PER_START, lambda size: rtl_device(config, size, memory),
                             export_dw=export_dw, knobs=knobs)
    return board_runner(choice, network, config, batch, STEPS_PER_START, export_dw=export_dw, knobs=knobs)


def board_runner(choice: BoardChoice, network: Network, config: Config, batch: int, slots: int, *, export_dw: bool,
                 knobs: Knobs | None) -> ProgramRunner:
    """A network on a board, plugged in or simulated.

    Parameters
    ----------
    slots : :class:`int`
        The most steps of one start.

    Raises
    ------
    :exc:`UserError`
        If the network does not fit the machine or the board's memory (before the board is opened), or the board cannot be opened.
    """
    most = choice.board.part.size

    def opened(size: int) -> BoardDevice:
        if size > most:
            fits = largest_batch(network, config, batch, slots, most, export_dw=export_dw)
            advice = f"take --batch {fits}, which fits, or a smaller one" if fits else "not even one image fits: take another board"
            raise UserError(f"{network.name} with {batch} images a step needs {size:,} bytes of memory, {choice.board.name} has "
                            f"{most:,}: {advice}")
        return open_board(choice, config, size)

    return ProgramRunner(network, config, batch, slots, opened, export_dw=export_dw, knobs=knobs)
