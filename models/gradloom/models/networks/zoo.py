"""The built-in networks: TOML files beside this module, and the paper's networks, built block by block.

ResNet20 and VGG16 on CIFAR-10 and ResNet18 on ImageNet are those of ETA's section V (He et al., "Deep residual
learning for image recognition", Simonyan and Zisserman, "Very deep convolutional networks", configuration D), with
L1-FRN and TLU after every convolution; a residual is added before the threshold.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "names", "table"]

FOLDER = Path(__file__).parent
"""Folder of the built-in networks that are files, one TOML file each."""

Table = dict[str, Any]


def _conv(name: str, out: int, kernel: int = 3, stride: int = 1, **more: Any) -> Table:
    return {"type": "conv", "name": name, "out": out, "kernel": kernel, "stride": stride, "pad": kernel // 2} | more


def _block(name: str, source: str, out: int, stride: int, shortcut: Table | None) -> list[Table]:
    """Two 3 x 3 convolutions and a shortcut, which follows the first so that the first is the input's main reader."""
    layers = [_conv(f"{name}a", out, stride=stride, input=source)]
    if shortcut is not None:
        layers.append(shortcut | {"name": f"{name}s", "input": source})
    added = source if shortcut is None else f"{name}s"
    return [*layers, _conv(f"{name}b", out, input=f"{name}a", residual=added)]


def _train(batch: int, epochs: int, lr: float) -> Table:
    return {"batch": batch, "epochs": epochs, "lr": lr, "momentum": 0.9, "weight_decay": 2.0**-13, "schedule": "cosine"}


def _head(classes: int) -> list[Table]:
    return [{"type": "global_avg_pool", "name": "mean"}, {"type": "fully_connected", "name": "fc", "out": classes}]


def _resnet20() -> Table:
    layers, source = [_conv("stem", 16)], "stem"
    for stage, out in enumerate((16, 32, 64), 1):
        for block in range(1, 4):
            down = stage > 1 and block == 1
            name = f"s{stage}b{block}"
            shortcut = {"type": "subsample", "out": out} if down else None
            layers += _block(name, source, out, 2 if down else 1, shortcut)
            source = f"{name}b"
    return {"input": [3, 32, 32], "classes": 10, "layers": layers + _head(10), "train": _train(16, 60, 0.02)}


def _resnet18() -> Table:
    layers = [_conv("stem", 64, kernel=7, stride=2), {"type": "max_pool", "name": "pool", "kernel": 3, "stride": 2, "pad": 1}]
    source = "pool"
    for stage, out in enumerate((64, 128, 256, 512), 1):
        for block in range(1, 3):
            down = stage > 1 and block == 1
            name = f"s{stage}b{block}"
            shortcut = _conv("", out, kernel=1, stride=2, act="none") if down else None
            layers += _block(name, source, out, 2 if down else 1, shortcut)
            source = f"{name}b"
    return {"input": [3, 224, 224], "classes": 1000, "layers": layers + _head(1000), "train": _train(16, 60, 0.02)}


def _vgg16() -> Table:
    layers: list[Table] = []
    for stage, (out, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        layers += [_conv(f"conv{stage}_{number}", out) for number in range(1, count + 1)]
        layers.append({"type": "max_pool", "name": f"pool{stage}", "kernel": 2, "stride": 2})
    layers.append({"type": "fully_connected", "name": "fc1", "out": 512, "act": "relu"})
    layers.append({"type": "fully_connected", "name": "fc2", "out": 10})
    return {"input": [3, 32, 32], "classes": 10, "layers": layers, "train": _train(16, 60, 0.01)}


_BUILT: dict[str, Callable[[], Table]] = {"resnet18": _resnet18, "resnet20": _resnet20, "vgg16": _vgg16}


def names() -> tuple[str, ...]:
    """Names of the built-in networks, sorted."""
    return tuple(sorted([*_BUILT, *(file.stem for file in FOLDER.glob("*.toml"))]))


def table(name: str) -> Table | None:
    """The built-in network ``name`` as a TOML file's tables, or ``None`` if there is none."""
    if name not in names():
        return None
    if name in _BUILT:
        return {"name": name} | _BUILT[name]()
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
