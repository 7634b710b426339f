"""Small random networks of every kind of layer, reproducible from a seed."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from gradloom.models.layers import Layer, Upsample
from gradloom.models.network import (
    AvgPool,
    Conv,
    FullyConnected,
    GlobalAvgPool,
    MaxPool,
    Network,
    NetworkError,
    Rounding,
    Subsample,
)

__all__ = ["PARTS", "random_network"]

PARTS = ("conv", "conv", "pool", "block", "block")
"""Methods of which a network's parts are drawn."""

_T = TypeVar("_T")


class _Builder:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.layers: list[Layer] = []
        self.last = "input"

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, *values: _T) -> _T:
        return values[int(self.rng.integers(len(values)))]

    def add(self, kind: type[Layer], **fields: Any) -> str:
        name = f"l{len(self.layers)}"
        self.layers.append(kind(name=name, **({"input": self.last} | fields)))
        self.last = name
        return name

    def conv(self, **fields: Any) -> str:
        kernel = self.pick(1, 2, 3, 3, 5)
        norm, act = self.pick(("frn", "tlu"), ("frn", "tlu"), ("none", "relu"), ("none", "none"), ("frn", "none"))
        defaults = {"out": int(self.rng.integers(1, 14)), "kernel": kernel, "stride": self.pick(1, 1, 2),
                    "pad": int(self.rng.integers(0, kernel)), "norm": norm, "act": act}
        return self.add(Conv, **(defaults | fields))

    def pool(self) -> None:
        kernel = self.pick(2, 2, 3)
        fields = {"kernel": kernel, "stride": self.pick(1, 2, 3), "pad": int(self.rng.integers(0, kernel))}
        self.add(self.pick(MaxPool, AvgPool), **fields)

    def enlarge(self) -> None:
        self.add(Upsample, scale=self.pick(2, 2, 3))

    def block(self) -> None:
        """Two convolutions and a shortcut: the same tensor, a subsampled one, or a projection."""
        source, out, stride = self.last, int(self.rng.integers(3, 10)), self.pick(1, 2)
        kind = self.pick("identity", "subsample", "projection")
        if kind == "identity":
            source = self.conv(out=out, norm="frn", act="tlu")
            stride = 1
        first = self.conv(input=source, out=out, kernel=3, stride=stride, pad=1)
        added = source
        if kind == "subsample":
            added = self.add(Subsample, input=source, out=out, stride=stride)
        elif kind == "projection":
            added = self.conv(input=source, out=out, kernel=1, stride=stride, pad=0, norm="frn", act="none")
        self.conv(input=first, out=out, kernel=3, stride=1, pad=1, norm="frn", act="tlu", residual=added)


def _attempt(rng: np.random.Generator, name: str, parts: Sequence[str]) -> Network:
    b = _Builder(rng)
    for _ in range(rng.integers(1, 5)):
        getattr(b, b.pick(*parts))()
    if b.chance(0.4):
        b.add(GlobalAvgPool)
    if b.chance(0.3):
        b.add(FullyConnected, out=int(rng.integers(2, 12)), act=b.pick("relu", "none"))
    classes = int(rng.integers(2, 9))
    b.add(FullyConnected, out=classes)
    rounding = Rounding(
        **{kind: b.pick("nearest", "stochastic") for kind in ("activations", "normalised", "errors")},
        weights=b.pick("nearest", "stochastic", "feedback", "feedback"), velocities=b.pick("nearest", "stochastic"))
    shape = (int(rng.integers(1, 5)), int(rng.integers(3, 12)), int(rng.integers(3, 12)))
    return Network(name, shape, classes, tuple(b.layers), loss=b.pick("softmax", "softmax", "squared"), rounding=rounding)


def random_network(seed: int, parts: Sequence[str] = PARTS) -> Network:
    """A valid network with one to about fourteen layers. A seed's network stays what it is when layers are added to the project:
    ``parts`` may name them, too (``enlarge``)."""
    rng = np.random.default_rng(seed)
    while True:
        try:
            return _attempt(rng, f"random-{seed}", parts)
        except NetworkError:
            continue
