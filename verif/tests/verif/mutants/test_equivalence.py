"""Equivalent mutants are shown equivalent, by either method, and no other."""

import shutil

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.verif.mutants import equivalence, instrument
from gradloom.verif.mutants.equivalence import ABC, INDUCTION, REACHABILITY, ToolError, Verdict, miter, show
from gradloom.verif.mutants.instrument import Mutant, Place, listening


class Ring(wiring.Component):
    """A one-hot register of three bits: what depends on two of them at once never happens from reset on."""

    def __init__(self):
        super().__init__({"go": In(1), "both": Out(1), "any": Out(1), "same": Out(1)})

    def elaborate(self, platform):
        m = Module()
        ring = Signal(3, init=1)
        with m.If(self.go):
            m.d.sync += ring.eq(ring.rotate_left(1))
        m.d.comb += self.both.eq(ring[0] & ring[1])
        m.d.comb += self.any.eq(ring[0] | ring[1])
        m.d.comb += self.same.eq((ring == 2) & ring[1])
        return m


@pytest.fixture(autouse=True)
def own_sources(monkeypatch):
    monkeypatch.setattr(instrument, "RTL", instrument.Path(__file__).parent)
    yield
    instrument.install([])


def mutants() -> dict[tuple[str, str, str], Mutant]:
    """Mutants of Ring by statement, operator and change."""
    found = {}
    lines = instrument.Path(__file__).read_text().splitlines()

    def listen(place: Place, instance: int, variants: list[tuple[str, str]]) -> None:
        for operator in {operator for operator, _ in variants}:
            of_kind = [what for kind, what in variants if kind == operator]
            for n, what in enumerate(of_kind):
                text = lines[place.line - 1].strip()
                found[text, operator, what] = Mutant(place, 0, operator, ((2 * n + 1) << 15) // len(of_kind), what, "ring")

    with listening(listen):
        instrument.Fragment.get(Ring(), None)
    return found


BOTH, ANY = "m.d.comb += self.both.eq(ring[0] & ring[1])", "m.d.comb += self.any.eq(ring[0] | ring[1])"
NEXT = "m.d.sync += ring.eq(ring.rotate_left(1))"
SAME = "m.d.comb += self.same.eq((ring == 2) & ring[1])"


needs_abc = pytest.mark.skipif(not any(map(shutil.which, ABC)), reason="needs ABC, Debian's berkeley-abc")


@needs_abc
@pytest.mark.parametrize(("statement", "operator", "what", "verdict"), [
    (SAME, "boolean", "second operand of & left out", Verdict(REACHABILITY)),
    (BOTH, "condition", "always false", Verdict(REACHABILITY)),
    (BOTH, "condition", "always true", Verdict(differs=0)),
    (ANY, "boolean", "| becomes &", Verdict(differs=0)),
    (ANY, "statement", "left out", Verdict(differs=0)),
    (NEXT, "reset", "ring resets to 0x0", Verdict(differs=0)),
    (NEXT, "reset", "ring resets to 0x5", Verdict(differs=1)),
    (NEXT, "reset", "ring is not reset", Verdict(differs=1)),
])
def test_what_is_shown(statement, operator, what, verdict):
    assert show(miter(mutants()[statement, operator, what], Ring)) == verdict


@pytest.mark.parametrize(("what", "how"), [("second operand of & left out", INDUCTION), ("& becomes |", None)])
def test_induction_where_reachability_ends_in_no_time(what, how, monkeypatch):
    monkeypatch.setattr(equivalence, "_abc", lambda folder, timeout: "")
    assert show(miter(mutants()[SAME, "boolean", what], Ring)) == Verdict(how)


def test_a_missing_tool_is_told(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match="install Debian's berkeley-abc"):
        show(miter(mutants()[ANY, "boolean", "| becomes &"], Ring))


def test_a_mutant_that_is_nowhere():
    elsewhere = Mutant(Place("test_equivalence.py:1", "test_equivalence.py", 1), 0, "statement", 0, "left out", "ring")
    with pytest.raises(ValueError, match="no module of ring holds left out"):
        miter(elsewhere, Ring)
