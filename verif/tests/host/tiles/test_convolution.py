"""Loads of inputs: tiles of a set share what does not stay on chip, rows that nobody reads stay. Gradients between tiles."""

import dataclasses
import itertools

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import LOAD_UNITS, Unit
from gradloom.contracts.isa import SEMAPHORES, Dest, Opcode, XSource
from gradloom.host.knobs import Knobs
from gradloom.host.order.synchronize import Recorder
from gradloom.host.schedule import compile_network
from gradloom.models.network import Conv, FullyConnected, GlobalAvgPool, MaxPool, Network, load_network
from gradloom.verif.interpreting.step_check import check_steps

SMALL = PRESETS["small"]


def network(*layers, shape) -> Network:
    return Network("loads", shape, 3, (*layers, FullyConnected(name="fc", out=3)))


def input_beats(plan, layer: int) -> int:
    """Beats that the forward pass of a layer loads to the input buffer."""
    loads = [i for i in plan.instructions if i.opcode == Opcode.LOAD and i["dest"] == Dest.IBUF and i.tag == 8 * layer]
    return sum(i["n0"] * i["n1"] * i["n2"] for i in loads)


WIDE = network(Conv(name="a", out=16, kernel=3, pad=1), Conv(name="b", out=7, kernel=3, pad=1), shape=(2, 8, 8))


@pytest.mark.parametrize(("words", "sets"), [(16, 2), (32, 1), (256, 1)])
def test_a_chunk_is_loaded_once_for_the_tiles_of_a_set(words, sets):
    """Eight groups of inputs of 32 beats come by threes and twos for four groups of outputs, as the buffer holds six. Half of the
    partial sums holds ``words`` // 16 tiles. A further set begins with the three that are there."""
    config = dataclasses.replace(SMALL, ibuf_depth=72, psum_depth=words)
    plan = compile_network(WIDE, config, 1, training=False)
    assert input_beats(plan, 2) == 32 * (8 + (sets - 1) * (8 - 3))
    array = [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag == 16]
    assert max(i["pbase"] for i in array) == 16 * (2 // sets - 1)
    assert [i["half"] for i in array[: 4 // sets]] in ([0, 1] * (2 // sets), [1, 0] * (2 // sets))
    assert input_beats(compile_network(WIDE, SMALL, 1, training=False), 2) == 32 * 8


@pytest.mark.parametrize(("channels", "depth"), [
    pytest.param(channels, depth, marks=[] if channels == in_suite else [
        pytest.mark.long("this depth with another number of channels, which have others")])
    for channels in (2, 4) for depth, in_suite in ((36, 2), (48, 4), (60, 2), (72, 4))
])
def test_tiles_in_turn_compute_what_others_do(depth, channels):
    config = dataclasses.replace(SMALL, name="turns", ibuf_depth=depth, psum_depth=128, abuf_depth=256, load_channels=channels)
    check_steps(WIDE, config, batch=3, order=depth)


def unordered(plan) -> list[tuple[int, int]]:
    """Commands that could read one half of the partial sums at the same time: of the A-Core, and of the array where it adds."""
    known, last, tokens, found = {}, {}, {}, []
    latest = {(unit, half): -1 for unit in (Unit.CCORE, Unit.ACORE) for half in (0, 1)}
    for place, command in enumerate(plan.instructions):
        unit = command.unit(plan.config)
        if command.opcode in (Opcode.BARRIER, Opcode.LOOP):
            latest = dict.fromkeys(latest, -1)
        # What has ended when it starts: what its engine's command before knew, and what its tokens tell.
        ended = dict(known.get(last.get(unit), {}))
        for bit in (bit for bit in range(SEMAPHORES) if command.wait >> bit & 1):
            other = tokens[bit].pop(0)
            for engine, reach in {**known[other], plan.instructions[other].unit(plan.config): other}.items():
                ended[engine] = max(ended.get(engine, -1), reach)
        known[place], last[unit] = ended, place
        for bit in (bit for bit in range(SEMAPHORES) if command.signal >> bit & 1):
            tokens.setdefault(bit, []).append(place)
        adds = command.opcode == Opcode.CONV and not command["wg"] and (command["acc"] or command["steps"] > 1)
        if adds or (command.opcode == Opcode.RUN and command["xsrc"] == XSource.PSUM):
            other = Unit.ACORE if adds else Unit.CCORE
            if latest[other, command["half"]] > ended.get(other, -1):
                found.append((latest[other, command["half"]], place))
            latest[unit, command["half"]] = place
    return found


@pytest.mark.parametrize("batch", [4, pytest.param(16, marks=pytest.mark.long("more of the tiles that four images have"))])
def test_a_half_of_the_partial_sums_is_read_by_one_engine_at_a_time(batch):
    assert not unordered(compile_network(load_network("resnet20"), PRESETS["eta"], batch))


@pytest.mark.parametrize("depth", [36, 48, 60, 72])
def test_tiles_of_a_set_keep_out_of_the_half_that_is_swept(depth):
    config = dataclasses.replace(SMALL, name="turns", ibuf_depth=depth, psum_depth=128)
    assert not unordered(compile_network(WIDE, config, 3))


def test_nothing_is_loaded_before_it_is_stored(monkeypatch):
    """The last planes of ResNet18 at one image, whose gradients come between the commands of sets, with a shortcut of stride 2:
    each is written once and then read."""
    log, emit = [], Recorder.emit

    def noted(self, opcode, fields, *, reads=(), writes=(), **rest):
        reads, writes = tuple(reads), tuple(writes)
        log.extend((opcode, access) for access in (reads if opcode == Opcode.LOAD else writes if opcode == Opcode.STORE else ()))
        return emit(self, opcode, fields, reads=reads, writes=writes, **rest)

    monkeypatch.setattr(Recorder, "emit", noted)
    layers = [layer for layer in load_network("resnet18").layers if layer.name.startswith("s4")]
    before = Conv(name="s3b2b", out=256, kernel=3, pad=1)
    compile_network(network(before, *layers, GlobalAvgPool(name="mean"), shape=(16, 14, 14)), PRESETS["eta"], 1)
    loaded, early = set(), set()
    for opcode, access in log:
        once = access.space.endswith((".z", ".dz", ".dx", ".ds"))
        planes = {(access.space, group) for group in range(*access.box[1])} if once else ()
        if opcode == Opcode.LOAD:
            loaded.update(planes)
        else:
            early.update(loaded.intersection(planes))
    assert loaded and not early


def test_a_kernel_of_one_and_stride_two_loads_the_rows_that_it_reads():
    layers = Conv(name="a", out=4, kernel=3, pad=1), Conv(name="b", out=4, kernel=1, stride=2)
    strided = network(*layers, shape=(2, 9, 10))
    beats = input_beats(compile_network(strided, SMALL, 2, training=False), 2)
    assert beats == 2 * 2 * 5 * 5
    check_steps(strided, SMALL, batch=2, order=4)
    check_steps(strided, dataclasses.replace(PRESETS["eta"], name="three", clusters=2, cols=2, max_classes=64), batch=5, order=4)


def test_gradients_keep_out_of_tiles_whose_weights_need_several_channels():
    """On ``eta`` a step's weights take 36 beats: with 16 images of 2 x 2 positions its windows take 22 cycles, of 4 x 4 44."""
    large = (Conv(name=name, out=64, kernel=3, pad=1) for name in ("a", "b"))
    small = (Conv(name=name, out=128, kernel=3, pad=1) for name in ("c", "d", "e"))
    deep = network(*large, MaxPool(name="pool", kernel=2, stride=2), *small, shape=(64, 4, 4))
    array = [command for command in compile_network(deep, PRESETS["eta"], 16).instructions if command.opcode == Opcode.CONV]
    inside = {deep.layers[command.tag // 8 - 1].name for before, command in itertools.pairwise(array)
              if before.tag % 8 == 3 and command.tag % 8 == 1 and command["acc"]}
    assert inside == {"b"}


def test_tiles_of_a_first_layer_grow():
    """The array begins when one image is there; no tile is larger than all before it."""
    plan = compile_network(load_network("resnet20"), PRESETS["eta"], 16, knobs=Knobs(tiles={"stem FP": 4, "s1b1a FP": 4}))
    layer = plan.lowered.network.index
    tiles = {name: [i["units"] // 32 for i in plan.instructions
                    if i.opcode == Opcode.CONV and i.tag == 8 * layer(name) and not i["acc"]]
             for name in ("stem", "s1b1a")}
    assert tiles["stem"][::2] == [1, 1, 2, 4, 4, 4]
    assert tiles["s1b1a"][::2] == [4] * 4


def layer_of(plan, name: str) -> int:
    return plan.lowered.network.index(name)


def test_a_first_layers_tiles_come_between_those_of_sets():
    """On ``eta`` three images of 64 channels do not stay on chip. Beside the sets of the first of them comes the first layer, whose
    sums lie at the end of either half."""
    wide = network(Conv(name="a", out=64, kernel=3, pad=1), Conv(name="b", out=64, kernel=3, pad=1), shape=(3, 32, 32))
    plan = compile_network(wide, PRESETS["eta"], 7, training=False)
    array = [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag % 8 == 0]
    first, second = 8 * layer_of(plan, "a"), 8 * layer_of(plan, "b")
    between = [i for before, i, after in zip(array, array[1:], array[2:], strict=False)
               if (before.tag, i.tag, after.tag) == (second, first, second)]
    assert len(between) >= 8 and any(i["pbase"] for i in between)


def test_errors_are_convolved_as_they_are_made():
    """Behind a fully connected layer the A-Core normalises errors more slowly than the array makes them: the array begins with the
    first channel groups."""
    a, b = (Conv(name=name, out=64, kernel=3, pad=1) for name in ("a", "b"))
    p, q = (MaxPool(name=name, kernel=2, stride=2) for name in ("p", "q"))
    plan = compile_network(network(a, p, b, q, shape=(8, 4, 4)), PRESETS["eta"], 16)
    tag = 8 * layer_of(plan, "b")
    places = {kind: [n for n, i in enumerate(plan.instructions) if i.opcode == opcode and i.tag == tag + phase]
              for kind, opcode, phase in (("errors", Opcode.RUN, 2), ("array", Opcode.CONV, 1))}
    assert places["array"][0] < places["errors"][-1]
    assert [plan.instructions[n]["steps"] for n in places["array"]] == [4] * 16


def test_one_load_brings_the_weights_of_three_taps_backward():
    deep = network(Conv(name="a", out=64, kernel=1), Conv(name="b", out=64, kernel=1), shape=(64, 4, 4))
    plan = compile_network(deep, PRESETS["eta"], 2)
    tag = 8 * layer_of(plan, "b")
    loads = {phase: [i for i in plan.instructions if i.opcode == Opcode.LOAD and i["dest"] == Dest.WBUF and i.tag == tag + phase]
             for phase in (0, 1)}
    # Eight groups of outputs are three tiles of three taps and three PE rows, of which each has input groups.
    assert len(loads[0]) == 8 * 3 and len(loads[1]) == 3 * 3
    assert all(not i["linear"] for i in loads[1])


def test_the_first_tile_of_some_images_begins_with_the_first_of_their_inputs():
    plan = compile_network(load_network("resnet20"), PRESETS["eta"], 4)
    tag = 8 * layer_of(plan, "s3b2a")
    array = [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag == tag]
    assert [i["steps"] for i in array[:4]] == [2, 2, 2, 2] and {i["steps"] for i in array if not i["acc"]} == {2, 8}


def test_the_last_tile_of_some_images_makes_room_for_the_next_ones_bit_by_bit():
    plan = compile_network(load_network("resnet20"), PRESETS["eta"], 4)
    tag = 8 * layer_of(plan, "s3b2a")
    array = [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag == tag]
    assert [i["steps"] for i in array[-4:]] == [2, 2, 2, 2]
    small = [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag == 8 * layer_of(plan, "s2b2a")]
    assert {i["steps"] for i in small[-3:]} == {4}


def test_inputs_that_the_array_waits_for_come_through_all_channels():
    """Kernel 1, one tile: planes of three PE rows take four channels longer than their windows."""
    wide = network(Conv(name="a", out=24, kernel=3, pad=1), Conv(name="b", out=2, kernel=1), shape=(2, 32, 32))
    config = dataclasses.replace(PRESETS["eta"], name="three", clusters=2, cols=2, max_classes=64)
    tag = 8 * wide.index("b")
    plan = compile_network(wide, config, 1)
    loads = [i for i in plan.instructions if i.opcode == Opcode.LOAD and i["dest"] == Dest.IBUF and i.tag == tag]
    assert {i.unit(config) for i in loads} == set(LOAD_UNITS)
    assert sum(i["n0"] * i["n1"] * i["n2"] for i in loads) == 12 * 32 * 16
    check_steps(wide, config, batch=1, steps=1, order=3)


@pytest.mark.parametrize(("stride", "shape", "batch", "shared"), [(1, (8, 56, 56), 1, True), (2, (8, 28, 28), 4, False)])
def test_a_chunk_that_is_longer_than_the_one_before_comes_through_all_channels(stride, shape, batch, shared):
    """Eight groups by threes and twos: three are loaded while two tiles take two. Not where a group's load would keep a channel
    from the weights for longer than the array takes for a tile's chunk."""
    planes = [Conv(name="a", out=64 * stride, kernel=3, pad=1), Conv(name="b", out=64 * stride**2, kernel=3, stride=stride, pad=1)]
    smaller = [Conv(name=name, out=16, kernel=3, stride=2, pad=1) for name in ("c", "d")]
    layers = (*planes, *smaller, GlobalAvgPool(name="mean"))
    plan = compile_network(network(*layers, shape=shape), PRESETS["eta"], batch, training=False)
    loads = [i for i in plan.instructions if i.opcode == Opcode.LOAD and i["dest"] == Dest.IBUF and i.tag == 16]
    assert {i.unit(plan.config) for i in loads} == (set(LOAD_UNITS) if shared else {Unit.LOAD})


@pytest.mark.parametrize("kernel", [1, 3])
def test_weights_that_the_array_waits_for_come_through_as_many_channels_as_their_buffer_has_banks(kernel):
    """A fourth Loader would meet the others at the banks, where the highest one gets what is left."""
    deep = [Conv(name=name, out=256, kernel=kernel, pad=kernel // 2) for name in ("a", "b", "c")]
    plan = compile_network(network(*deep, shape=(256, 2, 2)), PRESETS["eta"], 1)
    loads = [i for i in plan.instructions if i.opcode == Opcode.LOAD and i["dest"] == Dest.WBUF and i.tag % 8 in (0, 1)]
    assert {i.unit(plan.config) for i in loads} == {Unit.LOAD, Unit.LOAD1, Unit.LOAD2}


def test_planes_of_one_beat_lie_side_by_side():
    """A fully connected layer's inputs come in a run for each image and PE row."""
    wide = network(Conv(name="a", out=70, kernel=4, norm="none", act="relu"), shape=(2, 4, 4))
    config = dataclasses.replace(PRESETS["eta"], name="three", clusters=2, cols=2, max_classes=64)
    plan = compile_network(wide, config, 5)
    tag = 8 * layer_of(plan, "fc")
    loads = [i for i in plan.instructions if i.opcode == Opcode.LOAD and i["dest"] == Dest.IBUF and i.tag == tag]
    assert {(i["n0"], i["n1"], i["n2"], i["xb"], i["xe"]) for i in loads} == {(12, 5, 1, 12, 12), (11, 5, 1, 11, 12)}
    array = [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag == tag]
    assert {(i["istep"], i["xe"]) for i in array} == {(1, 12)}
    check_steps(wide, config, batch=5, order=1)


@pytest.mark.parametrize(("depth", "images"), [
    pytest.param(depth, images, marks=[] if in_suite else [pytest.mark.long("as many images in another depth")])
    for depth, images, in_suite in ((40, 1, False), (52, 1, True), (60, 2, False), (68, 2, True), (68, 3, False), (80, 3, True))
])
def test_a_chunk_that_comes_ahead_leaves_the_one_in_use_alone(depth, images):
    """Ranges of different numbers of images, whose steps take different numbers of addresses, go round the same part of IBUF."""
    config = dataclasses.replace(SMALL, name="ahead", ibuf_depth=depth, psum_depth=128, abuf_depth=256)
    layers = (Conv(name=name, out=out, kernel=3, pad=1) for name, out in (("a", 16), ("b", 9), ("c", 7)))
    check_steps(network(*layers, shape=(2, 8, 8)), config, batch=5, order=depth, knobs=Knobs(tiles={"b FP": images}))
