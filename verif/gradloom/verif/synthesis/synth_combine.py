"""LUT combining: small LUTs of a mapped netlist that one six-input LUT of the Xilinx 7 series computes two by two.

A LUT6 has two outputs, so it is also two functions of at most five different inputs together (Xilinx UG474, chapter 2). Synthesis
for these devices merges LUTs that share inputs by default (Xilinx UG949, "LUT combining"); Yosys does not, and its own estimate
(``estimated_num_lc``) also pairs LUTs of carry chains, whose slices have no way out for a second function. The pairs found here
obey the rules one by one and no LUT is in two of them, so a netlist that has them exists.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MOST_INPUTS", "Lut", "free_luts", "pairs"]

Lut = frozenset[int]
"""Numbers of the nets that a LUT reads; constants are none."""

MOST_INPUTS = 5
"""Different inputs of two functions in one LUT6."""
_SIZES = {f"LUT{size}": size for size in range(1, MOST_INPUTS + 1)}
_BESIDE = {"CARRY4": ("S", "DI"), "MUXF7": ("I0", "I1"), "MUXF8": ("I0", "I1")}
"""Inputs of cells of a slice that come from the LUTs beside them; the cell's own output takes the way of a second one."""
_LOOKED_AT = 200
"""LUTs to look at for a partner, once there is one."""


def free_luts(cells: Iterable[Mapping[str, Any]]) -> list[Lut]:
    """Every LUT that may be combined with another one: of at most five inputs, in no carry chain and no wide multiplexer.

    Parameters
    ----------
    cells : iterable of mapping
        Of one flat module, as Yosys' ``write_json`` names them: ``type`` and ``connections``, lists of bits by port, a bit being
        the number of a net or a constant as text.
    """
    luts: list[tuple[int, Lut]] = []
    taken: set[int | str] = set()
    for cell in cells:
        kind, ports = cell["type"], cell["connections"]
        for port in _BESIDE.get(kind, ()):
            taken.update(ports[port])
        if kind in _SIZES:
            inputs = (ports[f"I{n}"][0] for n in range(_SIZES[kind]))
            luts.append((ports["O"][0], frozenset(bit for bit in inputs if isinstance(bit, int))))
    return [inputs for output, inputs in luts if output not in taken]


def pairs(luts: Iterable[Lut]) -> list[tuple[Lut, Lut]]:
    """LUTs two by two, each of them once: two that share an input and have at most :data:`MOST_INPUTS` together.

    Those with most inputs choose first, as they have the fewest partners, and take of all that fit the one that shares most. The
    list is maximal: no two of the LUTs left over could be combined. It need not be the longest one.
    """
    order = sorted(luts, key=lambda inputs: (-len(inputs), sorted(inputs)))
    readers: dict[int, dict[int, None]] = collections.defaultdict(dict)
    for number, inputs in enumerate(order):
        for bit in inputs:
            readers[bit][number] = None
    left = dict.fromkeys(range(len(order)))

    def remove(number: int) -> None:
        del left[number]
        for bit in order[number]:
            del readers[bit][number]

    found = []
    while left:
        number = next(iter(left))
        remove(number)
        partner = _partner(order, readers, order[number])
        if partner is not None:
            remove(partner)
            found.append((order[number], order[partner]))
    return found


def _partner(order: list[Lut], readers: Mapping[int, Mapping[int, None]], inputs: Lut) -> int | None:
    """Of the LUTs that fit the one that shares most inputs, of these the one with most."""
    merit, partner = (0, 0), None
    seen: set[int] = set()
    # Nets with few readers first: LUTs that share several inputs are met there.
    for bit in sorted(inputs, key=lambda bit: (len(readers[bit]), bit)):
        for number in readers[bit]:
            other = order[number]
            if number in seen or len(inputs | other) > MOST_INPUTS:
                continue
            seen.add(number)
            if (found := (len(inputs & other), len(other))) > merit:
                merit, partner = found, number
            if len(seen) >= _LOOKED_AT:
                return partner
    return partner
