"""Caffe Barista (Vink et al., FPL 2020): time and resources of a T_r x T_c output-stationary mesh with T_p deep tiles.

Equations 1 to 7, table I and figure 3 are those of the paper. What is **fitted** or had to be found out:

- AlexNet's shapes are not given. With those of :data:`gradloom.systems.networks.ALEXNET_CIFAR`, an image at a time, and one fitted
  rate for PCIe and the tiling on the CPU (:data:`HOST_RATE`), table I comes out: .565 .286 .078 .077 .077 for .59 .29 .078 .076
  .073.
- Figure 3 is of kernel execution alone (equation 3): with equation 5 its bars would be a tenth as high.
- Equation 7 counts bits, 0.2 % of the device where 14.1 % are published: each of the 256 caches and 32 buffers of a <16, 16, 64>
  takes a block RAM of its own (:func:`block_rams`), 13.3 %.
- "+33 %" for AlexNet with the CPU's layers is the ratio of mean rates, of rounded ones; the energy of all layers falls by 5 %
  (:func:`saved_energy`).
"""

import dataclasses
from collections.abc import Iterable, Sequence

from gradloom.systems.vocabulary import ConvShape, Prediction, Resources, Workload, ceil_div, step_macs

__all__ = ["CLOCK_HZ", "CPU_RATES", "DDR_RATE", "FPGA_WATTS", "HOST_RATE", "Gemm", "Mesh", "Times", "block_rams", "buffer_bits",
           "compute_cycles", "dsp_blocks", "efficiency", "gemm_times", "gemms", "host_bits", "mean_efficiency",
           "memory_bits", "saved_energy", "step"]

CLOCK_HZ = 250e6
"""Section V."""
DDR_RATE = 30e9
"""Bits a second between the off-chip memory and the kernel (section V)."""
HOST_RATE = 3.1e9
"""Bits a second of PCIe and of tiling on the CPU together: **fitted** to table I; B_PCIe is not published."""
FPGA_WATTS = 8.0
"""Section V."""
CPU_RATES = (0.35, 0.24, 0.089, 0.13, 0.11)
"""Table I: GOP/s/W of the CPU in AlexNet's five layers."""


@dataclasses.dataclass(frozen=True)
class Mesh:
    """<T_r, T_c, T_p> and the number's constants (section V: FP32 takes Q = 10 cycles and V = 5 DSP slices; INT8 one of each)."""

    rows: int
    columns: int
    depth: int
    latency: int = 10
    dsps: int = 5
    bits: int = 32

    @property
    def macs(self) -> int:
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"<{self.rows}, {self.columns}, {self.depth}>"


@dataclasses.dataclass(frozen=True)
class Gemm:
    """R x P times P x C."""

    rows: int
    inner: int
    columns: int

    @property
    def operations(self) -> int:
        return 2 * self.rows * self.inner * self.columns


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of a product: compute (equation 2), off-chip memory (1), and host (4)."""

    compute: float
    memory: float
    host: float

    @property
    def kernel(self) -> float:
        """Latency_total (equation 3)."""
        return self.compute + self.memory

    @property
    def overall(self) -> float:
        """Equation 5."""
        return self.kernel + self.host


def gemms(shape: ConvShape, *, first: bool = False) -> list[Gemm]:
    """The products of a layer for an image: forward, weight gradient, and the error of its input unless it is the first layer."""
    rows, inner, columns = shape.outputs, shape.inputs * shape.taps, shape.positions
    found = [Gemm(rows, inner, columns), Gemm(rows, columns, inner)]
    return found if first else [*found, Gemm(inner, rows, columns)]


def compute_cycles(gemm: Gemm, mesh: Mesh) -> int:
    """Equation 2."""
    tiles = ceil_div(gemm.rows, mesh.rows) * ceil_div(gemm.columns, mesh.columns)
    deep = ceil_div(gemm.inner, mesh.depth) * (mesh.depth + mesh.columns + mesh.rows - 2)
    return tiles * (deep + (mesh.latency + 1) ** 2)


def memory_bits(gemm: Gemm, mesh: Mesh) -> int:
    """Data_mem (above equation 1)."""
    tiles = ceil_div(gemm.rows, mesh.rows) * ceil_div(gemm.columns, mesh.columns)
    return mesh.bits * tiles * ((mesh.rows + mesh.columns) * gemm.inner + mesh.columns * mesh.rows)


def host_bits(gemm: Gemm, mesh: Mesh) -> int:
    """Data_PCIe (above equation 4)."""
    return mesh.bits * (gemm.rows * gemm.inner + gemm.columns * gemm.inner + gemm.rows * gemm.columns)


def gemm_times(gemm: Gemm, mesh: Mesh, *, clock_hz: float = CLOCK_HZ, memory_rate: float = DDR_RATE, host_rate: float = HOST_RATE,
               ) -> Times:
    """Equations 1 to 5; rates in bits a second."""
    return Times(compute_cycles(gemm, mesh) / clock_hz, memory_bits(gemm, mesh) / memory_rate, host_bits(gemm, mesh) / host_rate)


def dsp_blocks(mesh: Mesh) -> int:
    """Equation 6."""
    return mesh.macs * mesh.dsps


def buffer_bits(mesh: Mesh) -> int:
    """Equation 7, in bits."""
    return mesh.bits * (mesh.rows * mesh.depth + mesh.depth * mesh.columns + mesh.macs * (mesh.latency + 1))


def block_rams(mesh: Mesh) -> int:
    """Block RAMs of 36 Kbit, **ours**: at least one for each cache of a processing element and each row and column of buffers."""
    cache, buffer = mesh.bits * (mesh.latency + 1), mesh.bits * mesh.depth
    return mesh.macs * ceil_div(cache, 36 * 1024) + (mesh.rows + mesh.columns) * ceil_div(buffer, 36 * 1024)


def efficiency(products: Iterable[Gemm], mesh: Mesh, *, host: bool = True) -> float:
    """GOP/s/W of some products one after the other; without ``host``, of kernel execution alone (figure 3)."""
    operations, seconds = 0, 0.0
    for gemm in products:
        times = gemm_times(gemm, mesh)
        operations += gemm.operations
        seconds += times.overall if host else times.kernel
    return operations / seconds / FPGA_WATTS / 1e9


def mean_efficiency(layers: Sequence[ConvShape], mesh: Mesh, *, host: bool = True) -> float:
    """Mean of the layers' GOP/s/W, forward and backward (figure 3)."""
    rates = [efficiency(gemms(shape, first=not place), mesh, host=host) for place, shape in enumerate(layers)]
    return sum(rates) / len(rates)


def saved_energy(operations: Sequence[float], before: Sequence[float], after: Sequence[float]) -> float:
    """Share by which operations a joule rise if layers run at ``after`` GOP/s/W and no longer at ``before``.

    What a layer costs is its operations by its rate, so that a mean of rates says little.
    """
    return sum(map(_divided, operations, before)) / sum(map(_divided, operations, after)) - 1


def _divided(operations: float, rate: float) -> float:
    return operations / rate


def step(work: Workload, mesh: Mesh, batch: int, *, clock_hz: float = CLOCK_HZ, memory_rate: float = DDR_RATE,
         host: bool = True) -> Prediction:
    """The products of a training step, an image at a time; the CPU does the rest of it (section III)."""
    seconds = 0.0
    for place, shape in enumerate(work.layers):
        for gemm in gemms(shape, first=not place):
            times = gemm_times(gemm, mesh, clock_hz=clock_hz, memory_rate=memory_rate)
            seconds += batch * (times.overall if host else times.kernel)
    return Prediction(
        system="barista", point=str(mesh), cycles=seconds * clock_hz, clock_hz=clock_hz, batch=batch, macs=mesh.macs,
        useful=step_macs(work.layers, batch), resources=Resources(dsps=dsp_blocks(mesh), brams=block_rams(mesh)),
        bandwidth=memory_rate / 8,
        notes=("GEMMs alone: the CPU does the rest of the step",
               "with the fitted rate of PCIe and tiling on the CPU" if host else "kernel execution alone, without the host"))
