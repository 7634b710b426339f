"""One tile of a convolution for testbenches: the layer, what the commands read and must give, how operands are stored."""

import dataclasses

import numpy as np

from gradloom.contracts.config import Config

__all__ = ["ConvCase", "Layer", "drain_base", "drain_gap", "expect_gradient", "expect_sums", "store_errors", "store_rows"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """A convolution of ``images`` x ``c`` x ``y`` x ``x`` with ``m`` kernels of ``kernel`` x ``kernel``.

    ``fc``: fully connected; ``pair``: the left-over column of a kernel of 4, 7, ... columns by PAIR (FP of stride 1); ``shared``:
    rows that are left over are shared where they can be (K3, kernel 3, pad 1).
    """

    images: int
    c: int
    y: int
    x: int
    m: int
    kernel: int = 3
    stride: int = 1
    pad: int = 0
    fc: bool = False
    pair: bool = False
    shared: bool = False

    @property
    def yo(self) -> int:
        return (self.y + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def xo(self) -> int:
        return (self.x + 2 * self.pad - self.kernel) // self.stride + 1


@dataclasses.dataclass
class ConvCase:
    """Commands of one tile with what they read and what they give.

    Attributes
    ----------
    commands : list of dict
        Fields of the CONV commands, in order.
    ibuf, ebuf : dict
        (bank, address) -> codes [2 lanes][G].
    wbuf : dict
        (bank, address) -> codes [G out][G in].
    psum : dict
        (wpu, bank, address) -> sums [G], after the last command.
    dw : dict
        Beat -> sums [2 lanes][G], after the last command.
    sums : dict
        (output group, image) -> sum of |X| over the plane [G]; empty if the last command does not gather them.
    """

    config: Config
    commands: list[dict[str, int]] = dataclasses.field(default_factory=list)
    ibuf: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    ebuf: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    wbuf: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    psum: dict[tuple[int, int, int], np.ndarray] = dataclasses.field(default_factory=dict)
    dw: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    sums: dict[tuple[int, int], np.ndarray] = dataclasses.field(default_factory=dict)


def _pack(rows: np.ndarray) -> np.ndarray:
    """[G][X] codes to beats [X'/2][2][G]."""
    g, x = rows.shape
    padded = np.zeros((g, x + (x & 1)), np.uint8)
    padded[:, :x] = rows
    return padded.T.reshape(-1, 2, g)


def store_rows(target: dict, image_rows: np.ndarray, *, base: int, wpus: int, kernel1_row: int | None) -> None:
    """Stacked rows [image][G][Y][X]: row g in bank g mod 3 wpus, or, for PE row r of kernel 1, in bank r + 3 (g mod wpus)."""
    count = 0
    for image in image_rows:
        for y in range(image.shape[1]):
            beats = _pack(image[:, y])
            modulus = 3 * wpus if kernel1_row is None else wpus
            bank = count % modulus if kernel1_row is None else kernel1_row + 3 * (count % wpus)
            for i, beat in enumerate(beats):
                target[bank, base + count // modulus * len(beats) + i] = beat
            count += 1


def store_errors(case: ConvCase, e: np.ndarray, groups: int, ebase: int, *, first: int = 0) -> dict[str, int]:
    """Errors of ``groups`` output groups, in the banks from ``first`` on of every WPU."""
    g = case.config.group
    for k in range(groups):
        store_rows(case.ebuf, e[:, k * g:(k + 1) * g], base=ebase, wpus=case.config.wpus, kernel1_row=first + k)
    return {"ebase": ebase, "ee": (e.shape[3] + 1) // 2, "ebank": first}


def expect_sums(case: ConvCase, sums: np.ndarray) -> None:
    """``sums`` [N][channels of all output groups][Y][X]."""
    g = case.config.group
    for image, channels in enumerate(np.abs(sums).sum((2, 3))):
        for k in range(len(channels) // g):
            case.sums[k, image] = channels[k * g:(k + 1) * g]


def drain_base(config: Config, base: int) -> int:
    """First beat of a drain: an even one with two laps."""
    return base + base % config.laps


def drain_gap(config: Config, base: int, blocks: int) -> int:
    """Blocks between those of a tile in the weight-gradient buffer; 0 where they would not fit."""
    gap = base % 3
    return gap if base + (blocks * (gap + 1) - gap) * config.block_beats <= config.dw_depth else 0


def expect_gradient(case: ConvCase, blocks: list[np.ndarray], dwbase: int, gap: int) -> None:
    """Blocks [G out][G in] in the order of the drain, ``gap`` blocks between them."""
    g = case.config.group
    beat = dwbase
    for block in blocks:
        for b in range(case.config.block_beats):
            lanes = np.zeros((2, g), np.int64)
            lanes[:min(2, g)] = block[2 * b:2 * b + 2]
            case.dw[beat] = lanes
            beat += 1
        beat += gap * case.config.block_beats
