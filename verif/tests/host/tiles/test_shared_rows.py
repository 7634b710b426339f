"""Rows that all WPUs share: which ones, where their copies lie, and training steps of layers that have some."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.isa import Opcode
from gradloom.host.compilation.windows import Shape
from gradloom.host.knobs import Knobs
from gradloom.host.tiles.conv_mapping import psum_words
from gradloom.host.tiles.phase_sweeps import backward_sweep, forward_sweep
from gradloom.host.tiles.shared_rows import StoredTile, shared_rows
from gradloom.models.network import Conv, FullyConnected, Network
from gradloom.verif.interpreting.step_check import check_steps

ETA = PRESETS["eta"]


def machine(wpus: int, **changes: int) -> Config:
    sizes = {"ibuf_depth": 512, "ebuf_depth": 512, "psum_depth": 256, "max_planes": 8, "dw_depth": 256}
    return Config(name="sharing", clusters=2, cols=2, wpus=wpus, **(sizes | changes))


def square(width: int, stride: int = 1, channels: int = 64) -> Shape:
    return Shape(channels, channels, width * stride, width * stride, width, width, 3, 3, stride, 1)


@pytest.mark.parametrize(
    ("width", "images", "found"),
    [
        (7, 4, (1, 1, 3)),  # 28 rows: 9 row groups, and parts of 2, 2 and 3 windows
        (7, 16, (1, 1, 3)),
        (7, 3, None),  # 21 rows: none is left over
        (7, 5, None),  # two rows: 4 cycles each, no less than 7 together
        (14, 1, None),  # as for 5 x 7
        (28, 4, (1, 4, 12)),
        (32, 1, (2, 5, 12)),
        (56, 1, None),  # the buffer would hold the inputs of 4 steps, not of 5
        (4, 16, None),  # parts of one beat leave nothing for the last WPU
    ],
)
def test_rows_of_whole_images(width, images, found):
    for sweep in (forward_sweep(square(width), ETA), backward_sweep(square(width))):
        shared = sweep.shared(ETA, images)
        assert (shared and (shared.units, shared.beats, shared.last)) == found
        groups, left = divmod(images * width, 3)
        cycles = groups * width + left * (found[2] + 1) if found else -(-images * width // 3) * width
        assert sweep.cycles(ETA, images) == sweep.step_cycles(ETA, images) == cycles
        assert psum_words(sweep, ETA, images) == -(-(groups + (left if found else left > 0)) // 2) * -(-width // 2)


def test_no_rows_are_shared_by_one_wpu_or_other_kernels():
    one = dataclasses.replace(ETA, wpus=1)
    assert forward_sweep(square(7), one).shared(one, 4) is None
    for kernel, pad in ((1, 0), (3, 0), (5, 2)):
        shape = dataclasses.replace(square(7), ky=kernel, kx=kernel, pad=pad)
        assert forward_sweep(shape, ETA).shared(ETA, 4) is None
    assert backward_sweep(square(7, 2)).shared(ETA, 4) is None


def test_copies_lie_beside_the_last_rows_if_they_can():
    """28 rows leave one of nine banks occupied at the last address: the two rows that are read (the third one is padding) have six
    copies in the others. 112 rows occupy four banks."""
    beside = forward_sweep(square(7), ETA).shared(ETA, 4)
    assert beside and (beside.reads, beside.bank, beside.addr) == (((0, 0), (0, 1)), 1, 12)
    assert forward_sweep(square(7), ETA).addresses(ETA, 4) == 16
    behind = forward_sweep(square(7), ETA).shared(ETA, 16)
    assert behind and (behind.bank, behind.addr, behind.entries) == (0, 52, 3)
    assert forward_sweep(square(7), ETA).addresses(ETA, 16) == 55
    # The address of a shared row's parts counts from where the row itself lies: row 110 at address 12 x 4.
    assert behind.behind == 52 - 48


def test_rows_of_a_span():
    sweep = forward_sweep(square(56), ETA)
    tile = StoredTile(3 * 56 + 33, 4 * 56, 32, 24)
    shared = shared_rows(sweep, ETA, tile)
    assert shared and (shared.units, shared.image, shared.row) == (2, 0, 53)
    assert shared.reads == ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))
    # One row group, of which every WPU must have a row of the image before.
    assert shared_rows(sweep, ETA, StoredTile(0, 58, 0, 58)) is None


def network(width: int, *, stride: int = 1, residual: bool = False) -> Network:
    """A layer of 4 channels between two others."""
    layers = [
        Conv(name="a", out=4, kernel=3, pad=1),
        Conv(name="b", out=6, kernel=3, pad=1, stride=stride),
        Conv(name="c", out=6, kernel=3, pad=1, residual="b" if residual else None),
        FullyConnected(name="fc", out=3),
    ]
    return Network("sharing", (2, width * stride, width * stride), 3, tuple(layers))


BOTH, GRADIENTS, NONE = {0, 1}, {1}, set[int]()


@pytest.mark.parametrize(
    ("width", "batch", "wpus", "stride", "shared"),
    [
        (7, 4, 3, 1, BOTH),
        (7, 4, 3, 2, BOTH),
        (8, 2, 3, 1, GRADIENTS),
        (5, 1, 2, 1, BOTH),
        (11, 1, 3, 1, NONE),
        (13, 1, 3, 2, BOTH),
        (7, 1, 2, 2, BOTH),
        (14, 2, 3, 1, GRADIENTS),
        (9, 3, 2, 1, BOTH),
        (16, 1, 3, 1, BOTH),
    ],
)
def test_training_steps(width, batch, wpus, stride, shared):
    plans = check_steps(network(width, stride=stride, residual=True), machine(wpus), batch=batch, order=width)
    commands = [i for i in plans[-1].instructions if i.opcode == Opcode.CONV]
    assert {i["wg"] for i in commands if i["shared"]} == shared
    assert any(i["shared"] for i in plans[-1].instructions if i.opcode == Opcode.RUN) == (0 in shared)


@pytest.mark.parametrize("cut", [0, 8])
def test_planes_in_rows(cut):
    """The A-Core takes rows of planes, some commands shared rows alone; strips of one image wait for the rows that they read."""
    plans = check_steps(network(16), machine(3, abuf_depth=256), batch=1, order=2, knobs=Knobs(subtile_beats=cut))
    shared = {(i["shared"], i["py"]) for i in plans[-1].instructions if i.opcode == Opcode.RUN and i["shared"]}
    assert shared and (not cut or max(rows for _, rows in shared) < 16)
