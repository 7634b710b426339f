"""What the scheduler may choose freely, and where better choices than its rules' are kept.

How many images a tile takes, which work comes first and how long the array waits decide the cycles of a step, never its bytes.
Rules choose all of it within seconds for any network; ``gradloom tune`` (:mod:`gradloom.host.tune`) tries other choices on the cost
model and keeps the best ones in a file. A file is good for one network, machine and batch, named by a key. Those of the built-in
networks at paper scale lie in ``schedules/`` beside this module and are taken whenever their key fits; others are given with
``--schedule``.
"""

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gradloom.contracts.config import Config
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.files import UserError, write_json
from gradloom.models.network import Network

__all__ = ["BY_RULES", "FORMAT", "Choices", "Offer", "Schedule", "choose", "find_choices", "load_schedule", "missed",
           "schedule_key"]

FORMAT = "gradloom schedule 1"
RULES = "rules"
"""Stands for the choices of the scheduler's rules in the place of a file."""
FOLDER = Path(__file__).with_name("schedules")
"""Schedules that come with the package."""


@dataclasses.dataclass(frozen=True)
class Choices:
    """One value for everything that is free. The defaults are those of the rules.

    Parameters
    ----------
    tiles : mapping
        "LAYER FP", "LAYER BP" or "LAYER WG": images of a tile (of a block of gradients), where the rules take another number.
    order : mapping
        "LAYER TENSOR", the work that makes it: places by which it comes later (negative: earlier) in the order of service, in which
        works stand as the program adds them.
    patience : :class:`int`
        Cycles that the array may wait for a piece rather than take one of a later work.
    brief : :class:`int`
        Cycles of a brief piece of the array, at most.
    starved : :class:`int`
        Cycles of waiting from which on the array is to be served first.
    ahead : :class:`int`
        Sets of operands on chip for a kind of work: those in use, and the next ones.
    balance : :class:`bool`
        Of pieces that would all wait for the A-Core the array takes the one that gives the A-Core least to do for its cycles, not
        the first one.
    operands : :class:`bool`
        What the A-Core needs is there when it has been loaded, not when it has been stored.
    cut : :class:`int`
        Beats of a plane that the A-Core takes at a time at most, so that what follows begins with the first of them; convolutions
        take inputs and errors as they are made, and the A-Core's commands take turns piece by piece. 0: whole planes.
    share : :class:`bool`
        All WPUs take parts of the rows that they leave over, where that saves cycles of the array.
    twice : :class:`bool`
        The last steps of a set of backward tiles leave the A-Core time for two passes over the results of each, the second one for
        the normalisation or the sum of errors on which the next layer waits.
    carried : tuple of :class:`str`
        Layers whose weight gradients come beside the forward pass of the next step of a start.
    """

    tiles: Mapping[str, int] = dataclasses.field(default_factory=dict)
    order: Mapping[str, float] = dataclasses.field(default_factory=dict)
    patience: int = 100
    brief: int = 100
    starved: int = 1000
    ahead: int = 3
    balance: bool = False
    operands: bool = True
    cut: int = 0
    share: bool = True
    twice: bool = False
    carried: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON keeps it: what differs from the defaults."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"tiles": dict(sorted(self.tiles.items())), "order": dict(sorted(self.order.items()))}
        chosen = {name: value for name, value in fields.items() if value != getattr(Choices(), name)}
        return chosen | ({"carried": list(self.carried)} if self.carried else {})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Choices":
        """Inverse of :meth:`record`.

        Raises
        ------
        :exc:`ValueError`
            If a name or a type is not one of the fields', or a number is negative.
        """
        known = {field.name: getattr(cls(), field.name) for field in dataclasses.fields(cls)}
        for name, value in record.items():
            if name not in known:
                raise ValueError(f"there is no choice {name!r}")
            if name in ("tiles", "order"):
                kind = int if name == "tiles" else (int, float)
                good = isinstance(value, dict) and all(isinstance(part, kind) for part in value.values())
            elif name == "carried":
                good = isinstance(value, list) and all(isinstance(part, str) for part in value)
            else:
                good = type(value) is type(known[name]) and value >= 0
            if not good:
                raise ValueError(f"{name} cannot be {value!r}")
        fields: dict[str, Any] = {name: tuple(value) if name == "carried" else value for name, value in record.items()}
        return cls(**fields)


BY_RULES = Choices()
"""Those of the scheduler's rules."""


@dataclasses.dataclass
class Offer:
    """What a compilation would have had to choose from.

    Attributes
    ----------
    tiles : dict
        For every key of :attr:`Choices.tiles` the numbers of images that fit.
    works : list
        Every key of :attr:`Choices.order`.
    carriable : list
        Every layer of :attr:`Choices.carried`.
    """

    tiles: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    works: list[str] = dataclasses.field(default_factory=list)
    carriable: list[str] = dataclasses.field(default_factory=list)


def schedule_key(network: Network, config: Config, batch: int) -> str:
    """Hash of all that a training step's schedule depends on: layers, machine and batch, not the network's name or rounding."""
    layers = [(type(layer).__name__, dataclasses.asdict(layer)) for layer in network.layers]
    text = json.dumps([network.input_shape, network.classes, network.loss, layers, config.digest(), batch], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Choices for one network, machine and batch, as a file keeps them.

    Parameters
    ----------
    cycles, default_cycles : :class:`int`
        Of a steady step with these choices and with the rules', estimated for the memory below.
    trials : :class:`int`
        Choices tried so far.
    seed : :class:`int`
        Of the search.
    memory : mapping
        Latency in cycles and bytes a cycle that the estimates are for.
    """

    network: str
    config: str
    batch: int
    key: str
    choices: Choices
    cycles: int
    default_cycles: int
    trials: int
    seed: int
    memory: Mapping[str, Any]

    def save(self, path: Path) -> None:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        write_json(path, {"format": FORMAT, **fields, "choices": self.choices.record()})

    def check(self, network: Network, config: Config, batch: int, path: Path) -> None:
        """:exc:`UserError` unless it is for this network, machine and batch."""
        if self.key != schedule_key(network, config, batch):
            raise UserError(
                f"schedule {path} is for {self.network} on {self.config} with {self.batch} images a step, not for {network.name} "
                f"on {config.name} with {batch}, or one of them has changed: make one with gradloom tune"
            )


_KINDS = {
    "network": str, "config": str, "key": str, "batch": int, "cycles": int, "default_cycles": int, "trials": int, "seed": int,
    "memory": dict,
}
"""Types of the fields of :class:`Schedule` beside its choices."""


def load_schedule(path: Path) -> Schedule:
    """A file of ``gradloom tune``.

    Raises
    ------
    :exc:`UserError`
        If it is no such file.
    """
    try:
        record = json.loads(path.read_text())
        if record.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        schedule = Schedule(**record | {"choices": Choices.from_record(record.get("choices", {}))})
        for name, kind in _KINDS.items():
            if not isinstance(getattr(schedule, name), kind):
                raise ValueError(f"{name} cannot be {getattr(schedule, name)!r}")
        DramCost(**schedule.memory)
        return schedule
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no schedule ({error}): make one with gradloom tune") from None


@functools.cache
def _shipped() -> dict[str, Schedule]:
    found = (load_schedule(path) for path in sorted(FOLDER.glob("*.json")))
    return {schedule.key: schedule for schedule in found}


def missed(network: Network, config: Config, batch: int) -> str | None:
    """A sentence if the package has a schedule for a network, a machine and a batch of these names, but not for these."""
    named = {(schedule.network, schedule.config, schedule.batch) for schedule in _shipped().values()}
    if schedule_key(network, config, batch) in _shipped() or (network.name, config.name, batch) not in named:
        return None
    return (f"the package's schedule for {network.name} on {config.name} with {batch} images a step is for another network or "
            f"machine of that name: the scheduler's rules are taken, which may cost cycles; gradloom tune makes a schedule")


def _print_notice(text: str) -> None:
    print(f"gradloom: {text}", file=sys.stderr, flush=True)


def choose(source: str | None, network: Network, config: Config, batch: int,
           notice: Callable[[str], None] = _print_notice) -> Choices:
    """What ``--schedule`` asks for: those of :func:`find_choices`, the rules' ("rules"), or a file's. ``notice`` hears of
    :func:`missed` ones.

    Raises
    ------
    :exc:`UserError`
        If it is no schedule or one for something else.
    """
    if source == RULES:
        return BY_RULES
    if source is None:
        text = missed(network, config, batch)
        if text is not None:
            notice(text)
        return find_choices(network, config, batch)
    schedule = load_schedule(Path(source))
    schedule.check(network, config, batch, Path(source))
    return schedule.choices


def find_choices(network: Network, config: Config, batch: int) -> Choices:
    """Those of the package for this network, machine and batch, or else the defaults."""
    schedule = _shipped().get(schedule_key(network, config, batch))
    return BY_RULES if schedule is None else schedule.choices
