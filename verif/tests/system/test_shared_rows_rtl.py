"""Training steps in RTL whose layers leave rows over that the WPUs share, and a shortcut of stride 2 (host/test_shared_rows)."""

import pytest

from gradloom.host.schedule import compile_network
from gradloom.models.network import Conv, FullyConnected, Network
from gradloom.rtl.isa import Opcode, PsumLayout
from gradloom.sim.rtl_device import DramModel
from gradloom.verif.configs import machine_config
from gradloom.verif.system_bench import make_case, verify_steps


def network(width: int) -> Network:
    layers = (
        Conv(name="a", out=4, kernel=3, pad=1),
        Conv(name="b", out=6, kernel=3, pad=1, stride=2),
        Conv(name="s", out=6, kernel=1, stride=2, input="a", act="none"),
        Conv(name="c", out=6, kernel=3, pad=1, input="b", residual="s"),
        FullyConnected(name="fc", out=3),
    )
    return Network("shared", (2, width, width), 3, layers)


@pytest.mark.parametrize(("width", "batch"), [(13, 1), (9, 3)])
def test_steps(width, batch):
    """13 rows of two WPUs: six row groups, and parts of 6 and 7 windows."""
    instructions = compile_network(network(width), machine_config("channels"), batch).instructions
    shared = {instruction["wg"] for instruction in instructions if instruction.opcode == Opcode.CONV and instruction["shared"]}
    assert shared == {0, 1}
    runs = [instruction for instruction in instructions if instruction.opcode == Opcode.RUN]
    assert any(run["shared"] for run in runs) and any(run["layout"] == PsumLayout.K1_UP for run in runs)
    verify_steps(make_case(network(width), batch, 2), "channels", dram=DramModel(stall=0.3, seed=width))
