"""An overflow in RTL is told in the words of the models; the machine then takes no step until a state is loaded."""

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.limits import LimitReached
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.models.arithmetic import pint
from gradloom.models.hyper import Hyper
from gradloom.models.network import FullyConnected, Kind, Network
from gradloom.models.state import State

NETWORK = Network("wide", (2304, 1, 1), 2, (FullyConnected(name="fc", out=2),))
HYPER = Hyper.from_floats(0.05)


def test_the_sentence_is_that_of_the_golden_model():
    top = int(pint.code_of(np.array([4032]))[0])
    large, small = State.initial(NETWORK, 1, -12), State.initial(NETWORK, 1, -12)
    large.weights["fc"][:] = top
    for state in (large, small):
        state.step, state.calibrated = 3, True
    x, y = np.full((2, 2304, 1, 1), top, np.uint8), np.array([0, 1])
    said, saturated = [], []
    for device in ("golden", "rtl"):
        with Session(NETWORK, PRESETS["nano"], 2, device, -12, 1, MemoryOptions()) as session:
            session.load(large)
            with pytest.raises(LimitReached) as caught:
                session.train([x], [y], [HYPER])
            said.append(str(caught.value))
            if device == "rtl":
                with pytest.raises(MachineError, match=r"^the machine has stopped with an error before, .*: load a state first$"):
                    session.train([x], [y], [HYPER])
            # Weights far too large for their sums, but not for the accumulators.
            small.exponents |= {NETWORK.tid("fc", kind): 30 for kind in (Kind.W, Kind.W_NEXT)}
            session.load(small)
            warnings: list[str] = []
            session.notice = warnings.append
            saturated.append((session.train([x], [y], [HYPER])[0].saturated, warnings[0]))
    assert said[0] == said[1] and said[0].startswith("step 3, layer 'fc': a forward sum does not fit its 36 bits: lower the ")
    assert saturated[0] == saturated[1] and saturated[0][0] == 4
