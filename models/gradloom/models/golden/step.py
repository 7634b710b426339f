"""The golden training step: a whole network's forward, backward, weight gradients, updates and scales.

Every tensor is a pure integer function of (network, data, seed, step); the machine must write the same bytes.
Which operation runs with which shift is the table of docs/machine.md section 8; the operations themselves are
the neighbouring modules.
"""

import dataclasses
import itertools
from typing import Any

import numpy as np

from gradloom.models.arithmetic import arith, conv, pint, softmax
from gradloom.models.floatref import from_state
from gradloom.models.formats import Update
from gradloom.models.golden.averaging import accumulate, averaged
from gradloom.models.golden.backward import DX_CALIBRATION, backward
from gradloom.models.golden.forward import forward
from gradloom.models.golden.run import Run
from gradloom.models.golden.update import Scales, next_exponents, update_parameters, update_weights
from gradloom.models.hyper import NO_DECAY, Hyper, schedule_table
from gradloom.models.layers import Conv, FullyConnected, Kind, MaxPool
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.models.widths import FULL_WIDTHS, SumWidths

__all__ = [
    "DX_CALIBRATION",
    "Evaluation",
    "Hyper",
    "StepResult",
    "evaluate",
    "expected_tensors",
    "schedule_table",
    "score",
    "train_step",
]


@dataclasses.dataclass
class StepResult:
    """What a step wrote.

    Attributes
    ----------
    tensors : dict
        By (layer, tensor): the arrays that :func:`expected_tensors` lists.
    exponents : dict
        Exponents by tensor number that the step used (after calibration, before the step's end): integers, or int64 arrays
        (B, 1, 1, 1) where every image has its own.
    loss : :class:`float`
        Mean loss of the batch, from the logits.
    correct : :class:`int`
        Images whose largest logit (the first of equal ones) is the label's.
    sums : dict
        By (layer, "sg" | "sb" | "st"): int64 sums over the batch, per channel.
    near : dict
        Bits taken by (layer, "forward sum" | "backward sum" | "weight gradient"), where these come within
        :data:`~gradloom.models.arithmetic.arith.NEAR_BITS` of the accumulator's.
    """

    tensors: dict[tuple[str, str], np.ndarray]
    exponents: dict[int, Any]
    loss: float
    correct: int
    sums: dict[tuple[str, str], np.ndarray]
    near: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Loss, number of correct images and logits (int32 Q8, (B, classes)) of a forward pass."""

    loss: float
    correct: int
    logits: np.ndarray


_WEIGHT_TENSORS = {
    Update.VELOCITY: ("w", "v"),
    Update.SHIFT: ("w",),
    Update.MASTER: ("w", "v", "master"),
}


def expected_tensors(net: Network, *, export_dw: bool = True) -> list[tuple[str, str]]:
    """(layer, tensor) of every tensor that a training step writes, in network order.

    ``z``, ``xhat``, ``dz``, ``dx``, ``ds``, ``w``, ``v``, ``error``: PINT codes; ``bit``: 0 or 1; ``q``,
    ``le``: reciprocals (B, C); ``index``: max pool's choice; ``logits``: int32 Q8; ``dw``: int64 sums (only
    written where they are exported); ``gamma``, ``beta``, ``tau`` and, with a ``v`` before, their velocities:
    int32 Q.24. With error feedback ``rest``: what rounding left of the weights, a byte each. In other formats than pint8
    codes are those of the format, int8-shift has no ``v``, and bfp8's ``v`` and ``master`` are int32 Q.24.
    fp32 has weights, parameters and their velocities alone, float32.
    """
    found = []
    if net.arithmetic.real:
        for weighted in net.weighted:
            parameters = net.parameters(weighted.name)
            found += [(weighted.name, name) for name in ("w", "v", *parameters, *(f"v{key}" for key in parameters))]
        return found
    for layer in net.layers:
        last = layer.name == net.logits.name
        names = ["logits", "error"] if last else ["z"]
        if isinstance(layer, MaxPool):
            names.append("index")
        if not last and net.needs_error(layer.name):
            names.append("dz")
        if isinstance(layer, Conv | FullyConnected):
            if layer.norm == "frn":
                names += ["xhat", "q", "le"]
            if layer.act in ("tlu", "relu"):
                names.append("bit")
            if layer.norm == "frn" or layer.act == "relu":
                names.append("dx")
        if net.sends_ds(layer.name):
            names.append("ds")
        if isinstance(layer, Conv | FullyConnected):
            names += ["dw"] if export_dw else []
            parameters = net.parameters(layer.name)
            names += _WEIGHT_TENSORS[net.arithmetic.update]
            names += [*(["rest"] if net.rounding.keeps_rests else []), *parameters, *(f"v{key}" for key in parameters)]
        found += [(layer.name, name) for name in names]
    return found


def _slices(count: int, parts: int) -> list[slice]:
    if not 1 <= parts <= count:
        raise ValueError(f"a batch of {count} images cannot be processed in {parts} parts")
    edges = [count * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def score(net: Network, logits: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
    """Mean loss and number of correct images."""
    loss = softmax.loss if net.loss == "softmax" else softmax.squared_loss
    classes = labels.argmax(axis=1) if labels.ndim == 2 else labels
    return float(loss(logits, labels)), int((logits.argmax(axis=1) == classes).sum())


def train_step(
    net: Network, state: State, x_codes: np.ndarray, labels: np.ndarray, hyper: Hyper, *, parts: int = 1,
    widths: SumWidths = FULL_WIDTHS,
) -> StepResult:
    """One training step on a batch; ``state`` becomes the next step's.

    Parameters
    ----------
    x_codes : uint8 array (B, C, Y, X)
        PINT codes with the exponent of tensor 2.
    labels : integer array (B,), or (B, classes)
        Class numbers; with the loss "squared" also targets in Q8, for regression and reconstruction.
    parts : :class:`int`
        Process the batch in so many parts one after the other; the result does not depend on it.
    widths : :class:`~gradloom.models.widths.SumWidths`
        Of the machine that the model stands for.

    Raises
    ------
    :exc:`~gradloom.models.arithmetic.arith.ArithmeticFault`
        If a number does not fit its width; the state is none that a step leaves then.
    """
    x_codes, labels = np.asarray(x_codes), np.asarray(labels)
    if parts > 1 and not net.arithmetic.delayed:
        raise ValueError(f"format {net.format} takes its scales from the batch itself: process it in one part")
    if net.arithmetic.real:
        return _real_step(net, state, x_codes, labels, hyper)
    exponents: dict[int, Any] = dict(state.exponents)
    if not state.calibrated and net.arithmetic.delayed:
        run = Run(net, state, exponents, calibrate=True, widths=widths)
        backward(run, forward(run, x_codes), labels)
        exponents = run.e
    stats: dict[int, int] = {}
    sums: dict[tuple[str, str], np.ndarray] = {}
    dw: dict[str, np.ndarray] = {}
    near: dict[tuple[str, str], int] = {}
    pieces: list[dict[tuple[str, str], np.ndarray]] = []
    for part in _slices(len(labels), parts):
        run = Run(net, state, exponents, first=part.start, widths=widths)
        backward(run, forward(run, x_codes[part]), labels[part])
        pieces.append(run.tensors)
        for key, bits in run.near.items():
            near[key] = max(bits, near.get(key, 0))
        for tid, stat in run.stats.items():
            stats[tid] = stats.get(tid, 0) | stat
        for key, total in run.sums.items():
            sums[key] = sums.get(key, 0) + total
        for name, gradient in run.dw.items():
            dw[name] = dw.get(name, 0) + gradient
    exponents = run.e
    scales = Scales(exponents, run.dw_exponents, run.sum_exponents, stats)
    tensors = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
    for layer in net.weighted:
        if parts > 1:
            # Sums of parts are added up in wide integers, whatever the array's accumulators have.
            run.check(layer.name, "WG + WU", "weight gradient", dw[layer.name], conv.GRADIENT_BITS)
        tensors[layer.name, "dw"] = dw[layer.name]
        with arith.located(layer.name, "WG + WU"):
            update_weights(net, state, layer, dw[layer.name], scales, hyper, len(labels))
            update_parameters(net, state, layer, sums, scales, hyper, len(labels))
        for title, table in state.weight_tables().items():
            if layer.name in table:
                tensors[layer.name, title] = table[layer.name].copy()
        for parameter in net.parameters(layer.name):
            tensors[layer.name, parameter] = state.parameters[layer.name][parameter].copy()
            tensors[layer.name, f"v{parameter}"] = state.parameter_velocities[layer.name][parameter].copy()
    loss, correct = score(net, tensors[net.logits.name, "logits"], labels)
    state.exponents = next_exponents(net, state.exponents, exponents, stats)
    if hyper.average:
        accumulate(net, state)
    state.step += 1
    state.calibrated = True
    return StepResult(tensors, exponents, loss, correct, sums, near | run.near)


def _real_images(state: State, x_codes: np.ndarray) -> np.ndarray:
    return np.ldexp(pint.decode(x_codes).astype(np.float32), state.exponents[Kind.Z])


def _real_step(net: Network, state: State, x_codes: np.ndarray, labels: np.ndarray, hyper: Hyper) -> StepResult:
    """A step of the reference in float32; targets are in Q8 as elsewhere."""
    float_net = from_state(net, state, np.float32)
    decay = 0.0 if hyper.decay_n == NO_DECAY else 2.0**-hyper.decay_n
    targets = (labels / 256).astype(np.float32) if labels.ndim == 2 else labels
    step = float_net.train_step(_real_images(state, x_codes), targets, hyper.lr, hyper.momentum / 256, decay)
    tensors: dict[tuple[str, str], np.ndarray] = {}
    for (layer, key), value in float_net.parameters.items():
        speed = float_net.velocities[layer, key]
        if key == "w":
            state.weights[layer], state.velocities[layer] = value, speed
        else:
            state.parameters[layer][key], state.parameter_velocities[layer][key] = value, speed
        tensors |= {(layer, key): value.copy(), (layer, "v" if key == "w" else f"v{key}"): speed.copy()}
    state.step += 1
    state.calibrated = True
    return StepResult(tensors, dict(state.exponents), step.loss, step.correct, {})


def evaluate(
    net: Network, state: State, x_codes: np.ndarray, labels: np.ndarray, *, widths: SumWidths = FULL_WIDTHS
) -> Evaluation:
    """Forward pass with the state's weights and exponents, which stay as they are; it rounds as a training step does.

    A state that has averaged weights is evaluated with these. ``widths`` and faults as for :func:`train_step`.

    Raises
    ------
    :exc:`ValueError`
        If no step has been done: the exponents are not calibrated.
    """
    if not state.calibrated and net.arithmetic.delayed:
        raise ValueError("the exponents are not calibrated: do a training step before evaluating")
    state = averaged(net, state)
    if net.arithmetic.real:
        real = from_state(net, state, np.float32).logits(_real_images(state, np.asarray(x_codes)))
        logits = np.rint(256 * np.clip(real, -(2.0**15), 2.0**15)).astype(np.int32)
        return Evaluation(*score(net, logits, np.asarray(labels)), logits)
    logits = forward(Run(net, state, dict(state.exponents), widths=widths), np.asarray(x_codes))
    labels = np.asarray(labels)
    return Evaluation(*score(net, logits, labels), logits)
