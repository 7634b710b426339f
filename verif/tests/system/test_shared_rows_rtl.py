"""Training steps in RTL whose layers leave rows over that the WPUs share, and a shortcut of stride 2 (`host/tiles`)."""

import pytest

from gradloom.contracts.isa import Opcode, PsumLayout
from gradloom.host.schedule import compile_network
from gradloom.sim.rtl_device import DramModel
from gradloom.verif.configs import machine_config
from gradloom.verif.networks import strided_shortcut
from gradloom.verif.system_bench import make_case, verify_steps


@pytest.mark.parametrize(("width", "batch"), [(13, 1), (9, 3)])
def test_steps(width, batch):
    """13 rows of two WPUs: six row groups, and parts of 6 and 7 windows."""
    instructions = compile_network(strided_shortcut(width, width), machine_config("channels"), batch).instructions
    shared = {instruction["wg"] for instruction in instructions if instruction.opcode == Opcode.CONV and instruction["shared"]}
    assert shared == {0, 1}
    runs = [instruction for instruction in instructions if instruction.opcode == Opcode.RUN]
    assert any(run["shared"] for run in runs) and any(run["layout"] == PsumLayout.K1_UP for run in runs)
    verify_steps(make_case(strided_shortcut(width, width), batch, 2), "channels", dram=DramModel(stall=0.3, seed=width))
