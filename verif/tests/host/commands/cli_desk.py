"""A small network and small data for tests of the command line."""

from pathlib import Path

import numpy as np

TINY = """
name = "tiny"
input = [1, 6, 6]
classes = 3

[[layers]]
type = "conv"
name = "conv"
out = 4
kernel = 3
pad = 1

[[layers]]
type = "max_pool"
name = "pool"
kernel = 2
stride = 2

[[layers]]
type = "fully_connected"
name = "logits"
out = 3

[train]
batch = 4
epochs = 1
lr = 0.05
"""
IMAGES = 60
GOOD = ["--network", "tiny.toml", "--data", "data.npz", "--device", "golden"]
"""Options of a good run in that folder."""


def write_data(path: Path, count: int = IMAGES, **changes: np.ndarray) -> Path:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, count)
    x = rng.normal(size=(count, 1, 6, 6)) + y[:, None, None, None]
    np.savez(path, **({"x": x, "y": y} | changes))
    return path


def lay(folder: Path) -> Path:
    """Write both into a folder."""
    (folder / "tiny.toml").write_text(TINY)
    write_data(folder / "data.npz")
    return folder
