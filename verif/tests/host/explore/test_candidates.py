"""Machines that an exploration looks at, and their files."""

import pytest

from gradloom.contracts.config import PRESETS, load_config
from gradloom.host.explore.bounds import Bound, bound, step_work
from gradloom.host.explore.candidates import candidates, machine_toml, named
from gradloom.models.network import load_network


@pytest.mark.parametrize(("family", "rate"), [("xc7", 149.5), ("ecp5", 1.9)])
def test_every_array_shape_is_there(family, rate):
    found = list(candidates(family, rate, 10))
    shapes = {(config.clusters, config.wpus, config.cols) for config in found}
    assert len(shapes) == 7 * 3
    assert len({config.digest() for config in found}) == len(found)
    assert all((config.family == "ecp5") == (family == "ecp5") for config in found)


def test_presets_keep_their_names():
    assert {"eta", "small"} <= {config.name for config in candidates("xc7", 149.5, 10)}
    assert {"ecp5-9", "ecp5-45", "ecp5-85"} <= {config.name for config in candidates("ecp5", 1.9, 10)}


def test_machines_hold_the_classes():
    assert min(config.max_classes for config in candidates("xc7", 149.5, 1000)) >= 1000


def test_channels_follow_the_memory():
    narrow = {config.load_channels for config in candidates("xc7", 1.0, 10) if config.name not in PRESETS}
    assert narrow == {1}
    wide = {config.load_channels for config in candidates("xc7", 500.0, 10) if config.name not in PRESETS}
    assert wide == {4}


def test_a_file_of_a_machine_gives_the_machine(tmp_path):
    for number, config in enumerate([*candidates("xc7", 149.5, 10)][::40] + [*candidates("ecp5", 1.9, 10)][::60]):
        path = tmp_path / f"machine{number}.toml"
        path.write_text(machine_toml(named(config)))
        assert load_config(str(path)).digest() == config.digest()


def test_names_tell_machines_apart():
    names = [named(config).name for config in candidates("xc7", 149.5, 10)]
    assert len(set(names)) == len(names)


def test_the_array_bounds_a_step_of_eta():
    """ResNet20 at batch 16: 1,122,322 cycles of multiplications in a step of 1,158,096 (simulated); the rest needs less."""
    found = bound(step_work(load_network("resnet20"), 16), PRESETS["eta"], 149.5)
    assert round(found.array) == 1_122_322
    assert found.limit == "MACs" and found.cycles == found.array > found.memory > 0


def test_a_narrow_memory_bounds():
    found = bound(step_work(load_network("vgg16"), 1), PRESETS["eta"], 2.0)
    assert found.limit == "bandwidth"
    # Simulated on eta: 184 MB a step of 16 images.
    moved = 149.5 * bound(step_work(load_network("vgg16"), 16), PRESETS["eta"], 149.5).memory
    assert moved == pytest.approx(184e6, rel=0.05)
    assert Bound(1, 2, 3).limit == "A-Core"
