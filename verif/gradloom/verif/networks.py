"""Networks that several tests build in different sizes, and images for any network."""

from typing import Any

import numpy as np

from gradloom.models.arithmetic import dither, pint
from gradloom.models.network import Conv, FullyConnected, Layer, Network
from gradloom.models.rounding import Rounding

__all__ = ["LAST", "conv", "hashed_images", "net", "strided_shortcut", "two_layers"]

LAST = FullyConnected(name="fc", out=3)
"""The classifier of three classes that ends :func:`net`."""


def net(*layers: Layer, shape: tuple[int, int, int] = (2, 8, 8), classes: int = 3, **settings: Any) -> Network:
    """Some layers with a classifier behind them."""
    return Network("test", shape, classes, (*layers, LAST), **settings)


def conv(name: str = "a", out: int = 4, kernel: int = 3, pad: int = 1, **keys: Any) -> Conv:
    """A convolution, by default one that keeps the size of its planes."""
    return Conv(name=name, out=out, kernel=kernel, pad=pad, **keys)


def strided_shortcut(y: int, x: int, errors: str = "nearest") -> Network:
    """Images 2 x ``y`` x ``x``; beside a convolution of stride 2 a shortcut ``s`` by a kernel of 1 x 1, as in ResNet18.

    ``errors``: their rounding.
    """
    layers = (
        Conv(name="a", out=4, kernel=3, pad=1),
        Conv(name="b", out=6, kernel=3, pad=1, stride=2),
        Conv(name="s", out=6, kernel=1, stride=2, input="a", act="none"),
        Conv(name="c", out=6, kernel=3, pad=1, input="b", residual="s"),
        FullyConnected(name="fc", out=3),
    )
    return Network("shortcut", (2, y, x), 3, layers, rounding=Rounding(errors=errors))


def two_layers() -> Network:
    """Images 1 x 6 x 6 in three classes; one convolution and the classifier."""
    return Network("two", (1, 6, 6), 3, (Conv(name="c", out=4, kernel=3, pad=1), FullyConnected(name="fc", out=3)))


def hashed_images(network: Network, count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Codes (B, C, Y, X) and class numbers (B,), the same for a seed wherever they are made."""
    index = np.arange(count * int(np.prod(network.input_shape)))
    wide = dither.hash24(dither.tensor_seed(seed, 0, 1), index) - (1 << 23)
    codes = pint.encode(wide.reshape(count, *network.input_shape), 12).code
    return codes, dither.hash24(dither.tensor_seed(seed, 0, 2), np.arange(count)) % network.classes
