"""``gradloom tune``: search for a faster schedule, keep the best one in a file, go on with an earlier search."""

import argparse
from pathlib import Path

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import load_training_machine
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.environment import check_output_file
from gradloom.host.files import UserError
from gradloom.host.knobs import Schedule, load_schedule
from gradloom.host.runs.progress import StepProgress
from gradloom.host.tune import begin, search
from gradloom.models.network import Network, load_network

__all__ = ["run"]


def _earlier(path: Path, network: Network, config: Config, batch: int, memory: MemoryOptions, seed: int) -> Schedule:
    """What an earlier search has found."""
    schedule = load_schedule(path)
    schedule.check(network, config, batch, path)
    asked = {"latency": memory.latency, "bytes_per_cycle": memory.bytes_per_cycle}
    if dict(schedule.memory) != asked or schedule.seed != seed:
        raise UserError(f"{path} holds a search with seed {schedule.seed} and a memory of {schedule.memory}: repeat these to go on "
                        f"with it, or give another --out")
    return schedule


def run(options: argparse.Namespace) -> int:
    """Returns 0."""
    memory = MemoryOptions.from_arguments(options)
    network, config = load_network(options.network), load_training_machine(options.config)
    batch = options.batch or network.train.batch
    path = options.out or Path(f"schedule-{network.name}-{config.name}-{batch}.json")
    check_output_file(path)
    print(f"gradloom: tuning {network.name} on {config.name} ({config.macs} MACs), {batch} images a step, {options.trials} trials, "
          f"{options.jobs} at a time, seed {options.seed} -> {path}", flush=True)
    try:
        if path.exists():
            schedule = _earlier(path, network, config, batch, memory, options.seed)
        else:
            schedule = begin(network, config, batch, DramCost(memory.latency, memory.bytes_per_cycle), options.seed)
            schedule.save(path)
        first, last = schedule.trials, schedule.trials + options.trials
        progress = StepProgress(last, first, unit="trial")
        try:
            for found in search(network, config, schedule, trials=options.trials, jobs=options.jobs):
                schedule = found
                schedule.save(path)
                progress.update(schedule.trials, loss=None, accuracy=None, cycles=schedule.cycles)
        finally:
            progress.close()
    except ScheduleError as error:
        raise UserError(str(error)) from None
    saved = 1 - schedule.cycles / schedule.default_cycles
    print(f"gradloom: {schedule.cycles:,} cycles a step (estimated), {100 * saved:.2f} % fewer than the "
          f"{schedule.default_cycles:,} of the rules, after {schedule.trials} trials: give --schedule {path}")
    return 0
