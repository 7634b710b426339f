"""Semaphores that deadlock, are left above 0 or may overflow: the check of tokens finds them."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode
from gradloom.host.program.assembler import Instruction
from gradloom.host.program.token_check import check_tokens
from gradloom.host.schedule import compile_network
from gradloom.verif.networks import two_layers

CONFIG = PRESETS["small"]
END = Instruction(Opcode.END)


def _tokens(*pairs):
    """Instructions from (opcode, wait mask, signal mask)."""
    return [Instruction(opcode, {}, (), 0, wait, signal) for opcode, wait, signal in pairs] + [END]


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        (_tokens((Opcode.LOAD, 1, 0)), (1, "deadlock: LOAD waits for semaphore 0")),
        (
            _tokens((Opcode.LOAD, 1, 2), (Opcode.CONV, 2, 1)),
            (2, "deadlock: LOAD waits for semaphore 0; CCORE waits for semaphore 1"),
        ),
        (_tokens((Opcode.LOAD, 0, 4)), (1, "semaphore 2 is 1 at END, it must be 0")),
        (
            _tokens((Opcode.LOAD, 0, 1), (Opcode.CONV, 0, 1), (Opcode.RUN, 1, 0)),
            (1, "semaphore 0 is signalled by LOAD and by CCORE: it must be one engine"),
        ),
        (
            _tokens((Opcode.LOAD, 0, 1), (Opcode.CONV, 1, 0), (Opcode.RUN, 1, 0)),
            (2, "semaphore 0 is waited for by CCORE and by ACORE: it must be one engine"),
        ),
        (
            _tokens((Opcode.LOAD, 0, 1), (Opcode.BARRIER, 0, 0), (Opcode.LOOP, 0, 0)),
            (2, "semaphore 0 is 1 at LOOP, it must be 0"),
        ),
        (
            _tokens((Opcode.CONV, 1, 0), (Opcode.BARRIER, 0, 0), (Opcode.LOAD, 0, 1)),
            (1, "deadlock: CCORE waits for semaphore 0"),
        ),
    ],
)
def test_tokens(instructions, message):
    assert message in check_tokens(instructions, CONFIG)


def test_a_wait_that_a_full_queue_keeps_from_its_signal():
    waiting = [(Opcode.LOAD, 1, 0)] + [(Opcode.LOAD, 0, 0)] * 20 + [(Opcode.CONV, 0, 1)]
    assert check_tokens(_tokens(*waiting), dataclasses.replace(CONFIG, queue_words=1000)) == []
    assert any("deadlock" in text for _, text in check_tokens(_tokens(*waiting), CONFIG))


@pytest.mark.parametrize(("words", "fit"), [(240, True), (238, False)])
def test_a_queue_holds_offsets_and_commands_in_pairs(words, fit):
    waiting = [(Opcode.LOAD, 1, 0)] + [(Opcode.LOAD, 0, 0)] * 19 + [(Opcode.CONV, 0, 1)]
    assert (check_tokens(_tokens(*waiting), dataclasses.replace(CONFIG, queue_words=words)) == []) == fit


def test_a_semaphore_that_may_overflow():
    many = [(Opcode.LOAD, 0, 1)] * 300 + [(Opcode.CONV, 1, 0)] * 300
    assert any("semaphore 0 may reach 256" in text for _, text in check_tokens(_tokens(*many), CONFIG))


def test_every_token_of_a_machine_program_is_needed_by_the_count():
    """Taking away any one signal or wait must be noticed."""
    instructions = list(compile_network(two_layers(), CONFIG, 4, calibrate=True, slots=3, table=3).instructions)
    assert check_tokens(instructions, CONFIG) == []
    marked = [
        number for number, instruction in enumerate(instructions) if instruction.wait or instruction.signal
    ]
    for number in marked[::7]:
        instruction = instructions[number]
        changed = (
            dataclasses.replace(instruction, wait=0)
            if instruction.wait
            else dataclasses.replace(instruction, signal=0)
        )
        assert check_tokens(
            [*instructions[:number], changed, *instructions[number + 1 :]], CONFIG
        )
