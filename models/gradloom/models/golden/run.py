"""What forward and backward pass of the golden step share: exponents, rounding, and the tensors written so far."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradloom.models.arithmetic import arith, dither, pint, scale
from gradloom.models.formats import Quantiser, Scale
from gradloom.models.layers import Kind, Layer
from gradloom.models.network import Network
from gradloom.models.rounding import NEAREST_F, XHAT_DRAW
from gradloom.models.state import State
from gradloom.models.widths import FULL_WIDTHS, SumWidths

__all__ = ["SPREAD", "Run", "join_images"]

SPREAD = 12
"""Bits below the largest image's unit that a sum over images with exponents of their own keeps."""


class Run:
    """One pass over images with given exponents.

    Parameters
    ----------
    exponents : dict
        By tensor number, integers, or int64 arrays (B, 1, 1, 1) of tensors whose images have exponents of their own; with
        ``calibrate`` every operation first finds the exponent of what it writes, as formats without delayed scales always do.
    first : :class:`int`
        Number of the first image in the whole batch.
    widths : :class:`~gradloom.models.widths.SumWidths`
        What the array's sums have to fit.

    Attributes
    ----------
    stats : dict of int
        Statistics by tensor number.
    tensors, sums : dict
        As :class:`~gradloom.models.golden.step.StepResult` has them, of these images.
    values : dict
        Decoded codes by (layer, tensor).
    dw : dict
        Weight gradients by layer.
    dw_exponents, sum_exponents : dict of int
        Exponents of weight gradients, and of the sums of errors sb and st (that of sg is lower by 8), by layer.
    near : dict of int
        Bits that the widest element of an accumulator's sums takes, by (layer, name), where these are nearly all that it has.
    """

    def __init__(
        self, net: Network, state: State, exponents: dict[int, Any], *, calibrate: bool = False, first: int = 0,
        widths: SumWidths = FULL_WIDTHS,
    ) -> None:
        self.net = net
        self.format = net.arithmetic
        self.state = state
        self.e = exponents | net.fixed_exponents(exponents[Kind.Z])
        self.calibrate = calibrate
        self.first = first
        self.widths = widths
        self.stats: dict[int, int] = {}
        self.tensors: dict[tuple[str, str], np.ndarray] = {}
        self.sums: dict[tuple[str, str], np.ndarray] = {}
        self.values: dict[tuple[str, str], np.ndarray] = {}
        self.dw: dict[str, np.ndarray] = {}
        self.dw_exponents: dict[str, int] = {}
        self.sum_exponents: dict[str, int] = {}
        self.near: dict[tuple[str, str], int] = {}

    def check(self, layer: str, phase: str, name: str, sums: np.ndarray, bits: int | None = None) -> None:
        """See that sums of the array fit its accumulators, or ``bits``, and keep those that come near the limit.

        Raises
        ------
        :exc:`~gradloom.models.arithmetic.arith.ArithmeticFault`
            If they do not fit.
        """
        bits = self.widths.of(name) if bits is None else bits
        with arith.located(layer, phase):
            needed = arith.signed_bits(name, sums, bits)
        if needed > bits - arith.NEAR_BITS:
            self.near[layer, name] = max(needed, self.near.get((layer, name), 0))

    def scaled(
        self, tid: int, zero: Any, operation: Callable[[Any], pint.Encoded], *, dry_shift: int = 0
    ) -> pint.Encoded:
        """Run an operation that encodes tensor ``tid``.

        ``zero`` is the exponent at which the converter's shift (without le) is 0, ``dry_shift`` the shift of
        the calibrating run.
        """
        policy = self.format.scale(Kind(tid % 8))
        if policy in (Scale.TENSOR, Scale.IMAGE) or (policy is Scale.DELAYED and self.calibrate):
            f, bits = self.net.rounding.f(Kind(tid % 8)), self.net.coding(tid).value_bits
            self.e[tid] = scale.next_exponent(zero + dry_shift, operation(dry_shift).stat, f, bits)
        encoded = operation(self.e[tid] - zero)
        if policy is Scale.DELAYED:
            self.stats[tid] = self.stats.get(tid, 0) | encoded.stat
        return encoded

    def mode(self, tid: int, shape: tuple[int, ...]) -> Quantiser:
        """Coding and rounding of a tensor (B, C, Y, X) with an exponent of its own."""
        kind = Kind(tid % 8)
        f = self.net.rounding.f(kind)
        per_image = self.format.scale(kind) is Scale.IMAGE
        return Quantiser(self.net.coding(tid), f, self._random(f, tid, shape), per_image=per_image)

    def xhat_mode(self, layer: Layer, shape: tuple[int, ...]) -> Quantiser:
        """The same of xhat, which draws under a number that no other rounding uses."""
        f, tid = self.net.rounding.xhat_f, self.net.tid(layer.name, XHAT_DRAW)
        return Quantiser(self.format.normalised, f, self._random(f, tid, shape), up=self.format.normalised_up)

    def _random(self, f: int, tid: int, shape: tuple[int, ...]) -> np.ndarray | None:
        if f == NEAREST_F:
            return None
        start = self.first * math.prod(shape[1:])
        index = np.arange(start, start + math.prod(shape), dtype=np.int64).reshape(shape)
        return dither.random_bits(dither.tensor_seed(self.state.seed, self.state.step, tid), index, f)

    def keep(self, layer: str, name: str, encoded: pint.Encoded) -> None:
        self.tensors[layer, name] = encoded.code
        self.values[layer, name] = encoded.value

    def copy(self, layer: str, name: str, code: np.ndarray, value: np.ndarray) -> None:
        """Keep codes and values that another tensor has already."""
        self.tensors[layer, name] = code
        self.values[layer, name] = value

    def weights(self, name: str) -> np.ndarray:
        return self.format.operand.decode(self.state.weights[name])

    def master(self, name: str, key: str) -> np.ndarray:
        return self.state.parameters[name][key].astype(np.int64)

    def accumulator_exponent(self, layer: Layer) -> Any:
        return self.e[self.net.tid(layer.name, Kind.W)] + self.e[self.net.z_tid(layer.input)]


def join_images(exponent: Any) -> tuple[int, Any]:
    """The exponent of a sum over images, and by how much each image is shifted to it.

    One exponent for all images stays, and nothing is shifted (``None``). Of exponents (B, 1, 1, 1) it is the largest less
    :data:`SPREAD`: an image whose unit lies more than that below the largest one's loses bits (floor).
    """
    if not isinstance(exponent, np.ndarray):
        return exponent, None
    common = int(exponent.max()) - SPREAD
    return common, exponent - common
