"""What travels to a board: programs, images and state once; round trips of a start; bytes that are pinned."""

import numpy as np
import pytest

from gradloom.host.devices.residence import Snapshot, _differences
from gradloom.host.devices.runner import ProgramRunner, compile_programs, largest_batch
from gradloom.rtl.config import PRESETS
from gradloom.verif.link.software_backend import IdleDevice, software_board
from gradloom.verif.system_bench import make_case

SMALL = PRESETS["small"]
MEMORY = 1 << 20
SLOTS = 4


class Cable:
    """A runner on a board whose programs do nothing, and what its cable carries."""

    def __init__(self, case, memory=MEMORY):
        self.device = software_board(IdleDevice(SMALL, memory), memory)
        self.runner = ProgramRunner(case.network, SMALL, case.batch, SLOTS, self.opened)
        self.needed = 0

    def opened(self, size):
        self.needed = size
        return self.device

    def spent(self, use):
        """Round trips, bytes there and bytes back of a use."""
        seen = self.device.link.statistics
        before = seen.round_trips, seen.bytes_sent, seen.bytes_received
        use()
        return tuple(after - first for after, first in zip(
            (seen.round_trips, seen.bytes_sent, seen.bytes_received), before, strict=True))


@pytest.fixture(scope="module")
def case():
    return make_case("tiny-relu", 2, 1 + 2 * SLOTS)


def test_programs_and_images_travel_once(case):
    """The second start of a program with the same images moves neither; three round trips a start with state and counters, two an
    evaluation."""
    cable = Cable(case)
    runner = cable.runner
    runner.load(case.initial())

    def start(first, last):
        runner.train(case.images[first:last], case.labels[first:last], case.hypers[first:last])
        runner.state()
        runner.cycle_table(None)

    trips, _, _ = cable.spent(lambda: start(0, 1))
    assert trips == 3
    program, image = len(runner.steady.program(0)), runner.steady.image_bytes
    trips, there, back = cable.spent(lambda: start(1, 1 + SLOTS))
    images = SLOTS * case.batch * image
    # Flags, headers and escapes are a few per cent more; the constants, labels and registers a few hundred bytes.
    assert trips == 3 and program + images < there < 1.1 * (program + images) + 4000
    again, sent, came = cable.spent(lambda: start(1, 1 + SLOTS))
    # Most of it asks for the counters.
    assert again == 3 and sent < 3000 and sent < there / 5 and came < back
    trips, there, _ = cable.spent(lambda: runner.evaluate(case.images[1], case.labels[1]))
    forward = len(runner._forward.program(0))
    assert trips == 2 and forward < there < 1.1 * forward + 4000
    trips, there, _ = cable.spent(lambda: runner.evaluate(case.images[2], case.labels[2]))
    assert trips == 2 and there < 500


def test_new_images_beside_known_ones(case):
    """Only those that are not there travel; a batch lies in the memory as if it had been written."""
    cable = Cable(case)
    runner = cable.runner
    runner.load(case.initial())
    mixed = np.concatenate([case.images[1][1:], case.images[0][:1]])
    for images in (case.images[0], case.images[1], mixed, mixed[::-1], np.concatenate([mixed[:1], mixed[:1]])):
        runner._images.place(runner.steady, 1, images, case.labels[0])
        cable.device.link.drain()
        address, data = runner.steady.batch_images(1, images)
        assert cable.device.read(address, len(data)) == data
    assert len(runner._images._numbers) == len({image.tobytes() for image in np.concatenate(case.images[:2])})


def test_a_full_memory_takes_batches_as_they_are(case):
    """No room for all images: what does not fit travels every time, and nothing is written beyond the memory."""
    plans = compile_programs(case.network, SMALL, case.batch, SLOTS, export_dw=True)
    limit = 1 << (plans[2].size - 1).bit_length()
    cable = Cable(case, limit)
    runner = cable.runner
    runner._images._most = case.batch + 1
    for images in case.images[:3]:
        runner._images.place(runner.steady, 0, images, case.labels[0])
        address, data = runner.steady.batch_images(0, images)
        assert cable.device.read(address, len(data)) == data
    assert len(runner._images._numbers) <= case.batch + 1


def test_a_failed_program_is_written_anew(case):
    """What a machine that stopped with an error left in memory is not trusted."""
    cable = Cable(case)
    runner = cable.runner
    runner.load(case.initial())
    runner.train(case.images[:2], case.labels[:2], case.hypers[:2])
    state = runner.state()
    for failed in (False, True):
        runner._failed = failed
        runner.load(state)
        _, there, _ = cable.spent(lambda: runner.train(case.images[1:2], case.labels[1:2], case.hypers[1:2]))
        assert (there > len(runner.steady.program(0))) == failed


def test_the_largest_batch_that_fits(case):
    """It fits, and one image more does not."""
    sizes = {batch: compile_programs(case.network, SMALL, batch, SLOTS, export_dw=True)[2].size for batch in (3, 4)}
    assert sizes[3] < sizes[4]
    assert largest_batch(case.network, SMALL, 6, SLOTS, sizes[4] - 1, export_dw=True) == 3
    assert largest_batch(case.network, SMALL, 6, SLOTS, 1000, export_dw=True) == 0


def test_snapshots_and_differences():
    snapshot = Snapshot([(0, 2), (8, 1)], [b"ab", b"c"])
    assert snapshot.read(0, 2) == b"ab" and snapshot.read(8, 1) == b"c"
    before = bytes(100)
    after = bytearray(before)
    after[3] = after[9] = after[60] = 1
    assert _differences(before, bytes(after)) == [(3, 10), (60, 61)] and _differences(before, before) == []
