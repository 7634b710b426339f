"""Operands of the emulator's convolutions: values with the bytes that they are cut into.

A PINT value is split, v = 64 H + L with |H| <= 64 and |L| <= 32 (:func:`~gradloom.models.emulator.numbers.split`): a high and a
low piece, P = 2. Values of 8-bit formats are bytes themselves, P = 1.
"""

import torch
from torch import Tensor

from gradloom.models.emulator.numbers import channels_last, split

__all__ = ["UNIT", "Operand", "Weights"]

UNIT = 64
"""Weight of a value's high piece."""


def _pieces(v: Tensor, narrow: bool) -> Tensor:
    """int8 (P, N, Y, X, C) of values (N, C, Y, X): high and low piece, or the values themselves."""
    rows = v.permute(0, 2, 3, 1)
    if narrow:
        return rows.to(torch.int8)[None]
    high, low = split(rows)
    found = torch.empty((2, *rows.shape), dtype=torch.int8, device=v.device)
    found[0].copy_(high.mul_(1 / UNIT))
    found[1].copy_(low)
    return found


class Operand:
    """Values (B, C, Y, X), float32, channels last, with their pieces, made when first asked for.

    ``narrow`` : the values have 8 bits and are one piece.
    """

    def __init__(self, v: Tensor, *, narrow: bool = False) -> None:
        self.v, self.narrow = v, narrow
        self._pieces: Tensor | None = None
        self._largest: int | None = None

    @property
    def largest(self) -> int:
        """The largest magnitude."""
        if self._largest is None:
            self._largest = max(int(self.v.amax()), -int(self.v.amin()))
        return self._largest

    @property
    def pieces(self) -> Tensor:
        """int8 (P, B, Y, X, C)."""
        if self._pieces is None:
            self._pieces = _pieces(self.v, self.narrow)
        return self._pieces


class Weights:
    """Weights (M, C, Ky, Kx), float32 values, with their pieces and norms, made when first asked for."""

    def __init__(self, w: Tensor) -> None:
        self.w = channels_last(w)
        self._pieces: dict[bool, Tensor] = {}
        self._rows: Tensor | None = None
        self._norms: dict[int, int] = {}

    def pieces(self, narrow: bool) -> Tensor:
        """int8 (P, M, Ky, Kx, C)."""
        if narrow not in self._pieces:
            self._pieces[narrow] = _pieces(self.w, narrow)
        return self._pieces[narrow]

    @property
    def rows(self) -> Tensor:
        """float64 (M, Ky, Kx, C), contiguous."""
        if self._rows is None:
            self._rows = self.w.permute(0, 2, 3, 1).to(torch.float64).contiguous()
        return self._rows

    def norm(self, axis: int) -> int:
        """Largest L1 norm of an output's weights; the summed channels lie along axis 1 forward, 0 backward."""
        if axis not in self._norms:
            # Sums of magnitudes in float64: at most 2^29 terms of 2^12.
            self._norms[axis] = int(self.w.abs().sum((axis, 2, 3), dtype=torch.float64).amax())
        return self._norms[axis]
