"""``gradloom verify``: golden model and device side by side, every tensor of every step compared."""

import argparse

from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.requests import option_values
from gradloom.host.runs.reporting import Console
from gradloom.host.runs.verify import VerifyRequest, verify_steps

__all__ = ["run", "verify"]


def run(options: argparse.Namespace) -> int:
    """Returns 0 only if not one byte differs."""
    return verify(options)[0]


def verify(options: argparse.Namespace) -> tuple[int, str]:
    """The exit code, 0 only if not one byte differs, and then the digest of the parameters."""
    memory = MemoryOptions.from_arguments(options)
    found = verify_steps(VerifyRequest(**option_values(VerifyRequest, options), memory=memory), Console())
    return (0, found.digest) if found.equal else (1, "")
