"""Sets of tiles that share inputs which do not stay on chip.

Inputs that do not fit on chip all at once come chunk by chunk. The tiles of a set, of the same images and of different output
groups, take a chunk one after the other before the next one takes its place, so that it is loaded once for all of them. Half of the
tiles lie behind each other in one half of the partial sums, half in the other. The chunks of the next set come in the opposite
order: its first one is on chip. All but the last chunk of a tile leave the A-Core nothing to do, so the last chunk is long enough
for the sweep of the tile before (docs/decisions/0010-tiles-share-inputs.md).
"""

from collections.abc import Callable, Mapping

from gradloom.host.compilation.sums import HALVES, PlannedSums
from gradloom.host.order.pieces import BoundEngine, Piece, Work
from gradloom.host.order.tasks import Address

__all__ = ["TURN", "TileSet", "in_turn", "runs_of"]

Range = tuple[int, int]

TURN = Piece(BoundEngine.ARRAY, 0)
"""Where one of the tiles of a set gives way to the next one."""


class TileSet:
    """Tiles of some images whose inputs come chunk by chunk.

    Parameters
    ----------
    take : callable
        Takes so many words of the next half of the partial sums, from an address on.
    words : :class:`int`
        Of each partial-sum bank that a tile takes.
    size : :class:`int`
        Tiles.
    chunks : list of (first, last)
        Steps whose inputs come together, in order.
    there : dict
        Addresses of the inputs of steps that are on chip: those of the latest chunk, or of all that were taken as they were made.

    Attributes
    ----------
    begun : :class:`bool`
        The first command has been emitted.
    ahead : dict
        Addresses of the inputs of the next chunk, if they have been loaded already.
    """

    def __init__(
        self,
        take: Callable[[int, int], PlannedSums],
        words: int,
        size: int,
        chunks: list[Range],
        there: dict[int, Address],
    ) -> None:
        self.size, self.chunks, self.there = size, chunks, there
        self.begun, self.ahead = False, dict[int, Address]()
        self._take, self._words, self._tiles = take, words, 0

    def place(self) -> PlannedSums:
        """Where the sums of the next tile go."""
        base = self._tiles // HALVES * self._words
        self._tiles += 1
        return self._take(self._words, base)


def runs_of(places: Mapping[int, Address], chunk: Range, step: int) -> list[tuple[Range, int]]:
    """Steps of a chunk whose inputs, of ``step`` addresses each at ``places``, lie behind each other, and the first address."""
    found = list[tuple[Range, int]]()
    for number in range(*chunk):
        place = int(places[number])
        if found and place == found[-1][1] + (number - found[-1][0][0]) * step:
            found[-1] = (found[-1][0][0], number + 1), found[-1][1]
        else:
            found.append(((number, number + 1), place))
    return found


def in_turn(works: list[Work]) -> Work:
    """Works side by side, each up to its next turn."""
    while works:
        for work in list(works):
            for piece in work:
                if piece is TURN:
                    break
                yield piece
            else:
                works.remove(work)
                yield Piece(BoundEngine.ARRAY, 0, inside=True, silent=True)

