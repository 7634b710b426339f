"""A plane of Y x X features whose beats are planes of 1 x 2 of their own.

A beat holds two neighbouring columns of a channel group. So the bytes of C x Y x X features are also those of (C/G) Y ceil(X / 2)
groups of planes of 1 x 2, and the blocks of a fully connected layer on them those of a kernel of 1 x 2: such a layer needs no
kernel as large as the plane (docs/decisions/0017-flattened-planes.md).
"""

import dataclasses

from gradloom.host.dram.layout import even, plane_beats

__all__ = ["FlatPlane"]


@dataclasses.dataclass(frozen=True)
class FlatPlane:
    """The plane of a channel group, beat by beat, row by row.

    Parameters
    ----------
    y, x : rows and columns
    """

    y: int
    x: int

    @property
    def beats(self) -> int:
        """Groups of planes of 1 x 2 in a channel group."""
        return plane_beats(self.y, self.x)

    @property
    def _of_row(self) -> int:
        return even(self.x) // 2

    @property
    def run(self) -> int:
        """Beats behind each other whose elements' indices follow each other, too: an odd row ends with a column of padding."""
        return self._of_row if self.x & 1 else self.beats

    def place(self, beat: int) -> tuple[int, int]:
        """Row and first column of a beat."""
        row, pair = divmod(beat, self._of_row)
        return row, 2 * pair

    def index(self, beat: int) -> int:
        """Of its first element in the plane."""
        row, column = self.place(beat)
        return row * self.x + column

    def columns(self, beat: int) -> int:
        """1 or 2, as many of a beat as are not padding."""
        return min(2, self.x - self.place(beat)[1])
