"""Which registers of a routed design are reached late, and from where: static timing of the delays that nextpnr writes.

nextpnr's own report has one path for each pair of clocks. A clock is made faster by all registers that are reached late, so here
every register's latest input is found, and registers of one name are told together.
"""

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["SlowEnd", "slow_ends"]

_DELAY = re.compile(r"\((\d+):(\d+):(\d+)\)")
_SETUP = re.compile(r"\(SETUPHOLD \((?:pos|neg)edge (\w+)\) \((?:pos|neg)edge \w+\) \(\d+:\d+:(\d+)\)")
_CELL = re.compile(r"_(?:TRELLIS_FF|LUT4|CCU2C|PFUMX|L6MUX21|DP16KD|MULT18X18D).*")
_INDEX = re.compile(r"\[\d+\]|[\d_]+$")
_CLOCKS = ("WCK", "SCLK", "CK")
"""Clock pins beside those whose names hold CLK."""


@dataclasses.dataclass(frozen=True)
class SlowEnd:
    """Registers of one name, and the slowest path to any of them.

    Parameters
    ----------
    name : :class:`str`
        Of the registers, without what synthesis added and the number of a bit.
    count : :class:`int`
        Inputs of such registers, of those that are reached later than was asked for (all, if nothing was).
    ns, routing_ns : :class:`float`
        Of the slowest path, with the register's set-up time; of its wires.
    through : tuple of :class:`str`
        Names that the path passes, from the register where it begins, each once in a row.
    """

    name: str
    count: int
    ns: float
    routing_ns: float
    through: tuple[str, ...]


class _Delays:
    """Of an SDF file, in picoseconds, the slowest corner: wires by the pin that they lead to, cells by the pin that they drive."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.wires: dict[str, tuple[str, int]] = {}
        self.cells: dict[str, list[tuple[str, int]]] = {}
        self.begins: dict[str, int] = {}
        self.setups: dict[str, int] = {}
        cell = ""
        for line in lines:
            words = line.replace("\\", "").split()
            if not words:
                continue
            if words[0] == "(INSTANCE":
                cell = words[1].rstrip(")") if len(words) > 1 else ""
            elif words[0] == "(INTERCONNECT":
                self.wires[words[2]] = words[1], self._slowest(words[3])
            elif words[0] == "(IOPATH":
                source, target, delay = words[1], f"{cell}/{words[2]}", self._slowest(words[3])
                if "CLK" in source or source in _CLOCKS:
                    self.begins[target] = delay
                else:
                    self.cells.setdefault(target, []).append((f"{cell}/{source}", delay))
            elif found := _SETUP.match(line.strip()):
                self.setups[f"{cell}/{found[1]}"] = int(found[2])

    @staticmethod
    def _slowest(text: str) -> int:
        found = _DELAY.match(text)
        if found is None:
            raise ValueError(f"{text!r} is no delay of an SDF file")
        return int(found[3])


def _name(pin: str) -> str:
    cell = _CELL.sub("", pin.partition("/")[0])
    return _INDEX.sub("", cell) or cell


def slow_ends(sdf: Path, later_than: float = 0.0, most: int = 20) -> list[SlowEnd]:
    """Registers by name that are reached latest, the latest first.

    Parameters
    ----------
    sdf : :class:`pathlib.Path`
        As nextpnr writes it (IEEE 1497: INTERCONNECT, IOPATH from clocks and through cells, SETUPHOLD).
    later_than : :class:`float`
        Nanoseconds; inputs that are reached sooner are not told.
    most : :class:`int`
        Names that are told.

    Raises
    ------
    :exc:`ValueError`
        If the file has a delay that is none.
    """
    with sdf.open() as lines:
        delays = _Delays(lines)
    # Of each output: when it settles, the output before it and the wire's pin; no time for what no clock reaches.
    settled: dict[str, tuple[int, str, str] | None] = {}

    def settle(output: str) -> tuple[int, str, str] | None:
        waiting = [output]
        while waiting:
            here = waiting[-1]
            inputs = [(delays.wires[pin], pin, delay) for pin, delay in delays.cells.get(here, []) if pin in delays.wires]
            open_ones = [source for (source, _), _, _ in inputs if source not in settled]
            if here not in settled and open_ones:
                settled[here] = None  # a loop ends here
                waiting.extend(open_ones)
                continue
            waiting.pop()
            if settled.get(here) is None:
                arrivals = [(before[0] + wire + delay, source, pin) for (source, wire), pin, delay in inputs
                            if (before := settled[source]) is not None]
                if here in delays.begins:
                    arrivals.append((delays.begins[here], "", ""))
                settled[here] = max(arrivals, default=None)
        return settled[output]

    ends: dict[str, list[tuple[int, str]]] = {}
    for pin, setup in delays.setups.items():
        if pin in delays.wires:
            source, wire = delays.wires[pin]
            arrival = settle(source)
            if arrival is not None and arrival[0] + wire + setup > 1000 * later_than:
                ends.setdefault(_name(pin), []).append((arrival[0] + wire + setup, pin))

    def told(name: str, pins: list[tuple[int, str]]) -> SlowEnd:
        latest, pin = max(pins)
        here, routing = delays.wires[pin]
        names: list[str] = []
        while here:
            if not names or names[-1] != _name(here):
                names.append(_name(here))
            arrival = settled[here]
            assert arrival is not None
            _, here, pin = arrival
            routing += delays.wires[pin][1] if pin else 0
        return SlowEnd(name, len(pins), round(latest / 1000, 3), round(routing / 1000, 3), tuple(reversed(names)))

    ranked = sorted(ends.items(), key=lambda item: (-max(item[1])[0], item[0]))
    return [told(name, pins) for name, pins in ranked[:most]]
