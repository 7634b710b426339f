"""What a step of the emulator asks of its device: how many operators, and that the host reads nothing before all are asked for.

A GPU works while the host goes on asking; every read makes the host wait for it, and a step of many small operators is as slow as
the host. So both are counted, on the way of a device that does not multiply short sums as bytes.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from gradloom.models.emulator import conv as emulator_conv  # noqa: E402
from gradloom.models.emulator.step import Emulator  # noqa: E402
from gradloom.models.golden.step import Hyper  # noqa: E402
from gradloom.models.network import load_network  # noqa: E402
from gradloom.models.state import State  # noqa: E402
from gradloom.verif.one_thread import one_thread  # noqa: E402, F401

sys.path.insert(0, str(Path(__file__).parent))
from emulator_case import INPUT_EXPONENT, batch  # noqa: E402

VIEWS = {"_unsafe_view", "alias", "as_strided", "detach", "detach_", "expand", "flatten", "permute", "reshape", "select", "slice",
         "split", "split_with_sizes", "squeeze", "t", "tensor_split", "transpose", "unbind", "unsqueeze", "view"}
"""They make no work for a device."""
MOVES = {"_to_copy", "contiguous", "cpu", "lift_fresh", "resolve_conj", "resolve_neg", "to"}
SCALARS = {"_local_scalar_dense", "equal", "is_nonzero", "item", "nonzero"}
"""Operators whose result the host reads."""
RESNET20 = 2700
"""Bound: ResNet20 takes 2600 operators (4589 before windows, updates and ranges were asked for together)."""


class Events(TorchDispatchMode):
    """Operators by name, and "read" where the host reads a tensor, in their order."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.found = []
        for name in ("tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"):
            monkeypatch.setattr(torch.Tensor, name, self._reading(getattr(torch.Tensor, name)))

    def _reading(self, method):
        def read(tensor, *args, **kwargs):
            self.found.append("read")
            return method(tensor, *args, **kwargs)

        return read

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        if name not in VIEWS:
            self.found.append("read" if name in SCALARS else name)
        return func(*args, **(kwargs or {}))


def events_of_a_step(monkeypatch, name, images):
    """Of the third step, whose tables are there and whose exponents are known."""
    monkeypatch.setattr(emulator_conv, "takes_bytes", lambda device: False)
    network = load_network(name)
    emulator, rng = Emulator(network, State.initial(network, 3, INPUT_EXPONENT)), np.random.default_rng(3)
    given, hyper = batch(network, rng, images), Hyper.from_floats(0.02, 0.9, 2.0**-12)
    for _ in range(2):
        emulator.train_step(*given, hyper)
    with Events(monkeypatch) as events:
        emulator.train_step(*given, hyper)
    return events.found


def test_a_step_of_resnet20(monkeypatch):
    found = events_of_a_step(monkeypatch, "resnet20", 2)
    first = found.index("read")
    assert set(found[first:]) <= {"read", *MOVES}, "the host read a tensor before all of the step was asked for"
    assert len(found) - found.count("read") <= RESNET20
