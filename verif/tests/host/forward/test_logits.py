"""The last layer where the logit buffer holds fewer images than the batch has."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.isa import Dest, Opcode
from gradloom.host.knobs import DEFAULT_KNOBS
from gradloom.host.schedule import compile_network
from gradloom.models.network import FullyConnected, Network
from gradloom.verif.interpreting.step_check import check_steps

BATCH = 5
CLASSES = 21
HIDDEN = FullyConnected(name="hidden", out=40, act="relu")
NETWORK = Network("logits", (4, 2, 2), CLASSES, (HIDDEN, FullyConnected(name="logits", out=CLASSES)))


def config(logits: int, sums: int = 256) -> Config:
    return dataclasses.replace(PRESETS["small"], logit_depth=logits, psum_depth=sums, max_classes=22, wbuf_depth=64)


def loaded(machine: Config) -> int:
    """How often the forward pass loads the last layer's weights."""
    plan = compile_network(NETWORK, machine, BATCH, training=False)
    tag = 8 * NETWORK.index("logits")
    loads = [i for i in plan.instructions if i.opcode == Opcode.LOAD and i["dest"] == Dest.WBUF and i.tag == tag]
    beats = sum(i["n0"] * i["n1"] * i["n2"] for i in loads)
    found, rest = divmod(beats * machine.beat_bytes, plan.memory["logits", "w"].data_bytes())
    assert rest == 0
    return found


@pytest.mark.parametrize(
    ("logits", "sums", "times"), [(55, 256, 1), (11, 256, 1), (23, 256, 1), (11, 16, 5), (23, 16, 3), (11, 20, 1)]
)
def test_weights_come_once_where_all_sums_fit(logits, sums, times):
    assert loaded(config(logits, sums)) == times


@pytest.mark.parametrize(("logits", "sums"), [(11, 256), (23, 256), (11, 16), (44, 20)])
def test_steps_equal_golden(logits, sums):
    """Two images at a time with one left over, one at a time, and by ranges, engines in random order."""
    check_steps(NETWORK, config(logits, sums), batch=BATCH, steps=2, order=7)


def test_a_backward_pass_by_ranges():
    """Its own sums take the place of those whose logits come last."""
    knobs = dataclasses.replace(DEFAULT_KNOBS, tiles={"logits BP": 1})
    check_steps(NETWORK, config(11), batch=BATCH, order=1, knobs=knobs)
