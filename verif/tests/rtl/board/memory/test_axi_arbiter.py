"""AXI4 arbiter: responses to who asked, in order; every burst served within a bound; AXI4 rules on both sides."""

import itertools
import re

import pytest

from gradloom.rtl.board.memory import axi_arbiter
from gradloom.verif.board.axi_memory import PortChecker, Subordinate
from gradloom.verif.board.axi_traffic import Burst, Manager, Scoreboard, Traffic, stream
from gradloom.verif.board.packed import simulate
from gradloom.verif.formal.run import planted_bug

BEAT, SIZE = 4, 1 << 13
STALLS = dict.fromkeys(("ar", "r", "aw", "w", "b"), 0.3)


def run(managers, *, design=axi_arbiter, bursts=None, stalls=None, partial=True, count=70, outstanding=16, limit=20_000, latency=3):
    """Random traffic of all managers at one memory, or ``bursts`` of each. Returns the managers, the memory and the cycles."""
    dut = design.AxiArbiter(managers, BEAT, outstanding=outstanding)
    image = bytes(n * 31 & 255 for n in range(SIZE))
    memory = Subordinate("memory", BEAT, bytearray(image), stalls=stalls or {}, latency=latency)
    board = Scoreboard(image)
    if bursts is None:
        places = (range(SIZE), range(512), range(SIZE, SIZE + 512))
        asked = [Traffic(bursts=count, seed=n, places=places, longest=20, partial=partial, stalls={
            channel: share for channel, share in (stalls or {}).items() if partial or channel != "b"})
                 for n in range(managers)]
        found = [Manager.of(f"manager__{n}", BEAT, traffic, board) for n, traffic in enumerate(asked)]
    else:
        found = [Manager(f"manager__{n}", BEAT, each, board) for n, each in enumerate(bursts)]
    checkers = [] if partial else [PortChecker(prefix, BEAT) for prefix in ("memory", *(manager.prefix for manager in found))]
    cycles = simulate(dut, [*found, memory, *checkers], lambda: all(manager.done() for manager in found), limit=limit)
    assert memory.memory == board.image
    assert [checker.violations for checker in checkers] == [[]] * len(checkers)
    return found, memory, cycles


@pytest.mark.parametrize("managers", [1, 2, 3])
@pytest.mark.parametrize("stalls", [{}, STALLS])
def test_random_traffic(managers, stalls):
    run(managers, stalls=stalls)


@pytest.mark.parametrize("stalls", [{}, STALLS])
def test_axi_rules_on_both_sides(stalls):
    """Managers as a machine's: whole beats, answers taken at once. The checker looks at the managers' ports and the memory's."""
    run(2, stalls=stalls, partial=False)


def test_the_checker_sees_a_payload_that_changes():
    """A turn that is not held would change an address that waits."""
    bug = planted_bug("gradloom.rtl.board.memory.axi_arbiter", "self.taken | ~self.offers[turn]", "1 | self.taken")
    with pytest.raises(AssertionError, match="changed before READY"):
        run(3, design=bug, stalls=STALLS, partial=False, limit=5000)


@pytest.mark.parametrize("write", [False, True])
def test_a_burst_waits_for_one_of_each_other_manager(write):
    """All ask all the time: turns are taken burst by burst, and one manager alone gets every cycle."""
    bursts = [[Burst(write, 64 * (16 * n + k) % SIZE, 4, [n] * 4, [15] * 4) for k in range(16)] for n in range(3)]
    _, memory, cycles = run(3, bursts=bursts)
    owners = [address // 1024 for _, address, _ in memory.bursts]
    assert owners[:45] == [owner for owner in itertools.islice(itertools.cycle(owners[:3]), 45)] and set(owners[:3]) == {0, 1, 2}
    assert cycles <= 3 * 16 * 4 + 16, "a cycle was lost between bursts"


@pytest.mark.parametrize("write", [False, True])
def test_a_stream_of_one_manager_gets_every_cycle(write):
    _, _, cycles = run(2, bursts=[stream(BEAT, address=0, size=2048, write=write), []])
    assert cycles <= 2048 // BEAT + 12


def test_reads_do_not_wait_for_writes():
    """A manager that brings no write data holds up no read."""
    class Mute(Manager):
        def drive(self, ports):
            super().drive(ports)
            if not all(other.done() for other in self.others):
                ports[f"{self.prefix}__w__valid"] = self.offered["w"] = False

    board = Scoreboard(bytes(SIZE))
    mute = Mute("manager__0", BEAT, stream(BEAT, address=0, size=256, write=True), board)
    reader = Manager("manager__1", BEAT, stream(BEAT, address=4096, size=1024, write=False), board)
    mute.others = [reader]
    memory = Subordinate("memory", BEAT, bytearray(SIZE))
    simulate(axi_arbiter.AxiArbiter(2, BEAT), [mute, reader, memory], lambda: mute.done() and reader.done(), limit=2000)


def test_as_many_bursts_as_stated_are_under_way():
    """A memory that answers late and takes all addresses at once sees ``outstanding`` of them, and no more."""
    for outstanding in (1, 3):
        bursts = [[Burst(False, 64 * k, 1) for k in range(12)], []]
        _, memory, cycles = run(2, bursts=bursts, outstanding=outstanding, latency=30)
        assert len(memory.bursts) == 12 and 12 // outstanding * 30 < cycles < (12 // outstanding + 1) * 36


BUGS = [
    ("(owners.o.payload == n)),", "(owners.o.payload == 0)),"),
    ("memory.valid.eq(offer.valid & space)", "memory.valid.eq(offer.valid)"),
    ("owners.o.ready.eq(memory.valid & memory.ready & last)", "owners.o.ready.eq(memory.valid & memory.ready)"),
    ("self.memory.w.ready & self.memory.w.p.last)", "self.memory.w.ready)"),
    ("self.memory.w.ready & writers.o.valid & (owner == n)", "self.memory.w.ready & (owner == n)"),
    ("offer.ready.eq(memory.ready & space & (turn.chosen == n))", "offer.ready.eq(memory.ready & space)"),
    ("other = (turn + step) % self.managers", "other = min(turn + step, self.managers - 1)"),
]


@pytest.mark.parametrize("bug", range(len(BUGS)))
def test_planted_bugs(bug):
    design = planted_bug("gradloom.rtl.board.memory.axi_arbiter", *BUGS[bug])
    with pytest.raises(AssertionError):
        run(3, design=design, stalls=STALLS, outstanding=2, limit=6000)


def test_parameters():
    with pytest.raises(ValueError, match=re.escape("managers must be a positive integer, not 0")):
        axi_arbiter.AxiArbiter(0, BEAT)
    with pytest.raises(ValueError, match=re.escape("beat_bytes must be a power of two, not 6")):
        axi_arbiter.AxiArbiter(2, 6)
