"""``gradloom bench``: what a training step costs on a machine, by layer and phase: table, JSON, page and trace."""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.bench.bench_measure import (
    CheckFailed,
    Measured,
    Steps,
    dram_cost,
    estimate,
    estimate_parts,
    measure,
    peak_bytes,
)
from gradloom.host.bench.bench_page import render_bench
from gradloom.host.bench.bench_record import BENCH_FORMAT, ETA_CLOCK_MHZ, ETA_TARGET, PUBLISHED, compare, figures
from gradloom.host.bench.board_bench import measure_board, refuse, report_lines, steps_before
from gradloom.host.bench.board_bench_page import render_board_bench
from gradloom.host.bench.layer_drawing import draw, find_layer
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.trace import chrome_trace
from gradloom.host.cost_model.what_if import PARTS
from gradloom.host.cost_model.workload import layer_phase
from gradloom.host.datasets.data import Preparation, epoch_order, load_dataset
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.board_choice import BoardChoice, board_choice, machine_config
from gradloom.host.devices.opening import STEPS_PER_START, MemoryOptions
from gradloom.host.devices.session import check_fit
from gradloom.host.environment import check_device, check_output_file
from gradloom.host.files import UserError, write_json, write_text
from gradloom.host.knobs import Knobs, choose
from gradloom.host.machine_program import MachineProgram
from gradloom.host.runs.run_folder import RunFolder
from gradloom.host.schedule import compile_network
from gradloom.models.network import Network, load_network

__all__ = ["run"]


_SHORT = 5
"""Seconds that need no announcement."""


def _compiled(network: Network, config: Config, batch: int, knobs: Knobs) -> MachineProgram:
    try:
        return compile_network(network, config, batch, slots=2, table=2, knobs=knobs)
    except ScheduleError as error:
        raise UserError(str(error)) from None


def _steps(options: argparse.Namespace, network: Network, batch: int, count: int) -> Steps:
    """Batches of so many steps."""
    if options.data is None:
        images, labels, exponent = synthetic_images(network, batch * count, options.seed)
        source = f"hashed images, seed {options.seed}"
    else:
        data = load_dataset(options.data, preparation=Preparation.asked(options.integers, network.data.normalise))
        check_fit(network, data, batch)
        orders = [epoch_order(len(data.train_y), options.seed, epoch) for epoch in range(1 + batch * count // len(data.train_y))]
        chosen = np.concatenate(orders)[: batch * count]
        images, labels, exponent, source = data.train_x[chosen], data.train_y[chosen], data.exponent, data.title
    parts = [slice(step * batch, (step + 1) * batch) for step in range(count)]
    return Steps([images[part] for part in parts], [labels[part] for part in parts], exponent, source)


def _memory_text(memory: MemoryOptions) -> str:
    share = "a beat for every channel" if memory.bytes_per_cycle is None else f"{memory.bytes_per_cycle:g} bytes"
    return f"{share} a cycle, latency {memory.latency} cycles" + (f", stalls {memory.stalls:g}" if memory.stalls else "")


def run(options: argparse.Namespace) -> int:
    """Returns 0, or 1 if a step differs from the golden model."""
    memory = MemoryOptions.from_arguments(options)
    network = load_network(options.network).formatted(options.format).rounded(options.rounding)
    config = machine_config(options.device, options.config)
    batch = options.batch or network.train.batch
    if options.steps > STEPS_PER_START:
        raise UserError(f"--steps must lie in 1..{STEPS_PER_START}, the most of one start, not {options.steps}: give fewer")
    if options.device == "model" and options.compare:
        raise UserError("--compare sets the cost model beside the simulated machine: give --device rtl with it")
    if options.trace is not None and options.trace.exists():
        raise UserError(f"{options.trace} exists already: give another --trace, nothing is overwritten")
    drawn = None if options.draw is None else find_layer(network, options.draw)
    folder = options.out or RunFolder.free_name(Path("runs"), f"bench-{network.name}-{config.name}")
    RunFolder.check_free(folder, "nothing is overwritten")
    if options.trace is not None:
        check_output_file(options.trace, "--trace")
    check_device(options.device, config, options.trace_fst)
    knobs = choose(options.schedule, network, config, batch)
    if (choice := board_choice(options.device)) is not None:
        refuse(options, memory)
        return _on_board(options, choice, network, config, batch, knobs, folder)
    clock_mhz = options.clock_mhz or ETA_CLOCK_MHZ
    steps = _steps(options, network, batch, options.steps + 1) if options.device == "rtl" else None
    print(f"gradloom: bench of {network.name} on {config.name} ({config.macs} MACs), device {options.device}, "
          f"{batch} images a step, {_memory_text(memory)}, {'tuned schedule' if knobs.record() else 'schedule by rules'}",
          flush=True)
    peak = peak_bytes(config, memory)
    bench = _head(options, network, config, batch, knobs) | {
        "clock_mhz": clock_mhz, "memory": memory.record(), "memory_text": _memory_text(memory)}
    traffic, found, began = None, None, time.monotonic()
    if steps is None:
        plan, last = _compiled(network, config, batch, knobs), 2
        timeline = estimate(plan, dram_cost(memory), last)
    else:
        try:
            found = measure(network, config, steps, seed=options.seed, memory=memory, check=options.check,
                            calibrate=options.calibrate, knobs=knobs)
        except CheckFailed as error:
            print(f"gradloom: DIFFERENT: {error}")
            return 1
        plan, last, timeline, traffic = found.plan, found.steps, found.timeline, found.traffic
    bench |= _circumstances(options, steps, found) | {"seconds": time.monotonic() - began}
    bench |= figures(timeline, network, config, batch, clock_mhz=clock_mhz, peak_bytes=peak, traffic=traffic)
    bench["published"] = PUBLISHED.get(network.name)
    bench["compare"] = None
    if options.compare and found is not None:
        other = figures(found.estimated, network, config, batch, clock_mhz=clock_mhz, peak_bytes=peak)
        bench["compare"] = compare(bench, other)
    bench["what_if"] = _what_if(plan, memory, last) if options.what_if else None
    _print(bench)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "bench.json", bench)
    write_text(folder / "bench.html", render_bench(bench))
    if options.trace is not None:
        title = f"{network.name} on {config.name}, {batch} images ({timeline.kind})"
        names = {tag: " ".join(layer_phase(network, tag)).strip() for tag in {command.tag for command in timeline.program}}
        trace = chrome_trace(timeline, lambda command: f"{names[command.tag]} {command.opcode.name}", title=title)
        write_json(options.trace, trace)
        print(f"gradloom: trace {options.trace} (open it at ui.perfetto.dev)")
    if drawn is not None:
        drawing = folder / drawn.file
        write_text(drawing, draw(timeline, network, drawn, title=f"{network.name} on {config.name}, {batch} images"))
        print(f"gradloom: drawing {drawing}")
    print(f"gradloom: report {folder / 'bench.html'}")
    return 0


def _head(options: argparse.Namespace, network: Network, config: Config, batch: int, knobs: Knobs) -> dict[str, Any]:
    """What every bench's record begins with."""
    return {
        "format": BENCH_FORMAT,
        "network": {"name": network.name, "source": options.network, "toml": network.to_toml()},
        "configuration": dataclasses.asdict(config),
        "macs": config.macs,
        "device": options.device,
        "batch": batch,
        "seed": options.seed,
        "schedule": knobs.record(),
    }


def _on_board(options: argparse.Namespace, choice: BoardChoice, network: Network, config: Config, batch: int, knobs: Knobs,
              folder: Path) -> int:
    steps = _steps(options, network, batch, steps_before(options.steps) + options.steps)
    print(f"gradloom: bench of {network.name} on {config.name} ({config.macs} MACs), device {options.device}, {batch} images a "
          f"step, {options.steps} steps a start", flush=True)
    try:
        found = measure_board(network, config, steps, options.steps, seed=options.seed, choice=choice, check=options.check,
                              calibrate=options.calibrate, knobs=knobs)
    except CheckFailed as error:
        print(f"gradloom: DIFFERENT: {error}")
        return 1
    bench = _head(options, network, config, batch, knobs) | {"data": steps.source} | found
    print("\n".join(report_lines(bench)), flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "bench.json", bench)
    write_text(folder / "bench.html", render_board_bench(bench))
    print(f"gradloom: report {folder / 'bench.html'}")
    return 0


def _what_if(plan: MachineProgram, memory: MemoryOptions, steps: int) -> dict[str, int]:
    """Estimated cycles of a step by what takes no time."""
    began = time.monotonic()
    dram = dram_cost(memory)
    found = {"nothing": estimate(plan, dram, steps).cycles}
    left = len(PARTS) * (time.monotonic() - began)
    if left > _SHORT:
        print(f"gradloom: what if: {len(PARTS)} replays, about {left:.0f} s", flush=True)
    return found | {part.name: cycles for part, cycles in estimate_parts(plan, dram, steps)}


def _circumstances(options: argparse.Namespace, steps: Steps | None, found: Measured | None) -> dict[str, Any]:
    """What was run."""
    if steps is None or found is None:
        return {"step": "a steady step, the second of one start", "data": "none", "check": None, "simulation": None,
                "program": None, "parameters": None, "check_text": "none, the cost model computes no tensors"}
    checked = found.checked
    text = "none (--check off)"
    if checked["steps"]:
        text = f"equal to the golden model: {checked['steps']} steps, {checked['tensors']:,} tensors, {checked['bytes']:,} bytes"
    alone = steps.steady == 1 or options.check == "all"
    return {
        "step": f"step {steps.steady} of a run whose step 0 calibrates"
                + (" (computed by the golden model)" if options.calibrate == "golden" else "")
                + (", in a start of its own, with the program's head" if alone else ", the last of one start"),
        "data": steps.source,
        "check": checked,
        "check_text": text,
        "program": found.plan.digest(),
        "parameters": found.parameters,
        "simulation": found.simulated,
    }


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _print(bench: dict[str, Any]) -> None:
    """Table of the phases, totals, and what keeps phases below the target."""
    kind, total, engines = bench["kind"], bench["total"], list(bench["engines"])
    print(f"\n{'layer':<16} {'phase':<8} {'span':>11} {'PE use':>8} " + " ".join(f"{name:>10}" for name in engines)
          + f" {'read B':>12} {'written B':>12}   ({kind} cycles)")
    for entry in bench["layers"]:
        moved = entry["dram_bytes"]
        read, written = (sum(value for key, value in moved.items() if key.startswith(way)) for way in ("Rd", "Wr"))
        span, use = (f"{entry['span_cycles']:,}", _percent(entry["pe_use"])) if entry["span_cycles"] else ("", "")
        print(f"{entry['layer']:<16.16} {entry['phase']:<8} {span:>11} {use:>8} "
              + " ".join(f"{entry['busy'][name]:>10,}" for name in engines) + f" {read:>12,} {written:>12,}")
    print(f"\ncycles of a step      {total['cycles']:,} ({kind}), PE use {_percent(total['pe_use'])} of {bench['macs']} MACs")
    print(f"at {bench['clock_mhz']:g} MHz            {total['images_per_second']:,.1f} images/s, {total['gops']:.2f} GOPS useful, "
          f"{total['gops_with_inserted_zeros']:.2f} with inserted zeros, peak {total['peak_gops']:.1f} ({kind})")
    print(f"DRAM                  {total['read_bytes']:,} bytes read, {total['written_bytes']:,} written, "
          f"{total['bytes_per_cycle']:.2f} bytes a cycle ({kind})")
    busy = ", ".join(
        f"{name} {_percent(engine['busy'] / total['cycles'])}"
        + (f" (memory wait {_percent(engine['memory_wait'] / total['cycles'])})" if engine["memory_wait"] else "")
        for name, engine in bench["engines"].items()
    )
    path = ", ".join(f"{name} {_percent(cycles / total['cycles'])}" for name, cycles in bench["critical_path"].items())
    print(f"busy                  {busy}\ncritical path         {path}")
    if bench["published"] is not None:
        paper = bench["published"]
        images = "not given" if paper["images_per_second"] is None else f"{paper['images_per_second']:,.1f} images/s"
        zeros = " with inserted zeros" if paper["zeros_counted"] else ""
        print(f"ETA reports           PE use {_percent(paper['pe_use'])}, {images}, {paper['gops']:.2f} GOPS{zeros}, "
              "1728 MACs at 200 MHz (simulated by its authors)")
    if bench["what_if"] is not None:
        base = bench["what_if"]["nothing"]
        print("\nif it took no time, cycles of a step (estimated):")
        for name, cycles in bench["what_if"].items():
            print(f"  {name:<30} {cycles:>14,} {_percent(cycles / base - 1):>8}")
    if bench["below_target"]:
        print(f"\nbelow {100 * ETA_TARGET:.0f} % of the array:")
        for entry in bench["below_target"]:
            print(f"  {entry['layer']} {entry['phase']}: {_percent(entry['pe_use'])}, {entry['lost_cycles']:,.0f} cycles lost, "
                  f"most to {entry['cause']} ({entry['cause_cycles']:,.0f})")
    if bench["compare"] is not None:
        print(f"\ncost model against RTL: whole step {_percent(bench['compare']['cycles_error'])}")
        for row in bench["compare"]["layers"]:
            true, guessed = row["span_cycles"]
            busy = ", ".join(f"{name} {_percent(value)}" for name, value in row["busy_error"].items() if value is not None)
            span = f"span {true:,} simulated, {guessed:,} estimated ({_percent(row['span_error'])}); " if true else ""
            print(f"  {row['layer']} {row['phase']}: {span}busy {busy}")
    if bench["simulation"] is not None:
        run = bench["simulation"]
        print(f"\nsimulated {run['cycles']:,} cycles in {run['seconds']:.1f} s, {run['cycles_per_second']:,.0f} cycles a second; "
              f"check: {bench['check_text']}; parameters {bench['parameters'][:16]}")
    sys.stdout.flush()
