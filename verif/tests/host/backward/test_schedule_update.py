"""Weight gradients of output groups that are left over by threes: steps against the golden model."""

import dataclasses

import pytest

from gradloom.models.network import Conv, FullyConnected, MaxPool, Network, Rounding
from gradloom.rtl.config import PRESETS
from gradloom.rtl.isa import Opcode, Pattern
from gradloom.verif.interpreting.step_check import check_steps

ETA = dataclasses.replace(PRESETS["eta"], max_classes=64)


def gradients(plan):
    """Commands of the first layer's gradients, each once."""
    return [i for i in plan.instructions if i.opcode == Opcode.CONV and i.tag == 8 + 3]


@pytest.mark.parametrize(
    ("kernel", "stride", "out", "left"),
    # Of 2 and of 5 output groups 2, of 4 and 7 two pairs, of 3 none; a kernel of 8 gains nothing.
    [(7, 2, 16, 2), (7, 2, 40, 2), (7, 2, 32, 4), (7, 1, 16, 2), (7, 2, 56, 4), (8, 2, 56, 0), (7, 2, 24, 0)],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_output_groups_that_are_left_over(kernel, stride, out, left, parts):
    """One by one with three columns of the kernel on the taps; also in parts of a batch, with stochastic rounding."""
    conv = Conv(name="stem", out=out, kernel=kernel, stride=stride, pad=(kernel - 1) // 2)
    layers = (conv, MaxPool(name="pool", kernel=2, stride=2), FullyConnected(name="fc", out=4))
    rounding = Rounding(weights="stochastic", velocities="stochastic")
    network = Network("stem", (3, 10 * stride, 12 * stride), 4, layers, rounding=rounding)
    plans = check_steps(network, ETA, batch=2, order=1, parts=parts)
    commands = gradients(plans[-1])
    windows = sum(-(-len(range(first, kernel, stride)) // 3) for first in range(stride))
    assert sum(i["pattern"] == Pattern.K3 for i in commands) == parts * left * windows
    whole = [i for i in commands if i["pattern"] == Pattern.K1]
    assert len(whole) == parts * kernel * (-(-out // 8 // 3) - (left > 0) * (left // 2))
