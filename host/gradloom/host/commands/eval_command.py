"""``gradloom eval``: accuracy of trained weights on the test images, by forward-only programs."""

import argparse
import dataclasses

from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.environment import check_output_file
from gradloom.host.files import UserError, write_json
from gradloom.host.requests import option_values
from gradloom.host.runs.evaluation import EvalRequest, evaluate
from gradloom.host.runs.reporting import Console

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Evaluate, and write the result as JSON if there is a file to write. Returns 0."""
    if options.out is not None and options.out.exists():
        raise UserError(f"{options.out} exists already: give another --out, nothing is overwritten")
    request = EvalRequest(**option_values(EvalRequest, options), memory=MemoryOptions.from_arguments(options))
    if options.out is not None:
        check_output_file(options.out)
    found = evaluate(request, Console())
    if options.out is not None:
        write_json(
            options.out,
            {
                "network": found.network.name,
                "configuration": found.config.name,
                "device": request.device,
                "number_format": found.network.format,
                "rounding": dataclasses.asdict(found.network.rounding),
                "divisor": found.data.divisor,
                "channels": found.data.channels,
                "steps": found.steps,
                "test_accuracy": found.accuracy,
                "test_loss": found.loss,
                "images": found.images,
                "cycles": found.cycles,
                "sha256": found.digest,
            },
        )
    return 0
