"""A software model as a device: what is known of the steps before one that cannot be computed is not lost."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.devices import session
from gradloom.host.devices.limits import LimitReached
from gradloom.host.devices.model_device import ModelDevice
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.models.arithmetic.arith import ArithmeticFault
from gradloom.models.golden import step as golden
from gradloom.verif.system_bench import make_case

CASE = make_case("tiny-relu", 2, 3)


class Overflows:
    """The golden model, near its limit in the first step, beyond it in the second."""

    def __init__(self):
        self.state_of, self.steps = CASE.initial(), 0

    def load(self, state):
        self.state_of = state.copy()

    def train_step(self, x, y, hyper):
        self.steps += 1
        if self.steps == 2:
            raise ArithmeticFault("forward sum", 36, "a planted sum")
        result = golden.train_step(CASE.network, self.state_of, x, y, hyper)
        return dataclasses.replace(result, near={(CASE.network.logits.name, "forward sum"): 35})


def test_warnings_of_the_steps_before_an_overflow_are_told(monkeypatch):
    monkeypatch.setattr(session, "open_network_device", lambda *_, **__: ModelDevice(CASE.network, Overflows()))
    told, done = [], []
    with Session(CASE.network, PRESETS["nano"], 2, "golden", CASE.exponent, 1, MemoryOptions()) as opened:
        opened.notice = told.append
        opened.load(CASE.initial())
        with pytest.raises(LimitReached, match=r"^step 1"):
            opened.train(CASE.images, CASE.labels, CASE.hypers, done.append)
    assert done == [1] and len(told) == 1 and told[0].startswith("step 0, layer")
