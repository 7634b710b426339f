"""A board of the tests: a small machine behind an SDRAM and a cable, simulated as a whole."""

from gradloom.boards.board import Board
from gradloom.host.devices.board_choice import BoardChoice
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.link import Link
from gradloom.host.link.transport import CountingTransport, SimulatedTransport
from gradloom.sim.board.board_simulation import BoardSimulation, rtl_board

__all__ = ["TEST_BOARD", "TEST_CHOICE", "opened", "simulated"]

TEST_BOARD = Board(name="test-board", letters="TEST", die="LFE5U-85F", loader="none", nextpnr=(), idcode=0, platform="none",
                   machine="nano", clock=50_000_000, oscillator=25_000_000, memory="ULX3S", capture=0, clock_phase=90,
                   baud=3_000_000, usb=(1, 2))
"""Not among the boards of the command line; tests put it there."""
TEST_CHOICE = BoardChoice(TEST_BOARD, simulated=True)


def simulated(*, uart: bool = False, **memory: int) -> BoardSimulation:
    """The test's board; ``memory`` are settings of the SDRAM that differ from those of the part."""
    board = TEST_BOARD
    return rtl_board(board.config, board.part, clock=board.clock, capture=board.capture, board=board.letters, uart=uart,
                     memory=memory)


def opened(simulation: BoardSimulation) -> BoardDevice:
    """It as a device; bytes and calls of its transport are counted."""
    transport = CountingTransport(SimulatedTransport(simulation, TEST_BOARD.clock))
    return BoardDevice(Link(transport), kind="simulated", baud=TEST_BOARD.baud, wait=0.005)
