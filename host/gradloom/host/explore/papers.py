"""The other four systems by their own equations: which design points fit a device, and what each would do."""

import dataclasses
from collections.abc import Callable

from gradloom.boards.fpgas import Fpga
from gradloom.host.files import UserError
from gradloom.systems import barista, darkfpga, eftrain, fox
from gradloom.systems.vocabulary import Prediction, Resources, Workload

__all__ = ["Predicted", "predict_system"]

_WORDS = {"luts": "LUTs", "flip_flops": "flip-flops", "dsps": "DSP slices", "brams": "block RAMs"}


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Design points of a system.

    Parameters
    ----------
    points : list of :class:`~gradloom.systems.vocabulary.Prediction`
        Those that fit, fastest first.
    refused : list of :class:`str`
        One sentence for each that does not, the smallest first: what it would need.
    notes : list of :class:`str`
        What to know about the choice.
    limits : list of :class:`str`
        What limits each point, in their order.
    """

    points: list[Prediction]
    refused: list[str]
    notes: list[str]
    limits: list[str]


def _sizes(device: Fpga) -> Resources:
    return Resources(luts=device.luts, flip_flops=device.flip_flops, dsps=device.dsps, brams=device.brams)


def _short(point: Prediction, device: Fpga) -> str:
    """What a point needs and a device lacks, or ""."""
    over = point.resources.over(_sizes(device))
    parts = [f"{getattr(point.resources, name):,.0f} {_WORDS[name]} of {getattr(_sizes(device), name):,}" for name in over]
    return f"{point.point} takes {' and '.join(parts)}" if parts else ""


def _fitting(points: list[Prediction], device: Fpga) -> tuple[list[Prediction], list[str]]:
    kept = [point for point in points if not _short(point, device)]
    refused = [_short(point, device) for point in sorted(points, key=lambda point: point.macs) if _short(point, device)]
    return sorted(kept, key=lambda point: point.cycles / point.clock_hz), refused


def _darkfpga(work: Workload, batch: int, device: Fpga) -> Predicted:
    points = [darkfpga.step(work, tiles, batch, device.clock_hz) for tiles in darkfpga.space(batch)]
    kept, refused = _fitting(points, device)
    notes, within = [], [point for point in kept if (point.bandwidth or 0) <= device.bandwidth]
    if kept and kept[0] not in within:
        best = kept[0]
        notes.append(f"{best.point} is the best within LUTs, DSP slices and block RAMs, and exceeds the bandwidth: its results of "
                     f"32 bits need {(best.bandwidth or 0) / 1e9:.1f} GB/s, and {device.name} has {device.bandwidth / 1e9:.1f}")
        notes.append(f"the best that keeps the bandwidth is {within[0].point}, with {(within[0].bandwidth or 0) / 1e9:.1f} GB/s"
                     if within else "no point keeps the bandwidth")
    return Predicted(kept, refused, notes, ["MACs" if point in within else "bandwidth exceeded" for point in kept])


def _fox(work: Workload, batch: int, device: Fpga) -> Predicted:
    newer = not device.part.startswith(("XC7", "LFE5U"))
    platform = dataclasses.replace(fox.PLATFORMS["zcu111" if newer else "pynq-z1"], clock_hz=device.clock_hz)
    points = [fox.step(work, fox.Core(size, whole), platform, batch) for size in (64, 32, 16, 8) for whole in (True, False)]
    kept, refused = _fitting(points, device)
    limits = ["bandwidth exceeded" if (point.bandwidth or 0) > device.bandwidth else "MACs" for point in kept]
    return Predicted(kept, refused, [f"LUTs are in no equation of the paper; what is fixed is that of the {platform.name}"], limits)


def _barista(work: Workload, batch: int, device: Fpga) -> Predicted:
    sizes = (4, 8, 16, 24, 32, 36, 48, 64, 128, 256)
    meshes = [barista.Mesh(size, size, depth) for size in sizes for depth in (2 * size, 4 * size)]
    rate = 8 * device.bandwidth
    points = [barista.step(work, mesh, batch, clock_hz=device.clock_hz, memory_rate=rate) for mesh in meshes]
    kept, refused = _fitting(points, device)
    notes = [f"FP32; the memory's whole {device.bandwidth / 1e9:.1f} GB/s, and the rate of PCIe and tiling fitted to table I",
             "LUTs are in no equation of the paper"]
    limits = []
    for point in kept:
        mesh = next(mesh for mesh in meshes if str(mesh) == point.point)
        parts = {"MACs": 0.0, "bandwidth": 0.0, "host": 0.0}
        for place, shape in enumerate(work.layers):
            for gemm in barista.gemms(shape, first=not place):
                times = barista.gemm_times(gemm, mesh, clock_hz=device.clock_hz, memory_rate=rate)
                parts["MACs"] += times.compute
                parts["bandwidth"] += times.memory
                parts["host"] += times.host
        limits.append(max(parts, key=lambda name: parts[name]))
    return Predicted(kept, refused, notes, limits)


def _eftrain(work: Workload, batch: int, device: Fpga) -> Predicted:
    brams = eftrain.bram_limit(device.brams)
    words = max((words for words in (4, 2, 1) if 16 * words * device.clock_hz <= device.bandwidth), default=1)
    machine = eftrain.Machine(words=words, clock_hz=device.clock_hz)
    points: list[Prediction] = []
    refused: list[str] = []
    most = eftrain.dsp_limit(device.dsps)
    for tile in range(2, 66, 2):
        sized = dataclasses.replace(machine, tile=tile)
        if eftrain.conv_dsps(sized) > most:
            refused.append(f"{tile} x {tile} takes {eftrain.conv_dsps(sized):,} DSP slices of the {most:,.0f} that the convolution "
                           "may take")
            break
        try:
            points.append(eftrain.step(work.layers, batch, sized, brams))
        except eftrain.NoFit as error:
            refused.append(f"{tile} x {tile}: {error}")
    points.sort(key=lambda point: point.cycles)
    notes = [f"DMA streams of {32 * words} bits, as the memory feeds four of them; the convolution may take {most:,.0f} DSP slices "
             f"and {brams:,.0f} block RAMs"]
    if points:
        best = dataclasses.replace(machine, tile=int(points[0].point.split(" ")[0]))
        tiles = eftrain.scheduled_tiles(work.layers, batch, best, brams)
        for shape, own in zip(work.layers, tiles, strict=True):
            parts = ", ".join(f"{phase} [{tile.rows}, {shape.columns}, {tile.outputs}] "
                              f"{eftrain.layer_cycles(shape, tile, phase, batch, best):,}" for phase, tile in own.items())
            notes.append(f"{points[0].point}, {shape.name}: [Tr, Tc, M_on] and cycles: {parts}")
    return Predicted(points, refused, notes, ["MACs" if point.use > _BUSY else "bandwidth" for point in points])


_BUSY = 0.75
"""From this use of the array on its MACs limit a step, below it the transfers that they wait for."""
_MODELS: dict[str, Callable[[Workload, int, Fpga], Predicted]] = {"darkfpga": _darkfpga, "fox": _fox, "barista": _barista,
                                                                    "eftrain": _eftrain}
"""By name: :data:`gradloom.host.explore.names.SYSTEMS`."""


def predict_system(system: str, work: Workload, batch: int, device: Fpga) -> Predicted:
    """Design points of one of :data:`~gradloom.host.explore.names.SYSTEMS`.

    Raises
    ------
    :exc:`UserError`
        If none fits the device.
    """
    found = _MODELS[system](work, batch, device)
    if not found.points:
        raise UserError(f"no point of {system} fits {device.name}: {found.refused[0]}; give a larger device")
    return found
