"""How weight gradients are cut."""

import dataclasses
import itertools

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.backward.gradient_blocks import GradientShape, choose_blocks
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.windows import Shape
from gradloom.host.tiles.phase_sweeps import forward_sweep

ETA = dataclasses.replace(PRESETS["eta"], ibuf_depth=1024, ebuf_depth=1024, dw_depth=512)


def gradient(config, *, cg, mg, y, x, kernel=3, stride=1):
    shape = Shape(cg, mg, y, x, y // stride, x // stride, kernel, kernel, stride, kernel // 2)
    sweep = forward_sweep(shape, config)
    tiles, steps = (-(-mg // 3), -(-cg // 3)) if sweep.k1 else (mg, cg)
    return GradientShape("layer", sweep, tiles, mg, steps, (shape.xo + 1) // 2, 9 * config.block_beats, config.dw_depth)


def covers(ranges, low, high):
    assert ranges[0][0] == low and ranges[-1][1] == high
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in itertools.pairwise([*ranges, (high, high)]))


@pytest.mark.parametrize("cg,mg,y,x", [(2, 2, 32, 32), (4, 4, 16, 16), (8, 8, 8, 8), (64, 64, 2, 2), (1, 8, 32, 32)])
def test_blocks_fit_and_cover(cg, mg, y, x):
    shape = gradient(ETA, cg=cg, mg=mg, y=y, x=x)
    blocks = choose_blocks(shape, ETA, (0, 16))
    covers([(row_range.first, row_range.last) for row_range in blocks.row_ranges], 0, 16 * shape.sweep.upi)
    covers(blocks.tiles, 0, shape.tiles)
    covers(blocks.steps, 0, shape.steps)
    tiles, steps = (max(high - low for low, high in ranges) for ranges in (blocks.tiles, blocks.steps))
    for row_range in blocks.row_ranges:
        assert steps * row_range.addresses(ETA) <= ETA.ibuf_depth
        assert -(-tiles // 3) * shape.error_addresses(ETA, row_range) <= ETA.ebuf_depth
    assert len(blocks.row_ranges) == 1 or tiles * steps * shape.beats <= ETA.dw_depth


def test_all_pairs_of_a_wide_layer_share_their_operands():
    """ResNet20's first stage: 16 images of 32 x 32 do not fit, some rows do, for all four pairs of 8 x 8 channels."""
    shape = gradient(ETA, cg=2, mg=2, y=32, x=32)
    blocks = choose_blocks(shape, ETA, (0, 16))
    assert blocks.tiles == ((0, 2),) and blocks.steps == ((0, 2),)
    assert all(4 * 2 * row_range.addresses(ETA) <= ETA.ibuf_depth for row_range in blocks.row_ranges)
    assert all(3 * shape.error_addresses(ETA, row_range) <= ETA.ebuf_depth for row_range in blocks.row_ranges)


def test_no_wpu_is_without_a_row_before_the_last():
    """512 rows: 171 row groups, and not 11 for each of 16 images."""
    blocks = choose_blocks(gradient(ETA, cg=2, mg=2, y=32, x=32), ETA, (0, 16))
    assert sum(row_range.groups(ETA) for row_range in blocks.row_ranges) == 171
    assert any(row_range.left_out for row_range in blocks.row_ranges)


@pytest.mark.parametrize("cg,mg,y,stride,stay", [(32, 64, 4, 1, True), (16, 32, 8, 2, False)])
def test_what_costs_most_to_load_again_stays_on_chip(cg, mg, y, stride, stay):
    """Stride 1: a few blocks of inputs, many of errors; stride 2: few of errors, as inputs are four times larger."""
    blocks = choose_blocks(gradient(ETA, cg=cg, mg=mg, y=y, x=y, stride=stride), ETA, (0, 16))
    assert blocks.inputs_stay == stay
    order = [(steps, tiles) if stay else (tiles, steps) for _, tiles, steps, _ in blocks]
    assert order == sorted(order)


def test_errors_of_a_first_layer_come_once():
    """ResNet18's stem, 112 x 112 of 147 windows' channels: inputs come twice through four channels, errors once through theirs."""
    shape = gradient(PRESETS["eta"], cg=19, mg=8, y=112, x=112, kernel=1)
    usual, alone = (choose_blocks(dataclasses.replace(shape, alone=value), PRESETS["eta"], (0, 4)) for value in (False, True))
    assert (len(usual.tiles), len(usual.steps)) == (1, 2)
    assert (len(alone.tiles), len(alone.steps)) == (2, 1)


def test_errors_that_take_one_channel_too_long_come_less_often():
    """ResNet18's first convolution of stride 2: the errors of each input group anew take their channel 200 thousand cycles, the
    array 143; those of every second one leave the inputs, which come twice as often then, to three channels."""
    shape = dataclasses.replace(gradient(PRESETS["eta"], cg=8, mg=16, y=56, x=56, stride=2), beats=36, room=256)
    blocks = choose_blocks(shape, PRESETS["eta"], (0, 4))
    assert (len(blocks.tiles), len(blocks.steps)) == (6, 4)


def test_of_equals_the_errors_stay():
    """ResNet18's last stage: four blocks of outputs or four of steps load as much."""
    config = dataclasses.replace(ETA, ebuf_depth=768)
    blocks = choose_blocks(gradient(config, cg=64, mg=64, y=7, x=7), config, (0, 4))
    assert len(blocks.tiles) == 4 and not blocks.inputs_stay


def test_whole_batch_at_once_needs_no_open_gradients():
    """VGG16's last stage: 4096 pairs, more than the gradient buffer holds, but all images fit."""
    assert choose_blocks(gradient(ETA, cg=64, mg=64, y=2, x=2), ETA, (0, 16)).row_ranges[0].images == (0, 16)


def test_layer_that_does_not_fit():
    config = dataclasses.replace(PRESETS["small"], ibuf_depth=8)
    message = r"layer 'layer': one row group takes \d+ addresses of each input row bank.*raise them or shrink"
    with pytest.raises(ScheduleError, match=message):
        choose_blocks(gradient(config, cg=2, mg=2, y=32, x=32), config, (0, 4))
