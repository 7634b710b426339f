"""Planes of the A-Core cut into pieces of work."""

import itertools

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.dram.memory_map import memory_map
from gradloom.host.order.pieces import Gate
from gradloom.models.network import load_network

BATCH = 16


@pytest.fixture(scope="module")
def builder():
    network, config = load_network("digits-cnn"), PRESETS["eta"]
    memory = memory_map(network, config, BATCH, training=True, steps=1, table=1, dw=False, sums=False)
    return ProgramBuilder(network, config, memory, batch=BATCH, training=True)


@pytest.mark.parametrize("groups,limit,cycles", [(2, 1, 512), (8, 16, 32), (64, 16, 16), (64, 5, 2), (8, 1, 8192)])
def test_every_plane_is_in_one_piece(builder, groups, limit, cycles):
    found = [
        (image, group)
        for _, images, chosen in builder.sweeps(groups, limit, cycles)
        for image, group in itertools.product(range(*images), chosen)
    ]
    assert sorted(found) == list(itertools.product(range(BATCH), range(groups)))
    assert len(set(found)) == len(found)


def test_a_piece_has_a_gate_of_its_own_planes(builder):
    def gate(images, groups):
        return Gate((builder.region("conv1", "z", images, groups),))

    for piece, images, chosen in builder.sweeps(64, 16, 64, gate=gate):
        (region,) = piece.gate.written
        assert region.space == "conv1.z" and region.box[:2] == (images, (chosen.start, chosen.stop))
        assert piece.cycles == (images[1] - images[0]) * len(chosen) * 64


def test_scalars_count_where_they_take_longer_than_the_beats(builder):
    pieces = [piece for piece, _, _ in builder.sweeps(64, 16, 2, prepared=22)]
    assert sum(piece.cycles for piece in pieces) == 64 * BATCH * 22


def test_small_planes_share_a_command(builder):
    """Commands of a few cycles would cost more in preparation; pieces of work stay short all the same."""
    for piece, images, _ in builder.sweeps(64, 16, 16):
        assert images[1] - images[0] == 8
        assert piece.cycles <= 1000
