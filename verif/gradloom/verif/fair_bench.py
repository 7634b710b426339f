"""The same networks, batch, memory and clock on the five papers' systems: use of the MACs in a training step.

``python -m gradloom.verif.fair_bench`` writes ``docs/results/fair-bench.json``, and ``--table`` prints what is kept, which
``docs/systems.md`` shows. All of it is *estimated*: the training machine by the cost model, matrix machines by
:func:`gradloom.host.matrix.product.estimated_cycles`, the papers' own systems by their equations (:mod:`gradloom.systems`).
"""

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gradloom.contracts.config import load_config
from gradloom.host.bench.bench_measure import estimate
from gradloom.host.bench.bench_record import figures
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.files import write_json
from gradloom.host.matrix.product import estimated_cycles, plan_product
from gradloom.host.offload.matrix_device import load_matrix_config
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network
from gradloom.systems import barista, darkfpga, eftrain, fox
from gradloom.systems.networks import workload
from gradloom.systems.vocabulary import Workload, step_macs
from gradloom.verif.checkout import DOCS

__all__ = ["BATCHES", "CLOCK_HZ", "KEPT", "NETWORKS", "SYSTEMS", "main", "matrix_use", "table"]

KEPT = DOCS / "results" / "fair-bench.json"
NETWORKS = ("lenet10", "resnet20", "vgg16")
BATCHES = (1, 16)
CLOCK_HZ = 200e6
BYTES_PER_CYCLE, LATENCY = 149.5, 40
"""Of the memory: 29.9 GB/s, and cycles of a read."""


def matrix_use(work: Workload, batch: int, machine: str) -> float:
    """Share of the MACs' cycles that are useful in the products of a step, the whole batch in each, as offload computes them."""
    config = load_matrix_config(machine)
    cycles = 0
    for place, shape in enumerate(work.layers):
        rows, inner, outputs = batch * shape.positions, shape.inputs * shape.taps, shape.outputs
        sizes = [(rows, inner, outputs), (outputs, rows, inner)] + ([(rows, outputs, inner)] if place else [])
        cycles += sum(estimated_cycles(plan_product(config, *size), LATENCY) for size in sizes)
    return step_macs(work.layers, batch) / (cycles * config.macs)


def _eta(name: str, batch: int) -> float:
    network, config = load_network(name), load_config("eta")
    dram = DramCost(latency=LATENCY, bytes_per_cycle=BYTES_PER_CYCLE)
    plan = compile_network(network, config, batch, slots=2, table=2)
    return float(figures(estimate(plan, dram), network, config, batch, clock_mhz=CLOCK_HZ / 1e6,
                         peak_bytes=BYTES_PER_CYCLE)["total"]["pe_use"])


def _use(found: Any) -> float:
    return float(found.useful / (found.cycles * found.macs))


def _fox(work: Workload, batch: int) -> float:
    return _use(fox.step(work, fox.Core(32), fox.PLATFORMS["zcu111"], batch, CLOCK_HZ, BYTES_PER_CYCLE))


def _barista(work: Workload, batch: int) -> float:
    found = barista.step(work, barista.Mesh(32, 32, 64, latency=1, dsps=1, bits=8), batch, clock_hz=CLOCK_HZ,
                         memory_rate=8 * BYTES_PER_CYCLE * CLOCK_HZ, host=False)
    return _use(found)


def _eftrain(work: Workload, batch: int) -> float:
    # Four DMA streams of 32 bytes, and block RAMs of the paper's ZCU102.
    machine = eftrain.Machine(tile=16, words=8, clock_hz=CLOCK_HZ, start=LATENCY)
    return _use(eftrain.step(work.layers, batch, machine, eftrain.bram_limit(912)))


def _matrix(machine: str, name: str, work: Workload, batch: int) -> float:
    return matrix_use(work, batch, machine)


SYSTEMS: dict[str, tuple[str, Callable[[str, Workload, int], float]]] = {
    "eta": ("`eta`, 1728 MACs: the whole step", lambda name, work, batch: _eta(name, batch)),
    "darkfpga": ("DarkFPGA (64, 32), 2048 MACs: the whole step",
                 lambda name, work, batch: _use(darkfpga.step(work, darkfpga.Tiles(64, 32), batch, CLOCK_HZ))),
    "fox": ("Fox 32 x 32, 1024 MACs: products", lambda name, work, batch: _fox(work, batch)),
    "barista": ("Barista <32, 32, 64>, int8, 1024 MACs: products", lambda name, work, batch: _barista(work, batch)),
    "eftrain": ("EF-Train 16 x 16, 256 MACs of FP32: layers with weights", lambda name, work, batch: _eftrain(work, batch)),
    **{machine: (f"`{machine}`: products", functools.partial(_matrix, machine))
       for machine in ("darkfpga-64x32", "fox-32", "barista-32x32x64")},
}
"""By name: title, and the use of its MACs."""


def table(kept: dict[str, dict[str, float]]) -> str:
    """Markdown: use in percent, batch 1 and 16."""
    lines = [f"| | {' | '.join(NETWORKS)} |", f"|---|{'---|' * len(NETWORKS)}"]
    for system, (title, _) in SYSTEMS.items():
        cells = [", ".join(f"{100 * kept[system][f'{name} {batch}']:.0f}" for batch in BATCHES) for name in NETWORKS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.fair_bench", description=__doc__)
    parser.add_argument("--table", action="store_true", help="print what is kept, and stop")
    if not parser.parse_args(arguments).table:
        works = {name: workload(load_network(name)) for name in NETWORKS}
        cells = [(name, batch) for name in NETWORKS for batch in BATCHES]
        write_json(KEPT, {system: {f"{name} {batch}": round(use(name, works[name], batch), 4) for name, batch in cells}
                          for system, (_, use) in SYSTEMS.items()})
    print(table(json.loads(KEPT.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
