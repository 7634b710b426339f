"""``gradloom explore``: which machine, or which point of a paper's system, trains a network fastest on a device."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from gradloom.boards.board import BOARDS
from gradloom.boards.fpgas import FPGAS, Fpga, fpga_named
from gradloom.contracts.config import ConfigError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.sdram_cost import sdram_cost
from gradloom.host.explore.candidates import machine_toml
from gradloom.host.explore.explore_drawing import Mark, draw_front
from gradloom.host.explore.names import SYSTEMS
from gradloom.host.explore.papers import predict_system
from gradloom.host.explore.search import Point, explore, front, limits_of, pareto
from gradloom.host.files import UserError, write_json, write_text
from gradloom.host.runs.progress import StepProgress
from gradloom.host.runs.run_folder import RunFolder
from gradloom.models.network import Network, load_network
from gradloom.systems.networks import NETWORKS, workload
from gradloom.systems.vocabulary import Prediction, Resources, Workload

__all__ = ["EXPLORE_FORMAT", "asked_device", "memory_of", "run"]

EXPLORE_FORMAT = 1
_SIZES = ("luts", "dsps", "brams", "bandwidth")
_CLOCK_HZ = 200e6
_LATENCY = 40
"""Cycles of a read, as ``gradloom bench`` takes them."""


def asked_device(options: argparse.Namespace) -> Fpga:
    """The device of ``--device``, or of sizes, with the clock and the share of LUTs that were asked for.

    Raises
    ------
    :exc:`UserError`
        If both are given, or not all sizes.
    """
    sizes = {name: getattr(options, name) for name in _SIZES}
    given = [f"--{name}" for name, value in sizes.items() if value is not None]
    if options.device is not None:
        if given:
            raise UserError(f"--device {options.device} has sizes of its own: leave {' and '.join(given)} out")
        try:
            device = fpga_named(options.device)
        except ConfigError as error:
            raise UserError(f"{error}, or its sizes with --luts, --dsps, --brams and --bandwidth") from None
    else:
        missing = [f"--{name}" for name, value in sizes.items() if value is None]
        if missing:
            wanted = f"{' and '.join(missing)} too" if given else f"{', '.join(missing[:-1])} and {missing[-1]}"
            raise UserError(f"a device needs a name or sizes: give --device with one of {', '.join(FPGAS)}, or {wanted}")
        device = Fpga(name="your device", part="", family=options.family, luts=sizes["luts"], flip_flops=2 * sizes["luts"],
                        dsps=sizes["dsps"], brams=sizes["brams"], bandwidth=1e9 * sizes["bandwidth"], clock_hz=_CLOCK_HZ,
                        source="given", why_filled="what placement and routing are expected to carry")
    if options.clock_mhz is not None:
        device = dataclasses.replace(device, clock_hz=1e6 * options.clock_mhz)
    if options.fill is not None:
        device = dataclasses.replace(device, filled=options.fill, why_filled="--fill")
    return device


def memory_of(device: Fpga) -> DramCost:
    """What the cost model takes the memory behind a device for."""
    if device.board is not None:
        return sdram_cost(BOARDS[device.board].part, int(device.clock_hz))
    return DramCost(_LATENCY, device.bandwidth / device.clock_hz)


def run(options: argparse.Namespace) -> int:
    """Returns 0."""
    device = asked_device(options)
    name = f"explore-{Path(options.network).stem}-{device.name.replace(' ', '-')}"
    folder = options.out or RunFolder.free_name(Path("runs"), name)
    RunFolder.check_free(folder, "nothing is overwritten")
    record, tomls, marks = (_ours if options.system == "eta" else _theirs)(options, device)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "explore.json", record)
    for name, text in tomls.items():
        write_text(folder / name, text)
    cost = "LUTs" if options.system == "eta" else "DSP slices"
    limit = limits_of(device).luts if options.system == "eta" else float(device.dsps)
    write_text(folder / "explore.svg", draw_front(
        marks, title=f"{record['network']} on {device.name}, {record['batch']} images a step: {options.system}",
        subtitle=f"{record['kind']}; filled: no other point is faster and smaller", cost=cost, limit=limit))
    if options.json:
        print(json.dumps(record, indent=1))
    else:
        print("\n".join(_lines(record, device)))
        print(f"gradloom: picture {folder / 'explore.svg'}, record {folder / 'explore.json'}"
              + (f", machines {folder}/*.toml (give --config one of them)" if tomls else ""))
    return 0


def _head(options: argparse.Namespace, device: Fpga, network: str, batch: int) -> dict[str, Any]:
    return {"format": EXPLORE_FORMAT, "system": options.system, "network": network, "batch": batch,
            "device": dataclasses.asdict(device)}


def _ours(options: argparse.Namespace, device: Fpga) -> tuple[dict[str, Any], dict[str, str], list[Mark]]:
    """Machines of gradloom: cycles by the cost model, LUTs and flip-flops by the fit."""
    network = _network(options.network)
    batch = options.batch or network.train.batch
    memory = memory_of(device)
    if not options.json:
        print(f"gradloom: exploring {network.name} on {device.name}, {batch} images a step, {memory.bytes_per_cycle:.1f} bytes a "
              f"cycle, {device.clock_hz / 1e6:g} MHz; at most {options.points} machines are compiled", flush=True)
    found: list[StepProgress] = []

    def listener(done: int, total: int, name: str) -> None:
        """How many machines there are is known when the first one is compiled."""
        if not found:
            found.append(StepProgress(total, unit="machine"))
        if done:
            found[0].update(done, loss=None, accuracy=None, cycles=None)
        if name:
            found[0].note(f"compiling for {name}, {done + 1} of {total}")

    try:
        points, refused = explore(network, batch, device, memory, points=options.points, listener=listener)
    except UserError as error:
        raise UserError(str(error).replace("fill more of it", "give a larger --fill")) from None
    finally:
        for progress in found:
            progress.close()
    best = pareto(points)
    record = _head(options, device, network.name, batch) | {
        "kind": "cycles estimated by the cost model, LUTs and flip-flops by a fit to syntheses",
        "points": [_point(point, point in best) for point in points], "refused": refused, "notes": _why(points, device)}
    tomls = {f"{point.config.name}.toml": machine_toml(point.config) for point in points}
    marks = [Mark(point.config.name, point.resources.luts or 0, point.images_per_second, point.limit, point in best)
             for point in points]
    return record, tomls, marks


def _why(points: list[Point], device: Fpga) -> list[str]:
    notes = [f"a design may take {device.filled:.0%} of the LUTs: {device.why_filled}"]
    if points[0].ends:
        notes.append(f"a machine with more MACs than {points[0].config.name} exceeds the {points[0].ends} of {device.name}")
    if device.board is not None:
        notes.append("with link and memory controller of the board; gradloom build says whether it is routed")
    elif device.family == "xc7" and not device.part.startswith("XC7"):
        notes.append(f"LUTs are those of the 7 series, which the fit is made of, and {device.part} is of a later family")
    return notes


def _point(point: Point, best: bool) -> dict[str, Any]:
    config = point.config
    shape = {"clusters": config.clusters, "wpus": config.wpus, "cols": config.cols}
    return {"name": config.name, "macs": config.macs, "shape": shape, "cycles": point.cycles, "use": point.use,
            "images_per_second": point.images_per_second, "resources": dataclasses.asdict(point.resources), "limit": point.limit,
            "ends": point.ends, "pareto": best, "config": f"{config.name}.toml"}


def _theirs(options: argparse.Namespace, device: Fpga) -> tuple[dict[str, Any], dict[str, str], list[Mark]]:
    """A paper's system by the paper's own equations."""
    work, batch = _workload(options)
    found = predict_system(options.system, work, batch, device)
    best = {found.points[place].point for place in front([(point.images_per_second, point.resources.dsps or 0)
                                                          for point in found.points])}
    points = [_predicted(point, limit, point.point in best) for point, limit in zip(found.points, found.limits, strict=True)]
    record = _head(options, device, work.name, batch) | {
        "kind": "estimated by the equations of the paper", "points": points, "refused": found.refused,
        "notes": [*found.notes, *dict.fromkeys(note for point in found.points[:1] for note in point.notes)]}
    marks = [Mark(point.point, point.resources.dsps or 0, point.images_per_second, limit, point.point in best)
             for point, limit in zip(found.points, found.limits, strict=True)]
    return record, {}, marks


def _predicted(point: Prediction, limit: str, best: bool) -> dict[str, Any]:
    return {"name": point.point, "macs": point.macs, "cycles": round(point.cycles), "use": point.use,
            "images_per_second": point.images_per_second, "gops": point.gops, "resources": dataclasses.asdict(point.resources),
            "bandwidth": point.bandwidth, "limit": limit, "pareto": best}


def _network(name: str) -> Network:
    if name in NETWORKS and not Path(name).is_file():
        raise UserError(f"network {name!r} is known by its shapes alone, as a paper gives them: give --system with one of "
                        f"{', '.join(SYSTEMS)}, or a network that gradloom trains")
    return load_network(name)


def _workload(options: argparse.Namespace) -> tuple[Workload, int]:
    if options.network in NETWORKS and not Path(options.network).is_file():
        return NETWORKS[options.network], options.batch or 128
    network = load_network(options.network)
    return workload(network), options.batch or network.train.batch


def _lines(record: dict[str, Any], device: Fpga) -> list[str]:
    """The table for a terminal, and what to know beside it."""
    rows = [("machine" if record["system"] == "eta" else "point", "MACs", "cycles", "use", "images/s", "LUTs", "multipliers",
             "block RAMs", "limited by")]
    for point in record["points"]:
        resources = Resources(**point["resources"])
        shares = [_share(value, total) for value, total in ((resources.luts, device.luts), (resources.dsps, device.dsps),
                                                            (resources.brams, device.brams))]
        rows.append((("* " if point["pareto"] else "  ") + point["name"], f"{point['macs']:,}", f"{point['cycles']:,}",
                     f"{100 * point['use']:.1f} %", f"{point['images_per_second']:,.1f}", *shares, point["limit"]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) if column in (0, len(row) - 1) else text.rjust(width)
                       for column, (text, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
    lines += ["", f"{record['kind']}; *: no other point is faster and smaller"]
    return lines + record["notes"] + [f"refused: {text}" for text in record["refused"]]


def _share(value: float | None, total: int) -> str:
    return "" if value is None else f"{value:,g} ({100 * value / total:.0f} %)"

