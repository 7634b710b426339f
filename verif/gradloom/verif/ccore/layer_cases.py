"""Layers that the C-Core's bench tries: every pattern, pad, kernel and size that differs in its walks; rows that WPUs share; random
ones; and those whose rates are measured."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.verif.ccore.conv_tile import Layer

__all__ = ["directed_layers", "random_layer", "rate_cases", "shared_layers"]


def directed_layers(config: Config) -> Iterator[tuple[Layer, str, int]]:
    """Directed cases: every pattern and phase with the pads, kernels and sizes that differ in the walk."""
    g = config.group
    for pad in (0, 1, 2):
        yield Layer(images=2, c=2 * g, y=5, x=6, m=g, pad=pad), "fp", 0
        yield Layer(images=2, c=g, y=5, x=7, m=2 * g, pad=pad), "bp", 0
        yield Layer(images=2, c=g, y=5, x=6, m=g, pad=pad), "wg", 0
        for y, x in ((6, 7), (5, 8)):
            yield Layer(images=2, c=2 * g, y=y, x=x, m=g, pad=pad, stride=2), "fp", 0
            yield Layer(images=2, c=g, y=y, x=x, m=2 * g, pad=pad, stride=2), "bp", 0
            yield Layer(images=2, c=g, y=y, x=x, m=g, pad=pad, stride=2), "wg", 0
    for stride in (1, 2):
        for phase in ("fp", "bp", "wg"):
            yield Layer(images=2, c=4 * g, y=3, x=5, m=3 * g, kernel=1, stride=stride), phase, 0
            yield Layer(images=1, c=2 * g, y=4, x=4, m=2 * g, kernel=1, stride=stride), phase, 0
            for kernel, pad in ((5, 2), (4, 1), (7, 3), (2, 0)):
                yield Layer(images=1, c=g, y=7, x=8, m=g, kernel=kernel, pad=pad, stride=stride), phase, 3
    for x in (1, 2, 7, 8):
        for kernel, pad in ((4, 0), (4, 1), (4, 2), (4, 3), (7, 3)):
            if x + 2 * pad >= kernel:
                yield Layer(images=2, c=2 * g, y=5, x=x, m=g, kernel=kernel, pad=pad, pair=True), "fp", 0
    yield Layer(images=1, c=g, y=1, x=1, m=g, kernel=4, pad=2, pair=True), "fp", 0
    for phase in ("fp", "bp", "wg"):
        yield Layer(images=5, c=8 * g, y=1, x=1, m=3 * g, kernel=1, fc=True), phase, 1
        yield Layer(images=1, c=3 * g, y=1, x=1, m=3 * g, kernel=1), phase, 0
    yield Layer(images=1, c=6 * g, y=1, x=1, m=g, kernel=3, pad=1), "fp", 0
    for channels in {1, config.cols} if config.laps > 1 else ():
        for phase in ("fp", "bp", "wg"):
            yield Layer(images=2, c=channels, y=4, x=5, m=channels, pad=1), phase, 0
    if g > 1:
        yield Layer(images=1, c=2 * g - 1, y=4, x=4, m=g - 1, pad=1), "fp", 0


def shared_layers(config: Config) -> Iterator[tuple[Layer, str, int]]:
    """Rows left over by the WPUs, one or two, of all widths of parts; of one image and of several."""
    g, wpus = config.group, config.wpus
    for x in (*range(5, 15), 16):
        for left in range(1, wpus):
            plane: dict[str, Any] = {"images": 1, "c": 2 * g, "m": 2 * g, "pad": 1, "shared": True}
            for phase, window in (("fp", 0), ("bp", 0), ("wg", x)):
                yield Layer(**plane, y=wpus + left, x=x), phase, window
                if phase != "bp":
                    yield Layer(**plane, y=2 * (wpus + left) - (x & 1), x=2 * x - (x >> 1 & 1), stride=2), phase, window
            # The last image's left-over rows alone are shared.
            yield Layer(**plane | {"images": wpus + 1}, y=wpus + left, x=x), "fp", 0
            yield Layer(**plane, y=2 * wpus + left, x=x), "wg", 0
    yield Layer(images=1, c=4 * g, y=wpus + 1, x=2 * wpus + 1, m=g, pad=1, shared=True), "fp", 0


def random_layer(rng: np.random.Generator, g: int) -> tuple[Layer, str, int]:
    """A layer of a few images and up to four groups of ``g`` channels, its phase, and the window for gradients."""
    phase = ("fp", "bp", "wg")[rng.integers(0, 3)]
    if rng.integers(4) == 0:
        stride = int(rng.integers(1, 3)) if phase != "bp" else 1
        return Layer(images=int(rng.integers(1, 4)), c=int(rng.integers(1, 2 * g + 1)), y=int(stride * rng.integers(3, 9)),
                     x=int(stride * rng.integers(5, 13)), m=int(rng.integers(1, 2 * g + 1)), stride=stride, pad=1,
                     shared=True), phase, int(rng.integers(0, 9))
    kernel = int(rng.choice([1, 2, 3, 3, 3, 4, 5, 6, 7]))
    stride = int(rng.integers(1, 3))
    pad = int(rng.integers(0, min(kernel, 4))) if kernel > 1 else 0
    layer = Layer(images=int(rng.integers(1, 4)), c=int(rng.integers(1, 4 * g + 1)), y=int(rng.integers(kernel, 10)),
                  x=int(rng.integers(kernel, 12)), m=int(rng.integers(1, 4 * g + 1)), kernel=kernel, stride=stride, pad=pad)
    pair = kernel in (4, 7) and stride == 1 and bool(rng.integers(2))
    return dataclasses.replace(layer, pair=pair), phase, int(rng.integers(0, 9))


def rate_cases(config: Config) -> Iterator[tuple[str, int, int, Layer, str]]:
    """(pattern, row width, steps, layer, phase): about 22 windows a step in rows of 2, about 90 in longer ones."""
    g = config.group
    for width in (32, 16, 8, 4, 2):
        height = min(width, 4)
        images = max(1, (22 if width == 2 else 88) * config.wpus // (width * height))
        plane: dict[str, Any] = {"images": images, "y": height, "x": width, "pad": 1}
        strided = plane | {"y": 2 * height, "x": 2 * width, "stride": 2}
        flat: dict[str, Any] = {"images": images, "y": height, "x": width, "kernel": 1}
        for steps in (4, 1):
            yield "FP K3 stride 1", width, steps, Layer(**plane, c=steps * g, m=g), "fp"
            yield "BP K3 stride 1", width, steps, Layer(**plane, c=g, m=steps * g), "bp"
            yield "FP K3 stride 2", width, steps, Layer(**strided, c=steps * g, m=g), "fp"
            yield "BP K3 stride 2", width, steps, Layer(**strided, c=g, m=steps * g), "bp"
            # Rows of one window are left out, of any pattern: the walk of rows is not far enough ahead of the next command.
            if width > 2:
                kernel4 = plane | {"y": height + 1, "x": width + 1, "kernel": 4, "pair": True}
                yield "FP PAIR and K3", width, steps, Layer(**kernel4, c=steps * g, m=g), "fp"
            yield "FP K1", width, steps, Layer(**flat, c=3 * steps * g, m=3 * g), "fp"
            yield "BP K1", width, steps, Layer(**flat, c=3 * g, m=3 * steps * g), "bp"
        yield "WG K3 stride 1", width, 1, Layer(**plane, c=g, m=g), "wg"
        yield "WG K3 stride 2", width, 1, Layer(**strided, c=g, m=g), "wg"
        yield "WG K1", width, 1, Layer(**flat, c=3 * g, m=3 * g), "wg"
