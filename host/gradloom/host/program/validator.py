"""What is wrong with a program, in sentences, before it reaches a machine."""

import dataclasses
from collections.abc import Iterator, Sequence

from gradloom.contracts.config import Config
from gradloom.contracts.isa import PROGRAM_MAGIC, PROGRAM_VERSION, Opcode
from gradloom.host.program.acore_check import check_run, check_softmax
from gradloom.host.program.address_check import check_dram
from gradloom.host.program.assembler import AssemblyError, Instruction, Shift, offsets, split_program
from gradloom.host.program.conv_check import check_conv
from gradloom.host.program.move_check import check_load, check_store
from gradloom.host.program.token_check import check_tokens

__all__ = ["Defect", "validate"]


@dataclasses.dataclass(frozen=True)
class Defect:
    """One defect: byte offset of the command from the first command (-1: the header) and a sentence."""

    place: int
    text: str

    def __str__(self) -> str:
        return f"header: {self.text}" if self.place < 0 else f"byte {self.place}: {self.text}"


def validate(
    data: bytes,
    config: Config,
    *,
    window: tuple[int, int] = (0, 1 << 32),
    steps: int = 1,
    first_step: int = 0,
) -> list[Defect]:
    """Every defect of a program; an empty list for a good one.

    Parameters
    ----------
    window : (first, first behind) byte addresses that the machine may touch
    steps, first_step : how often the body of its LOOP runs, and the number of the first step
    """
    try:
        header, instructions = split_program(data)
    except AssemblyError as error:
        return [Defect(-1, str(error))]
    defects = [Defect(-1, text) for text in _header(header, config)]
    places = offsets(instructions)
    for place, instruction in zip(places, instructions, strict=True):
        defects += [
            Defect(place, f"{instruction.opcode.name}: {text}") for text in _fields(instruction, config)
        ]
    defects += [Defect(place, text) for place, text in _flow(instructions, places)]
    defects += [
        Defect(place, text) for place, text in check_dram(instructions, places, config, window, steps, first_step)
    ]
    defects += [
        Defect(places[number] if number >= 0 else -1, text)
        for number, text in check_tokens(instructions, config)
    ]
    return defects


def _header(header: tuple[int, int, int, int], config: Config) -> Iterator[str]:
    magic, version, _, digest = header
    if magic != PROGRAM_MAGIC:
        yield f"the magic is {magic:#010x}, it must be {PROGRAM_MAGIC:#010x}"
    if version != PROGRAM_VERSION:
        yield f"the version is {version}, this machine runs version {PROGRAM_VERSION}"
    if digest != config.digest():
        yield (
            f"the program is for configuration digest {digest:#010x}, "
            f"{config.name!r} has {config.digest():#010x}"
        )


def _flow(instructions: Sequence[Instruction], places: Sequence[int]) -> Iterator[tuple[int, str]]:
    if not instructions or instructions[-1].opcode != Opcode.END:
        yield (places[-1] if places else 0), "the program does not end with END"
    for place, instruction in zip(places, instructions, strict=True):
        if instruction.opcode == Opcode.LOOP:
            target = instruction["target"]
            if target not in places:
                yield place, f"LOOP goes to byte {target}, where no command begins"
            elif target > place and instructions[places.index(target) - 1].opcode != Opcode.END:
                yield place, f"LOOP goes forward to byte {target}, which must be behind an END"


def _fields(instruction: Instruction, config: Config) -> Iterator[str]:
    for name in ("tid", "target", "t1", "t2"):
        if instruction.opcode != Opcode.LOOP and instruction[name] >= config.tensors:
            yield f"tensor {instruction[name]} ({name}) is not below {config.tensors}"
    for entry in instruction.tail:
        if isinstance(entry, Shift) and entry.tid >= config.tensors:
            yield f"tensor {entry.tid} of the shift list is not below {config.tensors}"
    check = {
        Opcode.LOAD: check_load,
        Opcode.STORE: check_store,
        Opcode.CONV: check_conv,
        Opcode.RUN: check_run,
        Opcode.SOFTMAX: check_softmax,
    }.get(instruction.opcode)
    if check is not None:
        yield from check(instruction, config)
