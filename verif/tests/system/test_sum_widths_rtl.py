"""A machine with narrow sums, and the software models that stand for it, take the same steps and stop at the same ones.

The largest and the smallest sum that fit give the same tensors on all of them; what is beyond is told in one sentence, with the
machine's width (docs/arithmetic.md, section 2).
"""

from typing import NamedTuple

import numpy as np
import pytest

from gradloom.host.devices.limits import LimitReached
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.host.knobs import Knobs
from gradloom.models import digests
from gradloom.models.arithmetic import pint
from gradloom.models.golden.step import expected_tensors
from gradloom.models.hyper import Hyper
from gradloom.models.network import Conv, FullyConnected, Kind, Network
from gradloom.models.state import State
from gradloom.verif.configs import machine_config

CONFIG = machine_config("rows")
HYPER = Hyper.from_floats(2.0**-10)
STEP = 3
TERMS = [(1, -1), *[(4032, 4032)] * 132, (4032, 384), (64, 128)]
"""Products whose sum is 2^31 - 1, the largest one of 32 bits; no sum of the first so many is larger."""
SIDE, IMAGES = 16, 4
LINES = Network("lines", (2, 1, 1), 2, (
    FullyConnected(name="first", out=2), FullyConnected(name="wide", out=len(TERMS)), FullyConnected(name="logits", out=2)))
PLANES = Network("planes", (1, SIDE, SIDE), 2, (
    Conv(name="first", out=2, kernel=1, norm="none", act="none"), Conv(name="second", out=2, kernel=1, norm="none", act="none"),
    FullyConnected(name="logits", out=2)))


def code(values: object) -> np.ndarray:
    return pint.code_of(np.asarray(values))


def started(network: Network) -> State:
    """In step 3; all weights are 0, and so is whatever a step computes but the loss: half a class for each."""
    state = State.initial(network, 1, -12)
    state.step, state.calibrated = STEP, True
    for layer in network.weighted:
        state.weights[layer.name][:] = code(0)
        state.exponents |= {network.tid(layer.name, kind): -12 for kind in (Kind.W, Kind.W_NEXT)}
        state.exponents |= {network.tid(layer.name, kind): 0 for kind in (Kind.V, Kind.V_NEXT)}
    return state


def set_outputs(network: Network, state: State, layer: str, values: list[int]) -> None:
    """Biases that make a layer's outputs these, channel by channel."""
    sums = state.exponents[network.tid(layer, Kind.W)] + state.exponents[network.z_tid(network.layer(layer).input)]
    state.exponents[network.tid(layer, Kind.Z)] = sums
    state.parameters[layer]["beta"][: len(values)] = np.asarray(values) << (24 + sums)


def set_errors(network: Network, state: State, layer: str, values: object) -> None:
    """Weights of the logits that make the errors of the layer before these, for images of class 0 (of class 1: minus these)."""
    first = state.weights["logits"][1].reshape(-1)
    first[: np.size(values)] = code(values)
    logits = [state.exponents[network.tid("logits", kind)] for kind in (Kind.W, Kind.DZ)]
    # The loss gradient is 2048.
    state.exponents[network.tid(layer, Kind.DZ)] = sum(logits) + 11


def forward(products: list[tuple[int, int]]) -> State:
    state = started(LINES)
    set_outputs(LINES, state, "wide", [left for left, _ in products])
    state.weights["logits"][0, :, 0, 0] = code([right for _, right in products])
    return state


def backward(products: list[tuple[int, int]]) -> State:
    state = started(LINES)
    set_errors(LINES, state, "wide", [left for left, _ in products])
    state.weights["wide"][:, 0, 0, 0] = code([right for _, right in products])
    return state


def gradient(output: int, more: int, error: int = 2048) -> State:
    """Every position of every image has this output; all errors are equal, but ``more`` in each image the next larger value."""
    state = started(PLANES)
    set_outputs(PLANES, state, "first", [output])
    set_errors(PLANES, state, "second", np.full(SIDE * SIDE, error) + 64 * (np.arange(SIDE * SIDE) < more))
    return state


def least(first: int) -> list[tuple[int, int]]:
    """Products whose sum is -(2^31 - 1) - 1 + ``first``."""
    return [(1, first), *((left, -right) for left, right in TERMS[1:])]


class Limit(NamedTuple):
    """States before a step in which one kind of sum just fits, and just does not."""

    network: Network
    fits: State
    beyond: State
    layer: str
    sums: str


LIMITS = {
    "forward, high": Limit(LINES, forward(TERMS), forward([(0, 0), *TERMS[1:]]), "logits", "forward sum"),
    "forward, low": Limit(LINES, forward(least(0)), forward(least(-1)), "logits", "forward sum"),
    "backward, high": Limit(LINES, backward(TERMS), backward([(0, 0), *TERMS[1:]]), "wide", "backward sum"),
    "backward, low": Limit(LINES, backward(least(0)), backward(least(-1)), "wide", "backward sum"),
    # 4 x 256 x 2048 x -4096 is -2^33.
    "gradient, low": Limit(PLANES, gradient(-4096, 0), gradient(-4096, 1), "second", "weight gradient"),
    "gradient, high": Limit(PLANES, gradient(4032, 130), gradient(4032, 131), "second", "weight gradient"),
}


def opened(network: Network, device: str, knobs: Knobs | None = None) -> Session:
    session = Session(network, CONFIG, 1 if network is LINES else IMAGES, device, -12, 1, MemoryOptions(), knobs=knobs)
    session.notice = lambda text: None
    return session


def batch(network: Network) -> tuple[np.ndarray, np.ndarray]:
    images = 1 if network is LINES else IMAGES
    return np.zeros((images, *network.input_shape), np.uint8), np.zeros(images, np.int64)


def train(
    session: Session, network: Network, state: State, labels: np.ndarray | None = None, steps: int = 1
) -> str | dict[str, str]:
    """The sentence of a fault, or digests of what the last step has written."""
    session.load(state)
    images, classes = batch(network)
    try:
        session.train([images] * steps, [classes if labels is None else labels] * steps, [HYPER] * steps)
    except LimitReached as error:
        return str(error)
    tensors = {key: session.tensor(*key).astype(np.int64) for key in expected_tensors(network)}
    return digests.tensor_digests(tensors) | {"parameters": digests.parameters_digest(network, session.state())}


@pytest.fixture(params=["emulator", "rtl"])
def device(request):
    if request.param == "emulator":
        pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    return request.param


@pytest.mark.parametrize("network", [LINES, PLANES], ids=lambda network: network.name)
def test_the_last_sum_that_fits_and_the_first_that_does_not(device, network):
    limits = {name: limit for name, limit in LIMITS.items() if limit.network is network}
    with opened(network, "golden") as golden, opened(network, device) as other:
        for name, (_, fits, beyond, layer, sums) in limits.items():
            expected, found = (train(session, network, fits) for session in (golden, other))
            assert isinstance(expected, dict) and found == expected, name
            said, told = (train(session, network, beyond) for session in (golden, other))
            bits = CONFIG.wg_width if sums == "weight gradient" else CONFIG.psum_width
            assert str(said).startswith(f"step 3, layer {layer!r}: a {sums} does not fit its {bits} bits: "), name
            assert told == said, name
        if network is LINES:
            for session in (golden, other):
                session.load(LIMITS["forward, low"].beyond)
                with pytest.raises(LimitReached, match=r"^evaluation after 3 steps, layer 'logits': a forward sum .* 32 bits: "):
                    session.evaluate(*batch(network))


def test_a_carried_update_is_told_with_the_step_whose_it_is():
    """The machine adds these gradients up while it counts the next step, or behind the last one."""
    knobs, state = Knobs(deferred_layers=("second",)), LIMITS["gradient, low"].beyond
    with opened(PLANES, "rtl", knobs) as session:
        for steps in (2, 1):
            said = train(session, PLANES, state, steps=steps)
            assert str(said).startswith("step 3, layer 'second': a weight gradient does not fit its 34 bits: "), (steps, said)


def test_the_machine_stops_at_sums_on_the_way():
    """Models look at complete sums: three images together go beyond, the fourth one takes away what one of them has added."""
    state, labels = gradient(-4096, 0, error=4032), np.array([0, 0, 0, 1])
    with opened(PLANES, "golden") as golden, opened(PLANES, "rtl") as machine:
        assert isinstance(train(golden, PLANES, state, labels), dict)
        said = train(machine, PLANES, state, labels)
    assert str(said).startswith("step 3, layer 'second': a weight gradient does not fit its 34 bits: "), said
