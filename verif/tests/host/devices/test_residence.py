"""What travels to a board: programs, images and state once; round trips of a start; bytes that are pinned."""

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import offset
from gradloom.host.devices.residence import Images, Snapshot, _differences
from gradloom.host.devices.runner import ProgramRunner, compile_programs, largest_batch
from gradloom.verif.link.software_backend import IdleDevice, software_board
from gradloom.verif.system_bench import make_case

SMALL = PRESETS["small"]
MEMORY = 1 << 20
SLOTS = 4


class Cable:
    """A runner on a board whose programs do nothing, and what its cable carries."""

    def __init__(self, case, memory=MEMORY):
        self.backend = IdleDevice(SMALL, memory)
        self.device = software_board(self.backend, memory)
        self.needed = 0
        self.runner = ProgramRunner(case.network, SMALL, case.batch, SLOTS, self.opened)

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
    assert len(runner._images._places) == len({image.tobytes() for image in np.concatenate(case.images[:2])})


class Log:
    """Writes of a device's memory, and where among them the machine was started and asked for its state."""

    def __init__(self, cable, monkeypatch):
        self.entries = []
        write, csr_write = cable.backend.write, cable.backend.csr_write
        monkeypatch.setattr(cable.backend, "write", lambda addr, data: (self.entries.append(addr), write(addr, data))[1])
        monkeypatch.setattr(cable.backend, "csr_write", lambda place, value: (
            self.entries.append("start") if place == offset("CONTROL") else None, csr_write(place, value))[1])

    def behind_the_start(self, first):
        """Writes from an address on, behind the latest start."""
        last = len(self.entries) - self.entries[::-1].index("start")
        return [addr for addr in self.entries[last:] if addr >= first]


def test_images_of_the_next_start_travel_while_the_machine_computes(case, monkeypatch):
    """They are sent behind START, before the end is waited for, and the start that takes them sends none; those of a call's own
    further starts without being told."""
    cable = Cable(case)
    runner = cable.runner
    runner.load(case.initial())
    log = Log(cable, monkeypatch)
    image = runner.steady.image_bytes
    runner.expect(lambda: case.images[1:1 + SLOTS])
    runner.train(case.images[:1], case.labels[:1], case.hypers[:1])
    assert log.behind_the_start(cable.needed) and runner._images.ahead == SLOTS * case.batch * image
    _, there, _ = cable.spent(lambda: runner.train(case.images[1:], case.labels[1:], case.hypers[1:]))
    images = SLOTS * case.batch * image
    assert runner._images.ahead == 2 * images and there < len(runner.steady.program(0)) + images + 4000
    _, there, _ = cable.spent(lambda: runner.train(case.images[-1:], case.labels[-1:], case.hypers[-1:]))
    assert not log.behind_the_start(cable.needed) and there < 3000


def test_a_full_memory_takes_batches_as_they_are(case):
    """No room for all images: what neither stays nor came ahead travels with its batch, what came ahead is gathered from where it
    passes, and nothing is written beyond the memory."""
    cable = Cable(case)
    runner, start = cable.runner, SLOTS * case.batch
    image = runner.steady.image_bytes
    for room in (1, case.batch, start - 1, start, start + case.batch + 1):
        cable.device._limit = cable.needed + room * image + image // 2
        kept = Images(cable.device, runner.steady, cable.needed, start)
        for first in (0, 1, 0, 5):
            coming = case.images[first:first + SLOTS]
            kept.bring(lambda coming=coming: coming)
            # The evaluation between start and start, and images that nobody told of.
            for plan, slot, images in ((runner._forward, 0, case.images[4]), *((runner.steady, slot, images)
                                       for slot, images in enumerate(coming)), (runner.steady, 1, case.images[-1][::-1])):
                kept.place(plan, slot, images, case.labels[0])
                address, data = plan.batch_images(slot, images)
                assert cable.device.read(address, len(data)) == data, (room, first, slot)
        assert len(kept._places) <= room and kept._kept == max(0, room - start)


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
