"""What a run of the fuzzer keeps: a line for every block of cases, from which it goes on and from which the page is made."""

import collections
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradloom.host.files import UserError

__all__ = ["BLOCK", "CONFIGS", "Block", "Result", "Store", "in_order"]

BLOCK = 50
"""Cases on one machine, which is fresh from reset for the first of them."""
CONFIGS = ("nano", "small", "channels")
_TURNS = ("nano", "small", "nano", "small", "nano", "channels")
"""Whose block comes next, over and over: the order in which a whole run is counted."""


@dataclasses.dataclass(frozen=True)
class Result:
    """Of one case: class, what was disturbed, how it ended (:attr:`gradloom.verif.fuzzing.outcomes.Outcome.name`).

    Parameters
    ----------
    reported : :class:`str`
        ``ENGINE code``, also where the host had to stop the machine; empty at a good end.
    heeded : :class:`int`
        Cycles from an abort to the end; 0 without one.
    usual : :class:`bool`
        The memory had neither stalls nor a bandwidth.
    """

    kind: str
    target: str
    ended: str
    reported: str
    cycles: int
    heeded: int
    usual: bool


@dataclasses.dataclass(frozen=True)
class Block:
    """The results of :data:`BLOCK` cases from number ``first`` on.

    Parameters
    ----------
    seed, revision : :class:`int`, :class:`str`
        Of the cases; of the sources.
    seconds : :class:`float`
        Processor time.
    problems : tuple of (number, sentence)
    """

    seed: int
    revision: str
    config: str
    first: int
    seconds: float
    results: tuple[Result, ...]
    problems: tuple[tuple[int, str], ...]


class Store:
    """Blocks of one machine and one seed in a file, a line each, only ever appended to.

    Parameters
    ----------
    folder : :class:`~pathlib.Path`

    Raises
    ------
    :exc:`UserError`
        If a line in the midst of the file is no block.
    """

    def __init__(self, folder: Path, config: str, seed: int) -> None:
        self.path = folder / f"{config}-{seed}.jsonl"
        self.blocks = list(self._read())

    def _read(self) -> Iterator[Block]:
        if not self.path.exists():
            return
        lines = self.path.read_text().split("\n")
        for number, line in enumerate(lines[:-1]):
            try:
                found = json.loads(line)
                yield Block(**found | {"results": tuple(Result(*result) for result in found["results"]),
                                       "problems": tuple((n, text) for n, text in found["problems"])})
            except (ValueError, TypeError, KeyError) as error:
                raise UserError(f"{self.path}, line {number + 1} is no block of results ({error}): "
                                f"delete the file to begin anew") from None
        if lines[-1]:
            # An interrupted write: the block is run again.
            os.truncate(self.path, len("\n".join(lines[:-1]).encode()) + (len(lines) > 1))

    @property
    def cases(self) -> int:
        return sum(len(block.results) for block in self.blocks)

    def append(self, block: Block) -> None:
        """Keep a block; a reader sees all of it or nothing."""
        self.blocks.append(block)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = dataclasses.asdict(block) | {"results": [dataclasses.astuple(result) for result in block.results]}
        with self.path.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())


def in_order(cases: int, configs: Sequence[str] = CONFIGS) -> list[tuple[str, int]]:
    """(machine, first case) of every block of a run over so many cases of these machines together."""
    wanted, begun, found = set(configs), collections.Counter[str](), list[tuple[str, int]]()
    for config in itertools.cycle(_TURNS):
        if len(found) * BLOCK >= cases:
            return found
        if config in wanted:
            found.append((config, begun[config]))
            begun[config] += BLOCK
    raise AssertionError("a cycle has no end")
