"""Rounding as a choice of every kind of tensor: what draws, under which number and index, and what stays as it was."""


import numpy as np
import pytest

from gradloom.models.arithmetic import arith, conv, dither, pint
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Hyper, train_step
from gradloom.models.network import INPUT, Kind, NetworkError, Rounding, load_network
from gradloom.models.rounding import parse_rounding
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS

RESIDUAL = str(NETWORKS / "tiny-residual.toml")


def images(network, batch, seed=0):
    rng = np.random.default_rng(seed)
    return pint.encode(rng.integers(-4096, 4096, (batch, *network.input_shape)), 0).code, rng.integers(0, network.classes, batch)


def stepped(network, steps=2, batch=3):
    """State before the last of ``steps`` steps, and its result."""
    state = State.initial(network, 9, -11)
    for step in range(steps):
        before = state.copy()
        result = train_step(network, state, *images(network, batch, step), Hyper.from_floats(0.05))
    return before, state, result


def test_defaults_and_numbers_of_bits():
    rounding = Rounding()
    assert str(rounding) == "activations=nearest,normalised=nearest,errors=nearest,weights=feedback,velocities=stochastic"
    assert [Rounding(weights=how).keeps_rests for how in ("nearest", "stochastic", "feedback")] == [False, False, True]
    assert [rounding.f(kind) for kind in (Kind.W, Kind.V, Kind.Z, Kind.DZ, Kind.DX, Kind.DS)] == [16, 16, 8, 8, 8, 8]
    assert rounding.xhat_f == 8 and rounding.changed({"normalised": "stochastic"}).xhat_f == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("errors", "rounding: 'errors' must be KIND=nearest or KIND=stochastic: give both sides"),
        ("errors=nearest,errors=nearest", "rounding: errors is given twice: remove one"),
        ("errors=up", "rounding: errors must be 'nearest' or 'stochastic', not 'up': choose one of them"),
        ("errors=feedback", "rounding: errors must be 'nearest' or 'stochastic', not 'feedback': choose one of them"),
        ("weights=up", "rounding: weights must be 'nearest', 'stochastic' or 'feedback', not 'up': choose one of them"),
        ("bias=nearest",
         "rounding: unknown key 'bias': the keys are activations, normalised, errors, weights, velocities"),
    ],
)
def test_refusals_of_the_option(text, message):
    with pytest.raises(NetworkError) as caught:
        parse_rounding(text)
    assert str(caught.value) == message


def test_option():
    assert parse_rounding("errors=stochastic, weights=nearest") == {"errors": "stochastic", "weights": "nearest"}


def test_a_pool_draws_with_its_own_number_and_the_linear_index_of_the_whole_batch():
    """z of an average pool again from its input, as section 7 of the arithmetic says, image by image."""
    network = load_network(RESIDUAL).rounded({"activations": "stochastic"})
    before, _, result = stepped(network)
    x, e = result.tensors["block2", "z"], result.exponents
    seed = dither.mix32(dither.mix32(before.seed + before.step) + 0x9E3779B1 * (8 * network.index("average") + 2))
    found = result.tensors["average", "z"]
    inv, k = arith.reciprocal(9)
    shift = e[network.tid("average", Kind.Z)] - e[network.tid("block2", Kind.Z)] + 15 + k
    padded = np.pad(pint.decode(x).astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for linear, (b, c, i, j) in enumerate(np.ndindex(found.shape)):
        wide = padded[b, c, i : i + 3, j : j + 3].sum() * inv
        draw = dither.random_bits(seed, linear, 16)
        assert found[b, c, i, j] == pint.encode(wide, shift, f=16, rnd=draw).code


def test_xhat_draws_with_the_number_of_the_next_weights():
    network = load_network(RESIDUAL).rounded({"normalised": "stochastic"})
    before, _, result = stepped(network)
    nearest = train_step(network.rounded({"normalised": "nearest"}), before.copy(), *images(network, 3, 1), Hyper.from_floats(0.05))
    # The first layer sees the same sums either way.
    lower, upper = (pint.decode(table["stem", "xhat"]).astype(np.int64)
                    for table in (result.tensors, nearest.tensors))
    assert (lower != upper).any() and (np.abs(lower - upper) <= 64).all()
    assert np.array_equal(result.tensors["stem", "q"], nearest.tensors["stem", "q"])
    g, e = network.geometry("stem"), result.exponents
    x = conv.forward(pint.decode(images(network, 3, 1)[0]), pint.decode(before.weights["stem"]), g.stride, g.pad)
    assert e[network.z_tid(INPUT)] == -11
    q, le = result.tensors["stem", "q"], result.tensors["stem", "le"]
    draw = dither.random_bits(dither.tensor_seed(9, 1, 8 * 1 + 5), np.arange(x.size).reshape(x.shape), 16)
    expected = pint.encode(x * q[:, :, None, None], (le - 8)[:, :, None, None], f=16, rnd=draw)
    assert np.array_equal(expected.code, result.tensors["stem", "xhat"])


@pytest.mark.parametrize("kind", ["activations", "normalised", "errors", "weights", "velocities"])
def test_each_kind_changes_its_tensors_and_keeps_the_scales_close(kind):
    base = load_network(RESIDUAL)
    other = "nearest" if kind == "velocities" else "stochastic"
    network = base.rounded({kind: other})
    _, first, plain = stepped(base, steps=1)
    _, second, changed = stepped(network, steps=1)
    where = {
        "activations": ("stem", "z"), "normalised": ("stem", "xhat"), "errors": ("block2", "dz"),
        "weights": ("stem", "w"), "velocities": ("stem", "v"),
    }[kind]
    assert not np.array_equal(plain.tensors[where], changed.tensors[where])
    # F + 1 fraction bits more in the statistics are F + 1 less in the rule: the same exponent for the same tensor.
    first_affected = {"activations": "stem", "normalised": "stem", "errors": "average", "weights": "stem", "velocities": "stem"}
    layer = first_affected[kind]
    tensor = {"errors": Kind.DZ, "weights": Kind.W_NEXT, "velocities": Kind.V_NEXT}.get(kind, Kind.Z)
    assert abs(first.exponents[base.tid(layer, tensor)] - second.exponents[base.tid(layer, tensor)]) <= 1


@pytest.mark.parametrize("name", ["int8-shift", "bfp8", "pint8-master32", "pint(6,2)"])
def test_other_formats_have_no_rests(name):
    network = load_network(RESIDUAL).formatted(name)
    assert network.rounding.weights == "stochastic"
    with pytest.raises(NetworkError, match=r"have no rests: choose 'nearest' or 'stochastic' for weights, not 'feedback'$"):
        network.rounded({"weights": "feedback"})


def test_nearest_everywhere_needs_no_seed():
    network = load_network(RESIDUAL).rounded({"weights": "nearest", "velocities": "nearest"})
    states = [State.initial(network, 9, -11) for _ in range(2)]
    states[1].seed = 12345
    for state in states:
        for step in range(2):
            train_step(network, state, *images(network, 3, step), Hyper.from_floats(0.05))
    assert all(np.array_equal(value, states[1].arrays()[key]) for key, value in states[0].arrays().items())


def test_stochastic_errors_are_unbiased():
    """Mean over many seeds of dz of one layer is nearer to the sums than nearest rounding comes."""
    network = load_network(RESIDUAL).rounded({"errors": "stochastic"})
    before, _, _ = stepped(network)
    batch = images(network, 3, 1)
    results = []
    for seed in range(40):
        state = before.copy()
        state.seed = seed
        results.append(train_step(network, state, *batch, Hyper.from_floats(0.05)))
    found = np.mean([pint.decode(result.tensors["halve", "dz"]) for result in results], axis=0)
    exact = train_step(network.rounded({"errors": "nearest"}), before.copy(), *batch, Hyper.from_floats(0.05))
    nearest = pint.decode(exact.tensors["halve", "dz"])
    step = np.where(np.abs(nearest) < 8, 1, np.where(np.abs(nearest) < 512, 8, 64))
    # 40 draws of a step's two neighbours: a standard deviation of at most step / (2 sqrt 40) = 0.08 step.
    assert (np.abs(found - nearest) <= 0.5 * step + 0.4 * step).all()
    assert (found != nearest).any()


def test_evaluation_rounds_as_a_step_does():
    network = load_network(RESIDUAL).rounded({"activations": "stochastic", "normalised": "stochastic"})
    _, state, _ = stepped(network)
    batch = images(network, 3, 7)
    logits = golden.evaluate(network, state, *batch).logits
    assert np.array_equal(logits, train_step(network, state.copy(), *batch, Hyper.from_floats(0.05)).tensors["logits", "logits"])
    plain = golden.evaluate(network.rounded({"activations": "nearest", "normalised": "nearest"}), state, *batch).logits
    assert not np.array_equal(logits, plain)
