"""A board as a device: what a use of it costs in round trips, what goes wrong when, and a network that trains over the cable."""

import numpy as np
import pytest

from gradloom.contracts.regmap import offset, register
from gradloom.host.devices.device import csr_batch
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.frames import poll, read, write
from gradloom.host.link.link import Link, LinkError
from gradloom.models import digests
from gradloom.verif.link.board_model import BoardModel, MemoryBackend
from gradloom.verif.link.machine_backend import board_with
from gradloom.verif.link.model_transport import ModelTransport
from gradloom.verif.system_bench import golden_digest, make_case, open_runner


@pytest.fixture
def backend():
    return MemoryBackend(1 << 16)


@pytest.fixture
def device(backend):
    return BoardDevice(Link(ModelTransport(BoardModel(backend, 4))))


def trips(device):
    return device.link.statistics.round_trips


def test_writes_wait_for_nothing_and_a_read_for_all_of_them(device, backend):
    data = bytes(range(251)) * 20
    device.write(0x101, data)
    for n in range(40):
        device.csr_write(4 * n, n)
    device.write(0x3000, b"next")
    assert trips(device) == 0
    assert device.read(0x101, len(data)) == data and device.read(0x3000, 4) == b"next"
    assert trips(device) == 2 and backend.writes == [(4 * n, n) for n in range(40)]
    assert device.read(0x100, 0) == b""


def test_a_start_is_sent_at_once(device, backend):
    """With what was written before it, so that the machine computes while the host prepares what comes next."""
    device.csr_write(0x10, 7)
    assert not backend.writes
    device.csr_write(offset("CONTROL"), register("CONTROL").field("start").mask)
    device.link.transport.read(0.0)
    assert backend.writes == [(0x10, 7), (offset("CONTROL"), 1)] and trips(device) == 0


def test_a_table_of_registers_is_one_round_trip(device):
    accesses = [access for tid in range(300) for access in ((offset("EXP_INDEX"), tid), (offset("EXP_VALUE"), None))]
    assert csr_batch(device, accesses) == [0] * 300
    assert trips(device) == 1
    device.csr_write(0x10, 77)
    assert device.csr_read(0x10) == 77 and trips(device) == 2
    assert device.script([write(0x10, 5), poll(0x10, 7, 5, 3), read(0x10)]) == [5, 5] and trips(device) == 3


def test_fill_and_gather(device, backend):
    images = np.random.default_rng(1).integers(0, 256, (300, 24), np.uint8)
    device.write(0x1000, images.tobytes())
    numbers = [int(number) for number in np.random.default_rng(2).permutation(300)[:130]]
    device.gather(numbers, 24, 0x1000, 0x8000, 32)
    device.fill(0x100, 64, 0xAB)
    batch = np.frombuffer(device.read(0x8000, 130 * 32), np.uint8).reshape(130, 32)
    assert (batch[:, :24] == images[numbers]).all() and device.read(0xFC, 72) == bytes(4) + b"\xab" * 64 + bytes(4)
    assert backend.memory[0x100:0x140] == b"\xab" * 64


@pytest.mark.parametrize("use", [
    lambda device: device.write(0xFFFF, b"12"), lambda device: device.read(-1, 4), lambda device: device.fill(0x10000, 4),
    lambda device: device.gather([0, 1], 0x8000, 0x1000, 0, 0x8000)])
def test_addresses_outside_the_memory(device, use):
    with pytest.raises(IndexError, match="lie outside the board's memory, 0x0 to 0xffff"):
        use(device)


def test_what_fails_names_itself_when_the_host_next_waits(device, backend):
    backend.bad_registers, backend.bad_memory = range(0x20, 0x24), range(0x2000, 0x2004)
    device.csr_write(0x10, 1)
    device.csr_write(0x20, 2)
    with pytest.raises(LinkError, match=r"^write of register 0x0020: a register refused an access$"):
        device.csr_read(0x10)
    with pytest.raises(LinkError, match=r"^read of register 0x0020: a register refused an access$"):
        device.csr_read(0x20)
    with pytest.raises(LinkError, match=r"^write of memory at 0x2000: the memory answered a write with an error$"):
        device.write(0x2000, b"1234")
        device.read(0x100, 4)
    with pytest.raises(LinkError, match=r"^read of memory at 0x1ff0: the memory answered a read with an error$"):
        device.read(0x1FF0, 64)
    with pytest.raises(LinkError, match=r"^poll of register 0x0010: a register did not get the wanted value$"):
        device.script([poll(0x10, 1, 0, 5)])
    with pytest.raises(LinkError, match=r"^fill of memory at 0x1: fill or gather: an address or a length is no multiple"):
        device.fill(1, 4)
        device.run(0)
    assert device.csr_read(0x10) == 1


def test_an_interrupt_of_an_earlier_program_is_none_of_the_next(device):
    board = device.link.transport.board
    began = device.link.transport.now()
    board.set_irq(1)
    assert device.run(1000) < 25_000_000 and device.link.transport.now() - began < 0.4
    board.set_irq(0)
    board.set_irq(1)
    device.link._pump(0.0)
    assert device.link.interrupt is not None
    device.csr_write(offset("CONTROL"), register("CONTROL").field("start").mask)
    assert device.run(1000) >= 25_000_000
    board.set_irq(0)
    board.set_irq(1)
    assert device.run(1000) < 25_000_000


def test_close_finishes_what_is_under_way(device, backend):
    device.csr_write(0x10, 9)
    device.close()
    assert backend.writes == [(0x10, 9)] and device.link.transport.closed


def test_a_network_trains_over_the_cable_and_nobody_polls():
    """The same runner as on the simulated machine: the same bytes; and between start and end of a program nothing is asked."""
    case = make_case("tiny-relu", 2, 4)
    boards: list[BoardDevice] = []

    def wrap(device):
        boards.append(board_with(device))
        return boards[0]

    # Half of memory would be too little: the link may touch a power of two of bytes.
    runner = open_runner(case, "nano", wrap=wrap, spare=1 << 20)
    try:
        runner.load(case.initial())
        runner.train(case.images[:1], case.labels[:1], case.hypers[:1])
        before = trips(boards[0])
        runner.train(case.images[1:], case.labels[1:], case.hypers[1:])
        # All writes and the start (1); registers, logits of three steps and the state (2).
        assert trips(boards[0]) - before == 2
        assert digests.parameters_digest(case.network, runner.state()) == golden_digest(case)
        before = trips(boards[0])
        table = runner.cycle_table(None)
        assert table["by_layer_phase"] and trips(boards[0]) - before == 1
        seen = boards[0].link.statistics
        assert (seen.syncs, seen.resent, seen.bad_frames) == (0, 0, 0)
    finally:
        runner.close()
