"""What the cost model takes an SDRAM for, behind :class:`~gradloom.rtl.board.memory.sdram.SdramController`."""

from gradloom.contracts.sdram_timing import SdramPart
from gradloom.host.cost_model.cost import DramCost

__all__ = ["sdram_cost"]

_MISSES = 0.42
"""Bursts that open a row, of all: 38 to 44 % in steps of digits-cnn on machines of 9 to 144 MACs (simulated with the
memory's times alone, not at its pins)."""
_TURNS = 0.25
"""Bursts of a write right behind one of a read, of all: where both wait they are served in turns. Reckoned, not counted."""
_PATH = 6
"""Cycles of arbiter, packer and data registers between the machine and the controller, there and back. Reckoned."""


def sdram_cost(part: SdramPart, clock: int) -> DramCost:
    """Rows, turns of direction and refreshes as average cycles: where a burst's row lies is not followed.

    Parameters
    ----------
    clock : :class:`int`
        Hertz of machine and memory.
    """
    timing = part.timing(clock)
    interval = timing.retention / part.rows
    # All banks are closed, refreshed, and two of them opened again for what goes on.
    refresh = timing.rp + timing.rfc + 2 * timing.rcd
    return DramCost(latency=timing.cas + 4 + _PATH, bytes_per_cycle=part.word_bytes * (1 - refresh / interval),
                    burst_cycles=_MISSES * (timing.rp + timing.rcd) + _TURNS * (timing.cas + 1))
