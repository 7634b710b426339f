"""The error of a shortcut by a kernel of 1 x 1 and stride 2: only rows that it reaches are made and stored."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Kind, Opcode, PsumLayout, Source, tensor_id
from gradloom.host.knobs import Knobs
from gradloom.host.schedule import compile_network
from gradloom.models.network import Subsample, load_network
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.configs import machine_config
from gradloom.verif.interpreting.step_check import check_steps
from gradloom.verif.networks import strided_shortcut


@pytest.mark.parametrize("errors", ["nearest", "stochastic"])
@pytest.mark.parametrize(("y", "x"), [(8, 8), (7, 6), (6, 7), (5, 9)])
@pytest.mark.parametrize("name", ["small", "channels", "laps"])
def test_training_steps(y, x, errors, name):
    config = machine_config(name)
    plan = check_steps(strided_shortcut(y, x, errors), config, batch=3, order=y)[-1]
    runs = [i for i in plan.instructions if i.opcode == Opcode.RUN and i["layout"] == PsumLayout.K1_UP]
    assert runs and all(i["psr"] == 1 for i in runs)
    assert sum(i["planes"] * i["py"] for i in runs) == 3 * -(-y // 2) * -(-4 // config.group)
    assert all(i["t2"] == tensor_id(3, Kind.DS) for i in runs)
    row = -(-x // 2)
    stores = [i for i in plan.instructions if i.opcode == Opcode.STORE and i["src"] == Source.OA]
    assert any((i["n0"], i["stride1"]) == (row, 2 * row * config.beat_bytes) for i in stores)


@pytest.mark.parametrize("errors", ["nearest", "stochastic"])
def test_rows_of_planes_that_do_not_fit(errors):
    plan = check_steps(strided_shortcut(18, 16, errors), machine_config("rows"), batch=1, order=3)[-1]
    runs = [i for i in plan.instructions if i.opcode == Opcode.RUN and i["layout"] == PsumLayout.K1_UP]
    assert max(i["py"] for i in runs) < 9 == sum(i["py"] for i in runs) // 2


def test_planes_in_pieces_whose_second_reading_comes_late():
    """Others wait until their place has been used; such a program once came out and was wrong, and then was refused."""
    config = dataclasses.replace(PRESETS["small"], abuf_depth=512, mbuf_depth=128)
    check_steps(strided_shortcut(34, 32), config, batch=1, knobs=Knobs(subtile_beats=64))


def test_scattered_errors_count_for_their_shortcut():
    """Of a subsampling shortcut: loads, the A-Core's commands and stores carry its tag, whatever comes before them."""
    network = load_network(str(NETWORKS / "tiny-subsample.toml"))
    plan = compile_network(network, PRESETS["small"], 3)
    shortcuts = [layer for layer in network.layers if isinstance(layer, Subsample) and network.needs_error(layer.input)]
    layers = {8 * network.index(layer.name) + 1 for layer in shortcuts}
    scatters = [i for i in plan.instructions if i.opcode == Opcode.RUN and (i["pool"], i["pkern"], i["pmax"]) == (2, 1, 1)]
    moves = {i.opcode for i in plan.instructions if i.tag in layers}
    assert layers and {i.tag for i in scatters} == layers and moves >= {Opcode.LOAD, Opcode.RUN, Opcode.STORE}
