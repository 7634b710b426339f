"""DarkFPGA (Luo et al., Journal of Semiconductors 2020): time, resources and bandwidth of T_B x T_I batch-parallel GEMM kernels.

Equations are those of the paper's section 6, tables and figures its own. What is corrected or had to be read into it:

- Table 2 prints 8096 inputs of the first fully connected layer, which has 8192 (:data:`gradloom.systems.networks.VGG_LIKE`).
- The constants of the resource equations are not given. D_mul = 1 and D_add = 0, as an adder tree of LUTs needs no DSP slice;
  DSP_fix = 106 is **fitted** to the 4202 slices of table 4, and the LUTs of a multiplier to its 480 thousand.
- N of the bandwidth equations, "iterations of the convolution", is not defined. Algorithm 2 accumulates over C * K, so N is that.
- Which auxiliary passes there are is not listed; :func:`auxiliary_passes` is a reading, and gives 332 ms where 331 are published.
- Section 8 names 63.9 GB/s as the platform's bandwidth, and the tiles that it chooses need more
  (:func:`conv_bandwidth`): 147 GB/s with the 32-bit results of section 5.2.
"""

import dataclasses
import math
from collections.abc import Sequence

from gradloom.systems.vocabulary import ConvShape, Prediction, Resources, Workload, round_up, step_macs

__all__ = ["CLOCK_HZ", "DEVICE_BANDWIDTH", "DSP_FIXED", "LUTS_PER_MAC", "PHASES", "SPACE", "Tiles", "auxiliary_bandwidth",
           "auxiliary_passes", "auxiliary_seconds", "conv_bandwidth", "dense_bandwidth", "gemm_seconds", "peak_bandwidth",
           "resources", "space", "step"]

CLOCK_HZ = 200e6
"""Section 8."""
DEVICE_BANDWIDTH = 63.9e9
"""Bytes a second of the MAX5's three DIMMs (section 8)."""
DSP_FIXED = 106
"""**Fitted**: 4202 (table 4) less 128 * 32."""
LUTS_PER_MAC = 480_000 / 4096
"""**Fitted** to the one figure that there is (table 4); beta and delta of the paper's regression are not published."""
PHASES = ("FP", "BP", "WG")
_BRAM_BITS = 36 * 1024


@dataclasses.dataclass(frozen=True, order=True)
class Tiles:
    """T_B images and T_I positions, channels or filters of a tile; T_B >= T_I, as tiles are transposed (section 8.1)."""

    batch: int
    image: int

    @property
    def macs(self) -> int:
        """Multipliers."""
        return self.batch * self.image

    def __str__(self) -> str:
        return f"({self.batch}, {self.image})"


SPACE = tuple(Tiles(b, i) for b, i in ((128, 64), (128, 32), (128, 16), (64, 64), (64, 32), (64, 16), (32, 32), (32, 16), (16, 16)))
"""The design space of section 8.1."""


def space(batch: int) -> tuple[Tiles, ...]:
    """Points of a batch: T_B a power of two from 16 up to the batch, which bounds it (section 8.1), T_I one up to T_B and 64."""
    sizes = [2**power for power in range(4, 8) if 2**power <= max(16, batch)]
    return tuple(Tiles(b, i) for b in reversed(sizes) for i in (64, 32, 16) if i <= b)


def gemm_seconds(shape: ConvShape, phase: str, tiles: Tiles, batch: int, clock_hz: float = CLOCK_HZ) -> float:
    """T_CONV or T_FC of one phase with every dimension filled up to its tile (section 6.3); each phase is the same product."""
    if phase not in PHASES:
        raise ValueError(f"phase must be one of {', '.join(PHASES)}, not {phase!r}")
    work = round_up(batch, tiles.batch) * round_up(shape.inputs * shape.taps, tiles.image) * round_up(shape.outputs, tiles.image)
    if not shape.dense:
        work *= round_up(shape.positions, tiles.image)
    return work / (tiles.macs * clock_hz)


def auxiliary_passes(work: Workload) -> dict[str, int]:
    """Elements of an image that the auxiliary kernels take, by pass: **a reading**, as section 5.3 names kernels, not passes.

    im2col for FP and again for WG (columns of C * K * H * W), col2im of the columns of BP, pools forward and backward at their
    input, quantisation of every error that is passed on, ReLU of every output.
    """
    convolutions = [shape for shape in work.layers if not shape.dense]
    columns = [shape.inputs * shape.taps * shape.positions for shape in convolutions]
    return {
        "im2col": 2 * sum(columns),
        "col2im": sum(columns) - (columns[0] if convolutions and convolutions[0] is work.layers[0] else 0),
        "pools": 2 * sum(work.pools),
        "quantise": sum(shape.inputs * shape.in_rows * shape.in_columns for shape in work.layers[1:]),
        "ReLU": sum(shape.outputs * shape.positions for shape in work.layers),
    }


def auxiliary_seconds(elements: int, tiles: Tiles, batch: int, clock_hz: float = CLOCK_HZ) -> float:
    """T_auxiliary of a pass over so many elements of an image (section 6.3): an element of T_B images a cycle."""
    return round_up(batch, tiles.batch) * elements / (tiles.batch * clock_hz)


def resources(tiles: Tiles, bits: int = 8) -> Resources:
    """Of the GEMM kernels and what is fixed (section 6.1). Block RAM: input double buffers, normal and transposed.

    BRAM_fix is not given, so that block RAM is a lower bound.
    """
    words = 4 * tiles.batch * tiles.image**2 * 2 * bits + 4 * tiles.image**2 * bits
    return Resources(luts=tiles.macs * LUTS_PER_MAC, dsps=tiles.macs + DSP_FIXED, brams=math.ceil(words / _BRAM_BITS))


def conv_bandwidth(shape: ConvShape, tiles: Tiles, result_bytes: int = 4, clock_hz: float = CLOCK_HZ) -> float:
    """BW_CONV in bytes a second (section 6.2): T_B inputs and a weight a cycle, and T_B * T_I results in N = C * K of them.

    ``result_bytes``: 4 as the sums are, 1 where they are quantised on their way out, as in FP (section 5.2).
    """
    reduction = shape.inputs * shape.taps
    return (tiles.batch + tiles.macs / reduction * result_bytes + 1) * clock_hz


def dense_bandwidth(shape: ConvShape, tiles: Tiles, result_bytes: int = 4, clock_hz: float = CLOCK_HZ) -> float:
    """BW_FC in bytes a second (section 6.2): T_I weights a cycle."""
    return (tiles.batch + tiles.macs / shape.inputs * result_bytes + tiles.image) * clock_hz


def auxiliary_bandwidth(tiles: Tiles, result_bytes: int = 1, clock_hz: float = CLOCK_HZ) -> float:
    """BW_auxiliary in bytes a second (section 6.2): two values in and two out, of T_B images a cycle."""
    return (2 * tiles.batch + 2 * tiles.batch * result_bytes) * clock_hz


def peak_bandwidth(layers: Sequence[ConvShape], tiles: Tiles, result_bytes: int = 4, clock_hz: float = CLOCK_HZ) -> float:
    """The most that any layer's GEMM needs."""
    return max((dense_bandwidth if shape.dense else conv_bandwidth)(shape, tiles, result_bytes, clock_hz) for shape in layers)


def step(work: Workload, tiles: Tiles, batch: int = 128, clock_hz: float = CLOCK_HZ) -> Prediction:
    """A training step: GEMMs of all phases, and the auxiliary passes one after the other (section 6.3).

    The first layer passes no error on. Weight updates and the loss are in no equation.
    """
    gemm = sum(gemm_seconds(shape, phase, tiles, batch, clock_hz)
               for place, shape in enumerate(work.layers) for phase in PHASES if place or phase != "BP")
    auxiliary = sum(auxiliary_seconds(elements, tiles, batch, clock_hz) for elements in auxiliary_passes(work).values())
    return Prediction(
        system="darkfpga", point=str(tiles), cycles=(gemm + auxiliary) * clock_hz, clock_hz=clock_hz, batch=batch, macs=tiles.macs,
        useful=step_macs(work.layers, batch), resources=resources(tiles),
        bandwidth=peak_bandwidth(work.layers, tiles, clock_hz=clock_hz),
        notes=(f"GEMM {gemm * 1e3:.1f} ms, auxiliary passes {auxiliary * 1e3:.1f} ms (which passes there are is a reading)",))
