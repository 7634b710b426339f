"""Whole programs on the interpreter against the golden step, byte for byte; refusals."""

import dataclasses

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode
from gradloom.contracts.microprograms import TABLE
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.schedule import compile_network
from gradloom.models.golden.step import evaluate, train_step
from gradloom.models.network import (
    AvgPool,
    Conv,
    FullyConnected,
    GlobalAvgPool,
    MaxPool,
    Network,
    load_network,
)
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.interpreting.interpreter import Interpreter
from gradloom.verif.interpreting.step_check import HYPERS, check_steps, random_images, start_machine

TIGHT = dataclasses.replace(
    PRESETS["small"],
    name="tight",
    ibuf_depth=40,
    ebuf_depth=64,
    wbuf_depth=40,
    psum_depth=128,
    abuf_depth=128,
    mbuf_depth=16,
    pbuf_depth=32,
    dw_depth=24,
    export_depth=16,
)
TIGHT3 = dataclasses.replace(
    PRESETS["eta"],
    name="tight3",
    ibuf_depth=24,
    ebuf_depth=16,
    wbuf_depth=24,
    psum_depth=64,
    abuf_depth=96,
    mbuf_depth=12,
    pbuf_depth=32,
    dw_depth=72,
    max_planes=4,
)
FLIPPED = {
    "activations": "stochastic",
    "normalised": "stochastic",
    "errors": "stochastic",
    "weights": "nearest",
    "velocities": "nearest",
}
TWO = dataclasses.replace(PRESETS["small"], name="two", wpus=2)
LAPS = dataclasses.replace(TIGHT3, name="laps", clusters=4, cols=2, ibuf_depth=32, max_classes=64)


ALL = ("tiny-awkward", "tiny-branches", "tiny-relu", "tiny-residual", "tiny-stem", "tiny-strided", "tiny-subsample",
       "tiny-upsample")
IN_SUITE = {
    "nano": ("tiny-branches", "tiny-relu"),
    "small": ALL,
    "ulx3s": ("tiny-awkward", "tiny-strided"),
    "eta": ALL,
    "eta2x": ("tiny-awkward", "tiny-residual", "tiny-stem"),
    "ecp5-85": ("tiny-branches", "tiny-residual"),
    "ecp5-45": ("tiny-branches", "tiny-relu"),
    "ecp5-9": ("tiny-branches", "tiny-relu"),
}
"""Every network on small and eta; of the small and the slow ones those that are computed in seconds."""


@pytest.mark.parametrize(("name", "config"), [
    pytest.param(name, config, marks=[] if name in IN_SUITE[config] else [
        pytest.mark.long("the network runs on small and eta, the machine with others; nano with most of them in test_verify")])
    for name in ALL for config in IN_SUITE
])
def test_two_steps_write_the_bytes_of_the_golden_model(name, config):
    check_steps(load_network(str(NETWORKS / f"{name}.toml")), PRESETS[config], batch=2)


@pytest.mark.parametrize(("name", "config"), [
    pytest.param(name, config, marks=[pytest.mark.long("the network runs on eta, nano with tiny-relu")]
                 if config == "nano" and name != "tiny-relu" else [])
    for name in ("tiny-awkward", "tiny-relu", "tiny-residual", "tiny-subsample", "tiny-upsample") for config in ("nano", "eta")
])
def test_every_rounding_flipped(name, config):
    check_steps(load_network(str(NETWORKS / f"{name}.toml")).rounded(FLIPPED), PRESETS[config], batch=3)


@pytest.mark.parametrize("kind", FLIPPED)
def test_one_rounding_flipped(kind):
    network = load_network(str(NETWORKS / "tiny-residual.toml")).rounded({kind: FLIPPED[kind]})
    check_steps(network, PRESETS["small"], batch=2)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("tiny-branches", TIGHT),
        ("tiny-relu", TIGHT),
        ("tiny-awkward", TIGHT3),
        ("tiny-residual", TIGHT3),
        pytest.param("tiny-awkward", LAPS, marks=pytest.mark.long("laps compute tiny-strided, small buffers hold tiny-awkward")),
        ("tiny-branches", LAPS),
        ("tiny-strided", LAPS),
        pytest.param("tiny-awkward", TWO, marks=pytest.mark.long("two WPUs compute tiny-subsample, three tiny-awkward")),
        pytest.param("tiny-strided", TWO, marks=pytest.mark.long("two WPUs compute tiny-subsample, laps tiny-strided")),
        ("tiny-subsample", TWO),
        ("tiny-upsample", TIGHT3),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_small_buffers_and_engines_in_random_order(name, config):
    """Chunks of channels, groups of images, accumulation over tiles, any order that the tokens allow."""
    check_steps(load_network(str(NETWORKS / f"{name}.toml")), config, batch=5, order=11)


def test_parameter_sets_of_the_forward_and_the_backward_pass_find_room_in_a_small_buffer():
    """It has room for two: those of the last layer's backward pass are not taken while the forward pass still wants one."""
    layers = [Conv(name=name, out=out, kernel=3, pad=1) for name, out in (("a", 5), ("b", 7), ("c", 5))]
    check_steps(Network("three", (3, 6, 10), 4, (*layers, FullyConnected(name="fc", out=4))), TIGHT, batch=5, order=4)


@pytest.mark.parametrize("order", range(3))
def test_orders_of_execution_do_not_matter(order):
    check_steps(
        load_network(str(NETWORKS / "tiny-residual.toml")),
        PRESETS["small"],
        batch=3,
        steps=2,
        order=100 + order,
    )


@pytest.mark.parametrize("export_depth", [128, 32])
@pytest.mark.parametrize("parts", [2, 5])
def test_a_batch_in_parts_writes_the_same_bytes(parts, export_depth):
    """With 32 beats the addresses of imports and exports wrap within a command."""
    config = dataclasses.replace(PRESETS["ulx3s"], export_depth=export_depth)
    network = load_network(str(NETWORKS / "tiny-branches.toml"))
    check_steps(network, config, batch=5, parts=parts, order=3)
    check_steps(network.rounded(FLIPPED), config, batch=5, parts=parts, order=3)


def test_a_thousand_classes():
    """The errors of a batch exceed an output buffer, so that the loss takes its images in groups."""
    network = Network("many", (3, 2, 2), 1000, (FullyConnected(name="fc", out=1000),))
    check_steps(network, PRESETS["eta"], batch=20)


def test_pools_and_a_fully_connected_layer_on_one_position():
    network = Network(
        "pools",
        (2, 9, 9),
        3,
        (
            Conv(name="a", out=3, kernel=3, pad=1),
            MaxPool(name="b", kernel=3, stride=2, pad=1),
            AvgPool(name="c", kernel=3, stride=1, pad=1),
            Conv(name="d", out=5, kernel=1, norm="none", act="none"),
            GlobalAvgPool(name="e"),
            FullyConnected(name="f", out=3),
        ),
    )
    check_steps(network, PRESETS["small"], batch=3, order=1)
    check_steps(network, PRESETS["eta"], batch=3, order=2)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 7])
def test_kernels_strides_and_pads(kernel, stride):
    for pad in range(min(kernel, 4)):
        network = Network(
            "one",
            (2, 7, 8),
            2,
            (
                Conv(name="a", out=3, kernel=1, norm="none", act="none"),
                Conv(name="b", out=3, kernel=kernel, stride=stride, pad=pad, norm="none", act="relu"),
                FullyConnected(name="c", out=2),
            ),
        )
        check_steps(network, PRESETS["eta"] if pad % 2 else PRESETS["small"], batch=3, order=kernel)


def test_several_steps_of_one_start_and_evaluation():
    network = load_network(str(NETWORKS / "tiny-awkward.toml"))
    config, rng, state = PRESETS["small"], np.random.default_rng(8), State.initial(network, 3, -9)
    train_step(network, state, *random_images(network, 2, rng), HYPERS[0])
    plan = compile_network(network, config, 2, slots=3, table=3)
    batches = [random_images(network, 2, rng) for _ in range(3)]
    machine = start_machine(plan, state, 4)
    for slot, (x, labels) in enumerate(batches):
        plan.write_batch(machine, slot, x, labels)
    plan.write_hyper(machine, [HYPERS[0], HYPERS[1], HYPERS[0]])
    machine.execute(plan.program_address, 3)
    for slot, (x, labels) in enumerate(batches):
        result = train_step(network, state, x, labels, HYPERS[slot % 2])
        assert np.array_equal(plan.read_logits(machine, slot), result.tensors["logits", "logits"])
    assert machine.step == state.step == 4
    found = plan.read_state(machine, dict(enumerate(machine.exponents)), step=4, seed=3)
    assert all(np.array_equal(found.arrays()[key], value) for key, value in state.arrays().items())
    assert found.exponents == state.exponents
    forward = compile_network(network, config, 2, training=False, memory_base=4096)
    machine = Interpreter(config, 4096 + forward.size, seed=1)
    forward.write_program(machine)
    forward.write_state(machine, state)
    for tid, exponent in state.exponents.items():
        machine.exponents[tid] = exponent
    x, labels = batches[0]
    forward.write_batch(machine, 0, x, labels)
    machine.execute(forward.program_address, 1)
    assert np.array_equal(forward.read_logits(machine), evaluate(network, state, x, labels).logits)
    assert {tid: machine.exponents[tid] for tid in state.exponents} == state.exponents


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"psum_depth": 8},
            r"layer 'a': the fewest rows that can be computed together \(8\) take 20 words .* 'x' has 8 \(psum_depth\)",
        ),
        (
            {"abuf_depth": 36},
            r"layer 'a': the fewest rows of a plane that can be taken at a time \(8\) take 40 beats .* 'x' has 36 \(abuf_depth\)",
        ),
        (
            {"ibuf_depth": 8},
            r"layer 'a': the inputs of 2 rows take 10 addresses of each input row bank, .* 'x' has 8 \(ibuf_depth\)",
        ),
        (
            {"wbuf_depth": 3},
            r"layer 'a': one weight tile takes 4 blocks of each bank, configuration 'x' has 3 \(wbuf_depth\)",
        ),
        (
            {"ebuf_depth": 4},
            r"layer 'a': one row group takes 5 addresses of each input row bank, 5 of each error row bank",
        ),
        ({"pbuf_depth": 12}, r"configuration 'x' has a pbuf_depth of 12: raise it to 14"),
        ({"tensors": 20}, r"network 'n' has 24 tensor numbers, configuration 'x' has 20 \(tensors\)"),
        ({"max_classes": 2}, r"layer 'f': 3 classes, configuration 'x' has 2 \(max_classes\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, message):
    network = Network(
        "n", (1, 8, 10), 3, (Conv(name="a", out=2, kernel=3, pad=1), FullyConnected(name="f", out=3))
    )
    config = dataclasses.replace(PRESETS["small"], name="x", **changes)
    with pytest.raises(ScheduleError, match=message):
        compile_network(network, config, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 3}, "a batch of 2 images cannot be processed in 3 parts"),
        ({"calibrate": True, "parts": 2}, "calibration is part of a training step on a whole batch"),
        ({"memory_base": 100}, "memory_base must be a multiple of 64"),
    ],
)
def test_options_that_make_no_sense(options, message):
    network = Network("n", (1, 8, 8), 3, (FullyConnected(name="f", out=3),))
    with pytest.raises(ScheduleError, match=message):
        compile_network(network, PRESETS["small"], 2, **options)


@pytest.mark.parametrize(
    ("options", "fix"), [({"parts": 2}, "process the batch in one part"), ({"export_dw": True}, "do not export them")]
)
def test_a_machine_without_export_buffers(options, fix):
    """What needs the buffers is refused; a training step on a whole batch does not, and writes the same bytes."""
    config = dataclasses.replace(PRESETS["small"], name="x", export_depth=0)
    network = load_network(str(NETWORKS / "tiny-branches.toml"))
    text = rf"^configuration 'x' has no buffers to export .* \(export_depth is 0\): {fix}, or raise export_depth$"
    with pytest.raises(ScheduleError, match=text):
        compile_network(network, config, 2, **options)
    check_steps(network, config, batch=2)


def test_two_normalisations_that_fill_the_parameter_buffer_make_room():
    """The error of a sum goes to both of its terms, whose 48 channel groups each have not room beside each other: what has had its
    turn is updated before the others have theirs."""
    layers = (
        Conv(name="a", out=384, kernel=3, stride=2, pad=1),
        Conv(name="b", out=384, kernel=3, pad=1),
        Conv(name="s", input="a", out=384, kernel=1, act="none"),
        Conv(name="c", input="b", out=384, kernel=3, pad=1, residual="s"),
        FullyConnected(name="fc", out=10),
    )
    plan = compile_network(Network("two", (16, 14, 14), 10, layers), PRESETS["eta"], 4)
    for name in "sc":
        tag = 8 * plan.lowered.network.index(name) + 2
        runs = [TABLE["PARAM_UPD"] == i["uprog"] for i in plan.instructions if i.opcode == Opcode.RUN and i.tag == tag]
        assert sum(runs) == 48 and not all(runs[-48:])
