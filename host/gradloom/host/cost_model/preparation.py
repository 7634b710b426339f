"""How long a RUN command stays in the A-Core's second stage, cycle by cycle as :mod:`gradloom.rtl.acore.scalar_stage` does it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from gradloom.contracts.config import Config
from gradloom.contracts.isa import FIRST_SHIFT_WORD, PsumLayout
from gradloom.contracts.microcode import Each, Kind, ScalarDestination, Shift
from gradloom.contracts.pipeline import EPSILON_APART, PREPARE_SETUP, PREPARE_START, SCALAR_LATENCY, divider_latency, dividers
from gradloom.host.program.assembler import Instruction

__all__ = ["preparation"]

_QUEUED = (ScalarDestination.PARAMETER, ScalarDestination.ENTRY, ScalarDestination.DIVIDE)
_EPSILON = -1
"""Stands for the register epsilon among the registers R."""


def preparation(instruction: Instruction, program: Sequence[Mapping[str, int]], config: Config,
                stored: AbstractSet[int] = frozenset(), loaded: AbstractSet[int] = frozenset()) -> int:
    """Cycles from the acceptance of a command to that of the next one behind it, if the sweep takes it as soon as it is ready.

    Parameters
    ----------
    stored, loaded :
        Cycles behind the acceptance in which a Storer reads the parameter buffer, so that no value of a SCALAR is issued, resp. a
        Loader writes it, so that no result goes there.
    """
    words = instruction.length - FIRST_SHIFT_WORD
    shifted = PREPARE_SETUP + words + 1
    settled = max(PREPARE_SETUP + max(2, config.group, _multiplier(instruction).bit_length()), shifted) + 2
    now = fetched = PREPARE_START
    quiet = 0
    """First cycle without scalars under way."""
    last: dict[int, int] = {}
    """Issue of the last value by the register R of its SCALAR."""
    written = 0
    """The latest result's way to the parameter buffer."""
    for micro in program:
        kind, register = micro["kind"], micro.get("r", 0)
        if kind == Kind.SWEEP:
            return max(fetched, settled, quiet) + 1
        done = now
        if kind == Kind.LOAD:
            done = _values(max(now, quiet), max(1, micro["count"]), stored)[-1]
        if kind == Kind.SCALAR:
            free = quiet
            if micro.get("chain"):
                apart = {_EPSILON: EPSILON_APART} | ({register: SCALAR_LATENCY - config.group + 1} if register else {})
                free = max((last[awaited] + cycles for awaited, cycles in apart.items() if awaited in last), default=0)
            issued = _issued(instruction, micro, config, max(now, free, shifted if micro.get("ssh", 0) >= Shift.SH0 else 0), stored)
            done, destination = issued[-1], micro["sdst"]
            quiet = done + SCALAR_LATENCY + 1 + (divider_latency(config) if destination == ScalarDestination.DIVIDE else 0)
            if destination in _QUEUED and not instruction["dry"]:
                for value in issued if loaded else issued[-1:]:
                    written, = _values(max(written + 1, value + quiet - done), 1, loaded)
                quiet = written + 1
            last[_EPSILON if destination == ScalarDestination.EPSILON else register] = done
        now, fetched = max(done, fetched) + 1, max(done, fetched) + 2
    return max(now, settled, quiet) + 1


def _values(first: int, count: int, taken: AbstractSet[int]) -> Sequence[int]:
    """So many cycles from ``first`` on without those that others have taken."""
    if not taken:
        return range(first, first + count)
    found: list[int] = []
    while len(found) < count:
        if first not in taken:
            found.append(first)
        first += 1
    return found


def _issued(instruction: Instruction, micro: Mapping[str, int], config: Config, first: int,
            stored: AbstractSet[int]) -> Sequence[int]:
    """Cycles in which the values of a SCALAR are issued, from ``first`` on."""
    if micro["sdst"] == ScalarDestination.EPSILON:
        return _values(first, 1, stored)
    count = config.group * (max(1, instruction["planes"]) if micro["each"] == Each.PLANE else 1)
    if micro["sdst"] != ScalarDestination.DIVIDE:
        return _values(first, count, stored)
    found: list[int] = []
    burst = dividers(config)
    while len(found) < count:
        found += _values(first, min(burst, count - len(found)), stored)
        first = found[-1] + divider_latency(config) + 1 - (burst - 1)
    return found


def _multiplier(instruction: Instruction) -> int:
    """Multiplied bit by bit in the set-up."""
    if instruction["pool"]:
        return instruction["pyi"]
    return instruction["prg0"] >> (instruction["layout"] == PsumLayout.ROWS)
