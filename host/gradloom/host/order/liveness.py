"""A guard of on-chip rings: what has been put there is used before anything overwrites it."""

from collections.abc import Iterable

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode
from gradloom.host.order.accesses import Access
from gradloom.host.program.assembler import Instruction

__all__ = ["OverwrittenBeforeRead", "UnreadData"]

_BESIDE = ("dacc", "lap")
"""Fields of a drain that leaves what its addresses hold: it adds to it, or to the lap before."""


class OverwrittenBeforeRead(ValueError):
    """A command would overwrite what another one is still to use."""


class UnreadData:
    """Addresses of on-chip rings that hold what nothing has used yet.

    A ring hands out its addresses round and round; the recorder orders their reuse by the order of the program. That a command
    reads what was meant for it takes more: between the two no one may have taken its addresses.
    """

    def __init__(self, config: Config) -> None:
        sizes = {"AA": config.abuf_depth, "AB": config.abuf_depth, "AM": config.mbuf_depth, "DW": config.dw_depth}
        self._held = {name: bytearray(size) for name, size in sizes.items()}
        """1 for an address that holds something."""
        self._block = config.block_beats

    def holds(self, access: Access) -> bool:
        """Whether some of it has not been used."""
        return self._held[access.space].find(1, *access.box[0]) >= 0

    def note(self, instruction: Instruction, reads: Iterable[Access], writes: Iterable[Access]) -> None:
        """What a command uses, and what it leaves for others.

        Raises
        ------
        :exc:`OverwrittenBeforeRead`
            If what it overwrites has not been used.
        """
        for access in reads:
            if access.space in self._held:
                first, end = access.box[0]
                self._held[access.space][first:end] = bytes(end - first)
        for access in writes:
            if access.space in self._held:
                held = self._held[access.space]
                beside = instruction.opcode == Opcode.CONV and any(instruction[name] for name in _BESIDE)
                for first, end in self._blocks(*access.box[0], instruction.fields.get("dgap", 0)):
                    if not beside and held.find(1, first, end) >= 0:
                        raise OverwrittenBeforeRead(
                            f"addresses {access.box[0]} of {access.space} would be overwritten before they are used")
                    held[first:end] = b"\1" * (end - first)

    def _blocks(self, first: int, end: int, gap: int) -> list[tuple[int, int]]:
        """Addresses that a drain fills: with a gap blocks of other tiles lie between."""
        if not gap:
            return [(first, end)]
        return [(start, min(start + self._block, end)) for start in range(first, end, (gap + 1) * self._block)]
