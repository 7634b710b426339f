"""Fox et al. (FPT 2019): memory, resources and roofline of an N x N weight-stationary GEMM core for Zynq devices.

Tables and figures are those of the paper. Its equations are few; what is **fitted** or corrected says so:

- Block RAM of a processing element is one of 36 Kbit, or half of one; what else the design takes (21 on the ZCU111, 13 on the
  Pynq-Z1), and DSP slices beside the multipliers (13 and 17), are fitted to tables III and IV, and then give all six rows.
- A_max of the first row of table III, 240 x 2198, does not fit its 16 x 16 memories of 2 KiB; 240 x 2128 does, and is meant.
- The roofline leaves the 32-bit results out, as figure 5 does.
- The times of table VI are those of software, and no equation gives them. :func:`gemm_cycles` is the core's share alone; its form
  is ours: a row of B in N-long pieces, every cycle one piece against all N columns.
"""

import dataclasses

from gradloom.systems.vocabulary import ConvShape, Prediction, Resources, Workload, ceil_div, step_macs

__all__ = ["LOAD_BYTES", "PLATFORMS", "TABLE_VI", "Core", "Platform", "gemm_cycles", "holds_a", "memory_bound", "needed_a",
           "peak_macs", "resources", "step", "swa_copy_bytes"]


LOAD_BYTES = 8.0
"""Bytes of A that come in a cycle, of a port of 64 bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Platform:
    """A board of section IV.

    Parameters
    ----------
    bram_fixed, dsp_fixed : :class:`int`
        **Fitted** to tables III and IV.
    bandwidth : :class:`float`
        Bytes a second; the paper assumes 10 GB/s for the ZCU111 and gives none for the Pynq-Z1.
    clock_hz : :class:`float`
        Of the runs of table VI.
    """

    name: str
    bram_fixed: int
    dsp_fixed: int
    clock_hz: float
    bandwidth: float | None = None


PLATFORMS = {
    "zcu111": Platform(name="zcu111", bram_fixed=21, dsp_fixed=13, clock_hz=180e6, bandwidth=10e9),
    "pynq-z1": Platform(name="pynq-z1", bram_fixed=13, dsp_fixed=17, clock_hz=100e6),
}


@dataclasses.dataclass(frozen=True)
class Core:
    """N x N processing elements, each with a block RAM of 36 Kbit (``whole``) or with half of one."""

    size: int
    whole: bool = True

    @property
    def macs(self) -> int:
        return self.size * self.size

    @property
    def words(self) -> int:
        """8-bit words of A in a processing element; the parity bits of a block RAM stay unused."""
        return 4096 if self.whole else 2048

    def __str__(self) -> str:
        return f"{self.size} x {self.size}, {'a' if self.whole else 'half a'} block RAM each"


TABLE_VI: dict[tuple[str, str, int], tuple[float, float]] = {
    ("zcu111", "vgg16", 128): (680, 38.6), ("pynq-z1", "logreg", 256): (0.0824, 0.0149),
    ("zcu111", "logreg", 256): (0.0247, 0.0057)}
"""Seconds of an iteration on the processor alone and with the core, by board, model and batch, where the text names speed-ups."""


def resources(core: Core, platform: Platform) -> Resources:
    """Block RAMs of 36 Kbit and DSP slices (tables III and IV, all six rows)."""
    return Resources(brams=core.macs * (1 if core.whole else 0.5) + platform.bram_fixed, dsps=core.macs + platform.dsp_fixed)


def holds_a(core: Core, rows: int, columns: int) -> bool:
    """Whether A of so many rows and columns fits: a processing element holds every N-th row of every N-th column."""
    return ceil_div(rows, core.size) * ceil_div(columns, core.size) <= core.words


def needed_a(shape: ConvShape) -> int:
    """Bytes of A that a layer needs on chip: max(oc * ic * k^2, oc * w * h) (section III-B3)."""
    return max(shape.weights, shape.outputs * shape.positions)


def swa_copy_bytes(work: Workload) -> int:
    """Bytes of the floating-point copy of all weights that stochastic weight averaging keeps (table II, 61 MB for VGG16)."""
    return 4 * work.weights


def memory_bound(macs_per_byte: float, platform: Platform) -> float:
    """Roofline: multiply-accumulates a second that the memory feeds (section III-B4).

    Raises
    ------
    :exc:`ValueError`
        If the paper gives no bandwidth for the board.
    """
    if platform.bandwidth is None:
        raise ValueError(f"the paper gives no bandwidth for {platform.name}: give the roofline of another board")
    return platform.bandwidth * macs_per_byte


def peak_macs(core: Core, clock_hz: float) -> float:
    """Multiply-accumulates a second of the core (section III-B4: 205 G for 32 x 32 at 200 MHz)."""
    return core.macs * clock_hz


def gemm_cycles(rows: int, inner: int, columns: int, core: Core, load_bytes: float = LOAD_BYTES) -> float:
    """Cycles of A (rows x inner) times B (inner x columns): A comes in, then every column of B passes all blocks of A.

    ``load_bytes``: bytes of A that come in a cycle. The equation is **ours**, of section III-B1's words.
    """
    return rows * inner / load_bytes + ceil_div(rows, core.size) * ceil_div(inner, core.size) * columns


def step(work: Workload, core: Core, platform: Platform, batch: int, clock_hz: float | None = None,
         load_bytes: float = LOAD_BYTES) -> Prediction:
    """The GEMMs of a training step: forward, weight gradient, error; of convolutions an image at a time (algorithm 1).

    Of the step this is the core's part alone: im2col, col2im, quantisation, pools and updates run on the processor, and take most
    of the time of table VI.
    """
    cycles = 0.0
    for place, shape in enumerate(work.layers):
        inner = shape.inputs * shape.taps
        # A is W, then the errors, then W^T. Fully connected layers take the whole batch as one product, in all three.
        images, positions = (1, batch) if shape.dense else (batch, shape.positions)
        cycles += gemm_cycles(shape.outputs, inner, images * positions, core, load_bytes)
        cycles += images * gemm_cycles(shape.outputs, positions, inner, core, load_bytes)
        if place:
            cycles += gemm_cycles(inner, shape.outputs, images * positions, core, load_bytes)
    clock = clock_hz or platform.clock_hz
    too_large = [shape.name for shape in work.layers if needed_a(shape) > core.macs * core.words]
    notes = ["GEMMs alone: the processor does the rest of the step, and takes most of its time"]
    if too_large:
        notes.append(f"A of {', '.join(too_large)} does not fit the core's memory and would go in parts")
    return Prediction(system="fox", point=str(core), cycles=cycles, clock_hz=clock, batch=batch, macs=core.macs,
                      useful=step_macs(work.layers, batch), resources=resources(core, platform), notes=tuple(notes),
                      bandwidth=core.size * clock)

