"""scikit-learn's 8 x 8 handwritten digits as PINT images: 1437 for training, 360 for testing."""

import numpy as np

from gradloom.models.arithmetic import dither, pint

__all__ = ["EXPONENT", "TRAIN_IMAGES", "load_digits_split"]

TRAIN_IMAGES = 1437
EXPONENT = -10
"""Pixel p in 0..16 becomes the value 64 p * 2^-10 = p / 16, which PINT(8, 3) holds exactly."""


def load_digits_split(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Training codes (1437, 1, 8, 8), labels, test codes (360, 1, 8, 8), labels and the images' exponent.

    The split sorts the images by a hash of (seed, number), so it is the same with every library version.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    codes = pint.code_of((64 * data.images.astype(np.int64)).reshape(-1, 1, 8, 8))
    labels = data.target.astype(np.int64)
    keys = np.asarray(dither.hash24(dither.tensor_seed(seed, 0, 0), np.arange(len(labels), dtype=np.int64)))
    order = np.argsort(keys, kind="stable")
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return codes[train], labels[train], codes[test], labels[test], EXPONENT
