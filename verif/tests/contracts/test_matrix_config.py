"""Matrix machines: presets of any size, rules told in a sentence, TOML files, digests that no training machine has."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS, Config, ConfigError, load_config
from gradloom.contracts.matrix_config import MatrixConfig, load_machine, load_training_machine, matrix_preset
from gradloom.contracts.regmap import REGISTERS

NAMES = ("fox-2", "fox-4", "fox-32", "darkfpga-4x2", "darkfpga-8x8", "darkfpga-128x32", "barista-4x4x16", "barista-2x8x4",
         "barista-16x16x64")


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_what_its_name_says(name):
    config = load_machine(name)
    assert isinstance(config, MatrixConfig) and config.name == name
    sizes = [int(size) for size in name.partition("-")[2].split("x")]
    shape = config.lanes, config.rows, config.columns
    assert shape == {"fox": (1, sizes[0], sizes[0]), "darkfpga": (sizes[0], 1, sizes[-1]), "barista": (1, *sizes[:2])}[
        name.partition("-")[0]]
    assert config.macs == config.lanes * config.rows * config.columns
    assert (config.stationary == "output") == name.startswith("barista")
    for entry in REGISTERS:
        if entry.constant:
            assert 0 <= entry.constant(config) < 2**32


def test_digests_differ_by_every_field_but_the_name():
    config = load_machine("fox-4")
    changes = {"w_depth": 1024, "x_depth": 256, "p_depth": 256, "queue_words": 256, "counters": "none", "lutram_bits": 64,
               "beat_bytes": 2, "rows": 2, "columns": 8, "stationary": "output"}
    digests = [dataclasses.replace(config, **{name: value}).digest() for name, value in changes.items()]
    digests += [config.digest(), *(preset.digest() for preset in PRESETS.values())]
    assert len(set(digests)) == len(digests)
    assert dataclasses.replace(config, name="other").digest() == config.digest()
    assert dataclasses.replace(load_machine("darkfpga-4x4"), lanes=8).digest() != load_machine("darkfpga-4x4").digest()


@pytest.mark.parametrize(("change", "told"), [
    ({"rows": 3}, r"^rows must be a power of two, not 3$"),
    ({"columns": 256}, r"^columns must be at most 128, not 256$"),
    ({"lanes": 2}, r"^rows must be 1 where there are several lanes, not 4: all lanes take the same weights$"),
    ({"lanes": 2, "rows": 1, "stationary": "output"}, r"^lanes must be 1 where the output is stationary, not 2: take"),
    ({"stationary": "input"}, r"^stationary must be 'operand' or 'output', not 'input'$"),
    ({"beat_bytes": 1}, r"^beat_bytes must lie in 2..64, not 1$"),
    ({"beat_bytes": 32}, r"^beat_bytes must be at most 4 \* lanes \* rows \(16\), not 32: a word of sums takes whole beats$"),
    ({"columns": 64, "rows": 1, "beat_bytes": 8}, r"^beat_bytes must be at most 4 \* lanes \* rows \(4\), not 8: a word of sums"),
    ({"queue_words": 63}, r"^queue_words must be even and hold a command \(64\), not 63$"),
    ({"w_depth": 1 << 20}, r"^w_depth must hold 1 to 65536 beats, and 1048576 words of 16 bytes are 2097152$"),
    ({"x_depth": 0}, r"^x_depth must be a positive integer, not 0$"),
    ({"p_depth": True}, r"^p_depth must be a positive integer, not True$"),
    ({"counters": "some"}, r"^counters must be 'all', 'totals' or 'none', not 'some'$"),
    ({"name": 3}, r"^name must be a string, not 3$")])
def test_a_rule_that_is_broken_is_told(change, told):
    with pytest.raises(ConfigError, match=told):
        dataclasses.replace(load_machine("fox-4"), **change)


def test_files(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('core = "matrix"\nbase = "fox-4"\nw_depth = 64\n')
    assert load_machine(str(file)) == dataclasses.replace(load_machine("fox-4"), name="mine", w_depth=64)
    for text, told in (
            ('core = "matrix"\nbase = "nano"', "base = 'nano' is no preset of a matrix machine; give one of darkfpga-TBxTI, fox-N"),
            ('core = "systolic"', "core must be 'matrix', not 'systolic'; leave it out for a training machine"),
            ('core = "matrix"\nlanes = 1', "key 'rows' is missing; give it, or base = \"PRESET\""),
            ('core = "matrix"\nbase = "fox-4"\nclusters = 3', "unknown key 'clusters'; the keys are name, lanes"),
            ("core = ", "is not a TOML file")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=told):
            load_machine(str(file))


def test_the_other_kind_is_told_by_name(tmp_path):
    assert load_machine("nano") is PRESETS["nano"] and isinstance(load_machine("nano"), Config)
    file = tmp_path / "mine.toml"
    file.write_text('base = "nano"\nqueue_words = 256\n')
    assert load_machine(str(file)) == load_config(str(file))
    with pytest.raises(ConfigError, match=r"^fox-4 multiplies matrices \(docs/matrix.md\) and trains no network as a whole: give"):
        load_training_machine("fox-4")
    file.write_text('core = "matrix"\nbase = "fox-4"\n')
    with pytest.raises(ConfigError, match=r"mine.toml multiplies matrices .* give a machine without the key 'core'$"):
        load_training_machine(str(file))
    with pytest.raises(ConfigError, match=r"there is no configuration 'mesh': give one of nano, .*, barista-RxCxP or a TOML file$"):
        load_machine("mesh")
    assert matrix_preset("fox-") is None and matrix_preset("fox-4x4") is None
