"""Block RAM behind AXI4: random traffic, addresses beyond its size, a beat a cycle, AXI4 rules."""

import re

import pytest

from gradloom.rtl.board.memory import block_ram
from gradloom.verif.board.axi_memory import PortChecker
from gradloom.verif.board.axi_traffic import Burst, Manager, Scoreboard, Traffic, stream
from gradloom.verif.board.packed import simulate
from gradloom.verif.formal.run import planted_bug

STALLS = dict.fromkeys(("ar", "r", "aw", "w", "b"), 0.3)


def run(beat, *, size=1 << 10, bursts=None, stalls=None, design=block_ram, checked=False, limit=20_000):
    board = Scoreboard(bytes(size))
    dut = design.BlockRam(beat, size)
    if bursts is None:
        # The last writes fill it, and reads of it all follow, so that the bytes in the end are looked at.
        places = (range(size), range(128), range(size, 4 * size), range(1 << 31, (1 << 31) + 64))
        traffic = Traffic(bursts=110, seed=beat, places=(*places[:2], *places), partial=not checked, longest=40)
        bursts = [*traffic.generate(beat), *(burst for burst in stream(beat, address=0, size=size, write=False))]
    manager = Manager("bus", beat, bursts, board, stalls=stalls or {})
    checkers = [PortChecker("bus", beat)] if checked else []
    cycles = simulate(dut, [manager, *checkers], manager.done, limit=limit)
    for checker in checkers:
        assert checker.violations == []
    return cycles


@pytest.mark.parametrize("beat", [2, 4, 8, 16])
@pytest.mark.parametrize("stalls", [{}, STALLS])
def test_random_traffic(beat, stalls):
    run(beat, stalls=stalls)


def test_axi_rules():
    run(4, stalls=STALLS | {"b": 0}, checked=True)


@pytest.mark.parametrize("write", [False, True])
def test_a_beat_a_cycle(write):
    """64 beats of a burst in 64 cycles, one more between bursts."""
    assert run(4, bursts=stream(4, address=0, size=1024, write=write)) <= 4 * 65 + 6


def test_reads_and_writes_take_turns():
    bursts = [burst for pair in zip(stream(4, address=0, size=512, write=False), stream(4, address=512, size=512, write=True),
                                    strict=True) for burst in pair]
    assert run(4, bursts=bursts) <= 4 * 65 + 8


def test_a_burst_over_the_end_writes_up_to_it():
    """Such a burst is not a machine's; what lies beyond must not come round to the beginning."""
    board = Scoreboard(bytes(64))
    burst = Burst(True, 56, 4, [1, 2, 3, 4], [15] * 4)
    manager = Manager("bus", 4, [burst, *(Burst(False, address, 1) for address in (0, 4, 56, 60))], board)
    original, board.begin = board.begin, lambda burst, beat, owner: original(burst, beat, owner) if not manager.writes else False
    board.image[56:64] = (1).to_bytes(4, "little") + (2).to_bytes(4, "little")
    simulate(block_ram.BlockRam(4, 64), [manager], manager.done, limit=200)


BUGS = [
    ("Mux(put & ~write_beat[bits], bus.w.p.strb, 0)", "Mux(put, bus.w.p.strb, 0)"),
    ("Mux(put & ~write_beat[bits], bus.w.p.strb, 0)", "Mux(put & ~write_beat[bits], 1, 0)"),
    ("want_get.eq(reading & (~bus.r.valid | bus.r.ready))", "want_get.eq(reading)"),
    ("want_put.eq(writing & bus.w.valid & ~bus.b.valid)", "want_put.eq(writing & bus.w.valid)"),
    ("bus.r.p.last.eq(reads_left == 0)", "bus.r.p.last.eq(reads_left == 1)"),
    ("beat[bits].eq(address.p.addr[low + bits:].any())", "beat[bits].eq(address.p.addr[low + bits])"),
]


@pytest.mark.parametrize("bug", range(len(BUGS)))
def test_planted_bugs(bug):
    design = planted_bug("gradloom.rtl.board.memory.block_ram", *BUGS[bug])
    with pytest.raises(AssertionError):
        run(4, design=design, stalls=STALLS, limit=6000)


@pytest.mark.parametrize("size", [0, 4, 96])
def test_sizes_that_are_refused(size):
    message = f"size of the block RAM must be a power of two and hold two beats (8 bytes), not {size}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        block_ram.BlockRam(4, size)
