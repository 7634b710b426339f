"""What the values of a command and of :mod:`gradloom.api` may be: every rule once, with the sentence that refuses.

The command line reads its values from text and names them ``--batch``, Python gives numbers and names them ``batch``.
Between the two and the work lie frozen dataclasses of checked values, one for each kind of work
(:class:`~gradloom.host.runs.training.TrainRequest`, :class:`~gradloom.host.runs.verify.VerifyRequest`).
"""

import argparse
import dataclasses
import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.host.datasets.data import RawImages
from gradloom.host.files import UserError
from gradloom.models.network import Network, load_network

__all__ = ["BANDWIDTH", "CHECKS", "CLOCK_MHZ", "CONFIG", "COUNT", "DECAY", "FOLDER", "FORMAT", "GIGABYTES", "IMAGES",
           "INTEGERS", "LATENCY", "MACHINE", "MOMENTUM", "NETWORK", "RATE", "ROUNDING", "SCHEDULE", "SEED", "SHARE", "STALLS",
           "WEIGHTS", "FieldError",
           "Range", "Types", "check_choice", "check_fields", "check_types", "given_network", "option_values"]

CHECKS = ("all", "last", "off")
"""What of a run is compared with the golden model: every step, the last one, none."""
INTEGERS = ("unit", "raw")
"""What images of whole numbers mean: divided to lie in -1..1, or taken as they are."""
_MOST = 10_000_000
"""Largest number of steps, epochs and images; the learning-rate table has an entry for every step."""


class FieldError(UserError):
    """A value that its field may not have.

    Parameters
    ----------
    field : :class:`str`
        Python's name of the value.
    rule : :class:`str`
        What follows the name in the message: "must lie in 1..3, not 4".
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field} {rule}")
        self.field, self.rule = field, rule


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; messages show ``text``, ``whole`` leaves out fractions."""

    low: float
    high: float
    text: str
    whole: bool = False

    def broken(self, value: Any, shown: object = None) -> str | None:
        """The rule that a value breaks, as of :class:`FieldError`, or ``None``; ``shown``: the value as given."""
        kind: Any = numbers.Integral if self.whole else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind):
            return f"must be a {'whole ' if self.whole else ''}number, not {value!r}"
        if not self.low <= value <= self.high:
            return f"must lie in {self.text}, not {value if shown is None else shown}"
        return None


COUNT = Range(1, _MOST, f"1..{_MOST}", whole=True)
"""How many steps, epochs or images."""
SEED = Range(0, 2**32 - 1, "0..2^32-1", whole=True)
RATE = Range(2.0**-30, 64.0, "2^-30..64")
"""A learning rate."""
MOMENTUM = Range(0.0, 255 / 256, "0..255/256")
DECAY = Range(0.0, 0.5, "0..0.5")
"""A weight decay."""
CLOCK_MHZ = Range(0.001, 100000.0, "0.001..100000 MHz")
LATENCY = Range(0, 10000, "0..10000 cycles", whole=True)
"""Of the DRAM model."""
BANDWIDTH = Range(0.01, 10000.0, "0.01..10000")
"""Bytes a cycle of the DRAM model."""
GIGABYTES = Range(0.001, 10000.0, "0.001..10000 GB/s")
"""Bandwidth of a device's memory."""
SHARE = Range(0.01, 1.0, "0.01..1")
"""Of the LUTs of a device."""
STALLS = Range(0.0, math.nextafter(1.0, 0.0), "0..1 (1 excluded)")
"""Probability of a stall in the DRAM model."""


@dataclasses.dataclass(frozen=True)
class Types:
    """What a value may be; messages show ``text``."""

    types: type | tuple[type, ...]
    text: str


NETWORK = Types((Network, str), "a Network, a name or a TOML file")
CONFIG = Types((Config, str), "a Config, a preset's name or a TOML file")
MACHINE = Types((Config, MatrixConfig, str), "a Config, a MatrixConfig, a preset's name or a TOML file")
IMAGES = Types((RawImages, str), "images, or the name or file of some")
WEIGHTS = Types(Path, "a run's folder or a checkpoint.npz")
FORMAT = Types(str, "a format's name")
ROUNDING = Types(Mapping, "a dictionary by kinds of tensors")
SCHEDULE = Types(str, "a file of gradloom tune or 'rules'")
FOLDER = Types(Path, "a folder")


def _lacks(owner: Any, field: str) -> bool:
    """Whether a field is ``None`` by right, as its default is."""
    default = next(found.default for found in dataclasses.fields(owner) if found.name == field)
    return default is None and getattr(owner, field) is None


def check_fields(owner: object, **rules: Range) -> None:
    """See that fields of a frozen dataclass lie in their ranges, and keep them as Python's own numbers.

    Fields whose default is ``None`` may be ``None``, here and in the other checks.

    Raises
    ------
    :exc:`FieldError`
        Of the first that does not.
    """
    for field, rule in rules.items():
        if _lacks(owner, field):
            continue
        value = getattr(owner, field)
        broken = rule.broken(value)
        if broken is not None:
            raise FieldError(field, broken)
        object.__setattr__(owner, field, int(value) if rule.whole else float(value))


def check_choice(owner: object, field: str, choices: tuple[str, ...]) -> None:
    """See that a field has one of these values; raises as :func:`check_fields`."""
    value = getattr(owner, field)
    if _lacks(owner, field):
        return
    if not isinstance(value, str) or value not in choices:
        raise FieldError(field, f"must be {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}, not {value!r}")


def check_types(owner: object, **rules: Types) -> None:
    """See that fields are of their types; raises as :func:`check_fields`."""
    for field, rule in rules.items():
        value = getattr(owner, field)
        if not _lacks(owner, field) and not isinstance(value, rule.types):
            raise FieldError(field, f"must be {rule.text}, not {value!r}")


def given_network(network: Network | str) -> Network:
    """A network, or that of a name or TOML file (:func:`~gradloom.models.network.load_network`)."""
    return network if isinstance(network, Network) else load_network(network)


_Request = TypeVar("_Request")


def option_values(request: type[_Request], options: argparse.Namespace) -> Mapping[str, Any]:
    """The options of a command line that a request has fields for; those not given are left to its defaults."""
    fields = {field.name for field in dataclasses.fields(request)}  # type: ignore[arg-type]
    return {name: value for name, value in vars(options).items() if name in fields and value is not None}
