"""Programs as text, one command a line, and back without loss.

``CONV tag=9 wait=0x00000002 signal=0x00000010 pattern=1 steps=3``: fields that are 0 are left out. A shift list
follows as ``SH0=+20+e18-e3``-like entries ``[dst,first,neg,tid,const]``, microinstructions as hexadecimal
words.
"""

from collections.abc import Iterable

from gradloom.contracts.isa import COMMANDS, Opcode
from gradloom.host.program.assembler import AssemblyError, Instruction, Shift, offsets

__all__ = ["disassemble", "parse"]


def _line(instruction: Instruction) -> str:
    parts = [instruction.opcode.name]
    if instruction.tag:
        parts.append(f"tag={instruction.tag}")
    for name in ("wait", "signal"):
        if getattr(instruction, name):
            parts.append(f"{name}=0x{getattr(instruction, name):08x}")
    for field in COMMANDS[instruction.opcode].fields:
        value = instruction[field.name]
        if value:
            parts.append(f"{field.name}={value if field.width < 24 or field.signed else hex(value)}")
    for entry in instruction.tail:
        if isinstance(entry, Shift):
            parts.append(f"[{entry.dst},{entry.first},{entry.neg},{entry.tid},{entry.const}]")
        else:
            parts.append(f"0x{entry:08x}")
    return " ".join(parts)


def disassemble(instructions: Iterable[Instruction], *, addresses: bool = False) -> str:
    """Text of a program; with ``addresses`` every line starts with the command's byte offset and a colon."""
    instructions = list(instructions)
    lines = [_line(instruction) for instruction in instructions]
    if addresses:
        lines = [f"{place:6d}: {line}" for place, line in zip(offsets(instructions), lines, strict=True)]
    return "\n".join(lines) + "\n"


def _number(text: str, where: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise AssemblyError(f"{where}: {text!r} is no number") from None


def _instruction(line: str, where: str) -> Instruction:
    name, *parts = line.split()
    if name not in Opcode.__members__:
        raise AssemblyError(f"{where}: there is no command {name!r}")
    opcode = Opcode[name]
    known = {field.name for field in COMMANDS[opcode].fields} | {"tag", "wait", "signal"}
    values: dict[str, int] = {}
    tail: list = []
    for part in parts:
        if part.startswith("["):
            numbers = [_number(text, where) for text in part.strip("[]").split(",")]
            if len(numbers) != 5:
                raise AssemblyError(f"{where}: a shift is [dst,first,neg,tid,const], not {part}")
            dst, first, neg, tid, const = numbers
            tail.append(Shift(dst, tid, const, neg, first))
        elif "=" in part:
            key, value = part.split("=", 1)
            if key not in known:
                raise AssemblyError(f"{where}: {name} has no field {key!r}")
            values[key] = _number(value, where)
        else:
            tail.append(_number(part, where))
    header = {key: values.pop(key, 0) for key in ("tag", "wait", "signal")}
    fields = {field.name: values.get(field.name, 0) for field in COMMANDS[opcode].fields}
    return Instruction(opcode, fields, tuple(tail), **header)


def parse(text: str) -> list[Instruction]:
    """Inverse of :func:`disassemble`. Empty lines, text after ``#`` and leading ``OFFSET:`` are ignored.

    Raises
    ------
    :exc:`AssemblyError`
        With the line's number.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        head, colon, rest = line.partition(":")
        if colon and head.strip().isdigit():
            line = rest.strip()
        if line:
            found.append(_instruction(line, f"line {number}"))
    return found
