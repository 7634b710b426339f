"""The words of an A-Core's commands where its queue keeps them (:class:`gradloom.rtl.sequencer.tails.Tails`)."""

import random
from collections.abc import Sequence

from gradloom.contracts.isa import MAX_WORDS, pairs
from gradloom.rtl.command import HEAD_WORDS, TAIL_SLOTS

__all__ = ["TailMemory", "head"]

_PAIRS = 1 << (pairs(MAX_WORDS) - 1).bit_length()
_GARBAGE = random.Random(41)


def head(words: Sequence[int]) -> int:
    """What an engine sees of a command at once."""
    return sum(word << 32 * i for i, word in enumerate(words[:HEAD_WORDS]))


class TailMemory:
    """Slots by turns, each full of garbage but for the words of its command."""

    def __init__(self) -> None:
        self.slot = TAIL_SLOTS - 1
        self.memory = [_GARBAGE.getrandbits(64) for _ in range(_PAIRS * TAIL_SLOTS)]

    def put(self, words: Sequence[int]) -> int:
        """Collects a command; its slot."""
        self.slot = (self.slot + 1) % TAIL_SLOTS
        for pair in range(_PAIRS):
            both = [*words[2 * pair:2 * pair + 2], *(_GARBAGE.getrandbits(32) for _ in range(2))]
            self.memory[self.slot * _PAIRS + pair] = both[0] | both[1] << 32
        return self.slot

    def read(self, at: int) -> int:
        """The pair of words at a place, due in the next cycle."""
        return self.memory[at]
