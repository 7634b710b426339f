"""The knobs of the scheduler, and the files that keep values which are better than its rules'.

How many images a tile takes, which work comes first and how finely planes are cut decide the cycles of a step, never its bytes.
Rules set all of it within seconds for any network; ``gradloom tune`` (:mod:`gradloom.host.tune`) tries other values on the cost
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

__all__ = ["DEFAULT_KNOBS", "FORMAT", "Knobs", "Schedule", "SearchSpace", "choose", "find_knobs", "load_schedule", "missed",
           "schedule_key"]

FORMAT = "gradloom schedule 2"
_FORMER_FORMAT = "gradloom schedule 1"
"""Is read, too: its knobs had the names below, or are gone."""
_FORMER_NAMES = {
    "ahead": "prefetch_depth", "cut": "subtile_beats", "share": "split_leftover_rows", "twice": "reserve_second_pass",
    "carried": "deferred_layers",
}
_DROPPED = ("patience", "brief", "starved", "balance", "operands")
"""Knobs that earned nothing (docs/performance-log.md)."""
RULES = "rules"
"""Stands for the scheduler's rules in the place of a file."""
FOLDER = Path(__file__).with_name("schedules")
"""Schedules that come with the package."""


@dataclasses.dataclass(frozen=True)
class Knobs:
    """One value for everything that is free. The defaults are those of the rules.

    Parameters
    ----------
    tiles : mapping
        "LAYER FP", "LAYER BP" or "LAYER WG": images of a tile (of a block of gradients), where the rules take another number.
    order : mapping
        "LAYER TENSOR", the work that makes it: places by which it comes later (negative: earlier) in the order of service, in which
        works stand as the program adds them.
    prefetch_depth : :class:`int`
        Sets of operands on chip for a kind of work: those in use, and the next ones.
    subtile_beats : :class:`int`
        Beats of a plane that the A-Core takes at a time at most, so that what follows begins with the first of them; convolutions
        take inputs and errors as they are made, and the A-Core's commands take turns piece by piece. 0: whole planes.
    split_leftover_rows : :class:`bool`
        All WPUs take parts of the rows that they leave over, where that saves cycles of the array.
    reserve_second_pass : :class:`bool`
        The last steps of a set of backward tiles leave the A-Core time for two passes over the results of each, the second one for
        the normalisation or the sum of errors on which the next layer waits.
    deferred_layers : tuple of :class:`str`
        Layers whose weight gradients come beside the forward pass of the next step of a start.
    """

    tiles: Mapping[str, int] = dataclasses.field(default_factory=dict)
    order: Mapping[str, float] = dataclasses.field(default_factory=dict)
    prefetch_depth: int = 3
    subtile_beats: int = 0
    split_leftover_rows: bool = True
    reserve_second_pass: bool = False
    deferred_layers: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON keeps it: what differs from the defaults."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"tiles": dict(sorted(self.tiles.items())), "order": dict(sorted(self.order.items()))}
        chosen = {name: value for name, value in fields.items() if value != getattr(Knobs(), name)}
        return chosen | ({"deferred_layers": list(self.deferred_layers)} if self.deferred_layers else {})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Knobs":
        """Inverse of :meth:`record`.

        Raises
        ------
        :exc:`ValueError`
            If a name or a type is not one of the fields', or a number is negative.
        """
        known = {field.name: getattr(cls(), field.name) for field in dataclasses.fields(cls)}
        for name, value in record.items():
            if name not in known:
                raise ValueError(f"there is no knob {name!r}")
            if name in ("tiles", "order"):
                kind = int if name == "tiles" else (int, float)
                good = isinstance(value, dict) and all(isinstance(part, kind) for part in value.values())
            elif name == "deferred_layers":
                good = isinstance(value, list) and all(isinstance(part, str) for part in value)
            else:
                good = type(value) is type(known[name]) and value >= 0
            if not good:
                raise ValueError(f"{name} cannot be {value!r}")
        fields: dict[str, Any] = {name: tuple(value) if name == "deferred_layers" else value for name, value in record.items()}
        return cls(**fields)

    @classmethod
    def from_former(cls, record: Mapping[str, Any]) -> tuple["Knobs", tuple[str, ...]]:
        """Knobs as :meth:`record` named them before format 2, and the names of those that are gone and so were dropped.

        Raises
        ------
        :exc:`ValueError`
            As :meth:`from_record`.
        """
        kept = {_FORMER_NAMES.get(name, name): value for name, value in record.items() if name not in _DROPPED}
        return cls.from_record(kept), tuple(name for name in _DROPPED if name in record)


DEFAULT_KNOBS = Knobs()
"""Those of the scheduler's rules."""


@dataclasses.dataclass
class SearchSpace:
    """The values that the knobs of a compilation may take.

    Attributes
    ----------
    tiles : dict
        For every key of :attr:`Knobs.tiles` the numbers of images that fit.
    works : list
        Every key of :attr:`Knobs.order`.
    deferrable : list
        Every layer of :attr:`Knobs.deferred_layers`.
    """

    tiles: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    works: list[str] = dataclasses.field(default_factory=list)
    deferrable: list[str] = dataclasses.field(default_factory=list)


def schedule_key(network: Network, config: Config, batch: int) -> str:
    """Hash of all that a training step's schedule depends on: layers, machine and batch, not the network's name or rounding."""
    layers = [(type(layer).__name__, dataclasses.asdict(layer)) for layer in network.layers]
    text = json.dumps([network.input_shape, network.classes, network.loss, layers, config.digest(), batch], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Knobs for one network, machine and batch, as a file keeps them.

    Parameters
    ----------
    cycles, default_cycles : :class:`int`
        Of a steady step with these knobs and with the rules', estimated for the memory below.
    trials : :class:`int`
        Sets of knobs tried so far.
    seed : :class:`int`
        Of the search.
    memory : mapping
        Latency in cycles and bytes a cycle that the estimates are for.
    """

    network: str
    config: str
    batch: int
    key: str
    knobs: Knobs
    cycles: int
    default_cycles: int
    trials: int
    seed: int
    memory: Mapping[str, Any]

    def save(self, path: Path) -> None:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        write_json(path, {"format": FORMAT, **fields, "knobs": self.knobs.record()})

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
"""Types of the fields of :class:`Schedule` beside its knobs."""


def _print_notice(text: str) -> None:
    print(f"gradloom: {text}", file=sys.stderr, flush=True)


def load_schedule(path: Path, notice: Callable[[str], None] = _print_notice) -> Schedule:
    """A file of ``gradloom tune``, of this format or the one before; ``notice`` hears which of its knobs are gone.

    Raises
    ------
    :exc:`UserError`
        If it is no such file.
    """
    try:
        record = json.loads(path.read_text())
        found = record.pop("format", None)
        if found not in (FORMAT, _FORMER_FORMAT):
            raise ValueError(f"its format is not {FORMAT!r}")
        if found == FORMAT:
            knobs, dropped = Knobs.from_record(record.pop("knobs")), tuple[str, ...]()
        else:
            knobs, dropped = Knobs.from_former(record.pop("choices"))
        schedule = Schedule(**record, knobs=knobs)
        for name, kind in _KINDS.items():
            if not isinstance(getattr(schedule, name), kind):
                raise ValueError(f"{name} cannot be {getattr(schedule, name)!r}")
        DramCost(**schedule.memory)
    except KeyError as error:
        raise UserError(f"{path} is no schedule ({error} is missing): make one with gradloom tune") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no schedule ({error}): make one with gradloom tune") from None
    if dropped:
        notice(f"{path} was made by an earlier version: {', '.join(dropped)} are not used any more, the rest is; "
               "gradloom tune makes a file that fits")
    return schedule


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


def choose(source: str | None, network: Network, config: Config, batch: int,
           notice: Callable[[str], None] = _print_notice) -> Knobs:
    """What ``--schedule`` asks for: those of :func:`find_knobs`, the rules' ("rules"), or a file's. ``notice`` hears of
    :func:`missed` ones, and of knobs that are gone.

    Raises
    ------
    :exc:`UserError`
        If it is no schedule or one for something else.
    """
    if source == RULES:
        return DEFAULT_KNOBS
    if source is None:
        text = missed(network, config, batch)
        if text is not None:
            notice(text)
        return find_knobs(network, config, batch)
    schedule = load_schedule(Path(source), notice)
    schedule.check(network, config, batch, Path(source))
    return schedule.knobs


def find_knobs(network: Network, config: Config, batch: int) -> Knobs:
    """Those of the package for this network, machine and batch, or else the defaults."""
    schedule = _shipped().get(schedule_key(network, config, batch))
    return DEFAULT_KNOBS if schedule is None else schedule.knobs
