"""Errors of the host as a Python program meets them: one class for what cannot be used, Python's names of values."""

import contextlib
import re
from collections.abc import Iterator

from gradloom.contracts.config import ConfigError
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.limits import told
from gradloom.host.files import UserError
from gradloom.models.network import NetworkError

__all__ = ["in_python", "plain_errors"]

_NAMES = {"trace-fst": "trace", "dram-latency": "latency", "dram-bytes-per-cycle": "bytes_per_cycle"}
"""Options of the command line that Python calls otherwise."""
_SAME = ("augment", "batch", "check", "config", "data", "device", "epochs", "family", "format", "integers", "lr",
         "momentum", "network", "normalise", "out", "package", "resume", "rounding", "schedule", "seed", "stalls", "steps",
         "trace-cycles", "validation", "warmup", "weight-decay", "weights")
"""Options that Python calls by the same name, with underscores."""


def in_python(text: str) -> str:
    """A message of the host with Python's names in the place of the command line's options.

    Other programs' options, which stand in the same messages, stay as they are.
    """
    names = {name: name.replace("-", "_") for name in _SAME} | _NAMES
    text = re.sub(r"--resume ([^\s,;:]+)", r"resume('\1')", text)
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda found: names.get(found[1], found[0]), text)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """What cannot be used is a :exc:`UserError`, whoever found out; its message names values as Python does.

    So is a file that cannot be read or written. An :exc:`OSError` that names no file, as of a full disk, stays one.
    """
    try:
        with told("a step"):
            yield
    except (UserError, ConfigError, NetworkError, ScheduleError) as error:
        raise UserError(in_python(str(error))) from None
    except OSError as error:
        if error.filename is None or error.strerror is None:
            raise
        raise UserError(f"{error.filename}: {error.strerror}") from error
    except MachineError as error:
        error.args = (in_python(str(error)),)
        raise
