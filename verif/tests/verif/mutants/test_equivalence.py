"""Equivalent mutants are shown equivalent, by either method, and no other."""

import dataclasses
import shutil

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.verif.mutants import equivalence, instrument
from gradloom.verif.mutants.equivalence import ABC, INDUCTION, REACHABILITY, ToolError, Verdict, miter, show
from gradloom.verif.mutants.instrument import Mutant, Place, listening
from gradloom.verif.mutants.surroundings import Surroundings


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


class Counter(wiring.Component):
    """Counts what is asked for."""

    def __init__(self):
        super().__init__({"ask": In(1), "valid": In(1), "size": In(2), "ready": Out(1), "total": Out(2)})

    def elaborate(self, platform):
        m = Module()
        waiting = Signal(4)
        m.d.sync += waiting.eq(waiting + self.ask - self.valid)
        m.d.comb += self.ready.eq(waiting != 0)
        m.d.sync += self.total.eq(Mux(self.ask, self.size, 3))
        return m


class Sized(wiring.Component):
    """Counts to ``last`` and then from 0; with ``both`` another register beside it."""

    def __init__(self, last, both=False):
        self.last, self.both = last, both
        super().__init__({"at": Out(2)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.at == self.last):
            m.d.sync += self.at.eq(0)
        with m.Else():
            m.d.sync += self.at.eq(self.at + 1)
        if self.both:
            down = Signal()
            m.d.sync += down.eq(~down)
        return m


class Pair(wiring.Component):
    """Two modules of one place in the sources that are not alike."""

    def __init__(self):
        super().__init__({"first": Out(2), "second": Out(2)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.wraps, m.submodules.stops = wraps, stops = Sized(3), Sized(2, both=True)
        m.d.comb += [self.first.eq(wraps.at), self.second.eq(stops.at)]
        return m


@pytest.fixture(autouse=True)
def own_sources(monkeypatch):
    monkeypatch.setattr(instrument, "RTL", instrument.Path(__file__).parent)
    yield
    instrument.install([])


def mutants(build=Ring) -> dict[tuple[str, str, str], Mutant]:
    """Mutants by statement, operator and change."""
    found = {}
    lines = instrument.Path(__file__).read_text().splitlines()

    def listen(place: Place, instance: int, variants: list[tuple[str, str]]) -> None:
        for operator in {operator for operator, _ in variants}:
            of_kind = [what for kind, what in variants if kind == operator]
            for n, what in enumerate(of_kind):
                text = lines[place.line - 1].strip()
                found[text, operator, what] = Mutant(place, 0, operator, ((2 * n + 1) << 15) // len(of_kind), what, "ring")

    with listening(listen):
        instrument.Fragment.get(build(), None)
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


WAITING = "m.d.sync += waiting.eq(waiting + self.ask - self.valid)"
READY = "m.d.comb += self.ready.eq(waiting != 0)"
TOTAL = "m.d.sync += self.total.eq(Mux(self.ask, self.size, 3))"
ANSWERED = Surroundings("answers come to what was asked for",
                        promised=lambda m, signal: ~signal("valid") | (signal("waiting") != 0))
NEVER = Surroundings("nothing is asked for", promised=lambda m, signal: ~signal("ask"))
LATER = Surroundings("looked at with ready", seen={"total": lambda m, signal: signal("ready")})
SELDOM = Surroundings("looked at behind what was asked for", seen={"total": lambda m, signal: _before(m, signal("ask"))})


def _before(m, value):
    kept = Signal()
    m.d.sync += kept.eq(value)
    return kept


@needs_abc
@pytest.mark.parametrize(("statement", "operator", "what", "known", "same"), [
    (WAITING, "width", "top bit cut", NEVER, False),
    (WAITING, "width", "top bit cut", dataclasses.replace(ANSWERED, promised=lambda m, signal: NEVER.promised(m, signal)
                                                          & ANSWERED.promised(m, signal)), True),
    (WAITING, "arithmetic", "- becomes +", ANSWERED, False),
    (READY, "comparison", "!= becomes ==", ANSWERED, False),
    (TOTAL, "constant", "3 becomes 2", LATER, False),
    (TOTAL, "constant", "3 becomes 2", SELDOM, True),
    (TOTAL, "mux", "arms exchanged", SELDOM, False),
    (READY, "statement", "left out", SELDOM, False),
])
def test_surroundings(statement, operator, what, known, same):
    """A promise counts from reset to its first breach; what is looked at is compared, and so are promise and look themselves."""
    mutant = mutants(Counter)[statement, operator, what]
    if same:
        assert show(miter(mutant, Counter)).how is None
    both = miter(mutant, Counter, {instrument.Path(__file__).name: [known]})
    assert both.relies == known.why
    assert (show(both).how is not None) == same


def test_surroundings_of_another_module_are_left_out():
    """Those that speak of signals that the module lacks."""
    free = miter(mutants()[ANY, "boolean", "| becomes &"], Ring)
    assert miter(mutants()[ANY, "boolean", "| becomes &"], Ring, {instrument.Path(__file__).name: [ANSWERED, LATER]}) == free


@needs_abc
def test_every_module_that_holds_a_mutant_is_looked_at():
    """The first one wraps by itself, so that its end may be missed: not the second one. One holds what the other has not."""
    found = mutants(Pair)
    [(_, both)] = equivalence.miters([found["with m.If(self.at == self.last):", "condition", "always false"]], Pair)
    assert len(both) == 2
    assert show(both[0]).how is not None and show(both[1]).how is None
    assert equivalence.show_all(both) == show(both[1]) and equivalence.show_all(both[:1]) == show(both[0])
    [(_, alone)] = equivalence.miters([found["m.d.sync += down.eq(~down)", "statement", "left out"]], Pair)
    assert len(alone) == 1


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
