"""From the blocks of a run to what is published: ``docs/results/fuzz.json``."""

import collections
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradloom.verif.fuzzing.record import CONFIGS, Block, Result, Store, in_order

__all__ = ["counts_of", "read_blocks"]


def read_blocks(work: Path, seed: int) -> list[Block]:
    """Every block of a folder, in the order of a whole run."""
    found = {(block.config, block.first): block for config in CONFIGS for block in Store(work, config, seed).blocks}
    most = max((block.first + len(block.results) for block in found.values()), default=0)
    return [found[key] for key in in_order(most * 6) if key in found]


def _cases(blocks: list[Block]) -> Iterator[tuple[int, str, Result]]:
    """(how many before it, machine, result) of every case."""
    place = 0
    for block in blocks:
        for result in block.results:
            yield place, block.config, result
            place += 1


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def counts_of(blocks: list[Block]) -> dict[str, Any]:
    """What is published.

    ``kinds``: (machine, how it ended), with the number of cases before the first one of that kind; ``kinds_by_class`` the same with
    the class. ``heeded``: the most cycles from an abort to the idle machine on a memory without stalls.
    """
    classes: dict[str, dict[str, collections.Counter[str]]] = {}
    reported: dict[str, collections.Counter[str]] = {}
    heeded: collections.Counter[str] = collections.Counter()
    cases, cycles = collections.Counter[str](), collections.Counter[str]()
    seconds: dict[str, float] = {}
    kinds: dict[tuple[str, str], int] = {}
    by_class: dict[tuple[str, str, str], int] = {}
    for number, config, result in _cases(blocks):
        cases[config] += 1
        cycles[config] += result.cycles
        classes.setdefault(result.kind, {}).setdefault(config, collections.Counter())[result.ended] += 1
        if result.reported:
            reported.setdefault(config, collections.Counter())[result.reported] += 1
        if result.usual:
            heeded[config] = max(heeded[config], result.heeded)
        kinds.setdefault((config, result.ended), number)
        by_class.setdefault((config, result.kind, result.ended), number)
    for block in blocks:
        seconds[block.config] = seconds.get(block.config, 0.0) + block.seconds
    return {
        "seed": blocks[0].seed,
        "revisions": sorted({block.revision for block in blocks}),
        "machines": {config: {"cases": cases[config], "cycles": cycles[config], "seconds": round(seconds[config], 1),
                              "heeded": heeded[config], "reported": _sorted(reported.get(config, {}))}
                     for config in CONFIGS if cases[config]},
        "classes": {name: {config: _sorted(found) for config, found in per.items()} for name, per in sorted(classes.items())},
        "kinds": [[number, *kind] for kind, number in kinds.items()],
        "kinds_by_class": [[number, *kind] for kind, number in by_class.items()],
        "problems": [[f"{block.config}-{number}", text] for block in blocks for number, text in block.problems],
    }
