"""The golden training step: a whole network's forward, backward, weight gradients, updates and scales.

Every tensor is a pure integer function of (network, data, seed, step); the machine must write the same bytes.
Which operation runs with which shift is the table of docs/machine.md section 8; the operations themselves are
the neighbouring modules.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np

from gradloom.models import activation, arith, conv, dither, frn, pint, pool, scale, softmax, update
from gradloom.models.network import (
    INPUT,
    Conv,
    FullyConnected,
    Kind,
    Layer,
    MaxPool,
    Network,
    Training,
)
from gradloom.models.state import State, delayed_kinds

__all__ = [
    "Evaluation",
    "Hyper",
    "StepResult",
    "evaluate",
    "expected_tensors",
    "schedule_table",
    "train_step",
]

Q20 = 20
"""Fraction bits of y: 8 of the normalised activations and 12 of gamma."""
NO_DECAY = 255
DX_CALIBRATION = -24
"""Converter shift (without le) of the calibrating dry run of FRN's dx; every other dry run has shift 0.

dx is dz * lambda, and lambda is about 1 / mean |X|: at shift 0 all of dx would lie below the statistics' 9
fraction bits as soon as mean |X| is 2^20, and the tensor would look like zeros. 24 bits more reach 2^44.
"""


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Hyperparameters of one step, as the table in DRAM holds them.

    Parameters
    ----------
    lm, le : :class:`int`
        Learning rate lm * 2^-le, lm in 128..255.
    momentum : :class:`int`
        Of 256.
    decay_n : :class:`int`
        Weight decay 2^-decay_n; 255 is none.
    """

    lm: int
    le: int
    momentum: int = 230
    decay_n: int = NO_DECAY

    @classmethod
    def from_floats(cls, lr: float, momentum: float = 0.9, weight_decay: float = 0.0) -> "Hyper":
        """Nearest representable values: an 8-bit mantissa, momentum of 256, decay to a power of two."""
        mantissa, exponent = math.frexp(lr)
        lm, le = round(mantissa * 256), 8 - exponent
        if lm == 256:
            lm, le = 128, le - 1
        decay_n = NO_DECAY if weight_decay == 0 else max(0, round(-math.log2(weight_decay)))
        return cls(lm, le, min(255, round(momentum * 256)), decay_n)

    @property
    def lr(self) -> float:
        return math.ldexp(self.lm, -self.le)


def schedule_table(train: Training, steps: int) -> list[Hyper]:
    """Hyperparameters of every step of a run: constant, or falling on a line or a cosine towards zero."""
    table = []
    for step in range(steps):
        left = (steps - step) / steps
        factor = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[
            train.schedule
        ]
        table.append(Hyper.from_floats(max(train.lr * factor, 2.0**-30), train.momentum, train.weight_decay))
    return table


@dataclasses.dataclass
class StepResult:
    """What a step wrote.

    Attributes
    ----------
    tensors : dict
        By (layer, tensor): the arrays that :func:`expected_tensors` lists.
    exponents : dict of int
        Exponents by tensor number that the step used (after calibration, before the step's end).
    loss : :class:`float`
        Mean loss of the batch, from the logits.
    correct : :class:`int`
        Images whose largest logit (the first of equal ones) is the label's.
    sums : dict
        By (layer, "sg" | "sb" | "st"): int64 sums over the batch, per channel.
    """

    tensors: dict[tuple[str, str], np.ndarray]
    exponents: dict[int, int]
    loss: float
    correct: int
    sums: dict[tuple[str, str], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Loss, number of correct images and logits (int32 Q8, (B, classes)) of a forward pass."""

    loss: float
    correct: int
    logits: np.ndarray


def expected_tensors(net: Network, *, export_dw: bool = True) -> list[tuple[str, str]]:
    """(layer, tensor) of every tensor that a training step writes, in network order.

    ``z``, ``xhat``, ``dz``, ``dx``, ``ds``, ``w``, ``v``, ``error``: PINT codes; ``bit``: 0 or 1; ``q``,
    ``le``: reciprocals (B, C); ``index``: max pool's choice; ``logits``: int32 Q8; ``dw``: int64 sums (only
    written where they are exported); ``gamma``, ``beta``, ``tau`` and, with a ``v`` before, their velocities:
    int32 Q.24.
    """
    found = []
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
            names += ["dw"] if export_dw else []
            names += [
                "w",
                "v",
                *net.parameters(layer.name),
                *(f"v{key}" for key in net.parameters(layer.name)),
            ]
        found += [(layer.name, name) for name in names]
    return found


class _Run:
    """One pass over images with given exponents.

    With ``calibrate`` every operation first finds the exponent of what it writes.
    """

    def __init__(
        self, net: Network, state: State, exponents: dict[int, int], *, calibrate: bool = False
    ) -> None:
        self.net = net
        self.state = state
        self.e = exponents
        self.calibrate = calibrate
        self.stats: dict[int, int] = {}
        self.tensors: dict[tuple[str, str], np.ndarray] = {}
        self.sums: dict[tuple[str, str], np.ndarray] = {}
        self.values: dict[tuple[str, str], np.ndarray] = {}
        self.dw: dict[str, np.ndarray] = {}

    def _scaled(
        self, tid: int, zero: int, operation: Callable[[int], pint.Encoded], *, dry_shift: int = 0
    ) -> pint.Encoded:
        """Run an operation that encodes tensor ``tid``.

        ``zero`` is the exponent at which the converter's shift (without le) is 0, ``dry_shift`` the shift of
        the calibrating run.
        """
        if self.calibrate:
            self.e[tid] = scale.next_exponent(zero + dry_shift, operation(dry_shift).stat, 8)
        encoded = operation(self.e[tid] - zero)
        self.stats[tid] = self.stats.get(tid, 0) | encoded.stat
        return encoded

    def _keep(self, layer: str, name: str, encoded: pint.Encoded) -> None:
        self.tensors[layer, name] = encoded.code
        self.values[layer, name] = encoded.value

    def _weights(self, name: str) -> np.ndarray:
        return pint.decode(self.state.weights[name])

    def _master(self, name: str, key: str) -> np.ndarray:
        return self.state.parameters[name][key].astype(np.int64)

    def _accumulator_exponent(self, layer: Layer) -> int:
        return self.e[self.net.tid(layer.name, Kind.W)] + self.e[self.net.tid(layer.input, Kind.Z)]

    # Forward

    def forward(self, x_codes: np.ndarray) -> np.ndarray:
        """Codes (B, C, Y, X) to logits int32 (B, classes)."""
        self.values[INPUT, "z"] = pint.decode(x_codes)
        for layer in self.net.layers:
            if isinstance(layer, Conv | FullyConnected):
                self._conv_forward(layer)
            else:
                self._pool_forward(layer)
        return self.tensors[self.net.logits.name, "logits"]

    def _conv_forward(self, layer: Conv | FullyConnected) -> None:
        name, g, ex = layer.name, self.net.geometry(layer.name), self._accumulator_exponent(layer)
        x = conv.forward(self.values[layer.input, "z"], self._weights(name), g.stride, g.pad, width=None)
        arith.check_fits(f"layer {name!r}: forward sum", x, conv.SUM_BITS)
        tid = self.net.tid(name, Kind.Z)
        if layer.norm == "frn":
            self._frn_forward(layer, x, ex)
            return
        biased = activation.add_bias(x, self._master(name, "beta"), ex)
        if name == self.net.logits.name:
            self.tensors[name, "logits"] = activation.logits(biased, ex)
            return
        if layer.act == "relu":
            self.tensors[name, "bit"] = (biased > 0).astype(np.uint8)
            biased = np.maximum(biased, 0)
        self._keep(name, "z", self._scaled(tid, ex, lambda shift: pint.encode(biased, shift)))

    def _frn_forward(self, layer: Conv | FullyConnected, x: np.ndarray, ex: int) -> None:
        name = layer.name
        gamma, beta, tau = (self._master(name, key) >> 12 for key in ("gamma", "beta", "tau"))
        residual = None
        if layer.residual is not None:
            shortcut = self.values[layer.residual, "z"].astype(np.int64)
            residual = arith.align(shortcut, Q20 + self.e[self.net.tid(layer.residual, Kind.Z)])
        results = {}

        def operation(shift: int) -> pint.Encoded:
            results[shift] = frn.forward(
                x, gamma, beta, tau, -12 - ex, sh_z=shift, residual=residual, threshold=layer.act == "tlu"
            )
            return results[shift].z

        tid = self.net.tid(name, Kind.Z)
        z = self._scaled(tid, -Q20, operation)
        result = results[self.e[tid] + Q20]
        self._keep(name, "z", z)
        self.tensors[name, "xhat"] = result.xhat_code
        self.values[name, "xhat"] = result.xhat_value
        if layer.act == "tlu":
            self.tensors[name, "bit"] = np.asarray(result.bit).astype(np.uint8)
        self.tensors[name, "q"] = np.asarray(result.q, np.int64)
        self.tensors[name, "le"] = np.asarray(result.le, np.int64)

    def _pool_forward(self, layer: Layer) -> None:
        g, tid = self.net.geometry(layer.name), self.net.tid(layer.name, Kind.Z)
        x, ein = self.values[layer.input, "z"], self.e[self.net.tid(layer.input, Kind.Z)]
        if isinstance(layer, MaxPool):
            wide, index = pool.max_forward(x, g.kernel[0], g.stride, g.pad)
            self.tensors[layer.name, "index"] = np.asarray(index).astype(np.uint8)
            zero = ein
        else:
            wide = pool.avg_forward(x, g.kernel[0], g.stride, g.pad)
            zero = pool.avg_exponent(ein, g.kernel[0])
        self._keep(layer.name, "z", self._scaled(tid, zero, lambda shift: pint.encode(wide, shift)))

    # Backward

    def backward(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """From the loss gradient to every weight gradient (``dw``) and parameter sum (``sums``)."""
        last = self.net.logits.name
        loss_gradient = softmax.gradient if self.net.loss == "softmax" else softmax.squared
        error = loss_gradient(logits, labels)[1]
        self.tensors[last, "error"] = error.code
        self.values[last, "dz"] = error.value.reshape(*error.value.shape, 1, 1)
        for layer in reversed(self.net.layers):
            name = layer.name
            if not self.net.needs_error(name):
                continue
            if name != last:
                self._keep(name, "dz", self._output_error(name))
            if isinstance(layer, Conv | FullyConnected):
                self._accumulator_error(layer)
                if self.net.sends_ds(name):
                    self._keep(name, "ds", self._shortcut_error(name))
                g = self.net.geometry(name)
                x, dx = self.values[layer.input, "z"], self.values[name, "dx"]
                dw = conv.weight_gradient(x, dx, g.kernel, g.stride, g.pad, width=None)
                arith.check_fits(f"layer {name!r}: weight gradient", dw, conv.GRADIENT_BITS)
                self.dw[name] = dw

    def _backward_exponent(self, name: str) -> int:
        return self.e[self.net.tid(name, Kind.W)] + self.e[self.net.dx_tid(name)]

    def _conv_backward(self, name: str) -> np.ndarray:
        g = self.net.geometry(name)
        dx = self.values[name, "dx"]
        wide = conv.backward(dx, self._weights(name), (len(dx), *g.in_shape), g.stride, g.pad, width=None)
        arith.check_fits(f"layer {name!r}: backward sum", wide, conv.SUM_BITS)
        return wide

    def _shortcut_error(self, name: str) -> pint.Encoded:
        """DS: what the second convolution on a tensor sends back, a PINT tensor of its own."""
        wide = self._conv_backward(name)
        tid, zero = self.net.tid(name, Kind.DS), self._backward_exponent(name)
        return self._scaled(tid, zero, lambda shift: pint.encode(wide, shift))

    def _output_error(self, name: str) -> pint.Encoded:
        """dz of a layer: what its main consumer sends back, plus the shortcut's error, encoded once."""
        main, shortcut = self.net.main_consumer(name), self.net.shortcut(name)
        tid = self.net.tid(name, Kind.DZ)
        if isinstance(main, Conv | FullyConnected):
            wide, zero = self._conv_backward(main.name), self._backward_exponent(main.name)
        elif main is not None:
            wide, zero = self._pool_backward(main)
        else:
            assert shortcut is not None
            wide, zero = np.zeros((), np.int64), self.e[self.net.tid(shortcut.layer, Kind.DZ)]
        if shortcut is not None:
            if shortcut.kind == "residual":
                error = self.values[shortcut.layer, "dz"] * self.tensors[shortcut.layer, "bit"].astype(
                    np.int64
                )
                exponent = self.e[self.net.tid(shortcut.layer, Kind.DZ)]
            else:
                error = self.values[shortcut.layer, "ds"].astype(np.int64)
                exponent = self.e[self.net.tid(shortcut.layer, Kind.DS)]
            wide = wide + arith.align(error, exponent - zero)
        return self._scaled(tid, zero, lambda shift: pint.encode(wide, shift))

    def _pool_backward(self, layer: Layer) -> tuple[np.ndarray, int]:
        g = self.net.geometry(layer.name)
        dz, exponent = self.values[layer.name, "dz"], self.e[self.net.tid(layer.name, Kind.DZ)]
        shape = (len(dz), *g.in_shape)
        if isinstance(layer, MaxPool):
            index = self.tensors[layer.name, "index"]
            return pool.max_backward(dz, index, shape, g.kernel[0], g.stride, g.pad), exponent
        wide = pool.avg_backward(dz, shape, g.kernel[0], g.stride, g.pad)
        return wide, pool.avg_exponent(exponent, g.kernel[0])

    def _accumulator_error(self, layer: Conv | FullyConnected) -> None:
        """dx of a layer with weights, and its parameter gradients summed over the images."""
        name, dz = layer.name, self.values[layer.name, "dz"]
        if layer.norm == "frn":
            self._frn_backward(layer, dz)
            return
        if layer.act == "relu":
            bit = self.tensors[name, "bit"]
            dz = dz * bit.astype(np.int64)
            self.tensors[name, "dx"] = np.where(bit, self.tensors[name, "dz"], 0).astype(np.uint8)
        self.values[name, "dx"] = dz
        self.sums[name, "sb"] = dz.astype(np.int64).sum(axis=(0, 2, 3))

    def _frn_backward(self, layer: Conv | FullyConnected, dz: np.ndarray) -> None:
        name = layer.name
        bit = self.tensors[name, "bit"] if layer.act == "tlu" else np.ones(dz.shape, np.uint8)
        gamma = self._master(name, "gamma") >> 12
        q, le = self.tensors[name, "q"], self.tensors[name, "le"]
        results = {}

        def operation(shift: int) -> pint.Encoded:
            results[shift] = frn.backward(dz, self.values[name, "xhat"], bit, gamma, q, le, sh0=shift)
            return results[shift].dx

        tid = self.net.tid(name, Kind.DX)
        zero = self.e[self.net.tid(name, Kind.DZ)] - self._accumulator_exponent(layer)
        self._keep(name, "dx", self._scaled(tid, zero, operation, dry_shift=DX_CALIBRATION))
        result = results[self.e[tid] - zero]
        for key in ("sg", "sb", "st"):
            self.sums[name, key] = np.asarray(getattr(result, key), np.int64).sum(axis=0)


def _slices(count: int, parts: int) -> list[slice]:
    if not 1 <= parts <= count:
        raise ValueError(f"a batch of {count} images cannot be processed in {parts} parts")
    edges = [count * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def score(net: Network, logits: np.ndarray, labels: np.ndarray) -> tuple[float, int]:
    loss = softmax.loss if net.loss == "softmax" else softmax.squared_loss
    return float(loss(logits, labels)), int((logits.argmax(axis=1) == labels).sum())


def train_step(
    net: Network, state: State, x_codes: np.ndarray, labels: np.ndarray, hyper: Hyper, *, parts: int = 1
) -> StepResult:
    """One training step on a batch; ``state`` becomes the next step's.

    Parameters
    ----------
    x_codes : uint8 array (B, C, Y, X)
        PINT codes with the exponent of tensor 2.
    labels : integer array (B,)
    parts : :class:`int`
        Process the batch in so many parts one after the other; the result does not depend on it.
    """
    x_codes, labels = np.asarray(x_codes), np.asarray(labels)
    exponents = dict(state.exponents)
    if not state.calibrated:
        run = _Run(net, state, exponents, calibrate=True)
        run.backward(run.forward(x_codes), labels)
    stats: dict[int, int] = {}
    sums: dict[tuple[str, str], np.ndarray] = {}
    dw: dict[str, np.ndarray] = {}
    pieces: list[dict[tuple[str, str], np.ndarray]] = []
    for part in _slices(len(labels), parts):
        run = _Run(net, state, exponents)
        run.backward(run.forward(x_codes[part]), labels[part])
        pieces.append(run.tensors)
        for tid, stat in run.stats.items():
            stats[tid] = stats.get(tid, 0) | stat
        for key, total in run.sums.items():
            sums[key] = sums.get(key, 0) + total
        for name, gradient in run.dw.items():
            dw[name] = dw.get(name, 0) + gradient
    tensors = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
    for layer in net.weighted:
        arith.check_fits(f"layer {layer.name!r}: weight gradient", dw[layer.name], conv.GRADIENT_BITS)
        tensors[layer.name, "dw"] = dw[layer.name]
        _update_weights(net, state, layer, dw[layer.name], exponents, stats, hyper, len(labels))
        _update_parameters(net, state, layer, sums, exponents, hyper, len(labels))
        tensors[layer.name, "w"] = state.weights[layer.name].copy()
        tensors[layer.name, "v"] = state.velocities[layer.name].copy()
        for parameter in net.parameters(layer.name):
            tensors[layer.name, parameter] = state.parameters[layer.name][parameter].copy()
            tensors[layer.name, f"v{parameter}"] = state.parameter_velocities[layer.name][parameter].copy()
    loss, correct = score(net, tensors[net.logits.name, "logits"], labels)
    state.exponents = _next_exponents(net, exponents, stats)
    state.step += 1
    state.calibrated = True
    return StepResult(tensors, exponents, loss, correct, sums)


def _update_weights(
    net: Network,
    state: State,
    layer: Layer,
    dw: np.ndarray,
    e: dict[int, int],
    stats: dict[int, int],
    hyper: Hyper,
    batch: int,
) -> None:
    """WU of docs/machine.md section 8, at the exponents W_NEXT and V_NEXT."""
    name = layer.name
    w_tid, v_tid, w_next, v_next = (
        net.tid(name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT)
    )
    inv, k = arith.reciprocal(batch)
    ew, ev = e[w_tid], e[v_tid]
    index = np.arange(dw.size, dtype=np.int64).reshape(dw.shape)
    random = [
        dither.random_bits(dither.tensor_seed(state.seed, state.step, tid), index, 16)
        for tid in (w_tid, v_tid)
    ]

    def operation() -> tuple[pint.Encoded, pint.Encoded]:
        shifts = (
            e[net.dx_tid(name)] + e[net.tid(layer.input, Kind.Z)] - 15 - k - ev + 16,
            16 + e[v_next] - ev,
            ew - hyper.decay_n - ev + 16,
            e[v_next] - hyper.le - ew + 16,
            16 + e[w_next] - ew,
        )
        return update.weights(
            dw,
            pint.decode(state.weights[name]),
            pint.decode(state.velocities[name]),
            inv=inv,
            momentum=hyper.momentum,
            lm=hyper.lm,
            shifts=shifts,
            decay=hyper.decay_n != NO_DECAY,
            rnd_v=random[1],
            rnd_w=random[0],
        )

    if not state.calibrated:
        e[v_next], e[w_next] = ev - 16, ew
        e[v_next] = scale.next_exponent(e[v_next], operation()[0].stat, 16)
    velocity, weight = operation()
    stats[v_next], stats[w_next] = velocity.stat, weight.stat
    state.velocities[name] = velocity.code.reshape(dw.shape)
    state.weights[name] = weight.code.reshape(dw.shape)


def _update_parameters(
    net: Network,
    state: State,
    layer: Layer,
    sums: dict[tuple[str, str], np.ndarray],
    e: dict[int, int],
    hyper: Hyper,
    batch: int,
) -> None:
    """PARAM_UPD and BIAS_UPD of docs/machine.md section 8."""
    name = layer.name
    inv, k = arith.reciprocal(batch)
    edz = e[net.tid(name, Kind.DZ)]
    for key in net.parameters(name):
        source, fraction = ("sg", 1) if key == "gamma" else (f"s{key[0]}", 9)
        master, velocity = update.parameter(
            state.parameters[name][key],
            state.parameter_velocities[name][key],
            sums[name, source],
            inv=inv,
            shift=edz + fraction - k,
            momentum=hyper.momentum,
            lm=hyper.lm,
            le_lr=hyper.le,
        )
        state.parameters[name][key] = np.asarray(master, np.int32)
        state.parameter_velocities[name][key] = np.asarray(velocity, np.int32)


def _next_exponents(net: Network, e: dict[int, int], stats: dict[int, int]) -> dict[int, int]:
    """Exponents of the next step: delayed scales; those of weights and velocities run one step ahead."""
    following = dict(e)
    for layer in net.layers:
        for kind in delayed_kinds(net, layer.name):
            tid = net.tid(layer.name, kind)
            following[tid] = scale.next_exponent(e[tid], stats[tid], 8)
    for layer in net.weighted:
        for now, ahead in ((Kind.W, Kind.W_NEXT), (Kind.V, Kind.V_NEXT)):
            tid = net.tid(layer.name, ahead)
            following[net.tid(layer.name, now)] = e[tid]
            following[tid] = scale.next_exponent(e[tid], stats[tid], 16)
    return following


def evaluate(net: Network, state: State, x_codes: np.ndarray, labels: np.ndarray) -> Evaluation:
    """Forward pass with the state's weights and exponents, which stay as they are.

    Raises
    ------
    :exc:`ValueError`
        If no step has been done: the exponents are not calibrated.
    """
    if not state.calibrated:
        raise ValueError("the exponents are not calibrated: do a training step before evaluating")
    logits = _Run(net, state, dict(state.exponents)).forward(np.asarray(x_codes))
    labels = np.asarray(labels)
    return Evaluation(*score(net, logits, labels), logits)
