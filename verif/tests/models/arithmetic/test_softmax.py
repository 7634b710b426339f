"""Loss gradients against floating-point softmax and squared error."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import pint, softmax

LOGIT = st.integers(-(1 << 23), (1 << 23) - 1)


def float_probabilities(logits: np.ndarray) -> np.ndarray:
    z = logits / 256
    power = np.exp(z - z.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def test_table_has_no_ties():
    """Every entry is so far from a half that any double-precision power gives the same table."""
    for i, entry in enumerate(softmax.EXP_TABLE.tolist()):
        exact = 32768 * math.pow(2, -i / 256)
        assert abs(exact - entry) < 0.4998
    assert softmax.EXP_TABLE[0] == 32768 and softmax.EXP_TABLE[255] == 16428


@pytest.mark.parametrize("classes", [1, 2, 10, 100])
@pytest.mark.parametrize("spread", [1, 100, 1000])
def test_gradient_is_the_derivative_of_the_cross_entropy(classes, spread):
    rng = np.random.default_rng(classes)
    logits = rng.normal(0, spread, (40, classes)).astype(np.int64)
    labels = rng.integers(0, classes, 40)
    error, encoded = softmax.gradient(logits, labels)
    exact = float_probabilities(logits) - (np.arange(classes) == labels[:, None])
    # 369/256 is 1.0e-3 short of log2(e), t is floored: less than 1 % of a probability.
    assert np.all(np.abs(error / 65536 - exact) <= 0.01 * float_probabilities(logits) + 2e-4)
    # Half a step, a whole one beyond 4032/4096.
    size = np.abs(error) / 65536
    step = np.where(size < 511 / 4096, 4, np.where(size < 4032 / 4096, 32, 64)) / 4096
    assert np.all(np.abs(encoded.value / 4096 - error / 65536) <= step * 1.01)
    assert encoded.code.tolist() == pint.encode(error, 4).code.tolist()


def test_gradient_is_the_slope_of_the_reported_loss():
    rng = np.random.default_rng(3)
    logits, labels = rng.integers(-800, 800, (4, 5)), rng.integers(0, 5, 4)
    error = softmax.gradient(logits, labels).error / 65536
    for b in range(4):
        for m in range(5):
            up, down = logits.copy(), logits.copy()
            up[b, m] += 4
            down[b, m] -= 4
            slope = (softmax.loss(up, labels) - softmax.loss(down, labels)) / (8 / 256) * 4
            assert abs(slope - error[b, m]) < 0.01


@given(st.lists(LOGIT, min_size=1, max_size=30), st.data())
@settings(max_examples=200, deadline=None)
def test_probabilities_are_a_distribution(row, data):
    p = softmax.probabilities([row])[0]
    # Each is floored: at most one unit is lost per class.
    assert 65536 - len(row) < p.sum() <= 65536
    assert p.min() >= 0
    assert p[int(np.argmax(row))] == p.max()
    label = data.draw(st.integers(0, len(row) - 1))
    error = softmax.gradient([row], [label]).error[0]
    assert error[label] <= 0 and (np.delete(error, label) >= 0).all()
    order = np.random.default_rng(len(row)).permutation(len(row))
    assert softmax.probabilities([np.array(row)[order]])[0].tolist() == p[order].tolist()


def test_far_logits_have_no_probability():
    assert softmax.probabilities([[0, -32768, 8388607]]).tolist() == [[0, 0, 65536]]
    assert softmax.probabilities([[5]]).tolist() == [[65536]]
    assert softmax.gradient([[5]], [0]).error.tolist() == [[0]]


def test_confident_mistakes_saturate():
    encoded = softmax.gradient([[8388607, -8388608]], [1]).encoded
    assert encoded.value.tolist() == [[4032, -4096]]


def test_squared_error():
    logits = np.array([[0, 256, 300], [-100, 20, 9000]])
    error, encoded = softmax.squared(logits, [1, 2])
    assert error.tolist() == [[0, 0, 300], [-100, 20, 8744]]
    assert encoded.value.tolist() == [[0, 0, 304], [-96, 24, 4032]]
    expected = (((logits / 256 - np.eye(3)[[1, 2]]) ** 2).sum(axis=1) / 2).mean()
    assert math.isclose(softmax.squared_loss(logits, [1, 2]), expected)


def test_loss_of_uniform_logits():
    assert math.isclose(softmax.loss(np.full((3, 10), 77), [0, 5, 9]), math.log(10))


def test_bad_labels_are_refused():
    with pytest.raises(ValueError, match="2 images need 2 labels"):
        softmax.gradient([[1, 2], [3, 4]], [0])
    with pytest.raises(ValueError, match="Labels must be class numbers below 2"):
        softmax.squared([[1, 2]], [2])


def test_one_natural_unit_below():
    """d = 256: t = 369 is one octave and 113 / 256."""
    power = round(32768 * 2 ** (-113 / 256)) >> 1
    total = 32768 + power
    assert softmax.probabilities([[256, 0]]).tolist() == [[(32768 << 16) // total, (power << 16) // total]]
