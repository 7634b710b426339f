"""Small programs on the whole machine: every semaphore, every bit of a tag or a number arrives where it is meant."""

import struct

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import HEADER_WORDS, SEMAPHORES, Dest, Opcode, Source
from gradloom.contracts.regmap import ErrorCode, offset, register
from gradloom.sim.rtl_device import RtlDevice
from gradloom.verif.program_case import command, program, shift, size

NANO = PRESETS["nano"]
MEMORY = 1 << 20
END = command(Opcode.END)
START = register("CONTROL").field("start").mask | register("CONTROL").field("irq_enable").mask
TAGS = (0xFFFF, 0x5555, 0xAAAA, 0x8001, 0x0000)
COPY = {"n0": 4, "n1": 1, "n2": 1}


@pytest.fixture(scope="module")
def machine():
    with RtlDevice(NANO, dram_bytes=MEMORY) as device:
        device.csr_write(offset("WINDOW_LIMIT"), MEMORY)
        device.csr_write(offset("WATCHDOG"), 2000)
        yield device


def run(machine: RtlDevice, *commands: list[int], steps: int = 1) -> ErrorCode:
    """How a program of these commands and END ends."""
    return start(machine, program(NANO, *commands, END), steps=steps)


def start(machine: RtlDevice, image: bytes, *, steps: int = 1) -> ErrorCode:
    """How the program ends."""
    machine.write(0, image)
    machine.csr_write(offset("PROGRAM"), 0)
    machine.csr_write(offset("STEPS"), steps)
    machine.csr_write(offset("CONTROL"), START)
    machine.run(100_000)
    machine.run(100_000)
    status = machine.csr_read(offset("STATUS"))
    assert status & register("STATUS").field("idle").mask, "it hangs"
    code = ErrorCode(machine.csr_read(offset("ERROR")) & 0xFF)
    assert bool(status & register("STATUS").field("done").mask) == (code == 0)
    return code


def engine_of_error(machine: RtlDevice) -> int:
    return machine.csr_read(offset("ERROR")) >> 8 & 15


def exponents(machine: RtlDevice) -> list[int]:
    machine.csr_write(offset("EXP_INDEX"), 0)
    return [machine.csr_read(offset("EXP_VALUE")) for _ in range(NANO.tensors)]


@pytest.mark.parametrize("number", range(SEMAPHORES))
def test_a_semaphore_goes_from_everyone_to_everyone(machine, number):
    """Sequencer to Loader, Loader to Storer, Storer to Sequencer, each with this semaphore alone."""
    bit = 1 << number
    given = command(Opcode.SETBASE, signal=bit)

    def load(**header: int) -> list[int]:
        return command(Opcode.LOAD, dest=Dest.PBUF, **header, **COPY)

    def store(**header: int) -> list[int]:
        return command(Opcode.STORE, src=Source.PBUF, offset=4096, **header, **COPY)

    assert run(machine, given, load(wait=bit)) == 0
    assert run(machine, load(signal=bit), store(wait=bit)) == 0
    assert run(machine, store(signal=bit), command(Opcode.BARRIER, wait=bit)) == 0


@pytest.mark.parametrize("number", range(SEMAPHORES))
def test_no_other_semaphore_will_do(machine, number):
    """All others are above 0; the Sequencer, then a Loader, waits until the watchdog ends it."""
    bit = 1 << number
    others = command(Opcode.SETBASE, signal=~bit & 0xFFFFFFFF)
    load = command(Opcode.LOAD, dest=Dest.PBUF, wait=bit, **COPY)
    for waiting, unit in ((command(Opcode.BARRIER, wait=bit), Unit.SEQ), (load, Unit.LOAD)):
        assert run(machine, others, waiting) == ErrorCode.WATCHDOG
        assert machine.csr_read(offset("ERROR_STATE")) >> 16 & 1 << unit


ILLEGAL = {
    Unit.SEQ: [command(Opcode.BARRIER)[0] | 0x0F, 0, 0],
    Unit.LOAD: command(Opcode.LOAD, dest=15, **COPY),
    Unit.CCORE: command(Opcode.CONV),
    Unit.ACORE: command(Opcode.RUN),
    Unit.STORE: command(Opcode.STORE, src=15, **COPY),
}
"""A command of each engine that it refuses."""


@pytest.mark.parametrize("unit", list(ILLEGAL), ids=lambda unit: unit.name)
def test_an_error_names_the_whole_tag_and_the_place_of_its_command(machine, unit):
    ahead = [command(Opcode.SETBASE, breg=1, value=n) for n in range(40)]
    for tag in TAGS:
        words = ILLEGAL[unit][:]
        words[0] = words[0] & 0xFFFF | tag << 16
        assert run(machine, *ahead, words) != 0
        assert machine.csr_read(offset("ERROR")) >> 16 == tag
        assert engine_of_error(machine) == unit
        assert machine.csr_read(offset("ERROR_OFFSET")) == 40 * size(ahead[0])


@pytest.mark.parametrize("value", [0xFFFFFFFF, 0x55555555, 0xAAAAAAAA, 0x80000001])
def test_base_registers_hold_every_bit(machine, value):
    values = [(value + 0x01010101 * n) & 0xFFFFFFFF for n in range(8)]
    assert run(machine, *(command(Opcode.SETBASE, breg=n, value=each) for n, each in enumerate(values))) == 0
    assert [machine.csr_read(offset(f"BASE{n}")) for n in range(8)] == values
    assert run(machine, command(Opcode.SETBASE, breg=3, value=value), command(Opcode.ADDBASE, breg=3, value=-(1 << 31))) == 0
    assert machine.csr_read(offset("BASE3")) == value ^ 1 << 31


@pytest.mark.parametrize("decode_error", [False, True], ids=["SLVERR", "DECERR"])
def test_an_error_response_is_told(machine, decode_error):
    """Of a read and of a write, by its code and its engine."""
    source, target = 8192, 12288
    commands = [command(Opcode.SETBASE, value=0), command(Opcode.LOAD, dest=Dest.PBUF, offset=source, **COPY),
                command(Opcode.BARRIER), command(Opcode.STORE, src=Source.PBUF, offset=target, **COPY)]
    for place, code, unit in ((source, ErrorCode.READ_RESPONSE, Unit.LOAD), (target, ErrorCode.WRITE_RESPONSE, Unit.STORE)):
        machine.fail(place, place + 4, decode_error=decode_error)
        assert run(machine, *commands) == code
        assert engine_of_error(machine) == unit
        machine.fail_nowhere()
    assert run(machine, *commands) == 0


BEYOND = [NANO.tensors + (1 << n) - 1 for n in range(11) if NANO.tensors + (1 << n) <= 2048] + [512 + 5, 1024 + 5, 2047]
"""Numbers of tensors that the machine has not."""


def test_exponents_are_set_and_added_by_number(machine):
    """EXPSET adds up a list over all exponents; numbers that the machine has not are refused, and nothing is written."""
    for tid in range(1, 200):
        assert run(machine, command(Opcode.EXPSET, target=tid, tail=[shift(first=1, const=3 * tid - 200)])) == 0
    before = exponents(machine)
    assert before[1:200] == [(3 * tid - 200) & 0xFFFFFFFF for tid in range(1, 200)] and before[0] == 0
    for tid in BEYOND:
        assert run(machine, command(Opcode.EXPSET, target=tid, tail=[shift(first=1, const=77)])) == ErrorCode.ILLEGAL_FIELD
        terms = [shift(first=1, tid=5), shift(tid=tid)]
        assert run(machine, command(Opcode.EXPSET, target=5, tail=terms)) == ErrorCode.ILLEGAL_FIELD
    assert exponents(machine) == before
    terms = [shift(first=1, const=-1000), shift(tid=199), shift(tid=7, neg=1), shift(const=12)]
    assert run(machine, command(Opcode.EXPSET, target=250, tail=terms)) == 0
    assert exponents(machine)[250] == (-1000 + 397 + 179 + 12) & 0xFFFFFFFF


def test_scale_reads_and_writes_by_number(machine):
    """Statistics are zeros: a SCALE lowers its target by 4, to 127 at most; numbers that the machine has not are refused."""
    for tid in (1, 63, 64, 127, 128, 191, 255):
        assert run(machine, command(Opcode.EXPSET, target=tid, clear=1, tail=[shift(first=1, const=tid)])) == 0
        before = exponents(machine)
        assert run(machine, command(Opcode.SCALE, tid=tid, target=tid, f=8)) == 0
        after = exponents(machine)
        before[tid] = min(tid - 4, 127) & 0xFFFFFFFF
        assert after == before
    for tid in BEYOND:
        for fields in ({"tid": tid, "target": 5}, {"tid": 5, "target": tid}):
            assert run(machine, command(Opcode.SCALE, f=8, **fields)) == ErrorCode.ILLEGAL_FIELD
    assert exponents(machine) == before


@pytest.mark.parametrize("first", [0, 0x7FFFFFFE, 0xFFFFFFFD])
def test_steps_and_hyperparameters_by_number(machine, first):
    """LDHYP takes entry `step` of its table, modulo the address space; LOOP counts the step in all its bits."""
    machine.csr_write(offset("STEP"), first)
    table = 4096
    for n in range(2):
        machine.write(table + 16 * n, bytes((200 + n, 0xFB, 230, 7)) + bytes(12))
    start = (table - 16 * first) & 0xFFFFFFFF
    head = command(Opcode.SETBASE, breg=2, value=start)
    body = command(Opcode.LDHYP, breg=2)
    assert run(machine, head, body, command(Opcode.LOOP, target=size(head)), steps=2) == 0
    assert machine.csr_read(offset("STEP")) == (first + 2) & 0xFFFFFFFF
    assert machine.csr_read(offset("HYPER")) == 201 | 230 << 8
    entry = exponents(machine)
    assert (entry[1], entry[3]) == (0xFFFFFFFB, 7)


def test_a_command_may_be_as_long_as_its_header(machine):
    assert len(END) == HEADER_WORDS and run(machine) == 0


@pytest.mark.parametrize("bit", range((MEMORY - 1).bit_length(), 32))
def test_every_bit_of_a_programs_length_counts(machine, bit):
    """A program that says it ends beyond the window is refused before any of its commands begins."""
    good = program(NANO, command(Opcode.SETBASE, breg=1, value=bit), END)
    machine.csr_write(offset("BASE1"), 99)
    assert start(machine, good[:8] + struct.pack("<I", len(good) - 16 + (1 << bit)) + good[12:]) == ErrorCode.PROGRAM_ADDRESS
    assert machine.csr_read(offset("BASE1")) == 99
