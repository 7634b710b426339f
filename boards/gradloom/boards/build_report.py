"""What a build took of its device, and how fast it is."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from gradloom.boards.slow_ends import SlowEnd
from gradloom.contracts.config import Config

__all__ = ["KINDS", "BuildReport", "CriticalPath", "Hop", "cells_by_module", "critical_paths", "read_json", "slack_histogram",
           "use_and_clocks"]

KINDS = {"LUT4": "LUT4", "CCU2C": "CCU2C", "TRELLIS_DPR16X4": "DPR16X4", "TRELLIS_FF": "FF", "DP16KD": "DP16KD",
         "PDPW16KD": "DP16KD", "MULT18X18D": "MULT18X18D"}
"""Cells of a netlist that are counted, and what they are counted as."""


@dataclasses.dataclass(frozen=True)
class Hop:
    """One cell of a path and the wire that leads to the next one.

    Parameters
    ----------
    cell : :class:`str`
        As the netlist names it.
    logic_ns, routing_ns : :class:`float`
    """

    cell: str
    logic_ns: float
    routing_ns: float


@dataclasses.dataclass(frozen=True)
class CriticalPath:
    """The slowest path from one clock to another (or from and to pads, ``<async>``), *routed*."""

    begin: str
    end: str
    ns: float
    hops: tuple[Hop, ...]

    @property
    def routing_share(self) -> float:
        return sum(hop.routing_ns for hop in self.hops) / self.ns if self.ns else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildReport:
    """Everything here but ``modules`` is after routing.

    Parameters
    ----------
    board : :class:`str`
        One of :data:`~gradloom.boards.board.BOARDS`.
    config : dict
        Fields of the machine's :class:`~gradloom.contracts.config.Config`.
    build : :class:`str`
        The number of the build, 16 hexadecimal digits, which the board tells the host.
    memory : :class:`str`
        What is behind the machine.
    use : dict
        Used and available cells of the device, by its kinds (TRELLIS_COMB, TRELLIS_FF, DP16KD, MULT18X18D, ...).
    modules : dict
        Cells after synthesis, by part of the design and kind.
    clock_mhz, reached_mhz : :class:`float`
        Asked for, and what the slowest path allows.
    paths : tuple of :class:`CriticalPath`
        The slowest first.
    ends : tuple of :class:`~gradloom.boards.slow_ends.SlowEnd`
        Registers that are reached latest, the latest first.
    slack : list
        (from, to, end points), picoseconds, of nextpnr's histogram.
    seed : :class:`int`
        Of the placement.
    seconds : dict
        By stage.
    commands : list
        Command lines of the tools, in order.
    files : dict
        SHA-256 of bitstream and sources, by name.
    """

    board: str
    config: dict[str, Any]
    build: str
    memory: str
    use: dict[str, tuple[int, int]]
    modules: dict[str, dict[str, int]]
    clock_mhz: float
    reached_mhz: float
    paths: tuple[CriticalPath, ...]
    slack: list[tuple[int, int, int]]
    seed: int
    seconds: dict[str, float]
    versions: list[str]
    commands: list[str]
    files: dict[str, str]
    ends: tuple[SlowEnd, ...] = ()

    @property
    def machine(self) -> Config:
        """What was built."""
        return Config(**self.config)

    @property
    def reached(self) -> bool:
        """Whether the clock that was asked for is reached."""
        return self.reached_mhz >= self.clock_mhz

    def json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "BuildReport":
        table = json.loads(text)
        table["paths"] = tuple(CriticalPath(**path | {"hops": tuple(Hop(**hop) for hop in path["hops"])})
                               for path in table["paths"])
        table["ends"] = tuple(SlowEnd(**end | {"through": tuple(end["through"])}) for end in table.get("ends", ()))
        table["use"] = {kind: (used, available) for kind, (used, available) in table["use"].items()}
        table["slack"] = [(first, last, count) for first, last, count in table["slack"]]
        return cls(**table)


def cells_by_module(netlist: dict[str, Any], top: str = "top", depth: int = 3) -> dict[str, dict[str, int]]:
    """Cells of a flat netlist as Yosys writes it, by the part of the design that their names begin with.

    Parameters
    ----------
    depth : :class:`int`
        Names of parts that are kept: ``machine.core.acore`` has three.
    """
    found: dict[str, Counter[str]] = {}
    for name, cell in netlist["modules"][top]["cells"].items():
        if cell["type"] in KINDS:
            parts = name.split(".")[:-1][:depth]
            found.setdefault(".".join(parts) or "(top)", Counter())[KINDS[cell["type"]]] += 1
    return {name: dict(cells) for name, cells in found.items()}


def use_and_clocks(table: dict[str, Any]) -> tuple[dict[str, tuple[int, int]], dict[str, float]]:
    """Use of the device, and MHz that each clock reaches, of the report that nextpnr writes."""
    use = {kind: (entry["used"], entry["available"]) for kind, entry in sorted(table["utilization"].items()) if entry["used"]}
    return use, {name: entry["achieved"] for name, entry in table["fmax"].items()}


def critical_paths(table: dict[str, Any]) -> tuple[CriticalPath, ...]:
    """Paths of the report that nextpnr writes, the slowest first."""
    found = []
    for entry in table.get("critical_paths", []):
        hops: list[Hop] = []
        for step in entry["path"]:
            if step["type"] == "routing":
                hops[-1:] = [dataclasses.replace(hops[-1], routing_ns=round(hops[-1].routing_ns + step["delay"], 3))] if hops else [
                    Hop(step["from"]["cell"], 0.0, round(step["delay"], 3))]
            else:
                hops.append(Hop(step["to"]["cell"], round(step["delay"], 3), 0.0))
        if hops:
            total = round(sum(hop.logic_ns + hop.routing_ns for hop in hops), 3)
            found.append(CriticalPath(entry["from"], entry["to"], total, tuple(hops)))
    return tuple(sorted(found, key=lambda path: -path.ns))


def slack_histogram(log: str) -> list[tuple[int, int, int]]:
    """The last histogram of end points by slack that nextpnr prints: (from, to, about how many), picoseconds."""
    scale = re.findall(r"\* represents (\d+) endpoint", log)
    if not scale:
        return []
    # nextpnr draws: a star is so many end points, a plus fewer than that.
    tail = log[log.rindex("represents"):]
    each = int(scale[-1])
    return [(int(first), int(last), stars.count("*") * each + stars.count("+"))
            for first, last, stars in re.findall(r"\[ *(-?\d+), +(-?\d+)\) \|([*+ ]*)", tail)]


def read_json(path: Path) -> dict[str, Any]:
    """A table that a tool wrote."""
    table = json.loads(path.read_text())
    assert isinstance(table, dict)
    return table
