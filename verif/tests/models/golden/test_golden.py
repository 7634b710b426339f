"""The golden training step: against floating point, in parts, resumed, calibrated, and as a learner of
digits."""

import dataclasses
import os
from collections import defaultdict

import numpy as np
import pytest

from gradloom.models import digests, digits, floatref
from gradloom.models.arithmetic import arith, conv, dither, feedback, pint
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Hyper, evaluate, expected_tensors, schedule_table, train_step
from gradloom.models.network import FullyConnected, Kind, Network, NetworkError, Training, load_network
from gradloom.models.state import State, StateError, delayed_kinds
from gradloom.models.widths import SumWidths
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.networks import hashed_images

FILES = sorted(NETWORKS.glob("*.toml"))
each_network = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
# The gradients of a whole network are close to those in floating point only while few layers add their rounding: the cosine falls
# by about a hundredth a layer, and gamma's sums, small differences of large numbers, sooner. tiny-rows has ten layers.
SHALLOW = [file for file in FILES if len(load_network(str(file)).weighted) <= 6]
INPUT_EXPONENT = -10


def started(network, steps=0, seed=7, batch=4, **hyper):
    state = State.initial(network, seed, INPUT_EXPONENT)
    for step in range(steps):
        train_step(network, state, *hashed_images(network, batch, step), Hyper.from_floats(0.05, **hyper))
    return state


def assert_same(first, second):
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert value.dtype == second[key].dtype and np.array_equal(value, second[key]), key


def real(codes, exponent):
    return np.ldexp(pint.decode(codes).astype(np.float64), exponent)


def test_shallow_networks_are_all_but_one():
    assert [file.stem for file in FILES if file not in SHALLOW] == ["tiny-rows"]


@pytest.mark.parametrize("file", SHALLOW, ids=lambda file: file.stem)
def test_step_follows_the_float_gradients(file):
    """Cosine and size of every gradient, on the mean over five runs: those of one run scatter by some hundredths."""
    network = load_network(str(file))
    cosines, sizes = defaultdict(list), defaultdict(list)
    for seed in range(7, 12):
        state = started(network, steps=2, seed=seed)
        x, labels = hashed_images(network, 16, 50)
        float_net = floatref.from_state(network, state)
        result = train_step(network, state, x, labels, Hyper.from_floats(0.05))
        reference = float_net.gradients(real(x, INPUT_EXPONENT), labels, decisions=result.tensors)
        # Integers against real numbers: they differ by the quantisation of a whole network, which has no exact bound.
        assert result.loss == pytest.approx(reference.loss, rel=0.1, abs=0.02)
        for key, value in gradients(network, result, len(labels)).items():
            expected = reference.gradients[key]
            if not np.abs(expected).max() > 0:
                assert not value.any()
                continue
            size, expected_size = np.linalg.norm(value), np.linalg.norm(expected)
            cosines[key].append((value * expected).sum() / size / expected_size)
            sizes[key].append(size / expected_size)
    for key, found in cosines.items():
        assert np.mean(found) > 0.9, (key, found)
        # Sums of few errors of both signs keep less of their size than weight gradients do.
        assert np.mean(sizes[key]) == pytest.approx(1, abs=0.1 if key[1] == "w" else 0.15), (key, sizes[key])


def gradients(network, result, batch):
    """Mean gradients of a step as real numbers, by layer and "w" or parameter."""
    found, e = {}, result.exponents
    for layer in network.weighted:
        exponent = e[network.dx_tid(layer.name)] + e[network.tid(layer.input, Kind.Z)]
        found[layer.name, "w"] = np.ldexp(result.tensors[layer.name, "dw"].astype(float), exponent) / batch
        dz = e[network.tid(layer.name, Kind.DZ)]
        for key in network.parameters(layer.name):
            total = result.sums[layer.name, "sg" if key == "gamma" else f"s{key[0]}"]
            found[layer.name, key] = np.ldexp(total.astype(float), dz - (8 if key == "gamma" else 0)) / batch
    return found


@each_network
def test_update_moves_weights_against_the_velocity(file):
    network = load_network(str(file))
    state = started(network, steps=2)
    before = state.copy()
    hyper = Hyper.from_floats(0.05, 0.9, 2.0**-7)
    result = train_step(network, state, *hashed_images(network, 4, 9), hyper)
    for layer in network.weighted:
        name, e = layer.name, result.exponents
        w, v = (
            real(table[name], e[network.tid(name, kind)])
            for table, kind in ((before.weights, Kind.W), (before.velocities, Kind.V))
        )
        kept = feedback.join(pint.decode(before.weights[name]), before.rests[name])
        exact = np.ldexp(kept.astype(float), e[network.tid(name, Kind.W)] - feedback.REST_BITS)
        next_w, next_v = (
            real(table[name], e[network.tid(name, kind)])
            for table, kind in ((state.weights, Kind.W_NEXT), (state.velocities, Kind.V_NEXT))
        )

        exponent = e[network.dx_tid(name)] + e[network.tid(layer.input, Kind.Z)]
        gradient = np.ldexp(result.tensors[name, "dw"].astype(float), exponent) / 4
        for value, target, kind in (
            (next_v, 230 / 256 * v + gradient + w / 128, Kind.V_NEXT),
            (next_w, exact - hyper.lr * next_v, Kind.W_NEXT),
        ):
            unit = 2.0 ** e[network.tid(name, kind)]
            inside = np.abs(target) < 4032 * unit
            step = np.where(np.abs(target) < 8 * unit, 1, np.where(np.abs(target) < 512 * unit, 8, 64)) * unit
            # Velocities are rounded stochastically, weights to nearest.
            bound = 0.51 if kind == Kind.W_NEXT else 1.01
            assert np.all(np.abs(value - target)[inside] <= bound * step[inside]), (name, kind)


@each_network
@pytest.mark.parametrize("parts", [2, 4, 3])
def test_parts_of_a_batch_give_the_same_bytes(file, parts):
    network = load_network(str(file))
    whole, split = started(network), started(network)
    for step in range(2):
        batch = hashed_images(network, 8, step)
        first = train_step(network, whole, *batch, Hyper.from_floats(0.1))
        second = train_step(network, split, *batch, Hyper.from_floats(0.1), parts=parts)
        assert_same(first.tensors, second.tensors)
        assert_same(first.sums, second.sums)
        assert (first.exponents, first.loss, first.correct) == (second.exponents, second.loss, second.correct)
    assert digests.parameters_digest(network, whole) == digests.parameters_digest(network, split)
    assert whole.exponents == split.exponents


@each_network
def test_a_saved_state_goes_on_with_the_same_bytes(file, tmp_path):
    network = load_network(str(file))
    straight = started(network, steps=4)
    state = started(network, steps=2)
    state.save(tmp_path / "state.npz")
    assert os.listdir(tmp_path) == ["state.npz"]
    resumed = State.load(tmp_path / "state.npz", network)
    assert (resumed.step, resumed.seed, resumed.calibrated) == (2, 7, True)
    assert_same(resumed.arrays(), state.arrays())
    for step in (2, 3):
        train_step(network, resumed, *hashed_images(network, 4, step), Hyper.from_floats(0.05))
    assert digests.parameters_digest(network, resumed) == digests.parameters_digest(network, straight)


@each_network
def test_a_step_writes_the_expected_tensors(file):
    network = load_network(str(file))
    result = train_step(network, started(network), *hashed_images(network, 4), Hyper.from_floats(0.05))
    assert sorted(result.tensors) == sorted(expected_tensors(network))
    without = [key for key in expected_tensors(network) if key[1] != "dw"]
    assert expected_tensors(network, export_dw=False) == without
    for (name, tensor), value in result.tensors.items():
        out = network.shape(name)
        if tensor in ("z", "xhat", "bit", "index", "dz", "dx"):
            assert value.shape == (4, *out) and value.dtype == np.uint8, (name, tensor)
        elif tensor == "ds":
            assert value.shape == (4, *network.geometry(name).in_shape) and value.dtype == np.uint8
        elif tensor in ("q", "le"):
            assert value.shape == (4, out[0])
        elif tensor in ("logits", "error"):
            assert value.shape == (4, network.classes)
        elif tensor in ("w", "v", "rest", "dw"):
            assert value.shape == network.weight_shape(name)
        else:
            assert value.shape == (out[0],) and value.dtype == np.int32


@each_network
def test_calibration_fills_the_range_of_every_tensor(file):
    network = load_network(str(file))
    state = started(network)
    assert not state.calibrated
    result = train_step(network, state, *hashed_images(network, 4), Hyper.from_floats(0.05))
    assert state.calibrated and state.step == 1
    names = {Kind.Z: "z", Kind.DZ: "dz", Kind.DX: "dx", Kind.DS: "ds"}
    for layer in network.layers:
        for kind in delayed_kinds(network, layer.name):
            peak = np.abs(pint.decode(result.tensors[layer.name, names[kind]])).max()
            assert peak >= 2048, (layer.name, kind)
    for layer in network.weighted:
        assert np.abs(pint.decode(state.velocities[layer.name])).max() >= 2048
        before, after = result.exponents, state.exponents
        for now, ahead in ((Kind.W, Kind.W_NEXT), (Kind.V, Kind.V_NEXT)):
            assert after[network.tid(layer.name, now)] == before[network.tid(layer.name, ahead)]


def test_only_the_seed_the_step_and_the_data_count():
    network = load_network(str(FILES[0]))
    first, again, other = started(network, 2), started(network, 2), started(network, 2, seed=8)
    digest = digests.parameters_digest(network, first)
    assert digest == digests.parameters_digest(network, again)
    assert digest != digests.parameters_digest(network, other)


@each_network
def test_evaluation_is_the_forward_pass_and_changes_nothing(file):
    network = load_network(str(file))
    state = started(network, steps=1)
    before = digests.parameters_digest(network, state)
    x, labels = hashed_images(network, 4, 30)
    result = evaluate(network, state, x, labels)
    assert digests.parameters_digest(network, state) == before and state.step == 1
    step = train_step(network, state, x, labels, Hyper.from_floats(0.05))
    assert np.array_equal(step.tensors[network.logits.name, "logits"], result.logits)
    assert (step.loss, step.correct) == (result.loss, result.correct)


def test_evaluation_needs_calibrated_exponents():
    network = load_network(str(FILES[0]))
    message = r"^the exponents are not calibrated: do a training step before evaluating$"
    with pytest.raises(ValueError, match=message):
        evaluate(network, started(network), *hashed_images(network, 2))


@pytest.mark.parametrize("parts", [0, 5])
def test_parts_must_fit_the_batch(parts):
    network = load_network(str(FILES[0]))
    with pytest.raises(ValueError, match=rf"^a batch of 4 images cannot be processed in {parts} parts$"):
        train_step(network, started(network), *hashed_images(network, 4), Hyper.from_floats(0.05), parts=parts)


@pytest.mark.parametrize(
    ("widths", "phase"), [(SumWidths(psum=10), "forward sum"), (SumWidths(wg=10), "weight gradient")], ids=str
)
def test_overflow_names_the_layer(widths, phase):
    network = load_network("digits-cnn")
    message = rf"^layer '(conv1|fc)': {phase}: values .* do not fit 10 bits$"
    for parts in (1, 2):
        with pytest.raises(arith.ArithmeticFault, match=message):
            train_step(network, started(network), *hashed_images(network, 2), Hyper.from_floats(0.05), parts=parts, widths=widths)


def test_the_sum_over_parts_has_the_full_width(monkeypatch):
    """Gradients of a part fit the machine's accumulators; the parts are added up in wide integers."""
    network = load_network("digits-cnn")
    state = started(network, steps=1)
    batch, hyper = hashed_images(network, 4), Hyper.from_floats(0.05)
    halves = [train_step(network, state.copy(), batch[0][part], batch[1][part], hyper).tensors for part in (slice(2), slice(2, 4))]
    whole = train_step(network, state.copy(), *batch, hyper).tensors

    def bits(tensors):
        return max(arith.signed_bits("dw", tensors[layer.name, "dw"], 48) for layer in network.weighted)

    most = max(map(bits, halves))
    assert bits(whole) > most, "such a batch is needed"
    with pytest.raises(arith.ArithmeticFault, match=rf"weight gradient: values .* do not fit {most} bits$"):
        train_step(network, state.copy(), *batch, hyper, widths=SumWidths(wg=most))
    found = train_step(network, state.copy(), *batch, hyper, parts=2, widths=SumWidths(wg=most)).tensors
    assert all(np.array_equal(found[key], whole[key]) for key in whole)
    monkeypatch.setattr(conv, "GRADIENT_BITS", most)
    with pytest.raises(arith.ArithmeticFault, match=rf"weight gradient: values .* do not fit {most} bits$"):
        train_step(network, state.copy(), *batch, hyper, parts=2)


def test_hyperparameters_round_to_an_eight_bit_mantissa():
    assert Hyper.from_floats(0.05) == Hyper(205, 12, 230, 255)
    assert Hyper.from_floats(1.0, 0.0, 2.0**-12) == Hyper(128, 7, 0, 12)
    assert Hyper.from_floats(0.9999) == Hyper(128, 7)
    assert Hyper.from_floats(64.0, 255 / 256) == Hyper(128, 1, 255)
    for lr in (2.0**-30, 1e-4, 0.003, 0.37, 3.0):
        # Half a step of the 8-bit mantissa at its coarsest.
        assert Hyper.from_floats(lr).lr == pytest.approx(lr, rel=1 / 256)
        assert 128 <= Hyper.from_floats(lr).lm <= 255


def test_schedules():
    def rates(schedule):
        return [hyper.lr for hyper in schedule_table(Training(lr=0.25, schedule=schedule), 4)]

    assert rates("constant") == [0.25] * 4
    warm = [hyper.lr for hyper in schedule_table(Training(lr=0.25, schedule="linear", epochs=3, warmup=1), 6)]
    assert warm == [0.125, 0.25, 0.25, 0.1875, 0.125, 0.0625]
    assert [hyper.lr for hyper in schedule_table(Training(lr=0.25, epochs=1, warmup=2), 2)] == [0.0625, 0.125]
    assert rates("linear") == [0.25, 0.1875, 0.125, 0.0625]
    # Mantissas of 8 bits, and four decimals written here.
    assert rates("cosine") == pytest.approx([0.25, 0.2134, 0.125, 0.0366], rel=1 / 256, abs=1e-4)


def test_constant_exponents_of_the_loss_gradient():
    for name, exponent in (("tiny-relu", -8), ("tiny-awkward", -12)):
        network = load_network(str(FILES[0].parent / f"{name}.toml"))
        state = started(network, steps=3)
        assert state.exponents[network.tid("logits", Kind.DZ)] == exponent == network.error_exponent
        assert state.exponents[2] == INPUT_EXPONENT


def test_states_of_other_networks_and_damaged_files_are_refused(tmp_path):
    network, other = (load_network(str(file)) for file in FILES[:2])
    file = tmp_path / "state.npz"
    started(network, steps=1).save(file)
    message = rf"state\.npz has no array .*: it is not a state of network '{other.name}'$"
    with pytest.raises(StateError, match=message):
        State.load(file, other)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(StateError, match=r"state\.npz cannot be read as a saved state: "):
        State.load(file, network)
    with pytest.raises(StateError, match=r"none\.npz cannot be read as a saved state: "):
        State.load(tmp_path / "none.npz", network)
    small, large = (Network("net", (1, 4, size), 3, (FullyConnected(name="fc", out=3),)) for size in (4, 5))
    started(small).save(file)
    message = (
        r": weights/fc is uint8 of shape \(3, 1, 4, 4\), network 'net' needs "
        r"uint8 of shape \(3, 1, 4, 5\): give a state of this network$"
    )
    with pytest.raises(StateError, match=message):
        State.load(file, large)


@pytest.mark.parametrize(("key", "value", "words"), [
    ("exponents", 128, r"an exponent lies outside -64\.\.127"),
    ("exponents", -65, r"an exponent lies outside -64\.\.127"),
    ("parameters/conv1/gamma", 1 << 27, "parameters/conv1/gamma leaves the 28 bits of a parameter"),
    ("parameters/conv1/beta", -(1 << 27) - 1, "parameters/conv1/beta leaves the 28 bits of a parameter"),
    ("step", -1, "its step or its seed is none"),
    ("seed", 1 << 32, "its step or its seed is none"),
])
def test_values_that_no_run_saves_are_refused(tmp_path, key, value, words):
    """Else they would be cut to the width of a register on one device, and end in a fault on another."""
    network = load_network("digits-cnn")
    started(network).save(tmp_path / "state.npz")
    with np.load(tmp_path / "state.npz") as archive:
        arrays = dict(archive)
    arrays[key][(-1, 1) if key == "exponents" else ...] = value
    np.savez(tmp_path / "state.npz", **arrays)
    with pytest.raises(StateError, match=words):
        State.load(tmp_path / "state.npz", network)


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    network = load_network("digits-cnn").formatted("fp32")
    state = started(network)
    state.weights["fc"][0] = np.nan
    state.save(tmp_path / "state.npz")
    with pytest.raises(StateError, match="weights/fc holds values that are not finite"):
        State.load(tmp_path / "state.npz", network)


def test_a_network_of_one_layer_learns():
    network = Network("single", (1, 4, 4), 2, (FullyConnected(name="fc", out=2),))
    state = started(network)
    x = np.zeros((8, 1, 4, 4), np.uint8)
    labels = np.arange(8) % 2
    x[labels == 1, :, :2] = pint.code_of(np.array(1024))
    x[labels == 0, :, 2:] = pint.code_of(np.array(1024))
    losses = [train_step(network, state, x, labels, Hyper.from_floats(0.1)).loss for _ in range(40)]
    assert losses[-1] < 0.1 * losses[0] and evaluate(network, state, x, labels).correct == 8


def test_networks_without_a_step_are_refused_before_training():
    with pytest.raises(NetworkError):
        Network("empty", (1, 4, 4), 2, ())


def test_digests_cover_type_shape_and_values():
    x = np.arange(6, dtype=np.uint8)
    assert digests.tensor_digest(x) == digests.tensor_digest(x.copy())
    variants = [x, x.reshape(2, 3), x.astype(np.int32), x + np.uint8(1)]
    assert len({digests.tensor_digest(variant) for variant in variants}) == 4
    assert digests.tensor_digest(x.astype(">i4")) == digests.tensor_digest(x.astype("<i4"))
    assert digests.tensor_digest(x > 3) == digests.tensor_digest((x > 3).astype(np.uint8))
    network = load_network("digits-cnn")
    result = train_step(network, started(network), *hashed_images(network, 2), Hyper.from_floats(0.05))
    names = sorted(f"{layer}/{tensor}" for layer, tensor in expected_tensors(network))
    assert sorted(digests.tensor_digests(result.tensors)) == names


def test_every_part_of_a_state_counts_in_its_digest():
    network = load_network("digits-cnn")
    state = started(network, steps=1)
    found = {digests.parameters_digest(network, state)}
    for array in state.copy().arrays():
        changed = state.copy()
        changed.arrays()[array].flat[0] ^= 1
        found.add(digests.parameters_digest(network, changed))
    changed = state.copy()
    changed.exponents[2] += 1
    found.add(digests.parameters_digest(network, changed))
    assert len(found) == 2 + len(state.arrays())


def test_digits_split():
    train_x, train_y, test_x, test_y, exponent = digits.load_digits_split()
    assert train_x.shape == (1437, 1, 8, 8) and test_x.shape == (360, 1, 8, 8) and exponent == -10
    assert train_x.dtype == np.uint8 and len(train_y) == 1437 and len(test_y) == 360
    assert set(np.unique(pint.decode(train_x))) == {64 * p for p in range(17)}
    assert np.bincount(test_y, minlength=10).min() > 20
    again = digits.load_digits_split()
    assert np.array_equal(train_x, again[0]) and np.array_equal(test_y, again[3])
    assert not np.array_equal(train_x, digits.load_digits_split(seed=1)[0])


def test_digits_are_learnt():
    network = load_network("digits-cnn")
    train_x, train_y, test_x, test_y, exponent = digits.load_digits_split()
    train = dataclasses.replace(network.train, epochs=4)
    state = State.initial(network, 1, exponent)
    per_epoch = len(train_y) // train.batch
    table = schedule_table(train, per_epoch * train.epochs)
    for epoch in range(train.epochs):
        keys = dither.hash24(dither.tensor_seed(1, epoch, 0), np.arange(len(train_y)))
        order = np.argsort(keys, kind="stable")
        for i in range(per_epoch):
            chosen = order[i * train.batch : (i + 1) * train.batch]
            result = train_step(network, state, train_x[chosen], train_y[chosen], table[state.step])
            assert result.loss < 10
    score = evaluate(network, state, test_x, test_y)
    # Seeds 0 to 9 end at 94.7 to 97.8 %, this one at the lowest.
    assert score.correct / len(test_y) >= 0.94
    assert score.loss < 0.25
    assert golden.evaluate(network, state, train_x, train_y).correct / len(train_y) >= 0.97


def test_a_shortcut_s_error_that_leaves_64_bits_is_a_fault():
    """docs/arithmetic.md, section 2: the aligned error saturates at 2^63 - 1, and the sums of the main consumer come on top."""
    network = load_network(str(next(file for file in FILES if file.stem == "tiny-residual")))
    state = started(network, steps=1)
    state.exponents |= {network.tid("same", Kind.W): -64, network.tid("same", Kind.DX): -64}
    with pytest.raises(arith.ArithmeticFault, match=r"^layer 'stem': shortcut error: a sum does not fit 64 bits$"):
        train_step(network, state, *hashed_images(network, 4, 1), Hyper.from_floats(0.05))
