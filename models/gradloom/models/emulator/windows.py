"""Windows of a convolution laid out as the rows of a matrix, by one strided copy (im2col), for the emulator."""

import math

import torch
from torch import Tensor

__all__ = ["contiguous", "windows_of"]

_WORD = 8
"""Bytes of an int64."""


def windows_of(
    pieces: Tensor, kernel: tuple[int, int], size: tuple[int, ...], pad: tuple[int, int], stride: int, spread: int,
    dtype: torch.dtype = torch.int8,
) -> Tensor:
    """Windows as rows (P B Yo Xo, Ky Kx C), new and contiguous, of pieces (P, B, Y, X, C).

    ``size`` is (Yo, Xo), ``pad`` what lies before the first row and column, ``spread`` the distance at which rows and
    columns are set.
    """
    _, _, rows, columns, channels = pieces.shape
    if kernel == (1, 1) and pad == (0, 0) and spread == 1:
        return contiguous(pieces[:, :, ::stride, ::stride][:, :, : size[0], : size[1]], dtype).view(-1, channels)
    planes = pieces.flatten(0, 1)
    height, width = ((n - 1) * stride + k for n, k in zip(size, kernel, strict=True))
    padded = torch.zeros((len(planes), height, width, channels), dtype=pieces.dtype, device=pieces.device)
    # Rows and columns that no window reads are left out.
    rows, columns = min(rows, -(-(height - pad[0]) // spread)), min(columns, -(-(width - pad[1]) // spread))
    padded[:, pad[0] :: spread, pad[1] :: spread][:, :rows, :columns] = planes[:, :rows, :columns]
    if dtype == torch.int8 and channels % _WORD == 0:
        # Eight bytes are copied as one number.
        padded, channels = padded.view(torch.int64), channels // _WORD
    image, row, column, _ = padded.stride()
    # The columns of a window's row lie side by side.
    view = padded.as_strided((len(planes), *size, kernel[0], kernel[1] * channels), (image, stride * row, stride * column, row, 1))
    found = contiguous(view, padded.dtype if dtype == torch.int8 else dtype)
    return (found.view(dtype) if found.dtype != dtype else found).view(len(planes) * math.prod(size), -1)


def contiguous(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A new tensor of these numbers, row-major."""
    return torch.empty(x.shape, dtype=dtype, device=x.device).copy_(x)
