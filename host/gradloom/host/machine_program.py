"""A compiled network: program, memory map, and how states, batches and results get in and out of a device."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode
from gradloom.host.devices.device import Device, Readable
from gradloom.host.dram.im2col import Lowered
from gradloom.host.dram.layout import pack_hyper
from gradloom.host.dram.memory_map import ALIGNMENT, MemoryMap, Region
from gradloom.host.knobs import SearchSpace
from gradloom.host.program.assembler import Instruction, assemble
from gradloom.models.golden.step import Hyper, expected_tensors
from gradloom.models.network import INPUT, Kind, Network, Subsample
from gradloom.models.state import State

__all__ = ["MachineProgram"]

_HYPER_BASE = 4
_HYPER_BYTES = 16
_HEADER_BYTES = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineProgram:
    """What :func:`gradloom.host.schedule.compile_network` returns.

    Parameters
    ----------
    lowered : :class:`~gradloom.host.dram.im2col.Lowered`
        The network as the machine runs it.
    memory : :class:`~gradloom.host.dram.memory_map.MemoryMap`
        Every tensor but the program.
    program_address : :class:`int`
        Byte address of the program's header.
    instructions : tuple of :class:`~gradloom.host.program.assembler.Instruction`
    labels : dict
        Target of the LOOP instruction.
    search_space : :class:`~gradloom.host.knobs.SearchSpace`
        What its schedule had to choose from.
    carried : tuple of :class:`str`
        Layers whose gradients and updates come behind their step's LOOP (:mod:`gradloom.host.training_step.deferred_updates`).
    """

    network: Network
    lowered: Lowered
    config: Config
    batch: int
    training: bool
    calibrate: bool
    export_dw: bool
    slots: int
    table: int
    memory: MemoryMap
    memory_base: int
    program_address: int
    instructions: tuple[Instruction, ...]
    labels: dict[int, int]
    search_space: SearchSpace
    carried: tuple[str, ...] = ()

    def program(self, first_step: int = 0) -> bytes:
        """Bytes of the program.

        Entry 0 of the hyperparameter table is that of step ``first_step``, the value of STEP at the start.
        """
        instructions = list(self.instructions)
        for place, instruction in enumerate(instructions):
            if instruction.opcode == Opcode.SETBASE and instruction["breg"] == _HYPER_BASE:
                value = instruction["value"] - _HYPER_BYTES * first_step & 0xFFFFFFFF
                instructions[place] = dataclasses.replace(
                    instruction, fields={**instruction.fields, "value": value}
                )
        return assemble(instructions, self.config, labels=self.labels)

    def digest(self) -> str:
        """SHA-256 of the program behind its header, which also names the machine: of all that the machine is told to do."""
        return hashlib.sha256(self.program()[_HEADER_BYTES:]).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of memory from ``memory_base`` that tensors and program take."""
        words = sum(instruction.size for instruction in self.instructions)
        end = self.program_address - self.memory_base + _HEADER_BYTES + 4 * words
        return -(-end // ALIGNMENT) * ALIGNMENT

    def _address(self, region: Region, slot: int = 0) -> int:
        if not 0 <= slot < region.steps:
            raise ValueError(f"{region.space} has {region.steps} places, there is no place {slot}")
        return self.memory_base + region.address + slot * region.step_bytes

    def _write(self, device: Device, key: tuple[str, str], value: Any, slot: int = 0) -> None:
        region = self.memory[key]
        if key == (INPUT, "z"):
            value = self.lowered.images(value)
        elif region.kind in ("blocks", "dw"):
            value = self.lowered.weights(key[0], value)
        data = region.pack(value, self.config.group)
        assert len(data) == region.data_bytes(), (
            f"{region.space}: {len(data)} bytes, its region has {region.data_bytes()}"
        )
        device.write(self._address(region, slot), data)

    def _read(self, device: Readable, key: tuple[str, str], slot: int = 0) -> Any:
        region = self.memory[key]
        value = region.unpack(device.read(self._address(region, slot), region.data_bytes()), self.config.group)
        if key == (INPUT, "z"):
            return self.lowered.codes(value)
        return self.lowered.values(key[0], value) if region.kind in ("blocks", "dw") else value

    @property
    def _weight_tensors(self) -> list[str]:
        """Of a layer, in memory: weights, for a training program also what their updates keep."""
        if not self.training:
            return ["w"]
        return ["w", "v", *(["rest"] if self.network.rounding.keeps_rests else [])]

    # In

    def write_program(self, device: Device, first_step: int = 0) -> None:
        """Program and what no command writes (:meth:`constants`)."""
        for address, data in self.constants():
            device.write(address, data)
        device.write(self.program_address, self.program(first_step))

    def constants(self) -> list[tuple[int, bytes]]:
        """Address and bytes of what programs read and no command writes: zeros, those between the rows of a shortcut's error among
        them, and of a subsampling shortcut appended channels and index."""
        found = [self._zeros("", "zeros")]
        for layer in self.network.layers:
            if isinstance(layer, Subsample):
                found += self._shortcut_constants(layer)
            elif (layer.name, "ds") in self.memory and self.network.geometry(layer.name).stride > 1:
                found.append(self._zeros(layer.name, "ds"))
        return found

    def _zeros(self, layer: str, name: str) -> tuple[int, bytes]:
        region = self.memory[layer, name]
        return self._address(region), bytes(region.data_bytes())

    def _shortcut_constants(self, layer: Subsample) -> list[tuple[int, bytes]]:
        channels, region = self.network.geometry(layer.name).in_shape[0], self.memory[layer.name, "z"]
        kept = -(-channels // self.config.group)
        found = []
        if kept < region.inner:
            found += [(self._address(region) + region.at(image, kept), bytes((region.inner - kept) * region.unit))
                      for image in range(self.batch)]
        if (layer.name, "index") in self.memory:
            place = self.memory[layer.name, "index"]
            index = np.zeros(place.shape, np.uint8)
            index[:, channels:] = 1
            found.append((self._address(place), place.pack(index, self.config.group)))
        return found

    def write_state(self, device: Device, state: State) -> None:
        """Weights, what their updates keep, and parameters."""
        for layer in self.network.weighted:
            tables = state.weight_tables()
            for name in self._weight_tensors:
                self._write(device, (layer.name, name), tables[name][layer.name])
            names = self.network.parameters(layer.name)
            self._write(
                device,
                (layer.name, "parameters"),
                [
                    (state.parameters[layer.name][key], state.parameter_velocities[layer.name][key])
                    for key in names
                ],
            )

    def write_batch(self, device: Device, slot: int, x_codes: np.ndarray, labels: np.ndarray) -> None:
        """Images (B, C, Y, X) and class numbers of the step that runs ``slot`` steps after the start."""
        device.write(*self.batch_images(slot, x_codes))
        self.write_labels(device, slot, labels)

    @property
    def image_bytes(self) -> int:
        """Bytes of an image in memory; those of a batch lie one behind the other."""
        return self.memory[INPUT, "z"].outer_bytes

    def batch_images(self, slot: int, x_codes: np.ndarray) -> tuple[int, bytes]:
        """Address and bytes of the images of a step."""
        if np.shape(x_codes) != (self.batch, *self.network.input_shape):
            raise ValueError(
                f"a batch must have the shape {(self.batch, *self.network.input_shape)}, "
                f"not {np.shape(x_codes)}"
            )
        region = self.memory[INPUT, "z"]
        return self._address(region, slot), region.pack(self.lowered.images(np.asarray(x_codes)), self.config.group)

    def write_labels(self, device: Device, slot: int, labels: np.ndarray) -> None:
        """Class numbers (B,) of a step."""
        self._write(device, (INPUT, "labels"), np.asarray(labels), slot)

    def write_hyper(self, device: Device, hypers: Sequence[Hyper]) -> None:
        """Hyperparameters of the steps from the start on."""
        if len(hypers) > self.table:
            raise ValueError(f"the hyperparameter table has {self.table} entries, {len(hypers)} were given")
        data = b"".join(pack_hyper(hyper.lm, hyper.le, hyper.momentum, hyper.decay_n) for hyper in hypers)
        device.write(self._address(self.memory["", "hyper"]), data)

    def exponents(self, state: State) -> dict[int, int]:
        """Exponent file before the start, by tensor number."""
        found = dict(state.exponents)
        last = self.network.logits.name
        found[self.network.tid(last, Kind.DZ)] = self.network.error_exponent
        return found

    # Out

    def read_logits(self, device: Readable, slot: int = 0) -> np.ndarray:
        """int32 Q8 (B, classes) of a step."""
        return self._read(device, (self.network.logits.name, "logits"), slot)

    def logits_ranges(self, slots: int) -> list[tuple[int, int]]:
        """Address and length of what :meth:`read_logits` reads of the first slots."""
        region = self.memory[self.network.logits.name, "logits"]
        return [(self._address(region, slot), region.data_bytes()) for slot in range(slots)]

    def state_ranges(self) -> list[tuple[int, int]]:
        """Address and length of what :meth:`read_weights` reads."""
        names = (*self._weight_tensors, "parameters")
        regions = [self.memory[layer.name, name] for layer in self.network.weighted for name in names]
        return [(self._address(region), region.data_bytes()) for region in regions]

    def read(self, device: Readable, layer: str, name: str, slot: int = 0) -> np.ndarray:
        """Any tensor by the names of :func:`gradloom.models.golden.step.expected_tensors`."""
        if name in ("q", "le"):
            return self._read(device, (layer, "reciprocals"))[name == "le"]
        parameters = self.network.parameters(layer) if layer != INPUT else ()
        for place, key in enumerate(parameters):
            if name in (key, f"v{key}"):
                return self._read(device, (layer, "parameters"))[place][name != key]
        if name == "logits":
            return self.read_logits(device, slot)
        value = self._read(device, (layer, name), slot if layer == INPUT else 0)
        return value[:, :, 0, 0] if name == "error" else value

    def read_labels(self, device: Readable, slot: int = 0) -> np.ndarray:
        """Class numbers (B,) of a batch."""
        region = self.memory[INPUT, "labels"]
        data = device.read(self._address(region, slot), region.data_bytes())
        return np.frombuffer(data, "<u2").reshape(self.batch, -1)[:, 0].astype(np.int64)

    def write_results(
        self, device: Device, tensors: Mapping[tuple[str, str], np.ndarray], slot: int = 0
    ) -> None:
        """Tensors of a step (but weights and parameters, which are state) to their places."""
        for (layer, name), value in tensors.items():
            if name == "q":
                self._write(device, (layer, "reciprocals"), (value, tensors[layer, "le"]))
            elif (layer, name) in self.memory and name not in ("w", "v", "rest", "parameters"):
                self._write(
                    device,
                    (layer, name),
                    value[:, :, None, None] if name == "error" else value,
                    slot if name == "logits" else 0,
                )

    def tensors(self) -> list[tuple[str, str]]:
        """(layer, tensor) of all that :meth:`read` finds after a training step, in network order."""
        return expected_tensors(self.network, export_dw=self.export_dw)

    def read_state(self, device: Readable, exponents: dict[int, int], *, step: int, seed: int) -> State:
        """The state after ``step`` steps, with the exponents that the device reports."""
        state = State.initial(self.network, seed, 0)
        self.read_weights(device, state)
        state.exponents = {tid: exponents[tid] for tid in state.exponents}
        state.step, state.calibrated = step, True
        return state

    def read_weights(self, device: Readable, state: State) -> None:
        """Weights and parameters, and for a training program what the updates keep, into ``state``."""
        for layer in self.network.weighted:
            name = layer.name
            for key in self._weight_tensors:
                state.weight_tables()[key][name] = self.read(device, name, key)
            for key in self.network.parameters(name):
                state.parameters[name][key] = self.read(device, name, key)
                state.parameter_velocities[name][key] = self.read(device, name, f"v{key}")
