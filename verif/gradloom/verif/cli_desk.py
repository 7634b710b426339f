"""A small network and small data for tests of the command line."""

from pathlib import Path

import numpy as np
import pytest

from gradloom.host import cli

__all__ = ["GOOD", "IMAGES", "TINY", "lay", "refused", "write_data"]

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
    """An .npz file of random images whose mean is their class number; ``changes``: other arrays."""
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


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str], *words: str, begun: bool = False) -> str:
    """Run a command that must be refused; returns the sentence. ``begun``: it may have said what it does before."""
    capsys.readouterr()
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert begun or out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("gradloom: error: ")
    for word in words:
        assert word in lines[0], lines[0]
    return lines[0]
