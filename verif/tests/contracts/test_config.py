"""Rules of a configuration that no other test breaks."""

import dataclasses

import pytest

from gradloom.contracts.config import PE_ROWS, PE_TAPS, PRESETS, Config, ConfigError, added, load_config


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


@pytest.mark.parametrize(("psum_width", "wg_width"), [(32, 32), (32, 48), (36, 36), (48, 48)])
def test_sums_have_32_to_48_bits(psum_width, wg_width):
    config = dataclasses.replace(PRESETS["small"], psum_width=psum_width, wg_width=wg_width)
    # Machines of different widths are different machines.
    assert config.digest() != PRESETS["small"].digest()


@pytest.mark.parametrize(("psum_width", "wg_width", "sentence"), [
    (31, 48, r"psum_width must lie in 32\.\.48 bits, not 31"),
    (49, 49, r"psum_width must lie in 32\.\.48 bits, not 49"),
    (36, 35, r"wg_width must lie in psum_width\.\.48 bits \(36\.\.48\), not 35"),
    (36, 49, r"wg_width must lie in psum_width\.\.48 bits \(36\.\.48\), not 49"),
    (32.0, 48, r"psum_width must be a positive integer, not 32\.0"),
    (True, 48, r"psum_width must be a positive integer, not True"),
    (36, "48", r"wg_width must be a positive integer, not '48'"),
    (36, -36, r"wg_width must be a positive integer, not -36"),
])
def test_other_widths_are_refused(psum_width, wg_width, sentence):
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        dataclasses.replace(PRESETS["small"], psum_width=psum_width, wg_width=wg_width)


@pytest.mark.parametrize("cols", [1, 2, 4, 8])
def test_the_narrowest_sum_holds_what_the_array_gives_at_once(cols):
    """Products of -4096 by -4096 in all taps of a unit of a cluster: what it adds to a partial sum is no overflow by itself."""
    config = dataclasses.replace(PRESETS["eta"], clusters=cols, cols=cols, psum_width=32, logit_depth=1024)
    assert PE_ROWS * PE_TAPS * config.cols * 4096**2 < 2 ** (config.psum_width - 1)


def test_a_machine_has_all_counters_or_totals_or_none():
    assert PRESETS["small"].counters == "all"
    for counters in ("totals", "none"):
        assert dataclasses.replace(PRESETS["small"], counters=counters).digest() != PRESETS["small"].digest()
    with pytest.raises(ConfigError, match=r"^counters must be 'all', 'totals' or 'none', not 'few'$"):
        dataclasses.replace(PRESETS["small"], counters="few")
    with pytest.raises(ConfigError, match=r"^counters must be a string, not 0$"):
        dataclasses.replace(PRESETS["small"], counters=0)


DIGESTS = {"nano": 0x4A3BAE1E, "small": 0x196BB2A2, "ulx3s": 0xFB54A95D, "eta": 0x657DFDCB, "eta2x": 0x0CE354CC,
           "ecp5-85": 0x40EEDE0E, "ecp5-45": 0x26FBE88E, "ecp5-9": 0x228ADA73}


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


def test_family(tmp_path):
    (tmp_path / "board.toml").write_text('base = "ulx3s"\nfamily = "ecp5"\n')
    config = load_config(str(tmp_path / "board.toml"))
    assert (config.family, config.macs) == ("ecp5", 144) and config.digest() != PRESETS["ulx3s"].digest()
    with pytest.raises(ConfigError, match=r"^family must be 'any' or 'ecp5', not 'ice40'$"):
        dataclasses.replace(PRESETS["small"], family="ice40")
    for mac in ("double_pumped", "post_shift"):
        with pytest.raises(ConfigError, match=rf"^family 'ecp5' has the mac 'decode_once', not '{mac}': leave mac out$"):
            dataclasses.replace(PRESETS["small"], family="ecp5", mac=mac)


def test_names_of_modules_are_made_of_what_differs():
    """Modules that a whole configuration shapes are named by its text, which later fields must not change."""
    assert "family" not in repr(PRESETS["ulx3s"]) and "wg_width=48" in repr(PRESETS["ulx3s"])
    assert "family='ecp5'" in repr(dataclasses.replace(PRESETS["ulx3s"], family="ecp5"))
