"""Disturbed programs: fields, bits, words, semaphores, order, and commands of chance."""

import dataclasses
import random
import struct
from typing import Any

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, unit_of, units
from gradloom.contracts.isa import (
    COMMANDS,
    HEADER_FIELDS,
    MAX_WORDS,
    SEMAPHORES,
    SHIFT_FIELDS,
    Dest,
    Field,
    Opcode,
    Source,
)
from gradloom.contracts.regmap import ErrorCode
from gradloom.host.program.assembler import HEADER_BYTES, Instruction, Shift, assemble, encode
from gradloom.verif.fuzzing.cases import Draw, Trouble, edges
from gradloom.verif.fuzzing.outcomes import HEADER

__all__ = [
    "command_for",
    "encoding",
    "field",
    "flips",
    "header",
    "order",
    "random_command",
    "random_commands",
    "random_words",
    "semaphores",
]

_NONE = frozenset({ErrorCode.NONE})
_ADDRESSES = ("offset", "value", "stride1", "stride2", "target")


def _signed(field: Field, raw: int) -> int:
    return raw - (1 << field.width) if field.signed and raw >> field.width - 1 else raw


def _pick(draw: Draw, least_words: int = 0) -> int:
    """Place of a command: every opcode of the program alike, however often it occurs."""
    found: dict[Opcode, list[int]] = {}
    for place, instruction in enumerate(draw.scene.instructions):
        if COMMANDS[instruction.opcode].words > least_words or instruction.tail:
            found.setdefault(instruction.opcode, []).append(place)
    weights = [3 if opcode in (Opcode.CONV, Opcode.RUN, Opcode.LOAD, Opcode.STORE) else 1 for opcode in found]
    return draw.rng.choice(found[draw.rng.choices(list(found), weights=weights)[0]])


def _replaced(draw: Draw, place: int, instruction: Instruction) -> dict[str, Any]:
    """The scene's program with another command of the same length in one place."""
    scene = draw.scene
    changed, image = list(scene.instructions), bytearray(scene.program)
    changed[place] = instruction
    words = encode(instruction)
    struct.pack_into(f"<{len(words)}I", image, HEADER_BYTES + scene.offsets[place], *words)
    return {"program": bytes(image), "instructions": changed}


def field(draw: Draw) -> Trouble:
    """One field of one command, or of one entry of its list, at an edge."""
    rng, scene = draw.rng, draw.scene
    place = _pick(draw, least_words=3)
    old = scene.instructions[place]
    fields = COMMANDS[old.opcode].fields
    if old.tail and (not fields or rng.random() < 0.2):
        entry = rng.randrange(len(old.tail))
        tail = list(old.tail)
        if isinstance(tail[entry], Shift):
            chosen = rng.choice(SHIFT_FIELDS)
            value = _signed(chosen, rng.choice(edges(chosen.width, getattr(tail[entry], chosen.name))))
            tail[entry] = dataclasses.replace(tail[entry], **{chosen.name: value})
        else:
            tail[entry] = rng.choice((tail[entry] ^ 1 << rng.randrange(32), rng.choice(edges(32, tail[entry]))))
        new = dataclasses.replace(old, tail=tuple(tail))
        text = f"entry {entry} of the list"
    else:
        chosen = rng.choice(fields)
        extra = (scene.limit, scene.limit - 2, scene.base - 2, scene.limit - scene.base) if chosen.name in _ADDRESSES else ()
        value = _signed(chosen, rng.choice(edges(chosen.width, old[chosen.name], extra)))
        new = dataclasses.replace(old, fields={**old.fields, chosen.name: value})
        text = f"{chosen.name} = {value}, was {old[chosen.name]}"
    return draw.trouble("field", old.opcode.name, f"command {place}, {old.opcode.name}: {text}", **_replaced(draw, place, new))


def flips(draw: Draw) -> Trouble:
    """One, two or eight bits of the program behind its header."""
    rng, image = draw.rng, bytearray(draw.scene.program)
    count = rng.choice((1, 1, 2, 8))
    bits = [rng.randrange(8 * HEADER_BYTES, 8 * len(image)) for _ in range(count)]
    for bit in bits:
        image[bit >> 3] ^= 1 << (bit & 7)
    return draw.trouble("flips", f"{count} bits", f"bits {bits} of the program", program=bytes(image), instructions=None)


def header(draw: Draw) -> Trouble:
    """A word of the program's header."""
    rng, image = draw.rng, bytearray(draw.scene.program)
    word = rng.randrange(4)
    present = int.from_bytes(image[4 * word : 4 * word + 4], "little")
    value = rng.choice((rng.choice(edges(32, present)), present ^ 1 << rng.randrange(32), 8 * rng.randrange(len(image) // 8)))
    image[4 * word : 4 * word + 4] = value.to_bytes(4, "little")
    codes = HEADER | {ErrorCode.NONE, ErrorCode.MALFORMED_COMMAND, ErrorCode.ILLEGAL_FIELD}
    if word != 2 and value != present:
        codes = frozenset({ErrorCode.PROGRAM_HEADER})
    return draw.trouble("header", f"word {word}", f"header word {word} = {value:#x}, was {present:#x}", program=bytes(image),
                        codes=codes, altered=word == 2)


def encoding(draw: Draw) -> Trouble:
    """Opcode, length or tag of a command."""
    rng, scene = draw.rng, draw.scene
    place = _pick(draw)
    old, at = scene.instructions[place], HEADER_BYTES + scene.offsets[place]
    image = bytearray(scene.program)
    chosen = rng.choice(HEADER_FIELDS[:3])
    word = int.from_bytes(image[at : at + 4], "little")
    present = word >> chosen.lsb & (1 << chosen.width) - 1
    value = rng.choice(edges(chosen.width, present, (*Opcode, *range(MAX_WORDS + 3)) if chosen.width == 8 else ()))
    word ^= (present ^ value) << chosen.lsb
    image[at : at + 4] = word.to_bytes(4, "little")
    text = f"command {place}, {old.opcode.name}: {chosen.name} = {value}, was {present}"
    if chosen.name == "tag":
        return draw.trouble("encoding", chosen.name, text, **_replaced(draw, place, dataclasses.replace(old, tag=value)),
                            altered=False, codes=_NONE)
    return draw.trouble("encoding", chosen.name, text, program=bytes(image), instructions=None)


def semaphores(draw: Draw) -> Trouble:
    """Bits that a command waits for or signals."""
    rng, scene = draw.rng, draw.scene
    place = _pick(draw)
    old = scene.instructions[place]
    name = rng.choice(("wait", "signal"))
    present = old.wait if name == "wait" else old.signal
    some = [1 << bit for bit in range(SEMAPHORES) if present >> bit & 1] or [1 << rng.randrange(SEMAPHORES)]
    value = rng.choice((present ^ rng.choice(some), present ^ 1 << rng.randrange(30), 0, rng.getrandbits(32), 0xFFFFFFFF))
    new = dataclasses.replace(old, wait=value) if name == "wait" else dataclasses.replace(old, signal=value)
    return draw.trouble("semaphores", name, f"command {place}, {old.opcode.name}: {name} = {value:#x}, was {present:#x}",
                        **_replaced(draw, place, new))


def order(draw: Draw) -> Trouble:
    """A command dropped, doubled, moved or exchanged with another, or the program cut by an early END."""
    rng, scene = draw.rng, draw.scene
    changed = list(scene.instructions)
    place, other = _pick(draw), rng.randrange(len(changed))
    how = rng.choice(("drop", "double", "exchange", "neighbours", "move", "end", "without end"))
    name = changed[place].opcode.name
    if how == "drop":
        del changed[place]
    elif how == "double":
        changed.insert(place, changed[place])
    elif how == "exchange":
        changed[place], changed[other] = changed[other], changed[place]
    elif how == "neighbours":
        other = min(place + 1, len(changed) - 1)
        changed[place], changed[other] = changed[other], changed[place]
    elif how == "move":
        changed.insert(other, changed.pop(place))
    elif how == "end":
        changed[place] = Instruction(Opcode.END)
    else:
        changed = [instruction for instruction in changed if instruction.opcode != Opcode.END]
    return draw.trouble("order", how, f"{how}: command {place}, {name}, and {other}", program=_fitting(draw, changed),
                        instructions=changed)


def _fitting(draw: Draw, changed: list[Instruction]) -> bytes:
    """The program; one that has grown may reach the end of the window at most."""
    program = assemble(changed, draw.scene.config)
    while len(program) > draw.scene.limit - draw.scene.plan.program_address:
        changed.pop(1)
        program = assemble(changed, draw.scene.config)
    return program


def random_command(rng: random.Random) -> Instruction:
    """A well-formed command with fields of chance, small ones more often than not."""
    opcode = rng.choice([op for op in Opcode if op not in (Opcode.END, Opcode.UCODE)])
    fields = {}
    for one in COMMANDS[opcode].fields:
        width = one.width if rng.random() < 0.2 else min(one.width, rng.choice((1, 2, 4, 6)))
        value = rng.getrandbits(width)
        fields[one.name] = value - (value >> width - 1 << width) if one.signed and width == one.width else value
    return Instruction(
        opcode, fields, (), rng.getrandbits(16), rng.choice((0, 0, 0, 1 << rng.randrange(SEMAPHORES))),
        rng.choice((0, 0, 1 << rng.randrange(SEMAPHORES))))


def random_commands(draw: Draw) -> Trouble:
    """Well-formed commands of chance, alone or behind the beginning of the step."""
    rng, scene = draw.rng, draw.scene
    kept = rng.choice((0, 0, rng.randrange(len(scene.instructions) // 2)))
    added = [random_command(rng) for _ in range(rng.randrange(1, 9))]
    loops = any(instruction.opcode == Opcode.LOOP for instruction in added)
    changed = [*scene.instructions[:kept], *added, Instruction(Opcode.END)]
    steps = rng.choice((1, 1, 2, 5)) if loops else 1
    return draw.trouble("commands", "behind the beginning" if kept else "alone",
                        f"{[i.opcode.name for i in added]} behind {kept} commands of the step, {steps} steps",
                        program=assemble(changed, scene.config), instructions=changed if steps == 1 else None,
                        registers={"STEPS": steps})


def random_words(draw: Draw) -> Trouble:
    """Words of chance behind a good header, or behind the beginning of the step."""
    rng, scene = draw.rng, draw.scene
    kept = rng.choice((HEADER_BYTES, HEADER_BYTES + scene.offsets[rng.randrange(len(scene.instructions))]))
    image = scene.program[:kept] + rng.randbytes(len(scene.program) - kept)
    where = "alone" if kept == HEADER_BYTES else "behind the beginning"
    return draw.trouble("words", where, f"words of chance from byte {kept} on", program=image, instructions=None)


def command_for(config: Config, unit: Unit) -> Instruction:
    """A command that this LOAD or STORE engine takes, one beat at address 0 of base register 7."""
    for opcode, memories in ((Opcode.LOAD, Dest), (Opcode.STORE, Source)):
        for memory in memories:
            for way in range(4):
                if unit_of(config, opcode, memory, way) == unit:
                    fields = {"breg": 7, "n0": 1, "n1": 1, "n2": 1}
                    fields |= ({"dest": memory, "way": way, "xb": 1, "bstep": 1} if opcode == Opcode.LOAD else {"src": memory})
                    return Instruction(opcode, fields, tag=9)
    raise ValueError(f"{config.name} has no engine {unit.name} that loads or stores: {[u.name for u in units(config)]}")
