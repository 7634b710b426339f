"""The interpreter's CONV against brute-force convolutions: every pattern, and what the C-Core answers with a fault."""

import numpy as np
import pytest

from gradloom.rtl.config import Config
from gradloom.rtl.isa import COMMANDS, Opcode, Pattern
from gradloom.verif.conv_case import ConvCase, Layer, make_case
from gradloom.verif.interpreter import Memories
from gradloom.verif.interpreter_ccore import conv

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
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_convolutions(name):
    config, rng = CONFIGS[name], np.random.default_rng(1)
    for layer, phase in layers(config.group):
        case = make_case(config, layer, phase, rng)
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


@pytest.mark.parametrize("change", [
    {"wg": 1}, {"wg": 1, "pattern": Pattern.BP2}, {"s2": 0}, {"par0": 1}, {"colstep": 1}])
def test_a_command_that_makes_no_sense(change):
    config = CONFIGS["g2_w3"]
    case = make_case(config, Layer(images=1, c=2, y=5, x=6, m=2, kernel=4, pad=1, pair=True), "fp", np.random.default_rng(2))
    fields = NONE | case.commands[0]
    assert fields["pattern"] == Pattern.PAIR
    with pytest.raises(ValueError, match="CONV"):
        conv(config, memories(config, case), fields | change)
