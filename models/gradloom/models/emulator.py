"""The exact emulator: the golden training step in PyTorch, the same bytes, fast (docs/emulator.md).

Needs PyTorch (``pip install 'gradloom[torch]'``). Every result is a pure integer function that docs/arithmetic.md
defines, computed by floating-point and integer kernels within bounds in which they are exact.
"""

import ctypes
import dataclasses
import os
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from gradloom.models.arith import check_fits
from gradloom.models.emulator_backward import backward
from gradloom.models.emulator_conv import Weights, exact_kernels
from gradloom.models.emulator_forward import forward
from gradloom.models.emulator_numbers import channels_last, code_table, value_table
from gradloom.models.emulator_run import Run
from gradloom.models.emulator_update import Parameters, update_parameters, update_weights
from gradloom.models.golden import Evaluation, expected_tensors, score
from gradloom.models.golden_update import next_exponents
from gradloom.models.hyper import Hyper
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.models.update import MASTER_BITS

__all__ = ["Emulator", "EmulatorStep"]

_TYPES = {"bit": np.uint8, "index": np.uint8, "z": np.uint8, "logits": np.int32}
"""Types of raw tensors; all others are int64."""


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""


def _keep_freed_memory() -> None:
    """Let glibc keep what a step frees for the next one: a page that goes back to the system costs more than its sums."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 25)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def _values(codes: np.ndarray, device: str) -> Tensor:
    return channels_last(value_table(device)[torch.tensor(codes, dtype=torch.int64, device=device)])


def _codes(values: Tensor) -> np.ndarray:
    found = code_table(str(values.device))[(values + 4096).to(torch.int64)]
    return found.contiguous().cpu().numpy()


def _array(tensor: Tensor, dtype: type) -> np.ndarray:
    return tensor.contiguous().cpu().numpy().astype(dtype)


class _Tensors(Mapping[tuple[str, str], np.ndarray]):
    """Tensors of a step as the golden model has them, converted when asked for."""

    def __init__(self, run: Run, after: "Emulator") -> None:
        self._run = run
        self._names = expected_tensors(run.net)
        self._weights, self._velocities = dict(after.weights), dict(after.velocities)
        parameters = after.parameters
        self._masters, self._speeds = parameters.by_layer(parameters.master), parameters.by_layer(parameters.velocity)

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        layer, name = key
        if key in self._run.raw:
            return _array(self._run.raw[key], _TYPES.get(name, np.int64))
        if name == "error" or key in self._run.values:
            value = self._run.v(layer, name)
            return _codes(value[:, :, 0, 0] if name == "error" else value)
        if name == "dw":
            return _array(self._run.dw[layer], np.int64)
        if name in ("w", "v"):
            return _codes((self._weights if name == "w" else self._velocities)[layer])
        table, parameter = (self._speeds, name[1:]) if name.startswith("v") else (self._masters, name)
        return _array(table[layer][parameter], np.int32)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclasses.dataclass
class EmulatorStep:
    """What a step wrote: the attributes of :class:`~gradloom.models.golden.StepResult`.

    ``tensors`` and ``sums`` are arrays that are made when asked for.
    """

    tensors: Mapping[tuple[str, str], np.ndarray]
    exponents: dict[int, int]
    loss: float
    correct: int
    run: Run

    @property
    def sums(self) -> dict[tuple[str, str], np.ndarray]:
        """By (layer, "sg" | "sb" | "st"): int64 sums over the batch, per channel."""
        return {key: _array(total, np.int64) for key, total in self.run.sums.items()}


class Emulator:
    """A network in training on a PyTorch device.

    Parameters
    ----------
    net : :class:`Network`
    state : :class:`State`
        Where to start; it is copied.
    device : :class:`str`
        "cpu", "cuda", ...

    Attributes
    ----------
    weights, velocities : dict of float32 tensors (M, C, Ky, Kx)
        Values by layer.
    parameters : :class:`Parameters`
    """

    def __init__(self, net: Network, state: State, device: str = "cpu") -> None:
        if os.name == "posix":
            _keep_freed_memory()
        self.net, self.device = net, str(torch.empty(0, device=device).device)
        self.load(state)

    def load(self, state: State) -> None:
        """Begin with a copy of a state."""
        self._exponents, self._step, self._seed = dict(state.exponents), state.step, state.seed
        self._calibrated, self._rounding = state.calibrated, state.rounding
        self.weights = {name: _values(codes, self.device) for name, codes in state.weights.items()}
        self.velocities = {name: _values(codes, self.device) for name, codes in state.velocities.items()}
        places: dict[tuple[str, str], slice] = {}
        start = 0
        for name, table in state.parameters.items():
            for key, array in table.items():
                if "gamma" in table:
                    check_fits(f"layer {name!r}: {key}", array, MASTER_BITS)
                places[name, key] = slice(start, start + len(array))
                start += len(array)
        vectors = [
            torch.tensor(np.concatenate([tables[name][key] for name, key in places]), dtype=torch.int64, device=self.device)
            for tables in (state.parameters, state.parameter_velocities)
        ]
        self.parameters = Parameters(vectors[0], vectors[1], places)

    def state(self) -> State:
        """The state after the latest step."""
        masters, velocities = ({name: {key: _array(value, np.int32) for key, value in table.items()}
                                for name, table in self.parameters.by_layer(vector).items()}
                               for vector in (self.parameters.master, self.parameters.velocity))
        return State(
            {name: _codes(values) for name, values in self.weights.items()},
            {name: _codes(values) for name, values in self.velocities.items()},
            masters, velocities, dict(self._exponents), self._step, self._seed, self._calibrated, self._rounding,
        )

    @property
    def exponents(self) -> dict[int, int]:
        """Exponents by tensor number, of the next step."""
        return dict(self._exponents)

    def _run(self, *, calibrate: bool) -> Run:
        weights = {name: Weights(values) for name, values in self.weights.items()}
        masters = self.parameters.by_layer(self.parameters.master)
        return Run(self.net, dict(self._exponents), weights, masters, step=self._step, seed=self._seed, calibrate=calibrate)

    @torch.inference_mode()
    @exact_kernels()
    def train_step(self, x_codes: np.ndarray, labels: np.ndarray, hyper: Hyper) -> EmulatorStep:
        """One training step on a batch: uint8 codes (B, C, Y, X), integers (B,)."""
        net, labels = self.net, np.asarray(labels)
        run = self._run(calibrate=not self._calibrated)
        logits = forward(run, torch.tensor(x_codes, device=self.device))
        backward(run, logits, torch.tensor(labels, dtype=torch.int64, device=self.device))
        weights, velocities = {}, {}
        for layer in net.weighted:
            name = layer.name
            weights[name], velocities[name] = update_weights(
                run, layer, self.weights[name], self.velocities[name], hyper, len(labels))
        parameters = update_parameters(run, self.parameters, hyper, len(labels))
        # Nothing is changed before all of the step has gone well.
        self.weights, self.velocities, self.parameters = weights, velocities, parameters
        self._exponents = next_exponents(net, run.e, run.stats())
        self._step += 1
        self._calibrated = True
        loss, correct = score(net, _array(logits, np.int32), labels)
        return EmulatorStep(_Tensors(run, self), run.e, loss, correct, run)

    @torch.inference_mode()
    @exact_kernels()
    def evaluate(self, x_codes: np.ndarray, labels: np.ndarray) -> Evaluation:
        """Forward pass with the state as it is; it rounds as a training step does.

        Raises
        ------
        :exc:`ValueError`
            If no step has been done: the exponents are not calibrated.
        """
        if not self._calibrated:
            raise ValueError("the exponents are not calibrated: do a training step before evaluating")
        codes = torch.tensor(x_codes, device=self.device)
        logits = _array(forward(self._run(calibrate=False), codes), np.int32)
        labels = np.asarray(labels)
        return Evaluation(*score(self.net, logits, labels), logits)
