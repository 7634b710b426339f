"""The classes of cases and how often each comes."""

from collections.abc import Sequence

from gradloom.verif.fuzzing import programs, surroundings
from gradloom.verif.fuzzing.cases import Draw, Maker, Trouble
from gradloom.verif.fuzzing.directed import directed
from gradloom.verif.fuzzing.scenes import Scene

__all__ = ["CLASSES", "make_trouble"]

CLASSES: dict[str, tuple[int, Maker]] = {
    "field": (30, programs.field),
    "flips": (12, programs.flips),
    "header": (3, programs.header),
    "encoding": (5, programs.encoding),
    "semaphores": (7, programs.semaphores),
    "order": (6, programs.order),
    "commands": (6, programs.random_commands),
    "words": (2, programs.random_words),
    "data": (5, surroundings.data),
    "bus": (8, surroundings.bus),
    "abort": (6, surroundings.abort),
    "window": (5, surroundings.window),
    "registers": (4, surroundings.registers),
    "watchdog": (2, surroundings.watchdog),
    "start": (3, surroundings.start),
    "memory": (2, surroundings.memory),
    "directed": (5, directed),
}
"""By name: how many of a hundred cases (about), and what makes one."""


def make_trouble(seed: int, config: str, number: int, scenes: Sequence[Scene], cycles: Sequence[int]) -> Trouble:
    """Case ``number`` of a machine.

    Parameters
    ----------
    scenes, cycles : sequences
        The machine's scenes and the cycles of a good run of each; both follow from the machine.
    """
    draw = Draw(seed, config, number, scenes, cycles)
    names = list(CLASSES)
    name = draw.rng.choices(names, weights=[CLASSES[one][0] for one in names])[0]
    return CLASSES[name][1](draw)
