"""The simulated link itself: its memory, what it says after a violation, and that it does not wait for ever."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.frame_format import Kind
from gradloom.host.link.frames import encode, write_request
from gradloom.sim.link.link_device import LinkSimulation
from gradloom.sim.simulation import ProtocolError

CONFIG = PRESETS["nano"]


def opened(simulation, session=1):
    """Open a session with raw frames."""
    simulation.feed(encode(bytes([session, 0, 0, Kind.HELLO])))
    token = simulation.settle()[2]
    simulation.feed(encode(bytes([session, token, 0, Kind.OPEN])))
    simulation.settle()


def test_memory_is_bounded_and_a_closed_simulation_says_so():
    simulation = LinkSimulation(CONFIG)
    simulation.write(0xFFFE, b"ab")
    assert simulation.read(0xFFFD, 3) == b"\0ab"
    for use in (lambda: simulation.write(0xFFFF, b"ab"), lambda: simulation.read(0x10000, 1)):
        with pytest.raises(IndexError, match="lie outside the DRAM"):
            use()
    simulation.close()
    simulation.close()
    with pytest.raises(ValueError, match="this simulation is closed"):
        simulation.take()


def test_a_burst_outside_the_fence_is_a_violation():
    simulation = LinkSimulation(CONFIG)
    opened(simulation)
    simulation.fence(0, 0x100)
    simulation.feed(encode(bytes([1, 0, 0]) + write_request(0xFC, b"1234")))
    simulation.settle()
    simulation.obey()
    simulation.feed(encode(bytes([1, 1, 1]) + write_request(0xFE, b"1234")))
    simulation.settle()
    with pytest.raises(ProtocolError, match=r"m_axi_ in cycle \d+: AW: the burst leaves the fence, address 0x100$"):
        simulation.close()


def test_bytes_and_strobes_are_counted_and_waiting_has_an_end():
    with LinkSimulation(CONFIG) as simulation:
        opened(simulation)
        simulation.feed(encode(bytes([1, 0, 0]) + write_request(0x101, b"12345")))
        with pytest.raises(TimeoutError, match="the link still moves after 20 cycles"):
            simulation.settle(20)
        simulation.settle()
        counts = simulation.counts()
        assert (counts["bytes_written"], counts["write_beats"], counts["write_bursts"]) == (5, 3, 1)
        assert simulation.wait(10) == 10
