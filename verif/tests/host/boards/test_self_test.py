"""A board's memory tested from the host: a good one passes, each kind of fault is named."""

import dataclasses

import pytest

from gradloom.host.boards.self_test import check_identity, check_memory
from gradloom.host.devices.device import MachineError
from gradloom.host.link.frames import Identity
from gradloom.verif.board_reports import REPORT

SIZE = 1 << 16


class Ram:
    """A memory of 16-bit words with a fault: what is written, or where, goes through functions."""

    def __init__(self, *, word=lambda value: value, place=lambda address: address, forgets=0.0):
        self.cells = bytearray(SIZE)
        self.word, self.place, self.forgets, self.slept = word, place, forgets, 0.0

    def write(self, addr, data):
        self.slept = 0.0
        for n in range(0, len(data), 2):
            value = self.word(int.from_bytes(data[n:n + 2], "little"))
            at = self.place(addr + n)
            self.cells[at:at + 2] = value.to_bytes(2, "little")

    def read(self, addr, n):
        if self.forgets and self.slept >= self.forgets:
            self.cells[SIZE // 2:] = bytes(SIZE // 2)
        return b"".join(bytes(self.cells[self.place(addr + k):][:2]) for k in range(0, n, 2))

    def sleep(self, seconds):
        self.slept += seconds


def check(ram, told=None):
    check_memory(ram, 0, SIZE, sample=1 << 12, sleep=ram.sleep, report=told.append if told is not None else lambda text: None)


def test_good_memory():
    told = []
    check(Ram(), told)
    assert told == ["data pins", "address pins", "noise at both ends", "refresh"]


@pytest.mark.parametrize(("ram", "message"), [
    (Ram(word=lambda value: value | 1 << 5), "data pins 5 of the memory do not keep"),
    (Ram(word=lambda value: value & ~(1 << 15)), "data pins 15 of the memory"),
    (Ram(word=lambda value: (value & ~6) | (value & 2) << 1 | (value & 4) >> 1), "data pins 1, 2 of the memory"),
    (Ram(place=lambda address: address & ~(1 << 12)), "byte 0x0 of the memory holds what was written at 0x1000:"),
    (Ram(place=lambda address: address | 1 << 4), "byte 0x0 of the memory holds what was written at 0x10:"),
    (Ram(place=lambda address: address % (SIZE // 2)), "another geometry"),
    (Ram(forgets=0.2), "40.. of 4096 bytes of the memory from 0xf000 on are wrong after 0.5 s: it is not refreshed"),
])
def test_faults(ram, message):
    with pytest.raises(MachineError, match=message):
        check(ram)


IDENTITY = Identity(protocol=1, beat_bytes=2, data_bytes=992, ring_bytes=2048, board="U85F", config=REPORT.config, memory_base=0,
                    memory_bytes=SIZE, clock=25_000_000, build=int(REPORT.build, 16))


def test_identity():
    check_identity(IDENTITY, "U85F", REPORT)


@pytest.mark.parametrize(("change", "message"), [
    ({"board": "U45F"}, "calls itself 'U45F', not 'U85F'"),
    ({"config": 1}, "carries the machine CONFIG 0x00000001, and 0x00000abc was built"),
    ({"build": 8}, "carries build 0000000000000008, and 0000000000000007 was built: flash it again")])
def test_another_board(change, message):
    with pytest.raises(MachineError, match=message):
        check_identity(dataclasses.replace(IDENTITY, **change), "U85F", REPORT)
