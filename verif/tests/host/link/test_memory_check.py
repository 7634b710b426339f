"""The look at a board's memory when it is opened: a good one passes, each fault of a line is named by kind and number."""

import pytest

from gradloom.contracts.sdram_timing import part_named
from gradloom.host.devices.device import MachineError
from gradloom.host.link.memory_check import check_memory

PART = part_named("ULX3S")
BASE = 0


class Memory:
    """Words behind lines: ``word`` changes what is read, ``place`` where a word lies, ``early`` moves the words of a read."""

    def __init__(self, word=lambda value: value, place=lambda number: number, early=0):
        self.words, self.word, self.place, self.early = {}, word, place, early

    def write(self, address, data):
        for n in range(0, len(data), 2):
            self.words[self.place((address + n) // 2)] = data[n] | data[n + 1] << 8

    def fetch(self, accesses, ranges):
        def read(address, n):
            numbers = range(address // 2 + self.early, (address + n) // 2 + self.early)
            return b"".join(self.word(self.words.get(self.place(number), 0)).to_bytes(2, "little") for number in numbers)

        return [], [read(*each) for each in ranges]


def swap(first, second):
    def word(value):
        differs = (value >> first ^ value >> second) & 1
        return value ^ differs << first ^ differs << second

    return word


def stuck(bit, level):
    return lambda number: number | 1 << bit if level else number & ~(1 << bit)


# Bits of a word's number: 9 of the column, 2 of the bank, 13 of the row.
FAULTS = {
    "exchanged": ({"word": swap(0, 15)}, "data: line 0 reads what was written to line 15; line 15 reads"),
    "low": ({"word": lambda value: value & 0xFFEF}, "data: line 4 is always 0: tracks or pins"),
    "high": ({"word": lambda value: value | 0x0100}, "data: line 8 is always 1: tracks or pins"),
    "joined": ({"word": lambda value: value & ~2 | value >> 1 & 2}, "data: line 1 reads what was written to line 2: tracks"),
    "a cycle late": ({"early": 1}, "words come at the place of their neighbours: read data are taken in a wrong cycle"),
    "a cycle early": ({"early": -1}, "words come at the place of their neighbours: read data are taken in a wrong cycle"),
    "noise": ({"word": lambda value: value * 0x9E37 + 0x3C6E >> 3 & 0xFFFF}, "nothing that is read is what was written"),
    "row low": ({"place": stuck(11, 0)}, "addresses: row bit 0 does nothing: a track or pin is stuck, or the part is"),
    "row high": ({"place": stuck(23, 1)}, "addresses: row bit 12 does nothing:"),
    "bank": ({"place": stuck(10, 0)}, "addresses: bank bit 1 does nothing:"),
    "column": ({"place": stuck(8, 0)}, "addresses: column bit 8 does nothing:"),
    "rows joined": ({"place": lambda number: number | 3 << 12 if number & 3 << 12 else number},
                    "addresses: row bit 2 is as row bit 1: a track or pin"),
}


def test_a_good_memory():
    check_memory(Memory(), PART, BASE)


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    changes, message = FAULTS[name]
    with pytest.raises(MachineError) as told:
        check_memory(Memory(**changes), PART, BASE)
    assert str(told.value).startswith((f"the board's memory, {message}", f"the board's memory: {message}"))
