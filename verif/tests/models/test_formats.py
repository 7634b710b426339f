"""Number formats in the golden step: against floating point and the papers' update rules, saved, refused."""

import dataclasses
import math
from collections import defaultdict

import numpy as np
import pytest

from gradloom.models import digits, floatref, formats
from gradloom.models.arithmetic import linear, pint, softmax, update
from gradloom.models.formats import FORMATS, Linear, Quantiser
from gradloom.models.golden import step as golden
from gradloom.models.golden.averaging import averaged
from gradloom.models.golden.step import Hyper, evaluate, schedule_table, train_step
from gradloom.models.layers import Training
from gradloom.models.network import Kind, NetworkError, load_network
from gradloom.models.state import State, StateError, full_range_weights
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.networks import hashed_images

FILES = sorted(NETWORKS.glob("*.toml"))
SOFTWARE = [name for name in FORMATS if name not in ("pint8", "fp32")]
each_network = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
each_format = pytest.mark.parametrize("form", SOFTWARE)
INPUT_EXPONENT = -10


def started(network, steps=0, batch=4, average=False, seed=7):
    state = State.initial(network, seed, INPUT_EXPONENT)
    for step in range(steps):
        hyper = dataclasses.replace(Hyper.from_floats(0.05), average=average and network.arithmetic.average)
        train_step(network, state, *hashed_images(network, batch, step), hyper)
    return state


def real_weights(network, state):
    """The parameters of a state as real numbers, for the float reference."""
    found = {}
    for layer in network.weighted:
        values = network.arithmetic.operand.decode(state.weights[layer.name]).astype(np.float64)
        found[layer.name, "w"] = np.ldexp(values, state.exponents[network.tid(layer.name, Kind.W)])
        for key, master in state.parameters[layer.name].items():
            found[layer.name, key] = np.ldexp(master.astype(np.float64), -24)
    return found


@each_format
@each_network
def test_step_follows_the_float_gradients(file, form):
    """Direction of every layer's weight gradient, on the mean over five runs: those of deep networks of tiny planes scatter."""
    network = load_network(str(file)).formatted(form)
    cosines = defaultdict(list)
    for seed in range(7, 12):
        state = started(network, steps=2, seed=seed)
        x, labels = hashed_images(network, 16, 50)
        float_net = floatref.FloatNet(network, real_weights(network, state))
        result = train_step(network, state, x, labels, Hyper.from_floats(0.05))
        real = np.ldexp(pint.decode(x).astype(np.float64), INPUT_EXPONENT)
        reference = float_net.gradients(real, labels, decisions=result.tensors)
        # Integers against real numbers: 8-bit errors of tiny planes keep the direction, not every element.
        assert result.loss == pytest.approx(reference.loss, rel=0.15, abs=0.05)
        for layer in network.weighted:
            value, expected = result.tensors[layer.name, "dw"].astype(float), reference.gradients[layer.name, "w"]
            if np.abs(expected).max() > 0:
                cosines[layer.name].append((value * expected).sum() / np.linalg.norm(value) / np.linalg.norm(expected))
    for name, found in cosines.items():
        assert np.mean(found) > 0.85, (name, found)


def test_the_bfp8_update_is_momentum_sgd():
    """Masters and velocities against float64: Q.24 loses less than a few units a step."""
    rng = np.random.default_rng(3)
    master, velocity = rng.integers(-(1 << 22), 1 << 22, (2, 4, 3, 3, 3))
    dw = rng.integers(-(1 << 30), 1 << 30, (4, 3, 3, 3))
    inv, k, e_dw, n = 21845, 4, -36, 9
    result = update.master_weights(
        master, velocity, dw, inv=inv, shift=e_dw - 15 - k + 24, momentum=230, lm=205, le_lr=12, decay_n=n)
    v = 230 / 256 * velocity + dw * inv * 2.0 ** (e_dw - 15 - k + 24) + master * 2.0**-n
    w = master - 205 * 2.0**-12 * result.velocity
    # Three floors of a unit each in v, one in w.
    assert np.all(np.abs(result.velocity - v) <= 3) and np.all(np.abs(result.master - w) <= 1)


def test_short_masters_keep_their_mean_and_their_bits():
    rnd = np.arange(1 << 16)
    master = np.full(rnd.shape, 123456789)
    short = update.shortened(master, 16, rnd)
    # 27 bits, so the lowest 12 go.
    assert not np.any(short & 0xFFF) and set(np.abs(short - master) < 1 << 12) == {True}
    assert short.mean() == pytest.approx(123456789, abs=1)
    assert np.array_equal(update.shortened(master >> 13, 16, rnd), master >> 13)


def test_the_int8_update_is_darkfpga_s():
    """Section 3.2.4 in plain integers: Clip{(eta g + round_value) >> g_shift}, round_value uniform below 2^g_shift."""
    rng = np.random.default_rng(5)
    g, w = rng.integers(-5000, 5000, 4096), rng.integers(-127, 128, 4096)
    eta, g_shift = 3, int(np.bitwise_or.reduce(np.abs(g))).bit_length()
    # F bits of randomness as the midpoints of the 2^F intervals below 2^g_shift, in units of 2^-17.
    r = rng.integers(0, 1 << 16, 4096)
    shift = g_shift - eta
    step = np.clip((((g << 17) >> shift) + 2 * r + 1) >> 17, -127, 127)
    found = update.shifted(g, w, eta=eta, bits=8, rounding=Quantiser(Linear(8, symmetric=True), 16, r))
    assert np.array_equal(found, np.clip(w - step, -127, 127))
    # No step reaches 2^eta, some pass half of it, and on average the step is eta g 2^-g_shift.
    assert (1 << eta) / 2 <= np.abs(step).max() <= 1 << eta
    assert step.mean() == pytest.approx((g * 2.0**-shift).mean(), abs=0.05)


@pytest.mark.parametrize(("lr", "eta"), [(2**-7, 0), (2**-4, 3), (0.0625 * 1.4, 3), (0.0625 * 1.42, 4), (0.001, -3)])
def test_eta_is_the_nearest_power_of_two(lr, eta):
    assert Hyper.from_floats(lr).eta == eta


@pytest.mark.parametrize("fan_in", [1, 6, 7, 24, 25, 27, 144, 576, 2304])
def test_initial_weights_of_int8(fan_in):
    """W ~ U(-1, 1), and a_shift = max(ceil(log2(L_min / L)), 0), L = sqrt(6 / n_in), L_min = 1 (sections 3.2.1, 3.2.2)."""
    codes, exponent = full_range_weights(1, 8, (64, fan_in, 1, 1))
    values = linear.decode(codes, 8)
    assert values.min() >= -127 and values.max() <= 127
    assert exponent == -7 - max(math.ceil(math.log2(1 / math.sqrt(6 / fan_in))), 0)
    # Uniform within 2 %: 64 weights or more.
    assert abs(values.astype(float).std() / (127 / math.sqrt(3)) - 1) < (0.2 if fan_in < 24 else 0.05)


@each_network
def test_activations_of_int8_are_shifted_sums(file):
    """Of layers without normalisation: a_q = Clip{(a + round_value) >> (7 + a_shift)} after ReLU, at their input's exponent."""
    network = load_network(str(file)).formatted("int8-shift")
    result = train_step(network, started(network), *hashed_images(network, 4), Hyper.from_floats(0.05))
    for layer in network.layers:
        if layer.name == network.logits.name or not hasattr(layer, "norm"):
            continue
        e = result.exponents[network.tid(layer.name, Kind.Z)]
        assert e == (-4 if layer.norm == "frn" else result.exponents[network.z_tid(layer.input)])


@each_format
def test_xhat_has_a_mean_magnitude_of_one(form):
    network = load_network("digits-cnn").formatted(form)
    result = train_step(network, started(network), *hashed_images(network, 4), Hyper.from_floats(0.05))
    form = network.arithmetic
    xhat = np.ldexp(form.normalised.decode(result.tensors["conv1", "xhat"]).astype(float), -8 + form.normalised_up)
    assert np.abs(np.abs(xhat).mean(axis=(2, 3)) - 1).max() < 0.05


def test_every_image_of_bfp8_fills_its_range():
    network = load_network("digits-cnn").formatted("bfp8")
    x, labels = hashed_images(network, 6)
    x[2] = pint.code_of(pint.decode(x[2]) >> 9)
    result = train_step(network, started(network), x, labels, Hyper.from_floats(0.05))
    for name, tensor in (("conv1", "z"), ("conv3", "dx"), ("fc", "error"), ("conv2", "z")):
        values = linear.decode(result.tensors[name, tensor], 8).reshape(6, -1)
        assert np.all(np.abs(values).max(axis=1) >= 63), (name, tensor)
    e = result.exponents[2].ravel()
    assert e.shape == (6,) and e[2] <= e[0] - 8


def test_averages_are_means():
    network = load_network("digits-cnn").formatted("bfp8-swa")
    state, seen = started(network, 2), []
    for step in range(3):
        train_step(network, state, *hashed_images(network, 4, step), dataclasses.replace(Hyper.from_floats(0.05), average=True))
        seen.append(real_weights(network, state))
    mean = averaged(network, state)
    assert state.averaged == 3 and mean is not state
    for layer in network.weighted:
        for key in ("w", *network.parameters(layer.name)):
            found, expected = real_weights(network, mean)[layer.name, key], np.mean([w[layer.name, key] for w in seen], axis=0)
            unit = 2.0 ** mean.exponents[network.tid(layer.name, Kind.W)] if key == "w" else 2.0**-24
            # Rounded to nearest; the largest positive value may be clamped by a unit.
            assert np.abs(found - expected).max() <= (1 if key == "w" else 0.51) * unit
    plain = state.copy()
    plain.averages, plain.averaged = {}, 0
    x, labels = hashed_images(network, 8, 9)
    assert not np.array_equal(evaluate(network, state, x, labels).logits, evaluate(network, plain, x, labels).logits)


def test_schedule_of_averages():
    train = Training(epochs=100, lr=0.05, schedule="linear")
    table = schedule_table(train, 1000, average=True)
    plain = schedule_table(train, 1000)
    assert table[:750] == plain[:750] and not any(hyper.average for hyper in plain)
    assert {hyper.lr for hyper in table[750:]} == {Hyper.from_floats(0.01).lr}
    assert [step for step, hyper in enumerate(table) if hyper.average] == list(range(759, 1000, 10))
    few = schedule_table(Training(epochs=2), 128, average=True)
    assert sum(hyper.average for hyper in few) == 16 and few[-1].average


@each_format
def test_a_saved_state_goes_on_with_the_same_bytes(form, tmp_path):
    network = load_network("digits-cnn").formatted(form)
    state = started(network, 2, average=True)
    state.save(tmp_path / "state.npz")
    resumed = State.load(tmp_path / "state.npz", network)
    assert resumed.arrays().keys() == state.arrays().keys() and resumed.averaged == state.averaged
    for _ in range(2):
        results = [train_step(network, each, *hashed_images(network, 4, 9), Hyper.from_floats(0.05)) for each in (state, resumed)]
        assert all(np.array_equal(value, results[1].tensors[key]) for key, value in results[0].tensors.items())
    other = load_network("digits-cnn")
    with pytest.raises(StateError, match=rf"is a state of the format {form}, network 'digits-cnn' has pint8: give --format or a"):
        State.load(tmp_path / "state.npz", other)


@each_format
def test_parts_are_refused(form):
    network = load_network("digits-cnn").formatted(form)
    with pytest.raises(ValueError, match=rf"^format {form} takes its scales from the batch itself: process it in one part$"):
        train_step(network, started(network), *hashed_images(network, 4), Hyper.from_floats(0.05), parts=2)


def test_a_format_is_a_key_of_the_network(tmp_path):
    network = load_network("digits-cnn").formatted("bfp8")
    (tmp_path / "net.toml").write_text(network.to_toml())
    assert load_network(str(tmp_path / "net.toml")) == network and network.formatted(None) == network
    text = load_network("digits-cnn").to_toml()
    short = text.replace('format = "pint8"', 'format = "bfp8"').split("[rounding]")[0]
    (tmp_path / "net.toml").write_text(short)
    assert load_network(str(tmp_path / "net.toml")).rounding == FORMATS["bfp8"].rounding
    for wrong in ("fp4", ["bfp8"]):
        message = rf"^format must be one of pint8, int8-shift, bfp8, bfp8-swa, fp32, not {wrong!r}: choose one$".replace("[", r"\[")
        with pytest.raises(NetworkError, match=message):
            formats.find_format(wrong)
    (tmp_path / "net.toml").write_text(text.replace('format = "pint8"', 'format = "fp4"'))
    with pytest.raises(NetworkError, match=r"net\.toml: format must be one of"):
        load_network(str(tmp_path / "net.toml"))


def test_fp32_is_the_float_reference(tmp_path):
    """The same steps as the reference, saved and resumed; the initial weights are pint8's before their encoding."""
    network = load_network("digits-cnn").formatted("fp32")
    state = State.initial(network, 7, INPUT_EXPONENT)
    plain = floatref.from_state(load_network("digits-cnn"), started(load_network("digits-cnn")), np.float32)
    for key, value in plain.parameters.items():
        # PINT(8, 3) keeps 7 bits of the largest weights.
        assert np.abs(value - floatref.from_state(network, state).parameters[key]).max() <= 2.0**-7 * max(np.abs(value).max(), 1)
    reference = floatref.from_state(network, state.copy(), np.float32)
    for step in range(4):
        x, labels = hashed_images(network, 6, step)
        hyper = Hyper.from_floats(0.05, 0.9, 2.0**-7)
        real = np.ldexp(pint.decode(x).astype(np.float32), INPUT_EXPONENT)
        expected = reference.train_step(real, labels, hyper.lr, 230 / 256, 2.0**-7)
        found = train_step(network, state, x, labels, hyper)
        assert (found.loss, found.correct) == (expected.loss, expected.correct)
        assert sorted(found.tensors) == sorted(golden.expected_tensors(network))
        state.save(tmp_path / "state.npz")
        state = State.load(tmp_path / "state.npz", network)
        for (layer, key), value in reference.parameters.items():
            assert np.array_equal(found.tensors[layer, key], value) and value.dtype == np.float32
    result = evaluate(network, state, x, labels)
    assert np.abs(result.logits / 256 - reference.logits(real)).max() <= 2.0**-9 and result.logits.dtype == np.int32


def test_targets_must_fit():
    with pytest.raises(ValueError, match=r"^Targets must be integers \(Q8\) of shape \(1, 2\), not int64 of shape \(1, 3\)$"):
        softmax.squared([[1, 2]], [[1, 2, 3]])
    assert softmax.squared([[1, 2]], [[5, -5]]).error.tolist() == [[-4, 7]]


# Learning rates chosen on these digits; int8-shift's is the largest step of a weight, momentum is its parameters' alone.
@pytest.mark.parametrize(("form", "lr", "momentum", "floor"), [
    ("int8-shift", 0.25, 0.0, 0.88), ("bfp8", 0.02, 0.9, 0.9), ("bfp8-swa", 0.02, 0.9, 0.9)])
def test_digits_are_learnt(form, lr, momentum, floor):
    network = load_network("digits-cnn").formatted(form)
    x, labels, test_x, test_y, exponent = digits.load_digits_split()
    state, count = State.initial(network, 1, exponent), len(labels) // 16
    train = Training(epochs=2, lr=lr, momentum=momentum, schedule="linear")
    for step, hyper in enumerate(schedule_table(train, 2 * count, average=network.arithmetic.average)):
        chosen = slice(step % count * 16, step % count * 16 + 16)
        golden.train_step(network, state, x[chosen], labels[chosen], hyper)
    assert evaluate(network, state, test_x, test_y).correct / len(test_y) >= floor
