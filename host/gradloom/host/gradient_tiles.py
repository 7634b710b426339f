"""What a weight gradient is cut into: tiles of the array, blocks of them, and their operands on chip."""

import dataclasses

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
    """

    step: int
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    window: int


@dataclasses.dataclass(frozen=True)
class Block:
    """Kernel windows, output tiles, input steps and images (or rows of one) that the array sweeps over with what is on chip."""

    windows: Range
    outputs: tuple[tuple[int, ...], ...]
    steps: Range
    images: Range
    rows: Range | None

    @property
    def piece(self) -> tuple[Range, Range | None]:
        """What is swept over at a time."""
        return self.images, self.rows

    @property
    def inputs(self) -> tuple[Range, Range | None, Range]:
        """What its inputs depend on."""
        return *self.piece, self.steps

    @property
    def errors(self) -> tuple[Range, Range | None, tuple[tuple[int, ...], ...]]:
        """What its errors depend on."""
        return *self.piece, self.outputs


@dataclasses.dataclass(frozen=True)
class Operands:
    """What is on chip: inputs of a range of steps, and errors, from an address on; those of output tiles at (address, place in
    the banks)."""

    images: tuple[int, int]
    rows: tuple[int, int] | None
    steps: tuple[int, int]
    inputs: int
    first: int
    errors: dict[tuple[int, ...], tuple[int, int]]
