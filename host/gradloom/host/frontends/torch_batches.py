"""Batches of a PyTorch loop as a device takes them: images to PINT codes of one exponent, labels to integers."""

import warnings
from typing import Any

import numpy as np
import torch

from gradloom.host.datasets.data import quantise
from gradloom.host.files import UserError
from gradloom.host.frontends.import_graph import features
from gradloom.models.arithmetic import pint
from gradloom.models.layers import shape_text
from gradloom.models.network import Network

__all__ = ["Encoder", "image_shape", "images_array", "labels_array"]

_FRACTION = 20
"""Fraction bits with which images reach the encoder."""
_EXPONENTS = range(-64, 128)


class Encoder:
    """Codes of images, with one exponent for all of them.

    Parameters
    ----------
    exponent : :class:`int`, optional
        Images are quantised to PINT values times 2^exponent; default: the largest magnitude of the first batch fits just.

    Raises
    ------
    :exc:`UserError`
        If the exponent does not lie in -64..127.
    """

    def __init__(self, exponent: int | None) -> None:
        if exponent is not None and exponent not in _EXPONENTS:
            raise UserError(f"input_exponent must lie in -64..127, not {exponent}")
        self.exponent = exponent
        """``None`` before the first batch, if it was not given."""
        self._saturated = False

    def codes(self, x: np.ndarray, y: np.ndarray, network: Network) -> np.ndarray:
        """uint8 codes (B, C, Y, X) of images or features (float64) whose labels are ``y`` (B,), both checked against the network.

        The first batch that saturates is warned of, in the name of the caller's caller.

        Raises
        ------
        :exc:`UserError`
            If shapes, the number of labels, a class or a value do not fit.
        """
        shape = image_shape(x)
        if features(shape) != network.input_shape:
            raise UserError(f"the network takes images of {shape_text(network.input_shape)}, these are {shape_text(shape)}: "
                            "give images of one size")
        x = x.reshape(len(x), *network.input_shape)
        if len(y) != len(x):
            raise UserError(f"there are {len(x)} images and {len(y)} labels: give as many")
        if len(y) and not 0 <= y.min() <= y.max() < network.classes:
            raise UserError(f"labels must lie in 0..{network.classes - 1}, these are {y.min()}..{y.max()}: give class numbers")
        if not np.isfinite(x).all():
            raise UserError("the images hold values that are not finite: replace them")
        if self.exponent is None:
            self.exponent = quantise(x)[1]
        wide = np.rint(np.ldexp(x, _FRACTION - self.exponent))
        peak = np.ldexp(4096.0, _FRACTION)
        if not self._saturated and (np.abs(wide) > peak).any():
            self._saturated = True
            warnings.warn(
                f"images reach {np.abs(x).max():g}, and input_exponent {self.exponent} holds at most "
                f"{np.ldexp(4032.0, self.exponent):g}: they saturate; give a larger input_exponent",
                stacklevel=3,
            )
        return pint.encode(np.clip(wide, -2 * peak, 2 * peak).astype(np.int64), _FRACTION).code


def images_array(images: Any) -> np.ndarray:
    """Images, a tensor or whatever becomes an array, in float64; bytes are divided by 256, as those of ``--data`` are."""
    array = images.detach().cpu().numpy() if isinstance(images, torch.Tensor) else np.asarray(images)
    if array.dtype.kind not in "biuf":
        raise UserError(f"images must hold numbers, not {array.dtype}")
    return array / 256 if array.dtype == np.uint8 else array.astype(np.float64)


def labels_array(labels: Any) -> np.ndarray:
    """Class numbers (B,), a tensor or whatever becomes an array, in int64."""
    array = labels.detach().cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise UserError(f"labels must be one whole class number for each image, not {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def image_shape(x: np.ndarray) -> tuple[int, ...]:
    """(C, Y, X) of a batch of images, (F,) of a batch of features."""
    if x.ndim not in (2, 4) or 0 in x.shape:
        raise UserError(f"images must have the shape (images, channels, rows, columns) or (images, features), not {x.shape}")
    return tuple(int(size) for size in x.shape[1:])
