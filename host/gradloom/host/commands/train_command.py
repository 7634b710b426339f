"""``gradloom train``: epochs of training steps on a device, with progress, checkpoints and a report."""

import argparse

from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.verification import CheckFailed
from gradloom.host.requests import option_values
from gradloom.host.runs.reporting import Console
from gradloom.host.runs.training import TrainRequest, resume, train

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Train, or go on training. Returns 0, or 1 if a check against the golden model failed."""
    memory, console = MemoryOptions.from_arguments(options), Console()
    try:
        if options.resume:
            resume(options.resume, console, memory=memory)
        else:
            train(TrainRequest(**option_values(TrainRequest, options), memory=memory), console)
    except CheckFailed as error:
        console.line(str(error))
        return 1
    return 0
