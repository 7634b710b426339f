"""The emulator on a device other than the CPU against the golden model, byte for byte; a stand-in takes the place of the GPU."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from gradloom.models.emulator.step import Emulator  # noqa: E402
from gradloom.models.formats import FORMATS  # noqa: E402
from gradloom.models.golden import step as golden  # noqa: E402
from gradloom.models.network import load_network  # noqa: E402
from gradloom.models.state import State  # noqa: E402
from gradloom.verif.one_thread import one_thread  # noqa: E402, F401
from gradloom.verif.random_networks import random_network  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import test_formats_emulator as same  # noqa: E402
from emulator_case import INPUT_EXPONENT, SOURCES, batch  # noqa: E402
from far_device import FarDevice, FarTensor, skip_unless_linked  # noqa: E402

INTEGER = [name for name in FORMATS if name != "fp32"]


@pytest.fixture
def far(monkeypatch):
    """The stand-in; its tensors know no inference mode."""
    skip_unless_linked()
    for name in ("train_step", "evaluate"):
        monkeypatch.setattr(Emulator, name, torch.no_grad()(getattr(Emulator, name).__wrapped__))
    with FarDevice() as device:
        yield device


def follows_golden(network, steps, images):
    state = State.initial(network, 3, INPUT_EXPONENT)
    emulator, rng = Emulator(network, state, "cuda"), np.random.default_rng(3)
    assert all(isinstance(learnt.w, FarTensor) for learnt in emulator.learnt.values())
    for number in range(steps):
        given = batch(network, rng, images)
        hyper = golden.Hyper.from_floats(0.05, 0.9, 2.0**-8 if number % 2 else 0.0)
        expected = golden.train_step(network, state, *given, hyper)
        same.assert_same(network, state, emulator, expected, emulator.train_step(*given, hyper))
    x, labels = batch(network, rng, images)
    assert np.array_equal(golden.evaluate(network, state, x, labels).logits, emulator.evaluate(x, labels).logits)


@pytest.mark.parametrize("form", [*INTEGER, *same.VARIANTS])
@pytest.mark.parametrize("name", SOURCES, ids=lambda name: Path(name).stem)
def test_built_in_networks(far, name, form):
    follows_golden(load_network(name).formatted(form), 3, 5)


@pytest.mark.parametrize("seed", range(50))
def test_random_networks(far, seed):
    follows_golden(random_network(seed), 2, 3)


def test_resnet20(far):
    follows_golden(load_network("resnet20"), 2, 2)


def test_the_stand_in_is_as_strict_as_a_gpu(far):
    there = torch.zeros(3, device="cuda")
    with pytest.raises(RuntimeError, match="two devices"):
        there + torch.ones(3)
    with pytest.raises(RuntimeError, match="numpy"):
        there.numpy()
    there += 1
    assert there.cpu().tolist() == [1, 1, 1] and isinstance(there, FarTensor) and not isinstance(there.cpu(), FarTensor)
