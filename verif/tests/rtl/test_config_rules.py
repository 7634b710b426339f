"""Rules of a configuration that no other test breaks."""

import dataclasses

import pytest

from gradloom.rtl.config import PRESETS, Config, ConfigError, added


@pytest.mark.parametrize(("depth", "legal"), [(128, True), (127, False)])
def test_logit_buffer_holds_one_image(depth, legal):
    """1024 classes in entries of 8."""
    if legal:
        assert dataclasses.replace(PRESETS["eta"], logit_depth=depth).logit_depth == depth
    else:
        text = r"^logit_depth must hold the logits of one image \(128 entries\), not 127: raise it or lower max_classes$"
        with pytest.raises(ConfigError, match=text):
            dataclasses.replace(PRESETS["eta"], logit_depth=depth)


@pytest.mark.parametrize(("clusters", "cols", "laps"), [(1, 1, 1), (8, 8, 1), (4, 2, 2), (16, 8, 2)])
def test_a_channel_group_takes_one_lap_or_two(clusters, cols, laps):
    config = dataclasses.replace(PRESETS["eta2x"], clusters=clusters, cols=cols, logit_depth=1024)
    assert (config.group, config.laps, config.beat_bytes) == (clusters, laps, 2 * clusters)
    assert config.macs == clusters * cols * 3 * 9


@pytest.mark.parametrize(("clusters", "cols"), [(2, 1), (8, 2), (4, 8), (16, 4)])
def test_other_shapes_are_refused(clusters, cols):
    with pytest.raises(ConfigError, match=rf"^clusters must equal cols, or be twice as many .*: {clusters} clusters, {cols} cols$"):
        dataclasses.replace(PRESETS["eta2x"], clusters=clusters, cols=cols, logit_depth=1024)


def test_double_pumped_slices_are_those_of_two_clusters():
    assert dataclasses.replace(PRESETS["small"], mac="double_pumped").macs == PRESETS["small"].macs
    with pytest.raises(ConfigError, match=r"^mac 'double_pumped' needs pairs of clusters, and there are 1: take 'decode_once'$"):
        dataclasses.replace(PRESETS["nano"], mac="double_pumped")


@pytest.mark.parametrize(("fields", "text"), [
    ({"apu_channels": 3}, r"apu_channels must divide clusters \(4\): .*, not 3"),
    ({"apu_channels": 8}, r"apu_channels must divide clusters \(4\): .*, not 8"),
    ({"apu_lanes": 3}, "apu_lanes must be 1 or 2, not 3"), ({"divider_bits": 4}, "divider_bits must be 1 or 2, not 4"),
    ({"apu_shifters": "wide"}, "apu_shifters must be 'multiplier' or 'lut', not 'wide'"),
    ({"export_depth": 8}, r"export_depth must be 0 or hold a weight-gradient tile \(18 beats\), not 8"),
])
def test_an_a_core_is_refused(fields, text):
    with pytest.raises(ConfigError, match=f"^{text}$"):
        dataclasses.replace(PRESETS["ulx3s"], **fields)


@pytest.mark.parametrize(("channels", "lanes", "apus", "turns"),
                         [(1, 2, 4, 1), (4, 2, 1, 4), (2, 1, 2, 4), (4, 1, 1, 8), (1, 1, 4, 2)])
def test_turns_of_a_beat(channels, lanes, apus, turns):
    config = dataclasses.replace(PRESETS["ulx3s"], apu_channels=channels, apu_lanes=lanes, export_depth=0)
    assert (config.apus, config.turns, config.export_depth) == (apus, turns, 0)


def test_names_of_parts_stay():
    """Verilog modules are named by a hash of what is written of a machine: a later field at its default is not."""
    text = repr(PRESETS["nano"])
    assert text.endswith("load_channels=1, store_channels=1)") and eval(text) == PRESETS["nano"]
    assert repr(dataclasses.replace(PRESETS["nano"], apu_lanes=1)).endswith("store_channels=1, apu_lanes=1)")


def test_distributed_memories_may_be_none():
    assert dataclasses.replace(PRESETS["eta"], lutram_bits=0).lutram_bits == 0
    with pytest.raises(ConfigError, match=r"^lutram_bits must be a non-negative integer, not -1$"):
        dataclasses.replace(PRESETS["eta"], lutram_bits=-1)


DIGESTS = {"nano": 0x4A3BAE1E, "small": 0x196BB2A2, "ulx3s": 0xFB54A95D, "eta": 0x657DFDCB, "eta2x": 0x0CE354CC}


def test_digests_stay():
    """Programs, schedules and built machines hold them."""
    assert {name: PRESETS[name].digest() for name in DIGESTS} == DIGESTS


def test_a_later_field_enters_the_digest_only_where_it_differs():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(Config):
        divider_radix: int = added(4)

    fields = dataclasses.asdict(PRESETS["small"])
    assert Later(**fields).digest() == PRESETS["small"].digest()
    assert Later(**fields, divider_radix=2).digest() != PRESETS["small"].digest()
