"""Images for a network that no data fits: hashed, so that they are the same everywhere."""

import numpy as np

from gradloom.models.arithmetic import dither, pint
from gradloom.models.network import Network

__all__ = ["synthetic_images"]


def synthetic_images(network: Network, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Hashed images and labels for a network that the given data does not fit: codes, labels, exponent."""
    shape = (count, *network.input_shape)
    index = np.arange(int(np.prod(shape)), dtype=np.int64)
    hashed = np.asarray(dither.hash24(dither.tensor_seed(seed, 0, 2), index), dtype=np.int64)
    codes = pint.encode((hashed >> 11) - 4096, 0).code.reshape(shape)
    labels = np.asarray(dither.hash24(dither.tensor_seed(seed, 1, 2), np.arange(count, dtype=np.int64)), np.int64)
    return codes, (labels >> 4) % network.classes, -11
