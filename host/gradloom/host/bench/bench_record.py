"""From a timeline to the figures of ``gradloom bench``: the dictionary that ``bench.json`` holds (schema: docs/bench.md)."""

from collections import Counter
from typing import Any

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, engine_of, units
from gradloom.host.cost_model.trace import SEQUENCER, Timeline, engine_name
from gradloom.host.cost_model.workload import PURPOSES, Macs, dram_bytes, layer_phase, phase_macs, purpose, windows
from gradloom.models.network import Network

__all__ = ["BENCH_FORMAT", "ETA_CLOCK_MHZ", "ETA_TARGET", "LOSSES", "PUBLISHED", "compare", "figures"]

BENCH_FORMAT = 1
ETA_CLOCK_MHZ = 200.0
ETA_TARGET = 0.90
"""Layers whose phases use less of the array are listed with the cause."""
_KINDS = tuple(dict.fromkeys(engine_of(unit).name.lower() for unit in Unit if unit != Unit.SEQ))
LOSSES = ("mapping", "pipeline", *(kind for kind in _KINDS if kind != "ccore"), SEQUENCER)
"""Where array cycles go that are not useful: windows in which not every MAC has an operand of use (padding channels, rows that
do not fill the WPUs, short kernels), cycles of CONV commands without a window, and idle cycles by who worked meanwhile on what the
C-Core waited for."""

PUBLISHED: dict[str, dict[str, Any]] = {
    "vgg16": {"network": "CIFAR-VGG16", "pe_use": 0.88, "gops": 610.98, "images_per_second": 326.5, "zeros_counted": False},
    "resnet20": {"network": "CIFAR-ResNet20", "pe_use": 0.83, "gops": 658.64, "images_per_second": 2352.9, "zeros_counted": True},
    "resnet18": {"network": "ResNet18 (ImageNet)", "pe_use": 0.91, "gops": 811.25, "images_per_second": None,
                 "zeros_counted": True},
}
"""What ETA reports: table III and section V-B of Lu, Ni and Wang; 1728 MACs at 200 MHz, 29.9 GB/s, simulated by its authors.
``zeros_counted``: its GOPS also count multiplications with the zeros that stride 2 would insert."""


class _Rows:
    """Sums by tag."""

    def __init__(self, config: Config) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self._engines = [engine_name(unit) for unit in units(config)]

    def __getitem__(self, tag: int) -> dict[str, Any]:
        if tag not in self.rows:
            self.rows[tag] = {"busy": dict.fromkeys(self._engines, 0), "span": 0, "windows": 0, "waits": Counter(),
                              "bytes": dict.fromkeys(PURPOSES, 0), "transfer": dict.fromkeys(PURPOSES, 0)}
        return self.rows[tag]


def _gather(timeline: Timeline, config: Config) -> dict[int, dict[str, Any]]:
    rows = _Rows(config)
    for place, (instruction, unit) in enumerate(zip(timeline.program, timeline.units, strict=True)):
        if unit == Unit.SEQ:
            continue
        row, cycles = rows[instruction.tag], int(timeline.busy[place])
        row["busy"][engine_name(unit)] += cycles
        row["windows"] += windows(instruction, config)
        what = purpose(instruction)
        if what is not None:
            row["bytes"][what] += dram_bytes(instruction, config)
            row["transfer"][what] += cycles
    return rows.rows


def _spans(timeline: Timeline, rows: dict[int, dict[str, Any]]) -> dict[str, int]:
    """Divide the step among the array's layer-phases: from the first CONV of a run with one tag to that of the next.

    Returns what lies before the first CONV and behind the last one. Idle time within a span goes to what the C-Core waited for;
    the wait before a span's first CONV is the end of the span before, and so is counted there.
    """
    places = [int(place) for place in timeline.by_engine[Unit.CCORE]]
    if not places:
        return {"before": timeline.cycles, "behind": 0}
    present = timeline.program[places[0]].tag
    begin = int(timeline.start[places[0]])
    for place in places[1:]:
        for name, idle in timeline.blame(place).items():
            rows[present]["waits"][name.rstrip("0123456789")] += idle
        tag = timeline.program[place].tag
        if tag != present:
            rows[present]["span"] += int(timeline.start[place]) - begin
            present, begin = tag, int(timeline.start[place])
    end = int(timeline.done[places[-1]])
    rows[present]["span"] += end - begin
    return {"before": int(timeline.start[places[0]]), "behind": timeline.cycles - end}


def _losses(row: dict[str, Any], useful: float) -> dict[str, float]:
    """Cycles of a span by :data:`LOSSES`; with the useful ones they sum to the span."""
    found = {"mapping": row["windows"] - useful, "pipeline": row["busy"]["ccore"] - row["windows"]}
    # Overlapping commands: the span ends with the next one's start, not with the last sum of its own.
    found["pipeline"] += row["span"] - row["busy"]["ccore"] - sum(row["waits"].values())
    return found | {cause: float(row["waits"].get(cause, 0)) for cause in LOSSES[2:]}


def figures(
    timeline: Timeline,
    network: Network,
    config: Config,
    batch: int,
    *,
    clock_mhz: float,
    peak_bytes: float,
    traffic: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Everything that follows from one step.

    Parameters
    ----------
    peak_bytes : :class:`float`
        Bytes per cycle that the memory gives at most, reads and writes together.
    traffic : (read bytes, written bytes), optional
        As counted at the memory port, the program itself included; else from the program's commands.
    """
    gathered = _gather(timeline, config)
    edges = _spans(timeline, gathered)
    layers, total = [], Macs(0, 0)
    for tag, row in gathered.items():
        layer, phase = layer_phase(network, tag)
        macs = phase_macs(network, layer, phase, batch) if layer else Macs(0, 0)
        total = Macs(total.useful + macs.useful, total.inserted + macs.inserted)
        ideal = macs.useful / config.macs
        entry: dict[str, Any] = {
            "layer": layer,
            "phase": phase,
            "span_cycles": row["span"],
            "useful_macs": macs.useful,
            "inserted_macs": macs.inserted,
            "pe_use": ideal / row["span"] if row["span"] else None,
            "windows": row["windows"],
            "busy": row["busy"],
            "dram_bytes": row["bytes"],
            "transfer_cycles": row["transfer"],
        }
        if row["span"]:
            entry["lost_cycles"] = _losses(row, ideal)
        layers.append(entry)
    seconds = timeline.cycles / (clock_mhz * 1e6)
    moved = [sum(entry["dram_bytes"][key] for entry in layers for key in PURPOSES if key.startswith(way)) for way in ("Rd", "Wr")]
    read, written = traffic or (moved[0], moved[1])
    engines: dict[str, Any] = {}
    for engine, places in timeline.by_engine.items():
        waits: Counter[str] = Counter()
        for place in places:
            idle, cause = timeline.gap(int(place))
            waits[cause] += idle
        busy = int(timeline.busy[places].sum()) if len(places) else 0
        beats = sum(dram_bytes(timeline.program[place], config) for place in places) // config.beat_bytes
        engines[engine_name(engine)] = {"commands": len(places), "busy": busy, "memory_wait": max(0, busy - beats) if beats else 0,
                                        "waits": {cause: waits[cause] for cause in sorted(waits) if waits[cause]}}
    path: Counter[str] = Counter()
    for (name, _), cycles in timeline.critical_path().items():
        path[name] += cycles
    return {
        "kind": timeline.kind,
        "total": {
            "cycles": timeline.cycles,
            "useful_macs": total.useful,
            "inserted_macs": total.inserted,
            "pe_use": total.useful / config.macs / timeline.cycles,
            "images_per_second": batch / seconds,
            "gops": 2 * total.useful / seconds / 1e9,
            "gops_with_inserted_zeros": 2 * (total.useful + total.inserted) / seconds / 1e9,
            "peak_gops": 2 * config.macs * clock_mhz / 1e3,
            "read_bytes": read,
            "written_bytes": written,
            "bytes_per_cycle": (read + written) / timeline.cycles,
            "peak_bytes_per_cycle": peak_bytes,
            "cycles_before_array": edges["before"],
            "cycles_behind_array": edges["behind"],
        },
        "engines": engines,
        "critical_path": dict(path.most_common()),
        "layers": layers,
        "below_target": _below(layers),
    }


def _below(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Phases that use less than :data:`ETA_TARGET` of the array, worst loss of cycles first, with the cause that costs most."""
    found = []
    for entry in layers:
        if entry["pe_use"] is None or not entry["useful_macs"] or entry["pe_use"] >= ETA_TARGET:
            continue
        lost = entry["lost_cycles"]
        cause = max(lost, key=lambda key: lost[key])
        found.append({"layer": entry["layer"], "phase": entry["phase"], "pe_use": entry["pe_use"],
                      "lost_cycles": sum(lost.values()), "cause": cause, "cause_cycles": lost[cause]})
    return sorted(found, key=lambda entry: -entry["lost_cycles"])


def compare(simulated: dict[str, Any], estimated: dict[str, Any]) -> dict[str, Any]:
    """Errors of an estimate against RTL: relative error of the step's cycles, of every span and of every engine's busy cycles."""

    def error(found: float, true: float) -> float | None:
        return found / true - 1 if true else None

    guesses = {(entry["layer"], entry["phase"]): entry for entry in estimated["layers"]}
    rows = []
    for entry in simulated["layers"]:
        guess = guesses.get((entry["layer"], entry["phase"]))
        if guess is None:
            continue
        rows.append({
            "layer": entry["layer"],
            "phase": entry["phase"],
            "span_cycles": [entry["span_cycles"], guess["span_cycles"]],
            "span_error": error(guess["span_cycles"], entry["span_cycles"]),
            "busy_error": {name: error(guess["busy"][name], busy) for name, busy in entry["busy"].items()},
        })
    return {"cycles_error": error(estimated["total"]["cycles"], simulated["total"]["cycles"]), "layers": rows}
