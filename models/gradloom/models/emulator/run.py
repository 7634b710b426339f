"""What forward and backward pass of the emulator share: exponents, rounding, and the tensors written so far."""

import math
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradloom.models.arithmetic import dither, scale
from gradloom.models.arithmetic.arith import NEAR_BITS, located
from gradloom.models.emulator.conv import Watch, check_ends
from gradloom.models.emulator.numbers import (
    Exponent,
    Range,
    channels_last,
    encode,
    ends_of,
    random_increments,
    read_ranges,
    stat_of,
)
from gradloom.models.emulator.operands import Operand, Weights
from gradloom.models.formats import Linear, Scale
from gradloom.models.golden.run import SPREAD
from gradloom.models.layers import INPUT, Kind, Layer
from gradloom.models.network import Network
from gradloom.models.rounding import NEAREST_F, XHAT_DRAW
from gradloom.models.widths import FULL_WIDTHS, SumWidths

__all__ = ["ALL", "Master", "Run", "indices", "join_images"]

Master = dict[str, dict[str, Tensor]]
"""int64 masters (M,) by layer and parameter."""


ALL = slice(None)
_PHASES = {"forward sum": "FP", "backward sum": "BP", "weight gradient": "WG + WU"}
"""Where a fault of these sums is told."""


@cache
def indices(shape: tuple[int, ...], device: str) -> Tensor:
    """Row-major element indices modulo 2^24, int32, with channels last in memory."""
    index = (torch.arange(math.prod(shape), device=device) & ((1 << 24) - 1)).to(torch.int32).reshape(shape)
    return channels_last(index)


class Run:
    """One pass over a batch.

    Parameters
    ----------
    exponents : dict of int
        By tensor number; with ``calibrate`` every operation first finds the exponent of what it writes, as formats without
        delayed scales always do.
    weights : dict of :class:`~gradloom.models.emulator.operands.Weights`
    masters : dict
        Parameters before the step.
    narrow : dict
        The same as the datapath sees them, Q3.12.
    step, seed : :class:`int`
        For the random bits.
    widths : :class:`~gradloom.models.widths.SumWidths`
        What the array's sums have to fit.

    Attributes
    ----------
    values : dict of :class:`~gradloom.models.emulator.operands.Operand`
        PINT tensors by (layer, tensor).
    raw : dict of Tensor
        The other tensors of a step by (layer, tensor): bits (float32), q and le (int64), indices (int32), logits.
    sums : dict of Tensor
        By (layer, "sg" | "sb" | "st"): int64 sums over the batch, per channel.
    masked : dict of Tensor
        bit dz (float32) of the layers with FRN.
    dw : dict of Tensor
        Weight gradients, integers in float64, by layer.
    dw_exponents, sum_exponents : dict of int
        As of :class:`~gradloom.models.golden.run.Run`.
    """

    def __init__(
        self, net: Network, exponents: dict[int, int], weights: dict[str, Weights], masters: Master, narrow: Master,
        *, step: int, seed: int, calibrate: bool, widths: SumWidths = FULL_WIDTHS,
    ) -> None:
        self.net, self.weights, self.masters, self.narrow, self.format = net, weights, masters, narrow, net.arithmetic
        self.given = exponents[Kind.Z]
        self.e: dict[int, Any] = exponents | net.fixed_exponents(self.given)
        self.step, self.seed, self.calibrate, self.widths = step, seed, calibrate, widths
        self.values: dict[tuple[str, str], Operand] = {}
        self.raw: dict[tuple[str, str], Tensor] = {}
        self.sums: dict[tuple[str, str], Tensor] = {}
        self.masked: dict[str, Tensor] = {}
        self.dw: dict[str, Tensor] = {}
        self.dw_exponents: dict[str, int] = {}
        self.sum_exponents: dict[str, int] = {}
        self._ranges: list[tuple[int, int, Range]] = []
        self._stats: dict[int, int] = {}
        self._watched_sums: list[tuple[str, str, int, Range]] = []

    def watch(self, layer: str) -> Watch:
        """Takes the range of a layer's sums that may come near the limit or leave it; :meth:`verify` looks at it."""
        return partial(self._watched, layer)

    def _watched(self, layer: str, name: str, bits: int, low: Tensor, high: Tensor) -> None:
        self._watched_sums.append((layer, name, bits, Range(low, high)))

    def verify(self) -> None:
        """Look at all sums whose width was not known beforehand, in the order in which they were made.

        Raises
        ------
        :exc:`~gradloom.models.arithmetic.arith.ArithmeticFault`
            If one does not fit.
        """
        self.read()
        for layer, name, bits, found in self._watched_sums:
            with located(layer, _PHASES[name]):
                check_ends(name, bits, *(int(end) for end in found.ends))

    def read(self, *others: Range) -> None:
        """Read all ranges that were kept, and others, at once: here alone a step waits for its device."""
        read_ranges([*(entry[-1] for entry in self._ranges), *(entry[-1] for entry in self._watched_sums), *others])

    def near(self) -> dict[tuple[str, str], int]:
        """As of :class:`~gradloom.models.golden.run.Run`."""
        self.read()
        near: dict[tuple[str, str], int] = {}
        for layer, name, bits, found in self._watched_sums:
            needed = 1 + stat_of(*found.ends, 0).bit_length()
            if needed > bits - NEAR_BITS:
                near[layer, name] = max(needed, near.get((layer, name), 0))
        return near

    def v(self, layer: str, name: str) -> Tensor:
        return self.values[layer, name].v

    def keep(self, layer: str, name: str, v: Tensor) -> None:
        self.values[layer, name] = Operand(v, narrow=isinstance(self.format.operand, Linear))

    def encoded(self, tid: int, zero: Exponent, wide: Tensor, *, dry_shift: int = 0) -> Tensor:
        """The values (float32) of tensor ``tid``, encoded from ``wide`` with exponent ``zero``; may overwrite ``wide``.

        ``dry_shift`` is the shift of the calibrating run.
        """
        kind = Kind(tid % 8)
        f, coding, policy = self.net.rounding.f(kind), self.net.coding(tid), self.format.scale(kind)
        if policy is Scale.IMAGE:
            self.e[tid] = self._image_exponents(zero, wide, dry_shift, f, coding.value_bits)
        elif policy is Scale.TENSOR or (policy is Scale.DELAYED and self.calibrate):
            low, high = torch.stack(ends_of(wide)).tolist()
            self.e[tid] = scale.next_exponent(zero + dry_shift, stat_of(low, high, f + 1 - dry_shift), f, coding.value_bits)
        sh = self.e[tid] - zero
        if policy is Scale.DELAYED:
            self.note(tid, wide, f + 1 - sh)
        return encode(wide, sh, f, self.increments(tid, wide.shape, f), coding)

    @staticmethod
    def _image_exponents(zero: Exponent, wide: Tensor, dry_shift: int, f: int, bits: int) -> Tensor:
        """int64 (B, 1, 1, 1): exponents from every image's largest magnitude."""
        n = f + 1 - dry_shift
        ends = zip(wide.amin((1, 2, 3)).tolist(), wide.amax((1, 2, 3)).tolist(), strict=True)
        stats = np.array([stat_of(low, high, n) for low, high in ends], np.int64).reshape(-1, 1, 1, 1)
        given = zero.cpu().numpy() if isinstance(zero, Tensor) else zero
        return torch.from_numpy(scale.next_exponent(given + dry_shift, stats, f, bits)).to(wide.device)

    def note(self, tid: int, wide: Tensor, n: int) -> None:
        """Keep what the statistics of a tensor, or of one more part of it, need; ``n`` aligns it to the converter's fraction."""
        low, high = ends_of(wide)
        # An int64 does not fit the float64 in which all other ranges are read at the end of the step.
        if wide.dtype == torch.int64:
            self._stats[tid] = max(self._stats.get(tid, 0), stat_of(int(low), int(high), n))
        else:
            self._ranges.append((tid, n, Range(low, high)))

    def forget(self, *tids: int) -> None:
        """Drop the statistics of tensors that are made anew."""
        self._stats = {tid: stat for tid, stat in self._stats.items() if tid not in tids}
        self._ranges = [entry for entry in self._ranges if entry[0] not in tids]

    def stats(self) -> dict[int, int]:
        """Statistics by tensor number, of which only the bit length counts."""
        self.read()
        found = dict(self._stats)
        for tid, n, ends in self._ranges:
            found[tid] = max(found.get(tid, 0), stat_of(*ends.ends, n))
        return found

    def increments(self, tid: int, shape: tuple[int, ...], f: int, part: slice = ALL) -> Tensor | None:
        """What stochastic rounding adds to a ``part`` of the first axis of a tensor (B, C, Y, X) or (M, C, Ky, Kx), int32;
        ``None`` for nearest rounding.
        """
        return None if f == NEAREST_F else self.increments_of(tid, shape, f, part)

    def increments_of(self, tid: int, shape: tuple[int, ...], bits: int, part: slice = ALL) -> Tensor:
        """2 r + 1 of random numbers r of so many bits."""
        index = indices(tuple(shape), str(self.device))[part]
        return random_increments(self.tensor_seed(tid), index, bits)

    def tensor_seed(self, tid: int) -> int:
        """32-bit seed of a tensor's random bits."""
        return dither.tensor_seed(self.seed, self.step, tid)

    def xhat_increments(self, layer: Layer, shape: tuple[int, ...]) -> Tensor | None:
        """The same for xhat, which draws under a number that no other rounding uses."""
        return self.increments(self.net.tid(layer.name, XHAT_DRAW), shape, self.net.rounding.xhat_f)

    @property
    def device(self) -> torch.device:
        return self.values[INPUT, "z"].v.device

    def accumulator_exponent(self, layer: Layer) -> Any:
        return self.e[self.net.tid(layer.name, Kind.W)] + self.e[self.net.z_tid(layer.input)]


def join_images(exponent: Exponent) -> tuple[int, Tensor | None]:
    """:func:`gradloom.models.golden.run.join_images` of an integer or an int64 tensor (B, 1, 1, 1)."""
    if isinstance(exponent, int):
        return exponent, None
    common = int(exponent.max()) - SPREAD
    return common, exponent - common
