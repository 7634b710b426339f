"""What forward and backward pass of the golden step share: exponents, rounding, and the tensors written so far."""

import math
from collections.abc import Callable

import numpy as np

from gradloom.models import dither, pint, scale
from gradloom.models.layers import Kind, Layer
from gradloom.models.network import Network
from gradloom.models.rounding import NEAREST_F, XHAT_DRAW
from gradloom.models.state import State

__all__ = ["Run"]


class Run:
    """One pass over images with given exponents.

    Parameters
    ----------
    exponents : dict of int
        By tensor number; with ``calibrate`` every operation first finds the exponent of what it writes.
    first : :class:`int`
        Number of the first image in the whole batch.

    Attributes
    ----------
    stats : dict of int
        Statistics by tensor number.
    tensors, sums : dict
        As :class:`~gradloom.models.golden.StepResult` has them, of these images.
    values : dict
        Decoded codes by (layer, tensor).
    dw : dict
        Weight gradients by layer.
    """

    def __init__(
        self, net: Network, state: State, exponents: dict[int, int], *, calibrate: bool = False, first: int = 0
    ) -> None:
        self.net = net
        self.state = state
        self.e = exponents
        self.calibrate = calibrate
        self.first = first
        self.stats: dict[int, int] = {}
        self.tensors: dict[tuple[str, str], np.ndarray] = {}
        self.sums: dict[tuple[str, str], np.ndarray] = {}
        self.values: dict[tuple[str, str], np.ndarray] = {}
        self.dw: dict[str, np.ndarray] = {}

    def scaled(
        self, tid: int, zero: int, operation: Callable[[int], pint.Encoded], *, dry_shift: int = 0
    ) -> pint.Encoded:
        """Run an operation that encodes tensor ``tid``.

        ``zero`` is the exponent at which the converter's shift (without le) is 0, ``dry_shift`` the shift of
        the calibrating run.
        """
        if self.calibrate:
            f = self.net.rounding.f(Kind(tid % 8))
            self.e[tid] = scale.next_exponent(zero + dry_shift, operation(dry_shift).stat, f)
        encoded = operation(self.e[tid] - zero)
        self.stats[tid] = self.stats.get(tid, 0) | encoded.stat
        return encoded

    def mode(self, tid: int, shape: tuple[int, ...]) -> pint.Mode:
        """Rounding of a tensor (B, C, Y, X) with an exponent of its own."""
        return self._mode(self.net.rounding.f(Kind(tid % 8)), tid, shape)

    def xhat_mode(self, layer: Layer, shape: tuple[int, ...]) -> pint.Mode:
        """Rounding of xhat, which draws under a number that no other rounding uses."""
        return self._mode(self.net.rounding.xhat_f, self.net.tid(layer.name, XHAT_DRAW), shape)

    def _mode(self, f: int, tid: int, shape: tuple[int, ...]) -> pint.Mode:
        if f == NEAREST_F:
            return pint.NEAREST
        start = self.first * math.prod(shape[1:])
        index = np.arange(start, start + math.prod(shape), dtype=np.int64).reshape(shape)
        return pint.Mode(f, dither.random_bits(dither.tensor_seed(self.state.seed, self.state.step, tid), index, f))

    def keep(self, layer: str, name: str, encoded: pint.Encoded) -> None:
        self.tensors[layer, name] = encoded.code
        self.values[layer, name] = encoded.value

    def copy(self, layer: str, name: str, code: np.ndarray, value: np.ndarray) -> None:
        """Keep codes and values that another tensor has already."""
        self.tensors[layer, name] = code
        self.values[layer, name] = value

    def weights(self, name: str) -> np.ndarray:
        return pint.decode(self.state.weights[name])

    def master(self, name: str, key: str) -> np.ndarray:
        return self.state.parameters[name][key].astype(np.int64)

    def accumulator_exponent(self, layer: Layer) -> int:
        return self.e[self.net.tid(layer.name, Kind.W)] + self.e[self.net.z_tid(layer.input)]
