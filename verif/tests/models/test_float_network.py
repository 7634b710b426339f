"""The float32 network in PyTorch against the analytic gradients of the reference in numpy, in both normalisations."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from gradloom.models.arithmetic import dither  # noqa: E402
from gradloom.models.floatref import from_state  # noqa: E402
from gradloom.models.network import load_network  # noqa: E402
from gradloom.models.state import State  # noqa: E402
from gradloom.verif.checkout import NETWORKS  # noqa: E402
from gradloom.verif.float_network import FloatNetwork  # noqa: E402

SOURCES = ["digits-cnn", *(str(file) for file in sorted(NETWORKS.glob("*.toml")))]


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("name", SOURCES, ids=lambda name: Path(name).stem)
def test_gradients_and_evaluation(name, batch_norm):
    network = load_network(name)
    state = State.initial(network, 2, -10)
    # Off 0, where sums of nothing but padding would tie with tau: PyTorch halves the gradient of a tie.
    for number, table in enumerate(state.parameters.values()):
        table["beta"] += (1 << 18) + 977 * number
    index = np.arange(6 * int(np.prod(network.input_shape)))
    x = (dither.hash24(1, index) / 2**23 - 1).reshape(6, *network.input_shape)
    labels = np.arange(6) % network.classes
    expected = from_state(network, state, batch_norm=batch_norm)
    step = expected.gradients(x, labels)
    module = FloatNetwork(network, state, batch_norm=batch_norm).double()
    loss = torch.nn.functional.cross_entropy if network.loss == "softmax" else None
    outputs = module(torch.from_numpy(x))
    target = torch.from_numpy(labels)
    value = loss(outputs, target) if loss else 0.5 * ((outputs - torch.eye(network.classes)[target]) ** 2).sum(1).mean()
    value.backward()
    # float64 in two orders of summation: seven digits above its rounding.
    assert float(value.detach()) == pytest.approx(step.loss, rel=1e-9)
    for (layer, key), gradient in step.gradients.items():
        given = module.parameter(layer, key).grad
        # tau of a projection, which has no threshold, is no part of PyTorch's graph.
        found = np.zeros_like(gradient) if given is None else given.numpy()
        assert np.allclose(found, gradient, rtol=1e-6, atol=1e-9), (layer, key)
    with torch.inference_mode():
        found = module.eval()(torch.from_numpy(x)).numpy()
    assert np.allclose(found, expected.logits(x), rtol=1e-6, atol=1e-9)
