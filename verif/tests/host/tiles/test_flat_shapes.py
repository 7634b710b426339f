"""Fully connected layers on planes whose beats are planes of their own: where that is done, and that every byte stays."""

import dataclasses
from collections import Counter

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode, Pattern
from gradloom.host.backward import gradient_commands
from gradloom.host.compilation.layer_sizes import shape_of
from gradloom.host.knobs import Knobs
from gradloom.host.program.validator import validate
from gradloom.host.schedule import compile_network
from gradloom.host.tiles import flat_shapes
from gradloom.host.tiles.flat_shapes import backward_shape, flattened, forward_shape
from gradloom.models.network import Conv, FullyConnected, Network, Rounding, load_network
from gradloom.verif.configs import machine_config
from gradloom.verif.interpreting.step_check import check_steps

ETA = PRESETS["eta"]
LENET = load_network("lenet10")
STOCHASTIC = Rounding(
    activations="stochastic", normalised="nearest", errors="stochastic", weights="stochastic", velocities="stochastic")
FEEDBACK = dataclasses.replace(STOCHASTIC, weights="feedback")


def head(channels: int, y: int, x: int, hidden: int = 7, rounding: Rounding = STOCHASTIC) -> Network:
    return Network("head", (channels, y, x), 5, (
        Conv(name="conv", out=channels + 2, kernel=3, pad=1), FullyConnected(name="hidden", out=hidden, act="relu"),
        FullyConnected(name="logits", out=5)), rounding=rounding)


@pytest.fixture(params=[0, float("inf")], ids=["all flat", "none"])
def gain(request, monkeypatch):
    """Whatever it costs, or never."""
    monkeypatch.setattr(flat_shapes, "FLAT_GAIN", request.param)
    monkeypatch.setattr(gradient_commands, "FLAT_GAIN", request.param)
    return request.param


def test_shape():
    layer = LENET.layer("fc1")
    whole, flat = shape_of(LENET, layer, ETA), flattened(LENET, layer, ETA)
    assert (whole.cg, whole.ky, whole.kx) == (8, 4, 4)
    assert (flat.cg, flat.mg, flat.yi, flat.xi, flat.ky, flat.kx) == (64, 8, 1, 2, 1, 2)
    assert flattened(LENET, LENET.layer("fc2"), ETA) is None, "a plane of 1 x 1"
    assert flattened(LENET, LENET.layer("conv3"), ETA) is None


def test_where_it_gains_much():
    layer = LENET.layer("fc1")
    assert backward_shape(LENET, layer, ETA, 16).flat and backward_shape(LENET, layer, ETA, 8).flat, "all images, and half of them"
    assert not forward_shape(LENET, layer, ETA, 16).flat, "1536 cycles against 792, for weights of 4096 beats"
    wide = Network("wide", (256, 2, 2), 1000, (FullyConnected(name="hidden", out=4096), FullyConnected(name="logits", out=1000)))
    assert forward_shape(wide, wide.layer("hidden"), ETA, 16).flat, "windows of 2 x 2 leave five of nine taps idle"
    digits = load_network("digits-cnn")
    assert not backward_shape(digits, digits.layer("fc"), PRESETS["nano"], 16).flat, "its commands cost what the array gains"


@pytest.mark.parametrize(("config", "network", "more"), [
    ("small", head(5, 4, 4), {"order": 2}),
    ("small", head(3, 3, 5), {}),
    ("small", head(3, 4, 1, rounding=FEEDBACK), {"batch": 4, "parts": 2}),
    ("small", head(5, 4, 4), {"knobs": Knobs(subtile_beats=4), "order": 3}),
    ("nano", head(2, 3, 3, rounding=FEEDBACK), {}),
    ("eta", head(9, 3, 3, hidden=30), {}),
    ("laps", head(5, 4, 3), {}),
    ("turns", head(5, 2, 4, rounding=FEEDBACK), {}),
])
def test_two_steps_write_the_bytes_of_the_golden_model(gain, config, network, more):
    plan = check_steps(network, machine_config(config), **{"batch": 3} | more)[-1]
    tags = {8 * plan.lowered.network.index("hidden") + phase for phase in (0, 1, 3)}
    patterns = {i["pattern"] for i in plan.instructions if i.opcode == Opcode.CONV and i.tag in tags}
    assert patterns == {Pattern.K3 if gain else Pattern.K1}


def test_cycles_of_the_array_in_lenets_hidden_layer():
    """Errors and gradients of fc1: 22 steps, 3 tiles, 2 columns, 6 row groups of 16 images; of errors two positions each."""
    plan = compile_network(LENET, ETA, 16)
    assert validate(plan.program(1), ETA, window=(0, plan.size), first_step=1) == []
    index, found = plan.lowered.network.index("fc1"), Counter[int]()
    for i in plan.instructions:
        if i.opcode == Opcode.CONV and i.tag // 8 == index:
            found[i.tag % 8] += i["steps"] * -(-i["units"] // ETA.wpus) * i["cols"]
    assert found[3] == 22 * 3 * 2 * 6 and found[1] == 2 * found[3]
