"""A range of a board's memory tested from the host: a good one passes, each kind of fault is named."""

import pytest

from gradloom.host.boards.self_test import check_range
from gradloom.host.devices.device import MachineError

SIZE = 1 << 16


class Ram:
    """A memory whose words go through a function, and whose upper half forgets what is not refreshed."""

    def __init__(self, *, word=lambda value: value, forgets=0.0):
        self.cells, self.word, self.forgets = bytearray(SIZE), word, forgets

    def write(self, addr, data):
        words = (self.word(int.from_bytes(data[n:n + 2], "little")) for n in range(0, len(data), 2))
        self.cells[addr:addr + len(data)] = b"".join(word.to_bytes(2, "little") for word in words)

    def read(self, addr, n):
        return bytes(self.cells[addr:addr + n])

    def sleep(self, seconds):
        if self.forgets and seconds >= self.forgets:
            self.cells[SIZE // 2:] = bytes(SIZE // 2)


def check(ram, told=None, sample=1 << 12):
    check_range(ram, 0, SIZE, sample=sample, sleep=ram.sleep, report=told.append if told is not None else lambda text: None)


def test_good_memory():
    told = []
    check(Ram(), told)
    assert told == ["noise at both ends", "refresh"]


def test_both_ends_are_tested():
    """A memory smaller than two samples is tested whole."""
    ram = Ram()
    check(ram, sample=1 << 20)
    assert 0 not in {sum(ram.cells[n:n + 64]) for n in range(0, SIZE, 64)}


@pytest.mark.parametrize(("ram", "message"), [
    (Ram(word=lambda value: value | 1 << 5), "of 4096 bytes of the board's memory from 0x0 on are wrong: bits 5 of its words"),
    (Ram(word=lambda value: value & 0x7FFE), "bits 0, 15 of its words are unsure"),
    (Ram(forgets=0.2), "40.. of 4096 bytes of the board's memory from 0xf000 on are wrong after 0.5 s: it is not refreshed"),
])
def test_faults(ram, message):
    with pytest.raises(MachineError, match=message):
        check(ram)
