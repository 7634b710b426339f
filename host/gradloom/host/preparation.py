"""How long a RUN command stays in the A-Core's second stage, cycle by cycle as :mod:`gradloom.rtl.prepare` does it."""

from collections.abc import Mapping, Sequence

from gradloom.host.assembler import Instruction
from gradloom.rtl.config import Config
from gradloom.rtl.divider import Divider
from gradloom.rtl.isa import FIRST_SHIFT_WORD, PsumLayout
from gradloom.rtl.microcode import Each, Kind, ScalarDestination, Shift
from gradloom.rtl.scalars import Scalars, dividers

__all__ = ["preparation"]

_SETUP, _WORK = 2, 3
"""Cycles from the command's acceptance to the set-up's first step, and to the first microinstruction."""
_QUEUED = (ScalarDestination.PARAMETER, ScalarDestination.ENTRY, ScalarDestination.DIVIDE)
_EPSILON, _EPSILON_APART = -1, 3


def preparation(instruction: Instruction, program: Sequence[Mapping[str, int]], config: Config) -> int:
    """Cycles from the acceptance of a command to that of the next one behind it, if the sweep takes it as soon as it is ready, and
    neither Loader nor Storer comes in its way at the parameter buffer."""
    words = instruction.length - FIRST_SHIFT_WORD
    shifted = _SETUP + words + 1
    settled = max(_SETUP + max(2, config.group, _multiplier(instruction).bit_length()), shifted) + 2
    now = fetched = _WORK
    quiet = 0
    """First cycle without scalars under way."""
    last: dict[int, int] = {}
    """Issue of the last value by the register R of its SCALAR."""
    for micro in program:
        kind, register = micro["kind"], micro.get("r", 0)
        if kind == Kind.SWEEP:
            return max(fetched, settled, quiet) + 1
        done = now
        if kind == Kind.LOAD:
            done = max(now, quiet) + max(1, micro["count"]) - 1
        if kind == Kind.SCALAR:
            free = quiet
            if micro.get("chain"):
                apart = {_EPSILON: _EPSILON_APART} | ({register: Scalars.LATENCY - config.group + 1} if register else {})
                free = max((last[awaited] + cycles for awaited, cycles in apart.items() if awaited in last), default=0)
            done = max(now, free, shifted if micro.get("ssh", 0) >= Shift.SH0 else 0) + _issue(instruction, micro, config)
            destination = micro["sdst"]
            quiet = done + Scalars.LATENCY + 1 + (destination in _QUEUED and not instruction["dry"])
            quiet += Divider.LATENCY if destination == ScalarDestination.DIVIDE else 0
            last[_EPSILON if destination == ScalarDestination.EPSILON else register] = done
        now, fetched = max(done, fetched) + 1, max(done, fetched) + 2
    return max(now, settled, quiet) + 1


def _issue(instruction: Instruction, micro: Mapping[str, int], config: Config) -> int:
    """Cycles from the first value of a SCALAR to its last one."""
    if micro["sdst"] == ScalarDestination.EPSILON:
        return 0
    later = config.group * (instruction["planes"] if micro["each"] == Each.PLANE else 1) - 1
    if micro["sdst"] != ScalarDestination.DIVIDE:
        return later
    bursts, rest = divmod(later, dividers(config))
    return bursts * (Divider.LATENCY + 1) + rest


def _multiplier(instruction: Instruction) -> int:
    """Multiplied bit by bit in the set-up."""
    if instruction["pool"]:
        return instruction["pyi"]
    return instruction["prg0"] >> (instruction["layout"] == PsumLayout.ROWS)
