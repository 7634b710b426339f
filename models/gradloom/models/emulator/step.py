"""The exact emulator: the golden training step in PyTorch, the same bytes, fast (docs/emulator.md).

Needs PyTorch (``pip install 'gradloom[torch]'``). Every result is a pure integer function that docs/arithmetic.md
defines, computed by floating-point and integer kernels within bounds in which they are exact.
"""

import ctypes
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradloom.models.arithmetic import feedback
from gradloom.models.arithmetic.arith import check_fits
from gradloom.models.arithmetic.update import MASTER_BITS
from gradloom.models.emulator.backward import backward
from gradloom.models.emulator.forward import forward
from gradloom.models.emulator.learnt import Learnt, Parameters
from gradloom.models.emulator.numbers import channels_last, codes
from gradloom.models.emulator.operands import Weights
from gradloom.models.emulator.run import Run
from gradloom.models.emulator.update import check_sums, sums_range, update_parameters, update_weights
from gradloom.models.formats import Coding, Format
from gradloom.models.golden.averaging import accumulate, averaged
from gradloom.models.golden.step import Evaluation, expected_tensors, score
from gradloom.models.golden.update import next_exponents
from gradloom.models.hyper import Hyper
from gradloom.models.layers import Kind, Subsample
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.models.widths import FULL_WIDTHS, SumWidths

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


def _array(tensor: Tensor, dtype: type) -> np.ndarray:
    return tensor.contiguous().cpu().numpy().astype(dtype)


def _stored(form: Format, learnt: Learnt) -> dict[str, np.ndarray]:
    """Weights, velocities, masters and rests of a layer as a :class:`State` has them."""
    found = {"w": codes(learnt.w, form.operand)}
    if learnt.wide is not None:
        found["rest"] = feedback.split(_array(learnt.w, np.int64), _array(learnt.wide, np.int64))
    if learnt.master is not None and learnt.v is not None:
        return found | {"v": _array(learnt.v, np.int32), "master": _array(learnt.master, np.int32)}
    return found if learnt.v is None else found | {"v": codes(learnt.v, form.operand)}


class _Tensors(Mapping[tuple[str, str], np.ndarray]):
    """Tensors of a step as the golden model has them, converted when asked for."""

    def __init__(self, run: Run, after: "Emulator") -> None:
        self._run = run
        self._names = expected_tensors(run.net)
        self._learnt = dict(after.learnt)
        parameters = after.parameters
        self._masters, self._speeds = parameters.by_layer(parameters.master), parameters.by_layer(parameters.velocity)

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        layer, name = key
        if key in self._run.raw:
            return _array(self._run.raw[key], _TYPES.get(name, np.int64))
        if name == "error" or key in self._run.values:
            value = self._run.v(layer, name)
            if name == "xhat":
                value = value * 2.0**-self._run.format.normalised_up
            return codes(value[:, :, 0, 0] if name == "error" else value, self._coding(layer, name))
        if name == "dw":
            return _array(self._run.dw[layer], np.int64)
        if name in ("w", "v", "master", "rest"):
            return _stored(self._run.format, self._learnt[layer])[name]
        table, parameter = (self._speeds, name[1:]) if name.startswith("v") else (self._masters, name)
        return _array(table[layer][parameter], np.int32)

    def _coding(self, layer: str, name: str) -> Coding:
        """Of a tensor (PINT values, or those of the format's codes)."""
        net = self._run.net
        if name == "xhat":
            return self._run.format.normalised
        kind = {"error": Kind.DZ, "z": Kind.Z, "dz": Kind.DZ, "dx": Kind.DX, "ds": Kind.DS}[name]
        if name in ("dz", "ds") and isinstance(net.layer(layer), Subsample):
            return net.coding(net.dz_tid(layer))
        return net.coding(net.tid(layer, kind))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclasses.dataclass
class EmulatorStep:
    """What a step wrote: the attributes of :class:`~gradloom.models.golden.step.StepResult`.

    ``tensors`` and ``sums`` are arrays that are made when asked for.
    """

    tensors: Mapping[tuple[str, str], np.ndarray]
    exponents: dict[int, Any]
    loss: float
    correct: int
    run: Run

    @property
    def sums(self) -> dict[tuple[str, str], np.ndarray]:
        """By (layer, "sg" | "sb" | "st"): int64 sums over the batch, per channel."""
        return {key: _array(total, np.int64) for key, total in self.run.sums.items()}

    @functools.cached_property
    def near(self) -> dict[tuple[str, str], int]:
        """Bits that sums take near the limit, by (layer, name)."""
        return self.run.near()


class Emulator:
    """A network in training on a PyTorch device.

    Parameters
    ----------
    net : :class:`Network`
    state : :class:`State`
        Where to start; it is copied.
    device : :class:`str`
        "cpu", "cuda", ...
    widths : :class:`~gradloom.models.widths.SumWidths`
        Of the machine that the emulator stands for.

    Attributes
    ----------
    learnt : dict of :class:`Learnt`
        Weights by layer.
    parameters : :class:`Parameters`
    """

    def __init__(self, net: Network, state: State, device: str = "cpu", *, widths: SumWidths = FULL_WIDTHS) -> None:
        if net.arithmetic.real:
            raise ValueError(f"format {net.format} is floating point, the emulator is exact: train on the golden model")
        if os.name == "posix":
            _keep_freed_memory()
        self.net, self.device, self.widths = net, str(torch.empty(0, device=device).device), widths
        self.load(state)

    def load(self, state: State) -> None:
        """Begin with a copy of a state."""
        self._exponents, self._step, self._seed = dict(state.exponents), state.step, state.seed
        self._calibrated, self._rounding = state.calibrated, state.rounding
        self._averages, self._averaged = dict(state.averages), state.averaged
        self.learnt = {name: self._learnt(state, name) for name in state.weights}
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

    def _learnt(self, state: State, name: str) -> Learnt:
        def place(array: np.ndarray, dtype: torch.dtype) -> Tensor:
            return channels_last(torch.tensor(array, device=self.device).to(dtype))

        coding = self.net.arithmetic.operand
        w = place(coding.decode(state.weights[name]), torch.float32)
        if name in state.masters:
            return Learnt(w, place(state.velocities[name], torch.int64), place(state.masters[name], torch.int64))
        rest = state.rests.get(name)
        return Learnt(
            w, place(coding.decode(state.velocities[name]), torch.float32) if name in state.velocities else None,
            wide=None if rest is None else place(feedback.join(coding.decode(state.weights[name]), rest), torch.float32))

    def state(self) -> State:
        """The state after the latest step."""
        masters, velocities = ({name: {key: _array(value, np.int32) for key, value in table.items()}
                                for name, table in self.parameters.by_layer(vector).items()}
                               for vector in (self.parameters.master, self.parameters.velocity))
        stored = {name: _stored(self.net.arithmetic, learnt) for name, learnt in self.learnt.items()}
        weights, speeds, wide, rests = ({name: arrays[key] for name, arrays in stored.items() if key in arrays}
                                        for key in ("w", "v", "master", "rest"))
        return State(weights, speeds, masters, velocities, dict(self._exponents), self._step, self._seed, self._calibrated,
                     self._rounding, self.net.format, wide, dict(self._averages), self._averaged, rests)

    @property
    def exponents(self) -> dict[int, int]:
        """Exponents by tensor number, of the next step."""
        return dict(self._exponents)

    def _run(self, *, calibrate: bool) -> Run:
        weights = {name: Weights(learnt.w) for name, learnt in self.learnt.items()}
        masters, narrow = (self.parameters.by_layer(vector) for vector in (self.parameters.master, self.parameters.master >> 12))
        return Run(self.net, dict(self._exponents), weights, masters, narrow, step=self._step, seed=self._seed, calibrate=calibrate,
                   widths=self.widths)

    @torch.inference_mode()
    def train_step(self, x_codes: np.ndarray, labels: np.ndarray, hyper: Hyper) -> EmulatorStep:
        """One training step on a batch: uint8 codes (B, C, Y, X), integers (B,) or targets (B, classes)."""
        net, labels = self.net, np.asarray(labels)
        images, answers = torch.tensor(x_codes, device=self.device), torch.tensor(labels, dtype=torch.int64, device=self.device)
        run, logits = self._advance(images, answers, hyper)
        if hyper.average:
            state = self.state()
            accumulate(net, state)
            self._averages, self._averaged = state.averages, state.averaged
        loss, correct = score(net, _array(logits, np.int32), labels)
        exponents = {tid: e.cpu().numpy() if isinstance(e, Tensor) else e for tid, e in run.e.items()}
        return EmulatorStep(_Tensors(run, self), exponents, loss, correct, run)

    def _advance(self, images: Tensor, answers: Tensor, hyper: Hyper) -> tuple[Run, Tensor]:
        """One step on what lies on the device: its pass, and its logits (B, classes), int32 Q8."""
        run = self._run(calibrate=not self._calibrated)
        try:
            logits = forward(run, images)
            backward(run, logits, answers)
            updated = update_weights(run, self.learnt, hyper, len(answers))
            parameters = update_parameters(run, self.parameters, hyper, len(answers))
            # All of the step has been asked for. Only now the host waits, and sees whether what it took for granted is so.
            sums = sums_range(run, parameters)
            run.read(sums, *updated.ranges)
        finally:
            # What was found wrong earlier is told first.
            run.verify()
        updated.mend()
        check_sums(run, parameters, sums)
        # Nothing is changed before all of the step has gone well.
        self.learnt, self.parameters = updated.learnt, parameters
        self._exponents = next_exponents(self.net, self._exponents, run.e, run.stats())
        self._step += 1
        self._calibrated = True
        return run, logits

    @torch.inference_mode()
    def evaluate(self, x_codes: np.ndarray, labels: np.ndarray) -> Evaluation:
        """Forward pass with the state as it is, or with its averaged weights; it rounds as a training step does.

        Raises
        ------
        :exc:`ValueError`
            If no step has been done: the exponents are not calibrated.
        """
        if not self._calibrated and self.net.arithmetic.delayed:
            raise ValueError("the exponents are not calibrated: do a training step before evaluating")
        if self._averaged:
            state = averaged(self.net, self.state())
            state.averages, state.averaged = {}, 0
            return Emulator(self.net, state, self.device, widths=self.widths).evaluate(x_codes, labels)
        codes = torch.tensor(x_codes, device=self.device)
        run = self._run(calibrate=False)
        try:
            found = forward(run, codes)
        finally:
            run.verify()
        logits = _array(found, np.int32)
        labels = np.asarray(labels)
        return Evaluation(*score(self.net, logits, labels), logits)
