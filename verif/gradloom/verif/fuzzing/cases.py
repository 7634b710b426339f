"""What is done to a run: a pure function of seed, machine and number."""

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

from gradloom.contracts.regmap import ErrorCode
from gradloom.host.program.assembler import Instruction, offsets
from gradloom.sim.rtl_device import DramModel
from gradloom.verif.fuzzing.outcomes import PROGRAM
from gradloom.verif.fuzzing.scenes import Scene

__all__ = ["Draw", "Event", "Trouble", "edges"]


@dataclasses.dataclass(frozen=True)
class Event:
    """An access of the host while a program runs.

    Parameters
    ----------
    cycle : :class:`int`
        Cycles behind the start.
    offset, value : :class:`int`
        Register, and what is written to it; :class:`None`: it is read.
    refused, idle_only : :class:`bool`
        An access that is never legal, resp. only while the machine is idle.
    aborts : :class:`bool`
        The access ends the program.
    starts : :class:`bool`
        If the program has ended before, the access starts it anew.
    """

    cycle: int
    offset: int
    value: int | None
    refused: bool = False
    idle_only: bool = False
    aborts: bool = False
    starts: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trouble:
    """A case: one disturbed run of a scene, and which good one follows.

    Parameters
    ----------
    kind, target : :class:`str`
        Class of the case, and what was disturbed, in a word.
    text : :class:`str`
        The same in a sentence.
    program : :class:`bytes`
        In the place of the scene's.
    instructions : sequence of :class:`~gradloom.host.program.assembler.Instruction`, optional
        What the program executes, where it still is a sequence of commands.
    codes : set of :class:`~gradloom.contracts.regmap.ErrorCode`
        What may come of it.
    altered : :class:`bool`
        Program, data or registers are not those of the scene, so a good end may leave other bytes.
    most : :class:`int`
        Cycles after which the host stops it.
    clear : :class:`bool`
        Every counter is cleared before the program begins.
    good : :class:`int`
        Number of the scene that follows.
    """

    scene: int
    good: int
    kind: str
    target: str
    text: str
    program: bytes
    most: int
    instructions: Sequence[Instruction] | None = None
    codes: frozenset[ErrorCode] = PROGRAM | {ErrorCode.NONE}
    altered: bool = True
    clear: bool = False
    writes: tuple[tuple[int, bytes], ...] = ()
    registers: dict[str, int] = dataclasses.field(default_factory=dict)
    exponents: dict[int, int] = dataclasses.field(default_factory=dict)
    faults: tuple[tuple[int, int, bool], ...] = ()
    events: tuple[Event, ...] = ()
    dram: DramModel = dataclasses.field(default_factory=DramModel)
    good_dram: DramModel = dataclasses.field(default_factory=DramModel)

    @functools.cached_property
    def offsets(self) -> dict[int, int]:
        """Number of a command by its byte offset."""
        return {place: n for n, place in enumerate(offsets(self.instructions or ()))}

    @property
    def acknowledges(self) -> bool:
        """The host writes STATUS, so the interrupt may be gone at the end."""
        return any(event.offset == _STATUS and event.value is not None for event in self.events)


def edges(width: int, present: int, extra: Sequence[int] = ()) -> list[int]:
    """Values of ``width`` bits at which something may tip over, in order.

    The ends, those of signed numbers, every power of two, the neighbours of the present value, and ``extra``; not that value.
    """
    most = (1 << width) - 1
    found = {0, 1, most, most - 1, most >> 1, (most >> 1) + 1, present - 1, present + 1, *extra, *(1 << k for k in range(width))}
    return sorted({value & most for value in found} - {present & most})


class Draw:
    """Chance of one case, and what the makers of cases share.

    Parameters
    ----------
    scenes, cycles : sequences
        The machine's scenes and the cycles of a good run of each.
    """

    def __init__(self, seed: int, config: str, number: int, scenes: Sequence[Scene], cycles: Sequence[int]) -> None:
        self.rng = random.Random(f"gradloom {seed} {config} {number}")
        self.number = self.rng.choices(range(len(scenes)), weights=SCENE_WEIGHTS)[0]
        self.scene, self.cycles = scenes[self.number], cycles[self.number]
        self.good = 0 if self.rng.random() < 0.9 else self.number

    def dram(self, share: float) -> DramModel:
        """A memory with stalls, latencies and a bandwidth of chance, in so many of the cases."""
        rng = self.rng
        if rng.random() >= share:
            return DramModel()
        beat = self.scene.config.beat_bytes
        stall: Any = rng.choice((0.0, 0.1, 0.4))
        if rng.random() < 0.3:
            stall = {channel: rng.choice((0.0, 0.2, 0.5)) for channel in ("ar", "r", "aw", "w", "b")}
        return DramModel(
            latency=rng.choice((0, 1, 7, 20, 60)), write_latency=rng.choice((0, 1, 10, 60)), stall=stall,
            bandwidth=rng.choice((None, None, beat, 2 * beat)), seed=rng.getrandbits(31) + 1)

    def trouble(self, kind: str, target: str, text: str, **fields: Any) -> Trouble:
        """A case with the scene's own program, a usual memory and a usual time, but for what ``fields`` say."""
        dram = fields.pop("dram", None) or self.dram(0.2)
        slow = 1 if dram == DramModel() else 4
        base: dict[str, Any] = {
            "scene": self.number, "good": self.good, "kind": kind, "target": target, "text": text, "dram": dram,
            "program": self.scene.program, "instructions": self.scene.instructions,
            "most": slow * (self.cycles * 3 // 2 + 2500)}
        return Trouble(**(base | fields))


SCENE_WEIGHTS = (6, 3, 2)
Maker = Callable[[Draw], Trouble]
_STATUS = 0x084
