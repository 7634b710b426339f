"""A machine behind the link, both in RTL, as the host drives a board."""

import random

import pytest

from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.link import Link
from gradloom.host.link.transport import SimulatedTransport
from gradloom.models import digests
from gradloom.rtl.config import PRESETS
from gradloom.sim.link.linked_machine import linked_machine
from gradloom.verif.link.model_transport import FaultyTransport
from gradloom.verif.system_bench import golden_digest, make_case

pytestmark = pytest.mark.long("builds a machine of its own; test_board_device.py trains one behind the model of the link")


@pytest.mark.parametrize("rate", [0.0, 0.02])
def test_a_network_trains_over_the_cable(rate):
    """Register and memory accesses go through the link's RTL, and so does the interrupt; with faults on the line, too."""
    case = make_case("tiny-relu", 2, 3)
    devices: list[BoardDevice] = []

    def open_device(size):
        board = linked_machine(PRESETS["nano"], 1 << (size - 1).bit_length())
        devices.append(BoardDevice(Link(FaultyTransport(SimulatedTransport(board), random.Random(1), rate))))
        return devices[0]

    runner = ProgramRunner(case.network, PRESETS["nano"], case.batch, 8, open_device)
    try:
        runner.load(case.initial())
        runner.train(case.images, case.labels, case.hypers)
        assert digests.parameters_digest(case.network, runner.state()) == golden_digest(case)
        assert (devices[0].link.statistics.syncs == 0) == (rate == 0)
    finally:
        runner.close()


def test_a_machine_with_more_ports():
    with pytest.raises(ValueError, match="a linked machine has one port to its memory, small has more"):
        linked_machine(PRESETS["small"], 1 << 16)
