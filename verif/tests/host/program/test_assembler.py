"""Encoding, decoding and text of programs."""

import random
import struct

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import (
    COMMANDS,
    HEADER_FIELDS,
    MAX_WORDS,
    PROGRAM_MAGIC,
    PROGRAM_VERSION,
    SEMAPHORES,
    SHIFT_FIELDS,
    Opcode,
)
from gradloom.host.program.assembler import (
    AssemblyError,
    Instruction,
    Shift,
    assemble,
    decode,
    encode,
    offsets,
    split_program,
)
from gradloom.host.program.disassembler import disassemble, parse


def _value(field, rng):
    low, high = (
        (-(1 << field.width - 1), (1 << field.width - 1) - 1) if field.signed else (0, (1 << field.width) - 1)
    )
    return rng.choice([low, high, rng.randint(low, high), 0])


def _instruction(opcode, rng):
    command = COMMANDS[opcode]
    tail = ()
    if command.tail:
        count = rng.randint(0, MAX_WORDS - command.words)
        tail = tuple(
            Shift(**{f.name: _value(f, rng) for f in SHIFT_FIELDS})
            if command.tail == "shift"
            else rng.getrandbits(32)
            for _ in range(count)
        )
    return Instruction(
        opcode,
        {f.name: _value(f, rng) for f in command.fields},
        tail,
        rng.getrandbits(16),
        rng.getrandbits(SEMAPHORES),
        rng.getrandbits(SEMAPHORES),
    )


def test_fields_of_every_command_are_disjoint_and_inside():
    for command in COMMANDS.values():
        taken = set()
        for field in (*HEADER_FIELDS, *command.fields):
            assert field.word < command.words and field.lsb + field.width <= 32
            bits = {(field.word, bit) for bit in range(field.lsb, field.lsb + field.width)}
            assert not bits & taken, (command.opcode, field.name)
            taken |= bits


@pytest.mark.parametrize("opcode", list(Opcode))
def test_random_instructions_survive_words_and_text(opcode):
    rng = random.Random(int(opcode))
    for _ in range(50):
        instruction = _instruction(opcode, rng)
        words = encode(instruction)
        assert len(words) == instruction.length and words[0] >> 8 & 0xFF == instruction.length
        assert decode(words) == instruction
        assert parse(disassemble([instruction])) == [instruction]


def test_program_round_trip_with_header_and_loop():
    rng = random.Random(5)
    config = PRESETS["small"]
    instructions = [_instruction(rng.choice([o for o in Opcode if o != Opcode.LOOP]), rng) for _ in range(60)]
    instructions.append(Instruction(Opcode.LOOP, {"target": 0}))
    instructions.append(Instruction(Opcode.END))
    data = assemble(instructions, config, labels={60: 17})
    assert struct.unpack_from("<4I", data) == (
        PROGRAM_MAGIC,
        PROGRAM_VERSION,
        len(data) - 16,
        config.digest(),
    )
    _, found = split_program(data)
    assert found[60]["target"] == offsets(instructions)[17]
    assert found[:60] == instructions[:60]
    assert parse(disassemble(found, addresses=True)) == found


def test_commands_begin_at_even_words():
    odd, even = Instruction(Opcode.END), Instruction(Opcode.SEED)
    assert [(some.length, some.size, some.queued) for some in (odd, even)] == [(3, 4, 6), (4, 4, 6)]
    assert offsets([odd, even, odd, odd]) == [0, 16, 32, 48]
    assert len(assemble([odd, even, odd, odd], PRESETS["nano"])) == 16 + 64


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Instruction(Opcode.SEED, {"tid": 2048}), "SEED: tid must lie in 0..2047, not 2048"),
        (Instruction(Opcode.CONV, {"y0": -129}), "CONV: y0 must lie in -128..127, not -129"),
        (Instruction(Opcode.CONV, {"rows": 1}), "CONV: there is no field 'rows'"),
        (Instruction(Opcode.END, tag=1 << 16), "END: tag must lie in 0..65535, not 65536"),
        (Instruction(Opcode.SEED, {"tid": "x"}), "SEED: tid must be an integer, not 'x'"),
        (Instruction(Opcode.END, {}, (1,)), "END: this command has no tail, it was given 1 words"),
        (Instruction(Opcode.UCODE, {}, (0,) * 38), "UCODE: 42 words are more than 41"),
        (Instruction(Opcode.UCODE, {}, (1 << 32,)), "UCODE: word 0 must lie in"),
        (
            Instruction(Opcode.EXPSET, {}, (Shift(const=1 << 15),)),
            "EXPSET, shift 0: const must lie in -32768..32767, not 32768",
        ),
    ],
)
def test_what_cannot_be_encoded_is_refused_by_name(instruction, message):
    with pytest.raises(AssemblyError) as caught:
        encode(instruction)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0x0200, 0], "a command has at least 3 words"),
        ([0x03FF, 0, 0], "unknown opcode 0xff"),
        ([0x0310, 0, 0], "LOAD: a length of 3 words, it needs 10"),
        ([0x0400, 0, 0, 0], "END: a length of 4 words, it needs 3"),
        ([0x2A31, 0, 0], "UCODE: a length of 42 words, it needs 4..41"),
        ([0x0A10, 0, 0], "LOAD: the program ends within the command"),
    ],
)
def test_what_is_no_command_is_refused(words, message):
    with pytest.raises(AssemblyError) as caught:
        decode(words)
    assert str(caught.value) == message


def test_truncated_programs_are_refused():
    data = assemble([Instruction(Opcode.END)], PRESETS["nano"])
    with pytest.raises(AssemblyError, match="a program has at least 16 bytes, this one 15"):
        split_program(data[:15])
    with pytest.raises(AssemblyError, match="the header promises 16 bytes of commands, there are 12"):
        split_program(data[:-4])
    wrong = data[:16] + struct.pack("<4I", 0x03EE, 0, 0, 0)
    with pytest.raises(AssemblyError, match="byte 0: unknown opcode 0xee"):
        split_program(wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NOP", "line 1: there is no command 'NOP'"),
        ("END\nSEED tid=x", "line 2: 'x' is no number"),
        ("SEED tod=1", "line 1: SEED has no field 'tod'"),
        ("EXPSET target=1 [1,2]", "line 1: a shift is [dst,first,neg,tid,const], not [1,2]"),
    ],
)
def test_text_that_is_no_program_is_refused(text, message):
    with pytest.raises(AssemblyError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_comments_and_empty_lines_are_ignored():
    assert parse("# nothing\n\n  END  # the end\n 12: BARRIER\n") == [
        Instruction(Opcode.END),
        Instruction(Opcode.BARRIER),
    ]
