"""Addresses of a program: those on chip leave no memory, those in DRAM no window."""

from collections.abc import Iterator, Sequence

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode
from gradloom.host.program.assembler import Instruction

__all__ = ["check_dram", "within"]


def within(what: str, first: int, count: int, size: int) -> Iterator[str]:
    """A sentence about ``count`` addresses from ``first`` on, unless all are among the ``size`` of their memory.

    ``what`` names them, in the plural.
    """
    if first < 0 or first + count > size:
        yield f"{what} {first}..{first + count - 1} leave its {size} addresses"


def check_dram(
    instructions: Sequence[Instruction],
    places: Sequence[int],
    config: Config,
    window: tuple[int, int],
    steps: int,
    first_step: int,
) -> Iterator[tuple[int, str]]:
    """Addresses of the first and of the last pass through the loop, of which steps before may be no part.

    Gives the byte offset of a command and a sentence for every defect.

    Parameters
    ----------
    places : byte offsets of the instructions from the first one
    window : (first, first behind) byte addresses that the machine may touch
    steps, first_step : how often the body of the LOOP runs, and the number of the first step
    """
    loops = [i for i, entry in enumerate(instructions) if entry.opcode == Opcode.LOOP]
    bodies = [range(places.index(instructions[i]["target"]), i) for i in loops if instructions[i]["target"] in places]
    body = next((found for found in bodies if found), range(0, 0))
    before = sum(i < body.start for i in loops)
    step = [
        sum(
            instructions[i]["value"]
            for i in body
            if instructions[i].opcode == Opcode.ADDBASE and instructions[i]["breg"] == breg
        )
        for breg in range(8)
    ]
    bases: list[int | None] = [None] * 8
    for number, (place, instruction) in enumerate(zip(places, instructions, strict=True)):
        breg = instruction["breg"]
        base = bases[breg]
        if instruction.opcode == Opcode.SETBASE:
            bases[breg] = instruction["value"]
        elif instruction.opcode == Opcode.ADDBASE and base is not None:
            bases[breg] = base + instruction["value"] & 0xFFFFFFFF
        elif instruction.opcode in (Opcode.LOAD, Opcode.STORE, Opcode.LDHYP):
            if base is None:
                yield place, f"{instruction.opcode.name}: base register {breg} has not been set"
                continue
            if instruction.opcode == Opcode.LDHYP and (base + instruction["offset"]) % 8:
                yield place, f"LDHYP: the table at {base + instruction['offset']:#x} must begin at a multiple of 8 bytes"
            first = first_step + before * (number in body)
            for turn in {0, max(0, steps - 1 - before)} if number in body else {0}:
                low, high = _extent(instruction, config, base + turn * step[breg], first + turn)
                if low < window[0] or high > window[1]:
                    yield (
                        place,
                        (
                            f"{instruction.opcode.name}: bytes {low:#x}..{high - 1:#x} of step {first + turn - first_step} "
                            f"lie outside the window {window[0]:#x}..{window[1] - 1:#x}"
                        ),
                    )


def _extent(instruction: Instruction, config: Config, base: int, step: int) -> tuple[int, int]:
    """First byte and first byte behind all that a command touches."""
    start = base + instruction["offset"]
    if instruction.opcode == Opcode.LDHYP:
        start = start + 16 * step & 0xFFFFFFFF
        return start, start + 16
    start &= 0xFFFFFFFF
    moves = [
        (instruction[n] - 1) * instruction[stride] for n, stride in (("n1", "stride1"), ("n2", "stride2"))
    ]
    return (
        start + sum(min(0, move) for move in moves),
        start + sum(max(0, move) for move in moves) + instruction["n0"] * config.beat_bytes,
    )
