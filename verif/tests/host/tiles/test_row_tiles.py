"""Planes larger than the buffers: tiled layers of every kind against the golden step, where tiles begin, refusals."""

import dataclasses
import functools
import re

import pytest

from gradloom.contracts.config import PRESETS, load_config
from gradloom.contracts.isa import Dest, Opcode
from gradloom.contracts.microprograms import TABLE
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.windows import Shape
from gradloom.host.schedule import compile_network
from gradloom.host.tiles.phase_sweeps import backward_sweep, forward_sweep
from gradloom.host.tiles.pool_parts import Windows
from gradloom.models.layers import Upsample
from gradloom.models.network import AvgPool, Conv, FullyConnected, MaxPool, Network, Subsample, load_network
from gradloom.verif.checkout import TESTS
from gradloom.verif.interpreting.step_check import check_steps

ROWS = load_config(str(TESTS / "configs" / "rows.toml"))
FEW = {"ibuf_depth": 96, "ebuf_depth": 64, "abuf_depth": 64, "mbuf_depth": 16}
ONE = dataclasses.replace(PRESETS["small"], name="one", psum_depth=28, **FEW)
TWO = dataclasses.replace(PRESETS["small"], name="two", wpus=2, psum_depth=24, **FEW)
THREE = dataclasses.replace(PRESETS["eta"], name="three", clusters=2, cols=2, psum_depth=16, max_classes=64, **FEW)
STOCHASTIC = dict.fromkeys(("activations", "normalised", "errors"), "stochastic")


def network(*layers, shape=(3, 14, 16), **head):
    """Layers behind each other and a classifier."""
    return Network("rows", shape, 4, (*layers, FullyConnected(name="fc", out=4, **head)))


def programs(plans) -> set[str]:
    names = {address: name for name, address in TABLE.items()}
    return {names[i["uprog"]] for plan in plans for i in plan.instructions if i.opcode == Opcode.RUN}


@pytest.mark.parametrize("batch", [1, 3])
def test_every_kind_of_layer(batch):
    plans = check_steps(load_network(str(TESTS / "networks" / "tiny-rows.toml")), ROWS, batch=batch, order=batch)
    assert programs(plans) >= {"FRN_NORM", "FRN_NORM_ADD", "FRN_LAM", "FRN_ROWS", "FRN_ROWS_RES", "FRN_SUM", "FRN_ADD", "FRN_ERR"}
    assert any(i["sacc"] for plan in plans for i in plan.instructions), "a plane in two tiles stays in the two halves"
    assert any(i["poff"] for plan in plans for i in plan.instructions)


KERNELS = ((1, 1, 0), (1, 2, 0), (2, 1, 0), (3, 1, 0), (3, 1, 1), (3, 2, 1), (3, 2, 0), (5, 1, 2), (7, 2, 3))
"""Kernel, stride, and padding."""


@pytest.mark.parametrize(("kernel", "stride", "pad", "config"), [
    pytest.param(*kernel, config, id="-".join(map(str, (*kernel, config.name))),
                 marks=[] if n % 2 == machine or kernel[1] == 2 else [
                     pytest.mark.long("the kernel on the other machine, which others use; strides of 2 on both")])
    for n, kernel in enumerate(KERNELS) for machine, config in enumerate((ONE, THREE))
])
def test_convolutions(kernel, stride, pad, config):
    """Behind a layer of its own, so that its error is computed too."""
    first = Conv(name="a", out=3, kernel=3, pad=1)
    check_steps(network(first, Conv(name="b", out=5, kernel=kernel, stride=stride, pad=pad)), config, batch=1, order=1)


@pytest.mark.parametrize("kind", ["relu", "none"])
def test_layers_without_normalisation(kind):
    layers = Conv(name="a", out=3, kernel=3, pad=1), Conv(name="b", out=5, kernel=3, pad=1, norm="none", act=kind)
    check_steps(network(*layers), TWO, batch=2, order=2)


@pytest.mark.parametrize("pool", [MaxPool, AvgPool])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0), (4, 4, 0)])
def test_pools(kernel, stride, pad, pool):
    first = Conv(name="a", out=3, kernel=3, pad=1)
    check_steps(network(first, pool(name="p", kernel=kernel, stride=stride, pad=pad)), ONE, batch=1, order=3)


@pytest.mark.parametrize(("scale", "reads"), [(2, 1), (3, 1), (4, 2)])
def test_upsampling(scale, reads):
    """Parts of rows that are written begin and end within what a row that is read gives, and the other way round."""
    layers = (Conv(name="a", out=3, kernel=3, pad=1), Conv(name="b", out=4, kernel=3, stride=reads, pad=1),
              Upsample(name="u", scale=scale), Conv(name="c", out=5, kernel=3, pad=1), MaxPool(name="p", kernel=2, stride=2))
    plans = check_steps(network(*layers, shape=(3, 14, 8)), ONE, batch=1, order=scale)
    assert programs(plans) >= {"AVGPOOL_FWD", "AVGPOOL_BWD"}
    assert any(i["poff"] for plan in plans for i in plan.instructions if i.opcode == Opcode.RUN and i["pool"] == 2)


def test_shortcuts():
    """A subsampling, a projecting and an identical one, all of tiled planes."""
    layers = (
        Conv(name="a", out=3, kernel=3, pad=1),
        Conv(name="b", out=3, kernel=3, pad=1, residual="a"),
        Conv(name="c", out=4, kernel=3, stride=2, pad=1),
        Subsample(name="s", input="b", out=4),
        Conv(name="d", input="c", out=4, kernel=3, pad=1, residual="s"),
    )
    config = dataclasses.replace(TWO, psum_depth=12, abuf_depth=24, mbuf_depth=8)
    check_steps(network(*layers), config, batch=2, order=4)


WHOLE = {"psum_depth": 512, "ibuf_depth": 512, "ebuf_depth": 512, "abuf_depth": 128, "mbuf_depth": 64}
"""Buffers in which a plane of 14 x 16 fits, but none beside it."""


def swept(plans, layer, programs) -> list[tuple[str, int]]:
    """Programs and rows of the commands of the A-Core for a layer."""
    names = {address: name for name, address in TABLE.items()}
    found = [(names[i["uprog"]], i["py"]) for i in plans[-1].instructions if i.opcode == Opcode.RUN and i.tag // 8 == layer]
    return [(name, rows) for name, rows in found if name in programs]


@pytest.mark.parametrize(
    ("config", "kernel", "stride", "pad"),
    [(ONE, 3, 1, 1), (ONE, 1, 2, 0), (TWO, 1, 1, 0), (TWO, 1, 2, 0), (TWO, 3, 2, 0), (TWO, 7, 2, 3), (THREE, 3, 2, 1),
     (THREE, 1, 2, 0)],
    ids=lambda value: getattr(value, "name", value),
)
def test_rows_of_whole_planes(config, kernel, stride, pad):
    """Planes that the array makes whole, and the A-Core takes row by row, so that it has room for the next ones."""
    first = Conv(name="a", out=3, kernel=3, pad=1)
    layers = first, Conv(name="b", out=5, kernel=kernel, stride=stride, pad=pad)
    plans = check_steps(network(*layers), dataclasses.replace(config, **WHOLE), batch=2, order=1)
    forward, backward = swept(plans, 1, {"FRN_FWD", "FRN_ROWS"}), swept(plans, 2, {"BP_OUT"})
    groups = len([name for name, _ in forward if name == "FRN_FWD"])
    assert len(forward) > 2 * groups and sum(rows for _, rows in forward) == 14 * groups
    assert len(backward) > 2 * groups and sum(rows for _, rows in backward) == 14 * groups


def test_rows_of_whole_planes_with_shortcuts():
    layers = (
        Conv(name="a", out=3, kernel=3, pad=1),
        Conv(name="b", out=3, kernel=3, pad=1, residual="a"),
        Conv(name="c", input="b", out=4, kernel=3, stride=2, pad=1),
        Conv(name="s", input="b", out=4, kernel=1, stride=2, norm="frn", act="none"),
        Conv(name="d", input="c", out=4, kernel=3, pad=1, residual="s"),
    )
    plans = check_steps(network(*layers).rounded(STOCHASTIC), dataclasses.replace(TWO, **WHOLE), batch=2, order=4)
    assert programs(plans) >= {"FRN_FWD_RES", "FRN_ROWS_RES", "BP_OUT_RES"}


@pytest.mark.parametrize("kind", ["relu", "none"])
def test_rows_of_whole_planes_without_normalisation(kind):
    layers = Conv(name="a", out=3, kernel=3, pad=1), Conv(name="b", out=5, kernel=3, pad=1, norm="none", act=kind)
    check_steps(network(*layers), dataclasses.replace(TWO, **WHOLE), batch=2, order=2)


def test_stochastic_rounding_counts_the_elements_of_whole_planes():
    layers = Conv(name="a", out=3, kernel=3, pad=1), MaxPool(name="p", kernel=3, stride=2, pad=1)
    check_steps(network(*layers).rounded(STOCHASTIC), TWO, batch=2, order=5)


def test_odd_planes():
    """17 columns: two rows of padded columns do not begin with a beat of the bitmap, eight do."""
    config = dataclasses.replace(ONE, psum_depth=96, abuf_depth=96)
    layers = Conv(name="a", out=3, kernel=3, pad=1), Conv(name="b", out=3, kernel=3, stride=2, pad=1)
    check_steps(network(*layers, shape=(2, 19, 17)), config, batch=1, order=6)


def test_parts_of_a_batch():
    layers = Conv(name="a", out=3, kernel=3, pad=1), Conv(name="b", out=3, kernel=3, pad=1)
    check_steps(network(*layers), TWO, batch=4, parts=2, order=7)


def test_strips_hold_the_rows_of_their_windows():
    shape = Shape(1, 1, 20, 20, 10, 10, 7, 7, 2, 3)
    sweep = forward_sweep(shape, PRESETS["small"])
    middle = sweep.strip(4, 6)
    # Windows of output rows 4 and 5 reach from input row 5 to 13.
    assert (middle.row0, middle.rows, middle.upi) == (5, 9, 2)
    assert min(middle.y0) == 0
    top = sweep.strip(0, 2)
    assert (top.row0, top.rows, min(top.y0)) == (0, 6, -3)
    assert sweep.strip(0, 10).rows == 20


def test_strips_of_split_rows():
    """A unit of a backward sweep of stride 2 and padding 0 gives the rows 2 u - 1 and 2 u."""
    sweep = backward_sweep(Shape(1, 1, 20, 20, 9, 9, 3, 3, 2, 0))
    assert [sweep.plane_row(unit) for unit in range(4)] == [0, 1, 3, 5]
    assert (sweep.strip(0, 3).psr, sweep.strip(3, 5).psr) == (1, 0)


@functools.cache
def stem(psum_depth: int):
    """Commands of a stem of ImageNet's size on eta, for three output groups of two images, by opcode and phase (0: FP, 3: WG)."""
    layers = [Conv(name="stem", out=24, kernel=7, stride=2, pad=3), MaxPool(name="pool", kernel=2, stride=2)]
    # Gradients of large planes and some with long updates, behind which those of the stem come alone.
    layers += [Conv(name=name, out=16, kernel=3, stride=2, pad=1) for name in "abcd"]
    config = dataclasses.replace(PRESETS["eta"], psum_depth=psum_depth)
    plan = compile_network(network(*layers, shape=(3, 224, 224)), config, 2)
    return lambda opcode, phase: [i for i in plan.instructions if i.opcode == opcode and i.tag == 8 + phase]


def test_the_last_tiles_of_a_plane_are_kept():
    """A half of 256 words holds six rows of three output groups: of 112 rows 12 are computed once, the others twice."""
    commands = stem(256)(Opcode.CONV, 0)
    assert {i["units"] for i in commands} == {4, 6}, "strips of a tile are alike; four rows are left over"
    assert sum(i["units"] for i in commands) == 2 * 7 * (112 + 100)
    # Behind the kept tiles comes a large one, so that the A-Core has time for their sweeps, and the rest at the end.
    assert [i["units"] for i in commands if i["sums"]][-1] == 6 and commands[-1]["units"] == 4


def test_gradients_that_are_alone_take_their_inputs_from_either_end():
    loads = [i for i in stem(512)(Opcode.LOAD, 3) if i["dest"] == Dest.IBUF and i["bank0"] % 3 == 0]
    sides = [i["addr0"] > 0 for i in loads]
    turns = [side for side, before in zip(sides, [None, *sides], strict=False) if side != before]
    assert len(turns) > 10
    rows = [i["n0"] * i["n1"] // i["xb"] for i in loads]
    assert max(i["addr0"] + -(-count // 3) * i["xe"] for i, count in zip(loads, rows, strict=True)) == PRESETS["eta"].ibuf_depth


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (1, 2, 0), (2, 3, 0), (5, 2, 2)])
def test_rows_of_pools(kernel, stride, pad):
    """Stored rows of every range of rows against all pairs of a window and one of its rows."""
    windows, stored = Windows(kernel, stride, pad), 17
    count = (stored + 2 * pad - kernel) // stride + 1
    pairs = [(o, o * stride - pad + k) for o in range(count) for k in range(kernel) if 0 <= o * stride - pad + k < stored]
    for first in range(count):
        for last in range(first + 1, count + 1):
            rows = [row for o, row in pairs if first <= o < last]
            assert windows.forward((first, last), stored) == (min(rows), max(rows) + 1)
    for first in range(stored):
        for last in range(first + 1, stored + 1):
            held = [o for o, row in pairs if first <= row < last]
            low, high = windows.backward((first, last), count)
            assert 0 <= low < high <= count
            assert not held or (low <= min(held) and max(held) < high)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"psum_depth": 4}, "layer 'a': the fewest rows that can be computed together (1) take 8 words of each partial-sum bank, "
         "configuration 'one' has 4 (psum_depth): raise psum_depth or shrink the layer"),
        ({"ibuf_depth": 8}, "layer 'a': the inputs of 2 rows take 16 addresses of each input row bank, configuration 'one' has 8 "
         "(ibuf_depth): raise ibuf_depth or shrink the layer"),
        ({"abuf_depth": 4}, "layer 'a': the fewest rows of a plane that can be taken at a time (1) take 8 beats of the A-Core's "
         "buffers, configuration 'one' has 4 (abuf_depth) and 16 of bitmaps (mbuf_depth): raise them or shrink the layer"),
    ],
)
def test_what_cannot_be_tiled_is_refused(change, message):
    with pytest.raises(ScheduleError, match=re.escape(message)):
        compile_network(network(Conv(name="a", out=3, kernel=3, pad=1)), dataclasses.replace(ONE, **change), 1)


def test_a_pool_that_cannot_be_tiled_is_refused():
    config = dataclasses.replace(ONE, abuf_depth=40, psum_depth=512)
    message = "layer 'p': one row of its windows takes 48 beats of the A-Core's stream buffers, configuration 'one' has 40 (abuf"
    with pytest.raises(ScheduleError, match=re.escape(message)):
        compile_network(network(Conv(name="a", out=3, kernel=3, pad=1), MaxPool(name="p", kernel=6, stride=6)), config, 1)
