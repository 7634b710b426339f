"""Clocks of a board: dividers within the data sheet's limits, and a reset that ends."""

import pytest
from amaranth.hdl import ClockSignal, Elaboratable, Module, ResetSignal, Signal
from amaranth.sim import Simulator

from gradloom.boards import clocking

OSCILLATOR = 25_000_000


@pytest.mark.parametrize("clock", [n * OSCILLATOR // 8 for n in range(1, 129)])
def test_dividers(clock):
    """Every multiple of an eighth of the oscillator up to the fastest has dividers within limits; it is made exactly."""
    pll = clocking.find_pll(OSCILLATOR, clock)
    assert OSCILLATOR * pll.feedback == clock * pll.reference
    assert 3_125_000 <= OSCILLATOR / pll.reference <= 400_000_000
    assert 400_000_000 <= clock * pll.output <= 800_000_000
    assert all(1 <= divider <= 128 for divider in (pll.reference, pll.feedback, pll.output))


@pytest.mark.parametrize("clock", [0, -25_000_000, 1_000_000, 25_000_001, 800_000_000])
def test_no_dividers(clock):
    with pytest.raises(ValueError, match=f"a clock of {clock} Hz cannot be made"):
        clocking.find_pll(OSCILLATOR, clock)


class Oscillator(Elaboratable):
    """A counter in ``sync``, straight from the oscillator."""

    def __init__(self) -> None:
        self.pin, self.reset, self.count = Signal(), Signal(), Signal(8)

    def elaborate(self, platform):
        m = Module()
        clocking.add_clock(m, self.pin, OSCILLATOR, OSCILLATOR)
        m.d.sync += self.count.eq(self.count + 1)
        m.d.comb += self.reset.eq(ResetSignal())
        return m


def test_reset_ends_once():
    """The reset stands when the device wakes up, lasts some cycles, and does not come back."""
    board, seen = Oscillator(), []
    top = Module()
    top.submodules.board = board
    top.d.comb += board.pin.eq(ClockSignal("pin"))
    simulator = Simulator(top)
    simulator.add_clock(1 / OSCILLATOR, domain="pin")

    async def watch(context):
        for _ in range(20):
            seen.append((context.get(board.reset), context.get(board.count)))
            await context.tick("pin")

    simulator.add_testbench(watch)
    simulator.run()
    resets = [reset for reset, _ in seen]
    held = resets.index(0)
    assert 2 <= held <= 8 and resets == [1] * held + [0] * (20 - held)
    assert [count for _, count in seen] == [0] * held + list(range(20 - held))
