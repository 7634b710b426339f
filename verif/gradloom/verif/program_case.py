"""Small programs for tests of the Sequencer and of the whole machine, encoded straight from the encoding's tables."""

import random
import struct
from collections.abc import Iterable

from gradloom.contracts.config import Config
from gradloom.contracts.isa import (
    COMMANDS,
    HEADER_FIELDS,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SHIFT_FIELDS,
    Field,
    Opcode,
    pairs,
)
from gradloom.rtl.command import HEAD_BITS

__all__ = ["ANY_COMMAND", "command", "next_exponent", "program", "shift", "size", "tensor_seed"]

ANY_COMMAND = random.Random(1).getrandbits(HEAD_BITS)
"""What an engine that is free, and whose command has not just been started, may find in its queue's ``cmd``: anything."""


def _put(words: list[int], field: Field, value: int) -> None:
    low, high = (-(1 << field.width - 1), 1 << field.width - 1) if field.signed else (0, 1 << field.width)
    assert low <= value < high, f"{field.name} = {value} does not fit {field.width} bits"
    words[field.word] |= (value & ((1 << field.width) - 1)) << field.lsb


def command(opcode: Opcode, *, tail: Iterable[int] = (), wait: int = 0, signal: int = 0, tag: int = 0,
            **fields: int) -> list[int]:
    """Words of one command; fields that are not given are 0."""
    entry = COMMANDS[opcode]
    words = [0] * entry.words + list(tail)
    header = {"opcode": int(opcode), "length": len(words), "tag": tag, "wait": wait, "signal": signal}
    for field in HEADER_FIELDS:
        _put(words, field, header[field.name])
    for field in entry.fields:
        _put(words, field, fields.pop(field.name, 0))
    assert not fields, f"{opcode.name} has no fields {sorted(fields)}"
    return words


def size(words: list[int]) -> int:
    """Bytes that a command takes in a program."""
    return 8 * pairs(len(words))


def shift(**fields: int) -> int:
    """One word of a shift list."""
    words = [0]
    for field in SHIFT_FIELDS:
        _put(words, field, fields.pop(field.name, 0))
    assert not fields
    return words[0]


def program(config: Config, *commands: list[int]) -> bytes:
    """Header and commands, each from an even word on."""
    body = [word for words in commands for word in (*words, 0)[:size(words) // 4]]
    header = [PROGRAM_MAGIC, PROGRAM_VERSION, 4 * len(body), config.digest()]
    return struct.pack(f"<{len(header) + len(body)}I", *header, *body)


def _mix(h: int) -> int:
    h ^= h >> 16
    h = h * 0x85EBCA6B % 2**32
    h ^= h >> 13
    h = h * 0xC2B2AE35 % 2**32
    return h ^ h >> 16


def tensor_seed(run_seed: int, step: int, tid: int) -> int:
    """Seed of a tensor in a step."""
    return _mix((_mix((run_seed + step) % 2**32) + 0x9E3779B1 * tid) % 2**32)


def next_exponent(exponent: int, stat: int, f: int) -> int:
    """Rule of SCALE."""
    moved = exponent - 4 if stat == 0 else exponent + stat.bit_length() - (f + 1) - 12
    return min(max(moved, -64), 127)
