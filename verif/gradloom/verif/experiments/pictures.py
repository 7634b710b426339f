"""CIFAR-10 as people train with it, on the device: normalised by channel, cropped and flipped by a hash.

An image of an epoch depends on (seed, epoch, image) alone: the same bytes on every device, for every variant, and after a run has
been interrupted. What lies outside of an image is the code of 0, the mean of all pixels of the channel.
"""

import dataclasses
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gradloom.host.datasets import data_cifar
from gradloom.host.datasets.data import quantise
from gradloom.host.files import UserError
from gradloom.models.arithmetic.dither import mix32

__all__ = ["PAD", "Pictures", "epoch_choices", "load_pictures", "mixed"]

PAD = 4
"""Rows and columns that an image may be moved by, either way."""
_MASK32 = (1 << 32) - 1
_ORDER, _MOVES = 0x51ED2701, 0x2F3B6A15
"""By which the epoch's number is multiplied for the order of images (that of
:func:`~gradloom.host.datasets.data.epoch_order`) and for their crops."""


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Images as PINT codes on a device.

    Parameters
    ----------
    train : uint8 tensor (N, C, Y + 2 PAD, X + 2 PAD)
        With the code of 0 around them.
    train_y : int64 tensor (N,)
    test : uint8 tensor (N, C, Y, X)
    test_y : int64 tensor (N,)
    exponent : :class:`int`
        Value of an element = decode(code) 2^exponent.
    """

    train: Tensor
    train_y: Tensor
    test: Tensor
    test_y: Tensor
    exponent: int

    def epoch(self, seed: int, epoch: int) -> tuple[Tensor, Tensor]:
        """Images (N, C, Y, X) and class numbers of an epoch (from 0), in its order."""
        order, down, right, flips = epoch_choices(len(self.train), seed, epoch, self.train.device)
        channels, rows, columns = self.train.shape[1], self.train.shape[2] - 2 * PAD, self.train.shape[3] - 2 * PAD
        device = self.train.device
        row = down[:, None] + torch.arange(rows, device=device)
        column = torch.arange(columns, device=device).expand(len(order), -1)
        column = right[:, None] + torch.where(flips[:, None], columns - 1 - column, column)
        channel = torch.arange(channels, device=device)
        found = torch.empty((len(order), channels, rows, columns), dtype=torch.uint8, device=device)
        # Some at a time: the indices of 50,000 images would take 1.2 GB.
        for part in torch.arange(len(order), device=device).split(8192):
            found[part] = self.train[order[part, None, None, None], channel[None, :, None, None], row[part, None, :, None],
                                     column[part, None, None, :]]
        return found, self.train_y[order]


def mixed(x: Tensor) -> Tensor:
    """:func:`gradloom.models.arithmetic.dither.mix32` of int64 numbers."""
    x = x & _MASK32
    x = x ^ (x >> 16)
    # What a product of int64 loses lies above the 32 bits that are kept.
    x = (x * 0x85EBCA6B) & _MASK32
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & _MASK32
    return x ^ (x >> 16)


def epoch_choices(count: int, seed: int, epoch: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Order of an epoch, and of every image in it rows and columns that its crop leaves out, and whether it is flipped."""
    index = torch.arange(count, device=device)
    order = torch.argsort(mixed(index + mix32(seed + _ORDER * (epoch + 1))), stable=True)
    moves = mixed(order + mix32(seed + _MOVES * (epoch + 1)))
    places = 2 * PAD + 1
    return order, (moves & 0x7FFF) % places, ((moves >> 15) & 0x7FFF) % places, ((moves >> 30) & 1).to(torch.bool)


def _raw(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bytes and class numbers of the training and the test images."""
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as archive:
                x, y, test_x, test_y = (archive[key] for key in ("x", "y", "x_test", "y_test"))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UserError(f"{path} cannot be read ({why}): give CIFAR-10 or an .npz file with x, y, x_test and y_test") from None
        return x, y.astype(np.int64), test_x, test_y.astype(np.int64)
    if not data_cifar.recognises(path):
        raise UserError(f"{path} is neither CIFAR-10 nor an .npz file with x, y, x_test and y_test: give one of the two")
    folder = path if data_cifar._batches(path) else data_cifar._inner(path) or path
    parts = [data_cifar._read(file) for file in data_cifar._batches(folder)]
    test = next(file for file in folder.iterdir() if file.name.removesuffix(".bin") == "test_batch")
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return (x, y, *data_cifar._read(test))


def _normal(counts: np.ndarray) -> np.ndarray:
    """The 256 levels less their mean, by their standard deviation."""
    levels = np.arange(256, dtype=np.float64)
    mean = np.average(levels, weights=counts)
    return (levels - mean) / np.sqrt(np.average((levels - mean) ** 2, weights=counts))


def load_pictures(path: Path, device: str, images: int | None = None) -> Pictures:
    """CIFAR-10 from its batches or from an ``.npz`` file of bytes, the first ``images`` (of the tests a fifth of that, too)."""
    x, y, test_x, test_y = _raw(path)
    if images is not None:
        x, y, test_x, test_y = x[:images], y[:images], test_x[: max(1, images // 5)], test_y[: max(1, images // 5)]
    # A table of the 256 bytes for each channel, so that all have one exponent.
    counts = [np.bincount(x[:, channel].ravel(), minlength=256) for channel in range(x.shape[1])]
    codes, exponent = quantise(np.stack([_normal(found) for found in counts]))
    channel = np.arange(x.shape[1])[None, :, None, None]
    padded = np.zeros((len(x), x.shape[1], x.shape[2] + 2 * PAD, x.shape[3] + 2 * PAD), np.uint8)
    padded[:, :, PAD:-PAD, PAD:-PAD] = codes[channel, x]
    train, train_y, test, answers = (torch.from_numpy(array).to(device) for array in (padded, y, codes[channel, test_x], test_y))
    return Pictures(train, train_y, test, answers, exponent)
