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
from gradloom.host.datasets.data import channel_statistics, epoch_order, normalise
from gradloom.host.files import UserError
from gradloom.models.images import epoch_moves

__all__ = ["PAD", "Pictures", "epoch_choices", "load_pictures"]

PAD = 4
"""Rows and columns that an image may be moved by, either way."""


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


def epoch_choices(count: int, seed: int, epoch: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Order of an epoch, and of every image in it rows and columns that its crop leaves out, and whether it is flipped."""
    order = torch.from_numpy(epoch_order(count, seed, epoch)).to(device)
    down, right, flips = epoch_moves(order, seed, epoch, PAD)
    return order, down, right, flips.to(torch.bool)


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


def load_pictures(path: Path, device: str, images: int | None = None) -> Pictures:
    """CIFAR-10 from its batches or from an ``.npz`` file of bytes, the first ``images`` (of the tests a fifth of that, too)."""
    x, y, test_x, test_y = _raw(path)
    if images is not None:
        x, y, test_x, test_y = x[:images], y[:images], test_x[: max(1, images // 5)], test_y[: max(1, images // 5)]
    codes, test_codes, exponent = normalise(x, test_x, channel_statistics(x))
    padded = np.zeros((len(x), x.shape[1], x.shape[2] + 2 * PAD, x.shape[3] + 2 * PAD), np.uint8)
    padded[:, :, PAD:-PAD, PAD:-PAD] = codes
    train, train_y, test, answers = (torch.from_numpy(array).to(device) for array in (padded, y, test_codes, test_y))
    return Pictures(train, train_y, test, answers, exponent)
