"""The encoding of a matrix machine's commands: fields apart from each other, told in the documentation, other machines' unknown."""

import re

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import COMMANDS, HEADER_FIELDS, HEADER_WORDS, Engine, Opcode
from gradloom.contracts.matrix_config import load_machine
from gradloom.contracts.matrix_isa import (
    ENCODINGS,
    GEMM,
    MATRIX_COMMANDS,
    MatrixOpcode,
    Operand,
    commands_of,
    loaded_memories,
    stored_memories,
    turning_memories,
)
from gradloom.contracts.matrix_timing import gemm_cycles
from gradloom.host.matrix.commands import gemm
from gradloom.host.program.assembler import AssemblyError, decode, encode
from gradloom.verif.checkout import DOCS


def test_fields_do_not_meet():
    taken = set()
    for field in (*HEADER_FIELDS, *GEMM.fields):
        bits = {32 * field.word + field.lsb + n for n in range(field.width)}
        assert field.lsb + field.width <= 32 and field.word < GEMM.words and not bits & taken
        taken |= bits
    assert min(field.word for field in GEMM.fields) == HEADER_WORDS


def test_each_core_has_its_own_commands():
    assert commands_of(PRESETS["nano"]) is COMMANDS and commands_of(load_machine("fox-4")) is MATRIX_COMMANDS
    assert {opcode >> 4 for opcode in MATRIX_COMMANDS} == {Engine.SEQ, Engine.LOAD, Engine.CCORE, Engine.STORE}
    assert MatrixOpcode.GEMM not in set(Opcode) and set(ENCODINGS) == set(COMMANDS) | {MatrixOpcode.GEMM}


def test_a_command_comes_back_and_only_for_its_machine():
    command = gemm(ni=3, nj=5, nk=7, w0=9, wk=65535, acc=1, tag=12, wait=5, signal=6)
    words = encode(command)
    found = decode(words, MATRIX_COMMANDS)
    assert (found.opcode, found.tag, found.wait, found.signal) == (MatrixOpcode.GEMM, 12, 5, 6)
    assert {name: value for name, value in found.fields.items() if value} == command.fields
    with pytest.raises(AssemblyError, match=r"^unknown opcode 0x21$"):
        decode(words)
    with pytest.raises(AssemblyError, match=r"^unknown opcode 0x30$"):
        decode([0x1630, 0, 0] + 30 * [0], MATRIX_COMMANDS)


def test_memories_of_each_machine():
    fox, dark, barista = (load_machine(name) for name in ("fox-4", "darkfpga-4x2", "barista-4x4x8"))
    assert loaded_memories(fox) == (Operand.W, Operand.X) and loaded_memories(dark) == tuple(Operand)
    assert turning_memories(fox) == (Operand.X,) and turning_memories(dark) == (Operand.W,)
    assert turning_memories(barista) == (Operand.X,) and list(stored_memories(dark)) == [0]


def test_documentation_names_every_field():
    text = (DOCS / "matrix.md").read_text()
    table = text[text.index("| field | what |"):text.index("The sums of a command")]
    assert set(re.findall(r"`(\w+)`", table)) >= {field.name for field in GEMM.fields}
    for operand in Operand:
        assert f"LOAD `dest` {operand.value}" in text


def test_cycles_grow_by_what_is_stated():
    fox, dark, barista = (load_machine(name) for name in ("fox-8", "darkfpga-16x8", "barista-4x8x8"))
    assert gemm_cycles(fox, 2, 3, 4) == 24 + 8 + 8
    assert gemm_cycles(dark, 2, 3, 4) == 24 + 8 + 4 + 8
    assert gemm_cycles(barista, 1, 1, 8, stay=True) == 8 + 8 + 4
    assert gemm_cycles(barista, 2, 1, 8) == 16 + 2 * (16 + 2) + 5
