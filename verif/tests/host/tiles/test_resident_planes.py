"""Planes that stay in the partial sums: their pieces, and training steps of layers that are computed so."""

import dataclasses
import itertools

import pytest

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.isa import Opcode, Pattern
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.cost_model.workload import windows
from gradloom.host.dram.im2col import lower
from gradloom.host.dram.memory_map import memory_map
from gradloom.host.forward.forward_tiles import forward_work
from gradloom.host.schedule import compile_network
from gradloom.host.tiles.resident_planes import REST, ResidentPlane, piece_sizes
from gradloom.models.network import Conv, FullyConnected, GlobalAvgPool, MaxPool, Network, Rounding, load_network
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.configs import machine_config
from gradloom.verif.interpreting.step_check import check_steps

KEPT = machine_config("kept")


def kept_plane(name: str, config: Config, *, stacked: bool = True) -> ResidentPlane:
    lowered = lower(load_network(name), config)
    memory = memory_map(lowered.network, config, 1, training=True, steps=1, table=1, dw=False, sums=False)
    builder = ProgramBuilder(lowered.network, config, memory, batch=1, training=True, lowered=lowered)
    work, plane = forward_work(builder, lowered.network.layers[0], stacked=stacked)
    return ResidentPlane(work, plane, bits=True)


def test_sizes_of_pieces():
    for count, room, rest in itertools.product(range(1, 40), range(1, 20), range(4)):
        sizes = piece_sizes(count, room, rest)
        if not sizes:
            assert count > 2 * room or count < 3 or 2 * max(1, rest) >= count
            continue
        assert sum(sizes) == count and min(sizes) > 0 and len(sizes) in (3, 5)
        assert sum(sizes[::2]) <= room and sum(sizes[1::2]) <= room
        assert min(sizes[:2]) >= rest, "the rest takes the places of the first two pieces"


def test_pieces_of_the_stem():
    """Of 112 rows either half holds nine times six; the A-Core sweeps growing pieces of the halves in turns."""
    kept = kept_plane("resnet18", PRESETS["eta"])
    for up in (True, False):
        pieces = kept.pieces(up=up)
        rows = [row for piece in pieces.values() for row in range(piece.tile.first, piece.tile.last)]
        assert sorted(rows) == list(range(112))
        assert [pieces[n].tile.last - pieces[n].tile.first for n in (0, 1, 2, 3, 4, REST)] == [6, 12, 24, 42, 24, 4]
        assert [pieces[n].sums.half for n in range(5)] == [0, 1, 0, 1, 0]
        assert pieces[REST].sums == pieces[0].sums
        for half in (0, 1):
            sums = [piece.sums for n, piece in pieces.items() if n != REST and piece.sums.half == half]
            places = sorted((each.base, each.words) for each in sums)
            assert all(base + words <= following for (base, words), (following, _) in itertools.pairwise(places))
            assert places[-1][0] + places[-1][1] <= 512
    # In the order in which they are computed: from one end of the plane to the other, back in the next one.
    order = [number for stage in kept.stages for number in stage.computes if number != REST]
    strips = [[strip for n in order for strip in kept.pieces(up=up)[n].tile.strips] for up in (True, False)]
    assert strips[0] == sorted(strips[0]) and strips[1] == strips[0][::-1]


def test_the_stem_is_computed_once_but_for_four_rows():
    first = load_network("resnet18").layers[:2]  # whose planes do not depend on what is behind them
    behind = MaxPool(name="behind", kernel=4, stride=4), GlobalAvgPool(name="mean"), FullyConnected(name="fc", out=10)
    plan = compile_network(Network("stem", (3, 224, 224), 10, (*first, *behind)), PRESETS["eta"], 1)
    commands = [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag == 8]
    assert {i["pattern"] for i in commands} == {Pattern.K3, Pattern.PAIR}, "input groups on the PE rows, columns on the taps"
    assert sum(i["units"] for i in commands) == 8 * 3 * (112 + 4)
    assert {i["cols"] for i in commands if i["pattern"] == Pattern.PAIR} == {56}, "one of seven columns for two positions"
    assert sum(windows(i, PRESETS["eta"]) for i in commands) == 8 * (112 + 56 + 112) * 40


NO_RESTS = Rounding(weights="stochastic")
"""Stream buffers that are tight enough for these cases hold a tile of weights, but not its rests."""


def stem(y: int, x: int, out: int) -> Network:
    layers = [Conv(name="stem", out=out, kernel=7, stride=2, pad=3), MaxPool(name="pool", kernel=3, stride=2, pad=1)]
    layers += [Conv(name="a", out=8, kernel=3, pad=1), FullyConnected(name="fc", out=4)]
    return Network("stem", (3, y, x), 4, tuple(layers), rounding=NO_RESTS)


@pytest.mark.parametrize(
    ("y", "x", "psum_depth", "abuf_depth", "again"),
    [(36, 32, 16, 64, 0), (56, 64, 32, 128, 4), (140, 32, 48, 64, 0), (150, 32, 48, 64, 3),
     pytest.param(152, 32, 48, 128, 4, marks=pytest.mark.long("five pieces with a rest of four rows, another has three"))],
)
def test_stems(y, x, psum_depth, abuf_depth, again):
    """Planes of three or five pieces, with and without a rest, lowered, with the kernel's columns on the taps."""
    config = dataclasses.replace(PRESETS["eta"], max_classes=64, psum_depth=psum_depth, abuf_depth=abuf_depth, mbuf_depth=16)
    plans = check_steps(stem(y, x, 20), config, batch=2, order=1)
    commands = [i for i in plans[-1].instructions if i.opcode == Opcode.CONV and i.tag == 8]
    assert {i["pattern"] for i in commands} == {Pattern.K3, Pattern.PAIR}
    assert sum(i["units"] for i in commands) == 2 * 3 * 3 * (y // 2 + again)


@pytest.mark.parametrize(("kernel", "stride", "pairs"), [(7, 1, {(0, 0)}), (8, 2, {(0, 0), (1, 0)})])
def test_columns_that_are_left_over(kernel, stride, pairs):
    """``pairs``: the (row, entry) that windows of two positions begin with."""
    conv = Conv(name="stem", out=20, kernel=kernel, stride=stride, pad=(kernel - 1) // 2)
    layers = (conv, MaxPool(name="pool", kernel=2, stride=2), FullyConnected(name="fc", out=4))
    config = dataclasses.replace(PRESETS["eta"], max_classes=64, psum_depth=16, abuf_depth=64, mbuf_depth=16)
    network = Network("stem", (3, 18 * stride, 16 * stride), 4, layers, rounding=NO_RESTS)
    plans = check_steps(network, config, batch=1, order=1)
    commands = [i for i in plans[-1].instructions if i.opcode == Opcode.CONV and i.tag == 8]
    assert {i["pattern"] for i in commands} == {Pattern.K3, Pattern.PAIR}
    assert {(i["y0"], i["e0"]) for i in commands if i["pattern"] == Pattern.PAIR} == pairs


def test_a_way_to_convolve_that_does_not_fit():
    """Three output groups at once have no room for the rows between two beats of the bitmap, one has."""
    config = dataclasses.replace(PRESETS["eta"], max_classes=64, psum_depth=33, abuf_depth=128, mbuf_depth=16)
    plans = check_steps(stem(44, 44, 20), config, batch=1, order=1)
    assert {i["pattern"] for i in plans[-1].instructions if i.opcode == Opcode.CONV and i.tag == 8} == {Pattern.K3, Pattern.PAIR}


@pytest.mark.parametrize(("kernel", "psum_depth", "again"), [
    (3, 52, 4), pytest.param(3, 104, 0, marks=pytest.mark.long("no strip is computed again, as in some stems")),
    pytest.param(1, 208, 2, marks=pytest.mark.long("three output groups at once, as of the stems")),
])
def test_other_kernels(kernel, psum_depth, again):
    """Strips have halo rows, or a command gives three output groups."""
    layers = [Conv(name="a", out=5, kernel=3, pad=1), Conv(name="b", out=9, kernel=kernel, pad=kernel // 2)]
    network = Network("kept", (3, 28, 16), 4, (*layers, FullyConnected(name="fc", out=4)))
    sizes = {"ibuf_depth": 96, "ebuf_depth": 64, "abuf_depth": 64, "mbuf_depth": 16}
    config = dataclasses.replace(PRESETS["small"], psum_depth=psum_depth, **sizes)
    plans = check_steps(network, config, batch=2, order=2)
    commands = [i for i in plans[-1].instructions if i.opcode == Opcode.CONV and i.tag == 16]
    assert sum(i["units"] for i in commands) == 2 * (5 if kernel == 3 else 2) * (28 + again)


@pytest.mark.parametrize("pbuf_depth", [20, 256])
def test_parameters_that_do_not_stay(pbuf_depth):
    config = dataclasses.replace(KEPT, pbuf_depth=pbuf_depth)
    check_steps(load_network(str(NETWORKS / "planes" / "kept.toml")), config, batch=2, order=3)


def test_forward_pass_alone():
    network = load_network(str(NETWORKS / "planes" / "kept.toml"))
    plan = compile_network(network, KEPT, 2, training=False)
    assert any(i["sacc"] for i in plan.instructions if i.opcode == Opcode.CONV)
