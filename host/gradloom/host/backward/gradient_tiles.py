"""What a weight gradient is cut into: tiles of the array, blocks of them, and their operands on chip."""

import dataclasses

from gradloom.host.order.tasks import Address
from gradloom.host.tiles.row_ranges import RowRange

__all__ = ["Block", "Operands", "Tile"]

Range = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Tile:
    """Blocks (r, k) of one drain.

    Parameters
    ----------
    step : input group, or for kernel 1 the step of all PE rows
    outputs : output groups (kernel 1: one for each tap)
    inputs : input groups (kernel 1: one for each PE row)
    window : number of the kernel window
    stacked : of one output group with columns of the kernel on the taps, where the others of kernel 1 are of three
    """

    step: int
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    window: int
    stacked: bool = False


@dataclasses.dataclass(frozen=True)
class Block:
    """Kernel windows, output tiles, input steps and rows that the array sweeps over with what is on chip."""

    windows: Range
    outputs: tuple[tuple[int, ...], ...]
    steps: Range
    row_range: RowRange

    @property
    def inputs(self) -> tuple[RowRange, Range]:
        """What its inputs depend on."""
        return self.row_range, self.steps

    @property
    def errors(self) -> tuple[RowRange, tuple[tuple[int, ...], ...]]:
        """What its errors depend on."""
        return self.row_range, self.outputs


@dataclasses.dataclass(frozen=True)
class Operands:
    """What is on chip: inputs of a range of steps, and errors, from an address on; those of output tiles at (address, place in
    the banks)."""

    row_range: RowRange
    steps: Range
    inputs: Address
    first: Address
    errors: dict[tuple[int, ...], tuple[Address, int]]
