"""Semaphores of a program: who signals, who waits, whether it can deadlock, what is left at the end."""

from collections.abc import Iterator, Sequence

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.isa import SEMAPHORES, Opcode
from gradloom.host.program.assembler import Instruction

__all__ = ["MAXIMUM", "check_tokens", "waits_in_queue"]

MAXIMUM = 255
"""Largest value of a semaphore."""
_SHORTEST = min(Instruction(opcode).queued for opcode in (Opcode.LOAD, Opcode.STORE))
"""Words that the shortest command that can wait takes in an engine's queue (LOAD, STORE)."""


def waits_in_queue(queue_words: int) -> int:
    """Most commands of one engine that the Sequencer has handed out and that have not yet started."""
    return queue_words // _SHORTEST + 1


def _bits(mask: int) -> Iterator[int]:
    return (i for i in range(SEMAPHORES) if mask >> i & 1)


def check_tokens(instructions: Sequence[Instruction], config: Config) -> list[tuple[int, str]]:
    """(number of an instruction or -1, sentence) for every defect.

    A semaphore must have one signalling and one waiting engine: then the order of execution cannot change
    which wait takes which signal, and one simulation decides for all: if it ends, every order ends.
    """
    owners = [instruction.unit(config) for instruction in instructions]
    defects = list(_owners(instructions, owners))
    if defects:
        return defects
    return [*_simulate(instructions, owners, config), *_bounds(instructions, config.queue_words)]


def _owners(instructions: Sequence[Instruction], units_of: Sequence[Unit]) -> Iterator[tuple[int, str]]:
    for field, verb in (("signal", "signalled by"), ("wait", "waited for by")):
        owners: dict[int, Unit] = {}
        for number, (instruction, unit) in enumerate(zip(instructions, units_of, strict=True)):
            for i in _bits(getattr(instruction, field)):
                owner = owners.setdefault(i, unit)
                if owner != unit:
                    yield number, f"semaphore {i} is {verb} {owner.name} and by {unit.name}: it must be one engine"


def _simulate(
    instructions: Sequence[Instruction], units_of: Sequence[Unit], config: Config
) -> Iterator[tuple[int, str]]:
    """Run once: commands go to queues of the machine's length, engines take them when semaphores allow."""
    value = [0] * SEMAPHORES
    queues: dict[Unit, list[int]] = {unit: [] for unit in units(config)}
    words = dict.fromkeys(queues, 0)

    def ready(number: int) -> bool:
        return all(value[i] for i in _bits(instructions[number].wait))

    def missing(number: int) -> str:
        return ", ".join(str(i) for i in _bits(instructions[number].wait) if not value[i])

    def execute(number: int) -> None:
        for i in _bits(instructions[number].wait):
            value[i] -= 1
        for i in _bits(instructions[number].signal):
            value[i] += 1

    def advance() -> bool:
        moved = False
        for unit, queue in queues.items():
            while queue and ready(queue[0]):
                number = queue.pop(0)
                words[unit] -= instructions[number].queued
                execute(number)
                moved = True
        return moved

    def stuck(number: int) -> tuple[int, str]:
        heads = [
            f"{unit.name} waits for semaphore {missing(queue[0])}"
            for unit, queue in queues.items()
            if queue
        ]
        return number, f"deadlock: {'; '.join(heads) or 'nothing can go on'}"

    for number, (instruction, unit) in enumerate(zip(instructions, units_of, strict=True)):
        if unit != Unit.SEQ:
            while words[unit] + instruction.queued > config.queue_words:
                if not advance():
                    yield stuck(number)
                    return
            queues[unit].append(number)
            words[unit] += instruction.queued
            continue
        if instruction.opcode in (Opcode.BARRIER, Opcode.END, Opcode.LOOP):
            while any(queues.values()):
                if not advance():
                    yield stuck(number)
                    return
        if instruction.opcode in (Opcode.LOOP, Opcode.END):
            for i, left in enumerate(value):
                if left:
                    yield number, f"semaphore {i} is {left} at {instruction.opcode.name}, it must be 0"
            if any(value):
                return
        while not ready(number):
            if not advance():
                yield (
                    number,
                    f"deadlock: the Sequencer waits for semaphore {missing(number)}",
                )
                return
        execute(number)


def _bounds(instructions: Sequence[Instruction], queue_words: int) -> Iterator[tuple[int, str]]:
    """No order of execution lets a semaphore pass its largest value.

    When a signal's command runs, all waits before it in the program have been given to their engine; at most
    as many of them as its queue holds, and one in its register, have not yet started.
    """
    waiting = waits_in_queue(queue_words)
    for i in range(SEMAPHORES):
        signals = waits = 0
        for number, instruction in enumerate(instructions):
            waits += instruction.wait >> i & 1
            signals += instruction.signal >> i & 1
            if instruction.signal >> i & 1 and signals - max(0, waits - waiting) > MAXIMUM:
                yield (
                    number,
                    f"semaphore {i} may reach {signals - max(0, waits - waiting)}, more than {MAXIMUM}",
                )
                break
