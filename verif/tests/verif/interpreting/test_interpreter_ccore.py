"""The interpreter's CONV against brute-force convolutions: every pattern, and what the C-Core answers with a fault."""

import itertools

import numpy as np
import pytest

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, Opcode, Pattern
from gradloom.verif.ccore.ccore_bench import row_groups
from gradloom.verif.ccore.conv_case import make_case
from gradloom.verif.ccore.conv_fields import place_psum
from gradloom.verif.ccore.conv_tile import ConvCase, Layer
from gradloom.verif.interpreting.interpreter import Memories
from gradloom.verif.interpreting.interpreter_ccore import conv

CONFIGS = {
    "g1_w1": Config(name="test", clusters=1, cols=1, wpus=1),
    "g2_w3": Config(name="test", clusters=2, cols=2, wpus=3),
    "g4_laps2_w2": Config(name="test", clusters=4, cols=2, wpus=2),
}
NONE = {field.name: 0 for field in COMMANDS[Opcode.CONV].fields}


def memories(config: Config, case: ConvCase) -> Memories:
    """On-chip memories that hold the operands of a case, noise elsewhere."""
    chip, g = Memories(config, np.random.default_rng(0)), config.group
    for memory, beats in ((chip.ibuf, case.ibuf), (chip.ebuf, case.ebuf)):
        for place, beat in beats.items():
            memory[place] = beat
    for (bank, addr), block in case.wbuf.items():
        chip.wbuf[bank, addr].reshape(-1)[:g * g] = block.reshape(-1)
    return chip


def layers(g: int) -> list[tuple[Layer, str]]:
    plane = {"images": 3, "y": 5, "x": 6}
    sizes = [{"pad": 1}, {"pad": 1, "stride": 2}, {"kernel": 4, "pad": 2}, {"kernel": 1}]
    found = [(Layer(**plane, **size, c=2 * g, m=2 * g), phase) for size in sizes for phase in ("fp", "bp", "wg")]
    pairs = [{"kernel": 4, "pad": pad} for pad in range(4)] + [{"kernel": 7, "pad": 3}]
    found += [(Layer(**plane | {"x": x}, **size, c=2 * g, m=g, pair=True), "fp") for size in pairs for x in (4, 7)]
    return found + shared_layers(g)


def shared_layers(g: int) -> list[tuple[Layer, str]]:
    """One and two rows left over by two and by three WPUs."""
    found = []
    for x, y, images in itertools.product((*range(5, 15), 16), (4, 5, 7), (1, 2)):
        size = {"images": images, "y": y, "x": x, "c": 2 * g, "m": 2 * g, "pad": 1, "shared": True}
        found += [(Layer(**size), phase) for phase in ("fp", "bp", "wg")]
        found += [(Layer(**size | {"y": 2 * y, "x": 2 * x - (y & 1)}, stride=2), phase) for phase in ("fp", "wg")]
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_convolutions(name):
    config, rng, shared = CONFIGS[name], np.random.default_rng(1), 0
    for layer, phase in layers(config.group):
        case = make_case(config, layer, phase, rng)
        shared += case.commands[0].get("shared", 0)
        chip = memories(config, case)
        for fields in case.commands:
            conv(config, chip, NONE | fields)
        half = case.commands[0].get("half", 0)
        for place, sums in case.psum.items():
            assert np.array_equal(chip.psum[half][place], sums), (layer, phase, place)
        for (k, image), sums in case.sums.items():
            assert np.array_equal(chip.norms[half, :, k, image].sum(0), sums) or image >= config.max_planes, (layer, phase)
        for beat, gradients in case.dw.items():
            assert np.array_equal(chip.dw[beat], gradients), (layer, phase)
    assert config.wpus == 1 or shared >= 100


def test_tokens_of_a_shared_row():
    """Seven windows of a row that three WPUs share: two, two and three, and a token ahead."""
    config = CONFIGS["g2_w3"]
    case = make_case(config, Layer(images=1, c=2, y=7, x=7, m=2, pad=1, shared=True), "fp", np.random.default_rng(3))
    assert row_groups(config, case.commands[0]) == [(7, 0), (7, 0), (3, 1)]
    assert [place_psum(config, case.commands[0], 6, j)[0] for j in range(7)] == [0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("change", [
    {"pattern": Pattern.BP2}, {"pattern": Pattern.K1}, {"pattern": Pattern.PAIR, "s2": 1}, {"scols": 0}, {"scols": 2}, {"scols": 5},
    {"scols": 9}, {"cols": 8}, {"cols": 9}, {"e0": 1}, {"par0": 0}, {"sbank": 9}, {"units": 2}, {"units": 4, "upi": 2}])
def test_rows_that_cannot_be_shared(change):
    config = CONFIGS["g2_w3"]
    case = make_case(config, Layer(images=1, c=2, y=7, x=7, m=2, pad=1, shared=True), "fp", np.random.default_rng(4))
    fields = NONE | case.commands[0]
    assert fields["shared"] and fields["scols"] == 3
    with pytest.raises(ValueError, match="CONV"):
        conv(config, memories(config, case), fields | change)


def test_one_wpu_shares_no_rows():
    config = CONFIGS["g1_w1"]
    case = make_case(config, Layer(images=1, c=1, y=7, x=7, m=1, pad=1), "fp", np.random.default_rng(5))
    with pytest.raises(ValueError, match="CONV"):
        conv(config, memories(config, case), NONE | case.commands[0] | {"shared": 1, "scols": 7})


@pytest.mark.parametrize("change", [
    {"wg": 1}, {"wg": 1, "pattern": Pattern.BP2}, {"s2": 0}, {"par0": 1}, {"colstep": 1}])
def test_a_command_that_makes_no_sense(change):
    config = CONFIGS["g2_w3"]
    case = make_case(config, Layer(images=1, c=2, y=5, x=6, m=2, kernel=4, pad=1, pair=True), "fp", np.random.default_rng(2))
    fields = NONE | case.commands[0]
    assert fields["pattern"] == Pattern.PAIR
    with pytest.raises(ValueError, match="CONV"):
        conv(config, memories(config, case), fields | change)
