"""Networks that several tests build in different sizes, and images for any network."""

import numpy as np

from gradloom.models.arithmetic import dither, pint
from gradloom.models.network import Conv, FullyConnected, Network
from gradloom.models.rounding import Rounding

__all__ = ["hashed_images", "strided_shortcut", "two_layers"]


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
