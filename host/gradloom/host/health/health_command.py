"""``gradloom health``: how the numbers of a network's training steps sit in PINT, on any device, from any state."""

import argparse
from pathlib import Path

from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.host.environment import check_device
from gradloom.host.files import UserError, write_json, write_text
from gradloom.host.health.health_measure import Found, measure
from gradloom.host.health.health_page import render_health, worst
from gradloom.host.requests import option_values
from gradloom.host.runs.reporting import Console
from gradloom.host.runs.run_folder import RunFolder
from gradloom.host.runs.steps import StepsRequest, material, steps_on

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Train some steps, one start each, count their elements, and write ``health.json`` and ``health.html``."""
    memory, config = MemoryOptions.from_arguments(options), machine_config(options.device, options.config)
    check_device(options.device, config, options.trace_fst)
    request = StepsRequest(**option_values(StepsRequest, options))
    given = material(request)
    network, state, first = given.network, given.state, given.state.step
    if network.format != "pint8":
        raise UserError(f"health counts PINT's codes, network {network.name} has the format {network.format}: leave --format out, "
                        f"or give pint8")
    out = options.out or RunFolder.free_name(Path("runs"), f"health-{network.name}")
    folder = RunFolder.create(out)
    begins = f"from step {first} on" if options.weights else "from initial weights on"
    print(f"gradloom: {network.name}, device {options.device}, {options.steps} steps of {options.batch} images ({given.title}), "
          f"{begins}", flush=True)
    found: Found | None = None
    try:
        with Session(network, config, options.batch, options.device, given.exponent, state.seed, memory) as session:
            for _ in steps_on(session, given, request, Console()):
                found = measure(network, session, found)
        assert found is not None
        record = {"network": network.name, "device": options.device, "batch": options.batch, "steps": options.steps,
                  "begins": begins, "data": given.title, "seed": state.seed,
                  "tensors": [health.record() for health in found.values()]}
        write_json(out / "health.json", record)
        write_text(out / "health.html", render_health(record))
    finally:
        folder.discard_empty()
    for name, text in (("saturated", "at the ends of the range"), ("zero", "zero")):
        most = worst(list(found.values()), name)
        told = [f"{100 * health.share(name):.2f} % of {health.layer} {health.tensor}" for health in most]
        print(f"gradloom: {text}: at most {', '.join(told)}" if told else f"gradloom: {text}: no element")
    print(f"gradloom: report {out / 'health.html'}")
    return 0
