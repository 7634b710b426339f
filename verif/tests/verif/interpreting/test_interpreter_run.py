"""Where the interpreter's RUN reads partial sums against the A-Core's plain reference: every layout, shared rows."""

import random
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, Opcode, PsumLayout
from gradloom.host.program.assembler import Instruction
from gradloom.verif.acore.acore_case import AuxReference
from gradloom.verif.interpreting.interpreter import Memories
from gradloom.verif.interpreting.interpreter_run import Run

NONE = {field.name: 0 for field in COMMANDS[Opcode.RUN].fields}


class Stored(AuxReference):
    """A reference whose partial sums are those of the interpreter's memories."""

    def __init__(self, config: Config, chip: Memories) -> None:
        super().__init__(config, 0)
        self.chip = chip

    def psum(self, half: int, wpu: int, bank: int, addr: int, channel: int) -> int:
        return int(self.chip.psum[half][wpu, bank, addr][channel])


def machine_of(wpus: int) -> SimpleNamespace:
    config = Config(name="test", clusters=2, cols=2, wpus=wpus, psum_depth=1024)
    chip = Memories(config, np.random.default_rng(wpus))
    rng = np.random.default_rng(wpus)
    for half in chip.psum:
        half[...] = rng.integers(-1 << 20, 1 << 20, half.shape)
    return SimpleNamespace(config=config, chip=chip)


def planes(rng: random.Random, wpus: int, layout: PsumLayout) -> dict[str, int]:
    py, xe, odd, count = rng.randint(1, 7), rng.randint(1, 9), rng.randint(0, 1), rng.randint(1, 3)
    width = 2 * xe - odd
    fields = {"planes": count, "py": py, "xe": xe, "xodd": odd, "nb": py * xe, "layout": layout, "half": rng.randint(0, 1),
              "pbase": rng.randrange(0, 9), "prg0": rng.randint(0, 3), "pw0": rng.randrange(wpus), "pk": rng.randint(0, 2),
              "pj": {PsumLayout.SPLIT: (width + 2) // 2, PsumLayout.K1_UP: xe}.get(layout, width)}
    if layout == PsumLayout.SPLIT:
        fields |= {"psr": rng.randint(0, 1), "psc": rng.randint(0, 1)}
    if layout == PsumLayout.ROWS and wpus > 1 and xe >= wpus and rng.randint(0, 1):
        shared = rng.randint(1, min(2, py))
        fields |= {"shared": shared, "sbeats": rng.randint(1, (xe - 1) // (wpus - 1)), "pw0": (shared - count * py) % wpus}
    return fields


@pytest.mark.parametrize("wpus", [1, 2, 3])
def test_partial_sums(wpus):
    machine, rng, shared = machine_of(wpus), random.Random(wpus), 0
    reference = Stored(machine.config, machine.chip)
    for layout in [*PsumLayout, *[PsumLayout.ROWS] * 8] * 5:
        fields = planes(rng, wpus, layout)
        found = Run(machine, Instruction(Opcode.RUN, NONE | fields)).x()
        shared += fields.get("shared", 0)
        for plane, beat, lane, valid, _ in reference.beats(defaultdict(int, fields)):
            for channel in range(2) if valid else ():
                o, t = divmod(beat, fields["xe"])
                expected = reference.partial_sum(defaultdict(int, fields), plane, beat, lane, channel)
                assert found[plane, channel, o, 2 * t + lane] == expected, (fields, plane, beat)
    assert wpus == 1 or shared >= 10


@pytest.mark.parametrize("change", [
    {"layout": PsumLayout.SPLIT}, {"layout": PsumLayout.K1}, {"shared": 3}, {"sbeats": 0}, {"sbeats": 2}, {"pw0": 1}])
def test_rows_that_cannot_be_shared(change):
    machine = machine_of(3)
    fields = NONE | {"planes": 1, "py": 2, "xe": 4, "nb": 8, "pj": 8, "shared": 2, "sbeats": 1}
    Run(machine, Instruction(Opcode.RUN, fields)).x()
    with pytest.raises(ValueError, match="RUN"):
        Run(machine, Instruction(Opcode.RUN, fields | change)).x()
