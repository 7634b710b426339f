"""The same networks in floating point, with analytic gradients: what the integer training is compared with.

Same layers, initial weights, data and schedule, no quantisation: float64, or float32 for the FP32 baseline. Batch
normalisation with ReLU can take the place of L1-FRN with TLU (Ioffe and Szegedy, "Batch normalization").
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gradloom.models.arithmetic import shortcut
from gradloom.models.arithmetic.pool import PoolWalk
from gradloom.models.layers import INPUT, Conv, FullyConnected, Geometry, Kind, Layer, Pool, Subsample
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["FloatNet", "FloatStep", "from_state"]

EPSILON = 2.0**-12
"""Added to the mean of |x| in L1-FRN."""
BATCH_EPSILON = 1e-5
"""Added to the variance in batch normalisation."""
BATCH_MOMENTUM = 0.1
"""Share of a batch in the running mean and variance that an evaluation uses."""


@dataclasses.dataclass
class FloatStep:
    """Result of a batch.

    Mean loss, correct images, gradients by (layer, parameter) averaged over the batch, tensors by name.
    """

    loss: float
    correct: int
    gradients: dict[tuple[str, str], np.ndarray]
    tensors: dict[tuple[str, str], np.ndarray]


def _windows(x: np.ndarray, g: Geometry | PoolWalk, fill: float = 0.0) -> np.ndarray:
    """(B, C, Yo, Xo, Ky, Kx) view of the windows of (B, C, Y, X)."""
    padded = np.pad(x, ((0, 0), (0, 0), (g.pad, g.pad), (g.pad, g.pad)), constant_values=fill)
    return sliding_window_view(padded, g.kernel, axis=(2, 3))[:, :, :: g.stride, :: g.stride]


def _scatter(windows: np.ndarray, g: Geometry | PoolWalk, plane: tuple[int, ...]) -> np.ndarray:
    """Adjoint of :func:`_windows`: add every window's values up at the positions of ``plane`` (Y, X) that they came from."""
    batch, channels, rows, columns = windows.shape[:4]
    height, width = plane
    padded = np.zeros((batch, channels, height + 2 * g.pad, width + 2 * g.pad), windows.dtype)
    for ky in range(g.kernel[0]):
        for kx in range(g.kernel[1]):
            padded[:, :, ky : ky + g.stride * rows : g.stride, kx : kx + g.stride * columns : g.stride] += (
                windows[..., ky, kx]
            )
    return padded[:, :, g.pad : g.pad + height, g.pad : g.pad + width]


def _walked(
    x: np.ndarray, walk: PoolWalk, plane: tuple[int, ...], index: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Results (B, C, Y, X) of a pool's pass, of planes (Y, X), and the index of a maximum, that which is given if there is one."""
    if walk.spread:
        area = walk.kernel[0] * walk.kernel[1]
        if walk.maximum:
            assert index is not None
            share = (index[..., None] == np.arange(area)).astype(x.dtype)
        else:
            share = np.full((*x.shape, area), 1 / walk.divisor, x.dtype)
        return _scatter((x[..., None] * share).reshape(*x.shape, *walk.kernel), walk, plane), None
    if not walk.maximum:
        return _windows(x, walk).sum(axis=(4, 5)) / walk.divisor, None
    windows = _windows(x, walk, -np.inf)
    flat = windows.reshape(*windows.shape[:4], -1)
    index = np.asarray(flat.argmax(axis=-1) if index is None else index).astype(np.int64)
    return np.take_along_axis(flat, index[..., None], axis=-1)[..., 0], index


def _column(parameter: np.ndarray) -> np.ndarray:
    return parameter[None, :, None, None]


def _frn(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 / (mean |y| + epsilon) (B, C, 1, 1) and xhat of L1-FRN."""
    scale = 1 / (np.abs(y).mean(axis=(2, 3), keepdims=True) + y.dtype.type(EPSILON))
    return scale, y * scale


class FloatNet:
    """A network with floating-point parameters and momentum SGD.

    Parameters
    ----------
    net : :class:`Network`
    parameters : dict
        By (layer, "w" | "gamma" | "beta" | "tau").
    batch_norm : :class:`bool`
        Batch normalisation and ReLU in place of L1-FRN and TLU; tau stays 0.

    Attributes
    ----------
    running : dict
        Means and unbiased variances over the batches by (layer, "mean" | "variance"), of batch normalisation.
    """

    def __init__(self, net: Network, parameters: dict[tuple[str, str], np.ndarray], *, batch_norm: bool = False) -> None:
        self.net = net
        self.batch_norm = batch_norm
        self.parameters = {key: value for key, value in parameters.items() if not (batch_norm and key[1] == "tau")}
        self.running: dict[tuple[str, str], np.ndarray] = {}
        for layer in net.weighted:
            if batch_norm and layer.norm == "frn":
                start = parameters[layer.name, "gamma"]
                self.running |= {(layer.name, "mean"): np.zeros_like(start), (layer.name, "variance"): np.ones_like(start)}
        self.velocities = {key: np.zeros_like(value) for key, value in self.parameters.items()}

    def gradients(
        self,
        x: np.ndarray,
        labels: np.ndarray,
        *,
        decisions: Mapping[tuple[str, str], np.ndarray] | None = None,
    ) -> FloatStep:
        """Loss, gradients and every tensor of a batch of real images (B, C, Y, X); ``labels`` may be targets (B, classes).

        ``decisions`` holds tensors ``bit`` and ``index`` of an integer step: the float pass then takes the
        same side of every threshold and the same maximum, so that only rounding separates the two.
        """
        tensors: dict[tuple[str, str], np.ndarray] = {(INPUT, "z"): x}
        for layer in self.net.layers:
            self._forward(layer, tensors, decisions or {}, training=True)
        last = self.net.logits.name
        logits = tensors[last, "z"][:, :, 0, 0]
        target = labels if labels.ndim == 2 else np.eye(self.net.classes, dtype=logits.dtype)[labels]
        if self.net.loss == "softmax":
            shifted = logits - logits.max(axis=1, keepdims=True)
            log_sum = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            loss = float(-((shifted - log_sum) * target).sum(axis=1).mean())
            error = np.exp(shifted - log_sum) - target
        else:
            loss = float(0.5 * ((logits - target) ** 2).sum(axis=1).mean())
            error = logits - target
        gradients: dict[tuple[str, str], np.ndarray] = {}
        # Errors of single images; the division by the batch is applied to the sums, as in the integer step.
        tensors[last, "dz"] = error[:, :, None, None]
        for layer in reversed(self.net.layers):
            if layer.name != last and self.net.needs_error(layer.name):
                tensors[layer.name, "dz"] = self._output_error(layer.name, tensors)
            if isinstance(layer, Conv | FullyConnected):
                self._backward(layer, tensors, gradients, len(labels))
        return FloatStep(loss, int((logits.argmax(axis=1) == target.argmax(axis=1)).sum()), gradients, tensors)

    def train_step(
        self, x: np.ndarray, labels: np.ndarray, lr: float, momentum: float, weight_decay: float = 0.0
    ) -> FloatStep:
        """One step of momentum SGD; weights (not gamma, beta, tau) decay."""
        step = self.gradients(x, labels)
        for key, gradient in step.gradients.items():
            if key[1] == "w" and weight_decay:
                gradient = gradient + weight_decay * self.parameters[key]
            self.velocities[key] = (momentum * self.velocities[key] + gradient).astype(gradient.dtype)
            self.parameters[key] = (self.parameters[key] - lr * self.velocities[key]).astype(gradient.dtype)
        return step

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(B, classes)."""
        tensors: dict[tuple[str, str], np.ndarray] = {(INPUT, "z"): x}
        for layer in self.net.layers:
            self._forward(layer, tensors, {})
        return tensors[self.net.logits.name, "z"][:, :, 0, 0]

    def correct(self, x: np.ndarray, labels: np.ndarray) -> int:
        """Images whose largest logit is the label's."""
        return int((self.logits(x).argmax(axis=1) == labels).sum())

    def _forward(
        self,
        layer: Layer,
        tensors: dict[tuple[str, str], np.ndarray],
        decisions: Mapping[tuple[str, str], np.ndarray],
        *,
        training: bool = False,
    ) -> None:
        name, g, x = layer.name, self.net.geometry(layer.name), tensors[layer.input, "z"]
        if isinstance(layer, Subsample):
            tensors[name, "z"] = shortcut.subsample(x, layer.stride, layer.out)
            return
        if isinstance(layer, Pool):
            tensors[name, "z"], index = _walked(x, layer.walk(g), g.out_shape[1:], decisions.get((name, "index")))
            if index is not None:
                tensors[name, "index"] = index
            return
        assert isinstance(layer, Conv | FullyConnected)
        columns = _windows(x, g).transpose(0, 2, 3, 1, 4, 5)
        shape = columns.shape[:3]
        columns = columns.reshape(-1, x.shape[1] * g.kernel[0] * g.kernel[1])
        tensors[name, "columns"] = columns
        weights = self.parameters[name, "w"]
        y = (
            (columns @ weights.reshape(len(weights), -1).T)
            .reshape(*shape, len(weights))
            .transpose(0, 3, 1, 2)
        )
        beta = _column(self.parameters[name, "beta"])
        if layer.norm == "none":
            y = y + beta
            bit = y > 0 if layer.act == "relu" else np.ones(y.shape, bool)
            tensors[name, "bit"] = np.asarray(decisions.get((name, "bit"), bit)).astype(bool)
            tensors[name, "z"] = np.where(tensors[name, "bit"], y, y.dtype.type(0))
            return
        scale, xhat = self._normalise(name, y, training) if self.batch_norm else _frn(y)
        y = _column(self.parameters[name, "gamma"]) * xhat + beta
        if layer.residual is not None:
            y = y + tensors[layer.residual, "z"]
        tau = y.dtype.type(0) if self.batch_norm else _column(self.parameters[name, "tau"])
        bit = y >= tau if layer.act == "tlu" else np.ones(y.shape, bool)
        bit = np.asarray(decisions.get((name, "bit"), bit)).astype(bool)
        tensors[name, "scale"], tensors[name, "xhat"], tensors[name, "bit"] = scale, xhat, bit
        tensors[name, "z"] = np.where(bit, y, tau)

    def _normalise(self, name: str, y: np.ndarray, training: bool) -> tuple[np.ndarray, np.ndarray]:
        """1 / sqrt(variance + epsilon) (1, C, 1, 1) and xhat of batch normalisation; training also feeds the running values."""
        axes, real = (0, 2, 3), y.dtype.type
        if training:
            mean, variance = y.mean(axis=axes), y.var(axis=axes)
            count = y.size // y.shape[1]
            for key, value in (("mean", mean), ("variance", variance * (count / (count - 1)))):
                held = self.running[name, key]
                self.running[name, key] = (held + BATCH_MOMENTUM * (value - held)).astype(y.dtype)
        else:
            mean, variance = self.running[name, "mean"], self.running[name, "variance"]
        scale = 1 / np.sqrt(_column(variance) + real(BATCH_EPSILON))
        return scale, (y - _column(mean)) * scale

    def _output_error(self, name: str, tensors: dict[tuple[str, str], np.ndarray]) -> np.ndarray:
        total = np.zeros_like(tensors[name, "z"])
        for layer, role in self.net.consumers(name):
            g = self.net.geometry(layer.name)
            dz = tensors[layer.name, "dz"]
            if role == "residual":
                total += dz * tensors[layer.name, "bit"]
            elif isinstance(layer, Subsample):
                total += shortcut.subsample_backward(dz, g.in_shape, layer.stride)
            elif isinstance(layer, Conv | FullyConnected):
                dx, weights = tensors[layer.name, "dx"], self.parameters[layer.name, "w"]
                columns = dx.transpose(0, 2, 3, 1).reshape(-1, len(weights)) @ weights.reshape(
                    len(weights), -1
                )
                shape = (len(dx), *g.out_shape[1:], g.in_shape[0], *g.kernel)
                total += _scatter(columns.reshape(shape).transpose(0, 3, 1, 2, 4, 5), g, g.in_shape[1:])
            elif isinstance(layer, Pool):
                total += _walked(dz, layer.walk(g).adjoint, g.in_shape[1:], tensors.get((layer.name, "index")))[0]
        return total

    def _backward(
        self,
        layer: Conv | FullyConnected,
        tensors: dict[tuple[str, str], np.ndarray],
        gradients: dict[tuple[str, str], np.ndarray],
        batch: int,
    ) -> None:
        name = layer.name
        dz, bit, weights = tensors[name, "dz"], tensors[name, "bit"], self.parameters[name, "w"]
        d = np.where(bit, dz, dz.dtype.type(0))
        gradients[name, "beta"] = d.sum(axis=(0, 2, 3)) / batch
        dx = d
        if layer.norm == "frn":
            xhat = tensors[name, "xhat"]
            gradients[name, "gamma"] = (d * xhat).sum(axis=(0, 2, 3)) / batch
            factor = _column(self.parameters[name, "gamma"]) * tensors[name, "scale"]
            if self.batch_norm:
                axes = (0, 2, 3)
                along = xhat * (d * xhat).mean(axis=axes, keepdims=True)
                dx = factor * (d - d.mean(axis=axes, keepdims=True) - along)
            else:
                gradients[name, "tau"] = (dz - d).sum(axis=(0, 2, 3)) / batch
                mean = (d * xhat).mean(axis=(2, 3), keepdims=True)
                dx = factor * (d - np.sign(xhat) * mean)
        tensors[name, "dx"] = dx
        flat = dx.transpose(0, 2, 3, 1).reshape(-1, len(weights))
        gradients[name, "w"] = (flat.T @ tensors[name, "columns"]).reshape(weights.shape) / batch


def _table(weights: dict[str, np.ndarray], tables: dict[str, dict[str, np.ndarray]]) -> dict[tuple[str, str], np.ndarray]:
    """By (layer, "w" | "gamma" | "beta" | "tau")."""
    found = {(layer, "w"): array for layer, array in weights.items()}
    return found | {(layer, key): array for layer, table in tables.items() for key, array in table.items()}


def from_state(net: Network, state: State, dtype: type = np.float64, *, batch_norm: bool = False) -> FloatNet:
    """The real parameters of a state, and of an fp32 one the velocities."""
    if net.arithmetic.real:
        found = FloatNet(net, _table(state.weights, state.parameters), batch_norm=batch_norm)
        speeds = _table(state.velocities, state.parameter_velocities)
        found.velocities = {key: speeds[key] for key in found.parameters}
        return found
    parameters: dict[tuple[str, str], np.ndarray] = {}
    for layer in net.weighted:
        exponent = state.exponents[net.tid(layer.name, Kind.W)]
        values = np.ldexp(net.arithmetic.operand.decode(state.weights[layer.name]).astype(np.float64), exponent)
        parameters[layer.name, "w"] = values.astype(dtype)
        for key, master in state.parameters[layer.name].items():
            parameters[layer.name, key] = np.ldexp(master.astype(np.float64), -24).astype(dtype)
    return FloatNet(net, parameters, batch_norm=batch_norm)
