"""From instructions to the bytes of a program and back, by the tables of :mod:`gradloom.contracts.isa` alone."""

import dataclasses
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, unit_of
from gradloom.contracts.isa import (
    COMMANDS,
    HEADER_FIELDS,
    HEADER_WORDS,
    MAX_WORDS,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SHIFT_FIELDS,
    Command,
    Engine,
    Field,
    Opcode,
    pairs,
)
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.matrix_isa import ENCODINGS, MatrixOpcode

__all__ = [
    "HEADER_BYTES",
    "AssemblyError",
    "Instruction",
    "Shift",
    "assemble",
    "decode",
    "encode",
    "offsets",
    "split_program",
]

HEADER_BYTES = 16
"""Magic, version, bytes of the commands, configuration digest."""


class AssemblyError(ValueError):
    """An instruction that cannot be encoded, or words that are none; the message names the field."""


@dataclasses.dataclass(frozen=True)
class Shift:
    """One word of a shift list: SH[dst] = (first ? 0 : SH[dst]) + const +- e[tid]."""

    dst: int = 0
    tid: int = 0
    const: int = 0
    neg: int = 0
    first: int = 0


@dataclasses.dataclass
class Instruction:
    """One command; fields that are not named are 0.

    Parameters
    ----------
    opcode : :class:`~gradloom.contracts.isa.Opcode`
        In a matrix machine's program also a :class:`~gradloom.contracts.matrix_isa.MatrixOpcode`, which no other program has.
    fields : dict of int
        By the names of ``ENCODINGS[opcode].fields``.
    tail : tuple
        Words (UCODE) or :class:`Shift` entries (EXPSET, RUN).
    tag : :class:`int`
        8 * layer + phase.
    wait, signal : :class:`int`
        Semaphore masks.
    """

    opcode: Opcode
    fields: dict[str, int] = dataclasses.field(default_factory=dict)
    tail: tuple = ()
    tag: int = 0
    wait: int = 0
    signal: int = 0

    @property
    def engine(self) -> Engine:
        """Kind of the engine that executes the command."""
        return Engine(self.opcode >> 4)

    def unit(self, config: Config) -> Unit:
        """The engine of a machine that executes the command."""
        return unit_of(config, self.opcode, self["src" if self.opcode == Opcode.STORE else "dest"], self["way"])

    @property
    def tensors(self) -> set[int]:
        """Tensors whose exponents a command of the A-Core uses, or whose statistics it gathers."""
        return {self["t1"], self["t2"], *(entry.tid for entry in self.tail if isinstance(entry, Shift))} - {0}

    @property
    def length(self) -> int:
        """Words."""
        return ENCODINGS[self.opcode].words + len(self.tail)

    @property
    def size(self) -> int:
        """Words that it takes in a program, where the next command begins at an even one."""
        return 2 * pairs(self.length)

    @property
    def queued(self) -> int:
        """Words that it takes in its engine's queue, behind its offset."""
        return self.size + 2

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)


class _Place(NamedTuple):
    """Where a field lies, and what it may hold; a schedule inserts and extracts a million of them."""

    name: str
    word: int
    lsb: int
    mask: int
    low: int
    high: int


def _places(fields: Iterable[Field]) -> list[_Place]:
    found = []
    for field in fields:
        mask = (1 << field.width) - 1
        low, high = (-(1 << field.width - 1), (1 << field.width - 1) - 1) if field.signed else (0, mask)
        found.append(_Place(field.name, field.word, field.lsb, mask, low, high))
    return found


_HEADER, _SHIFT = _places(HEADER_FIELDS), _places(SHIFT_FIELDS)
_FIELDS = {opcode: {place.name: place for place in _places(command.fields)} for opcode, command in ENCODINGS.items()}
_OPCODES = {int(opcode): cast(Opcode, opcode) for opcode in (*Opcode, *MatrixOpcode)}


def _insert(words: list[int], place: _Place, value: int, where: str) -> None:
    name, word, lsb, mask, low, high = place
    if type(value) is int and low <= value <= high:
        words[word] |= (value & mask) << lsb
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise AssemblyError(f"{where}: {name} must be an integer, not {value!r}")
    if not low <= value <= high:
        raise AssemblyError(f"{where}: {name} must lie in {low}..{high}, not {value}")
    words[word] |= (value & mask) << lsb


def _extract(words: Sequence[int], places: Iterable[_Place]) -> dict[str, int]:
    found = {}
    for name, word, lsb, mask, _, high in places:
        value = words[word] >> lsb & mask
        found[name] = value if value <= high else value - mask - 1
    return found


def encode(instruction: Instruction) -> list[int]:
    """Words of one instruction.

    Raises
    ------
    :exc:`AssemblyError`
        If a field is unknown or out of range, or the command too long.
    """
    command = ENCODINGS[instruction.opcode]
    where = instruction.opcode.name
    words = [0] * command.words
    if instruction.tail and command.tail is None:
        raise AssemblyError(f"{where}: this command has no tail, it was given {len(instruction.tail)} words")
    if instruction.length > MAX_WORDS:
        raise AssemblyError(f"{where}: {instruction.length} words are more than {MAX_WORDS}")
    header = {
        "opcode": int(instruction.opcode),
        "length": instruction.length,
        "tag": instruction.tag,
        "wait": instruction.wait,
        "signal": instruction.signal,
    }
    for place in _HEADER:
        _insert(words, place, header[place.name], where)
    known = _FIELDS[instruction.opcode]
    for name, value in instruction.fields.items():
        if name not in known:
            raise AssemblyError(
                f"{where}: there is no field {name!r}; the fields are {', '.join(known) or 'none'}"
            )
        _insert(words, known[name], value, where)
    for position, entry in enumerate(instruction.tail):
        if command.tail == "shift":
            word = [0]
            for place in _SHIFT:
                _insert(word, place, getattr(entry, place.name), f"{where}, shift {position}")
            words.append(word[0])
        else:
            if not 0 <= entry < 1 << 32:
                raise AssemblyError(f"{where}: word {position} must lie in 0..2^32-1, not {entry}")
            words.append(entry)
    return words


def decode(words: Sequence[int], commands: Mapping[Any, Command] = COMMANDS) -> Instruction:
    """The instruction of a machine with these commands that starts at ``words[0]``; further words are ignored.

    Raises
    ------
    :exc:`AssemblyError`
        If opcode or length are wrong or words are missing.
    """
    if len(words) < HEADER_WORDS:
        raise AssemblyError(f"a command has at least {HEADER_WORDS} words")
    header = _extract(words, _HEADER)
    opcode = _OPCODES.get(header["opcode"])
    if opcode is None or opcode not in commands:
        raise AssemblyError(f"unknown opcode 0x{header['opcode']:02x}")
    command, length = ENCODINGS[opcode], header["length"]
    if length > MAX_WORDS or length < command.words or (length > command.words and command.tail is None):
        raise AssemblyError(
            f"{opcode.name}: a length of {length} words, it needs {command.words}"
            f"{f'..{MAX_WORDS}' if command.tail else ''}"
        )
    if length > len(words):
        raise AssemblyError(f"{opcode.name}: the program ends within the command")
    fields = _extract(words, _FIELDS[opcode].values())
    tail: tuple = tuple(words[command.words : length])
    if command.tail == "shift":
        tail = tuple(Shift(**_extract([word], _SHIFT)) for word in tail)
    return Instruction(opcode, fields, tail, header["tag"], header["wait"], header["signal"])


def offsets(instructions: Iterable[Instruction]) -> list[int]:
    """Byte offset of every instruction from the first one."""
    found, place = [], 0
    for instruction in instructions:
        found.append(place)
        place += 4 * instruction.size
    return found


def assemble(
    instructions: Sequence[Instruction], config: Config | MatrixConfig, *, labels: Mapping[int, int] | None = None
) -> bytes:
    """Header and commands.

    Parameters
    ----------
    labels : mapping, optional
        For LOOP instructions, by their position: position of the instruction that their ``target`` shall be.
    """
    places = offsets(instructions)
    words: list[int] = []
    for position, instruction in enumerate(instructions):
        if labels and position in labels:
            target = {**instruction.fields, "target": places[labels[position]]}
            instruction = dataclasses.replace(instruction, fields=target)
        words += encode(instruction) + [0] * (instruction.size - instruction.length)
    header = (PROGRAM_MAGIC, PROGRAM_VERSION, 4 * len(words), config.digest())
    return struct.pack(f"<{4 + len(words)}I", *header, *words)


def split_program(data: bytes, commands: Mapping[Any, Command] = COMMANDS) -> tuple[tuple[int, int, int, int], list[Instruction]]:
    """Header words (magic, version, bytes, digest) and instructions of a program.

    Raises
    ------
    :exc:`AssemblyError`
        If the program is truncated or holds something that is no command; the message gives the byte offset.
    """
    if len(data) < HEADER_BYTES:
        raise AssemblyError(f"a program has at least {HEADER_BYTES} bytes, this one {len(data)}")
    header = struct.unpack_from("<4I", data)
    size = header[2]
    if size % 8 or HEADER_BYTES + size > len(data):
        raise AssemblyError(
            f"the header promises {size} bytes of commands, there are {len(data) - HEADER_BYTES}"
        )
    words = struct.unpack_from(f"<{size // 4}I", data, HEADER_BYTES)
    instructions, place = [], 0
    while place < len(words):
        try:
            instruction = decode(words[place : place + MAX_WORDS], commands)
        except AssemblyError as error:
            raise AssemblyError(f"byte {4 * place}: {error}") from None
        instructions.append(instruction)
        place += instruction.size
    return header, instructions
