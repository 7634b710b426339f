"""All planted faults: wrong shifts, lost carries, stale weights, missed stalls and the like, by what they are planted in."""

from gradloom.verif.planted import array, auxiliary_core, board, checks, link, matrix, memory_path, sequencer, software
from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS", "QUICK", "named"]

FAULTS: tuple[Fault, ...] = (*array.FAULTS, *auxiliary_core.FAULTS, *matrix.FAULTS, *memory_path.FAULTS, *sequencer.FAULTS,
                             *software.FAULTS, *checks.FAULTS, *link.FAULTS, *board.FAULTS)
"""Every fault; the nox session ``faults`` plants them one after the other."""

QUICK = (
    "window check is off by one byte",
    "FIFO takes an element when it is full",
    "delayed scale is off by one",
)
"""Names of those that the test suite itself plants."""


def named(name: str) -> Fault:
    """The fault of that name."""
    return next(fault for fault in FAULTS if fault.name == name)
