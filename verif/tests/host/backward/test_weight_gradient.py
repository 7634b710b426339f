"""Weight gradients of output groups that are left over by threes, and tiles that just fit, against the golden model."""

import dataclasses
import re

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode, Pattern
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.schedule import compile_network
from gradloom.models.network import Conv, FullyConnected, MaxPool, Network, Rounding
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
    """One by one with three columns of the kernel on the taps; also in parts of a batch. Weights with error feedback, in parts with
    stochastic rounding."""
    conv = Conv(name="stem", out=out, kernel=kernel, stride=stride, pad=(kernel - 1) // 2)
    layers = (conv, MaxPool(name="pool", kernel=2, stride=2), FullyConnected(name="fc", out=4))
    rounding = Rounding(weights="stochastic" if parts == 2 else "feedback")
    network = Network("stem", (3, 10 * stride, 12 * stride), 4, layers, rounding=rounding)
    plans = check_steps(network, ETA, batch=2, order=1, parts=parts)
    commands = gradients(plans[-1])
    windows = sum(-(-len(range(first, kernel, stride)) // 3) for first in range(stride))
    assert sum(i["pattern"] == Pattern.K3 for i in commands) == parts * left * windows
    whole = [i for i in commands if i["pattern"] == Pattern.K1]
    assert len(whole) == parts * kernel * (-(-out // 8 // 3) - (left > 0) * (left // 2))


def test_a_larger_batch_updates_hardly_more_often():
    """Weights of wide fully connected layers are updated once a step, whatever the batch: more images are more cycles of the same
    commands of the array, as long as they fit on chip."""
    network = Network("wide", (3, 4, 4), 10, (
        Conv(name="conv", out=96, kernel=3, pad=1), MaxPool(name="pool", kernel=4, stride=4),
        FullyConnected(name="first", out=1024), FullyConnected(name="second", out=512), FullyConnected(name="logits", out=10)))
    few, many = (sum(i.opcode == Opcode.RUN for i in compile_network(network, ETA, batch).instructions) for batch in (2, 16))
    assert few < many < 1.5 * few


SMALL = PRESETS["small"]
PLAIN = Network("plain", (5, 4, 4), 3, (
    Conv(name="first", out=6, kernel=3, pad=1), Conv(name="second", out=7, kernel=3, pad=1), FullyConnected(name="fc", out=3)))


@pytest.mark.parametrize(("rounding", "beats"), [("feedback", 18), ("stochastic", 9)])
def test_a_tile_of_weights_that_does_not_fit_is_refused(rounding, beats):
    """Also where it just fits."""
    network = PLAIN.rounded({"weights": rounding})
    tight = dataclasses.replace(SMALL, name="tight", abuf_depth=beats)
    check_steps(network, tight, batch=2)
    what, way = {
        "feedback": ("a tile of weights and its rests take", ", or give --rounding weights=stochastic, which keeps no rests"),
        "stochastic": ("a tile of weights takes", " or shrink the layer"),
    }[rounding]
    text = (f"layer 'fc': {what} {beats} beats of the A-Core's stream buffers, configuration 'tight' has {beats - 1} (abuf_depth): "
            f"raise it{way}")
    with pytest.raises(ScheduleError, match=f"^{re.escape(text)}$"):
        compile_network(network, dataclasses.replace(tight, abuf_depth=beats - 1), 2, calibrate=False)
