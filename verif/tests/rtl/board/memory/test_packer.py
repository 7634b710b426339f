"""Packer: beats of 2 to 16 bytes on words of 2 and 4, random traffic with strobes and stalls, exact words, throughput."""

import pytest

from gradloom.rtl.board.memory import packer
from gradloom.verif.board.axi_memory import PortChecker, Subordinate
from gradloom.verif.board.axi_traffic import Burst, Manager, Scoreboard, Traffic, stream
from gradloom.verif.board.packed import simulate
from gradloom.verif.formal.run import planted_bug

SIZE = 1 << 12
STALLS = dict.fromkeys(("ar", "r", "aw", "w", "b"), 0.3)
WIDTHS = [(beat, word) for word in (2, 4) for beat in (2, 4, 8, 16)]


def run(beat, word, *, bursts=None, stalls=None, design=packer, checked=False, limit=20_000, outstanding=16):
    image = bytes(n * 31 & 255 for n in range(SIZE))
    memory = Subordinate("words", word, bytearray(image), stalls=stalls or {})
    board = Scoreboard(image)
    if bursts is None:
        manager = Manager.of("beats", beat, Traffic(
            bursts=90, seed=beat + word, places=(range(SIZE), range(256), range(SIZE, SIZE + 256)), longest=24, stalls=stalls or {},
            partial=not checked), board)
    else:
        manager = Manager("beats", beat, bursts, board)
    checkers = [PortChecker(prefix, size) for prefix, size in (("beats", beat), ("words", word))] if checked else []
    dut = design.Packer(beat, word, outstanding=outstanding)
    cycles = simulate(dut, [manager, memory, *checkers], manager.done, limit=limit)
    assert memory.memory == board.image
    for checker in checkers:
        assert checker.violations == []
    return memory, cycles


@pytest.mark.parametrize(("beat", "word"), WIDTHS)
@pytest.mark.parametrize("stalls", [{}, STALLS])
def test_random_traffic(beat, word, stalls):
    run(beat, word, stalls=stalls)


def test_axi_rules_on_both_sides():
    """Where a beat is a word; a wide beat's bursts are longer than a machine's, a narrow one's words have strobes of their own."""
    run(4, 4, stalls=STALLS | {"b": 0}, checked=True)


@pytest.mark.parametrize(("beat", "word", "address", "beats", "at", "words"), [
    (2, 4, 0x100, 1, 0x100, 1), (2, 4, 0x102, 1, 0x102, 1), (2, 4, 0x102, 2, 0x102, 2), (2, 4, 0x100, 64, 0x100, 32),
    (2, 4, 0x102, 63, 0x102, 32), (4, 4, 0x104, 5, 0x104, 5), (4, 2, 0x104, 5, 0x104, 10), (16, 2, 0x400, 64, 0x400, 512),
    (8, 4, 0x108, 1, 0x108, 2)])
@pytest.mark.parametrize("channel", ["ar", "aw"])
def test_bursts(beat, word, address, beats, at, words, channel):
    """The words that a burst touches, in one burst."""
    burst = Burst(channel == "aw", address, beats, [0] * beats, [0] * beats)
    assert run(beat, word, bursts=[burst])[0].bursts == [(channel, at, words)]


@pytest.mark.parametrize(("beat", "word"), WIDTHS)
@pytest.mark.parametrize("write", [False, True])
def test_a_word_a_cycle(beat, word, write):
    _, cycles = run(beat, word, bursts=stream(beat, address=0, size=2048, write=write))
    assert cycles <= 2048 // min(beat, word) + 14


WIDE = [
    ("words.w.p.last.eq(beats.w.p.last & last)", "words.w.p.last.eq(beats.w.p.last)"),
    ("beats.w.ready.eq(words.w.ready & last)", "beats.w.ready.eq(words.w.ready)"),
    ("words.r.ready.eq(~final | beats.r.ready)", "words.r.ready.eq(1)"),
    ("stored.eq(Cat(stored, words.r.p.data)[width:])", "stored.eq(Cat(words.r.p.data, stored))"),
]
NARROW = [
    ("end.eq(first + beat.p.len)", "end.eq(beat.p.len)"),
    ("begun.eq(~last)", "begun.eq(1)"),
    ("(place == bursts.o.p.final)", "(place == place)"),
    ("strobes.eq(0)", "strobes.eq(strobes)"),
    ("beat.ready.eq(word.ready & fifo.i.ready)", "beat.ready.eq(word.ready)"),
    ("strobe.eq(Mux(here, beats.w.p.strb, 0))", "strobe.eq(beats.w.p.strb)"),
]


@pytest.mark.parametrize(("beat", "word", "bug"), [*((8, 2, bug) for bug in WIDE), *((2, 4, bug) for bug in NARROW)],
                         ids=[f"{kind}{n}" for kind, bugs in (("wide", WIDE), ("narrow", NARROW)) for n in range(len(bugs))])
def test_planted_bugs(beat, word, bug):
    """A worse response of an earlier word is not among them, as a beat lies in the memory as a whole or not at all: the proof."""
    design = planted_bug("gradloom.rtl.board.memory.packer", *bug)
    with pytest.raises(AssertionError):
        run(beat, word, design=design, stalls=STALLS, limit=6000, outstanding=2)
