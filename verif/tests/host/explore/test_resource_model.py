"""The resource model against the syntheses that are committed: exact where it is exact, within what the fit's page says else."""

import dataclasses
import json

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.explore.resource_model import GROUPS, fitted_cells, group_terms, load_coefficients, multipliers, predict
from gradloom.verif.checkout import ROOT


@pytest.mark.parametrize("name", ["eta", "eta2x"])
def test_machines_of_xc7(name):
    true = json.loads((ROOT / f"docs/results/synthesis-{name}-xc7.json").read_text())["total"]
    found = predict(PRESETS[name], "xc7")
    assert found.dsps == true["dsp48e1"]
    assert found.luts == pytest.approx(true["all_luts"], rel=0.06)
    assert found.flip_flops == pytest.approx(true["flip_flops"], rel=0.06)


def test_the_routed_board():
    """The build of ecp5-9 with link and SDRAM, every kind of cell."""
    use = json.loads((ROOT / "docs/results/boards/9-macs-sdram-1.json").read_text())["use"]
    found = predict(PRESETS["ecp5-9"], "ecp5", board=True)
    assert found.dsps == use["MULT18X18D"][0] and found.brams == use["DP16KD"][0]
    assert found.luts == pytest.approx(use["TRELLIS_COMB"][0], rel=0.001)
    # 93 flip-flops are those of pads and of the resets.
    assert found.flip_flops == pytest.approx(use["TRELLIS_FF"][0], rel=0.005)


@pytest.mark.parametrize(("name", "number"), [("ecp5-9", 18), ("ecp5-45", 45)])
def test_multipliers_of_ecp5(name, number):
    assert multipliers(PRESETS[name], "ecp5") == number


def test_double_pumped_slices():
    """docs/synthesis-eta2x-double-pumped-xc7.md: 2132."""
    assert multipliers(dataclasses.replace(PRESETS["eta2x"], mac="double_pumped"), "xc7") == 2132


@pytest.mark.parametrize("family", GROUPS)
def test_every_group_has_its_terms_and_coefficients(family):
    config = PRESETS["eta" if family == "xc7" else "ecp5-85"]
    terms, coefficients = group_terms(config, family), load_coefficients()[family]
    assert set(terms) == set(coefficients) == set(GROUPS[family])
    for group, names in GROUPS[family].items():
        assert len(names) == len(terms[group]) == len(coefficients[group]["luts"]) == len(coefficients[group]["flip_flops"])
        assert min(coefficients[group]["luts"]) >= 0


def test_more_of_anything_takes_no_less():
    small = PRESETS["small"]
    for change in ({"wpus": 2}, {"load_channels": 4}, {"clusters": 4, "cols": 4, "logit_depth": 1024}):
        more = predict(dataclasses.replace(small, **change), "xc7")
        assert (more.luts or 0) > (predict(small, "xc7").luts or 0)


def test_distributed_ram_counts_as_luts():
    eta = PRESETS["eta"]
    without = dataclasses.replace(eta, lutram_bits=0)
    coefficients = load_coefficients()
    assert sum(fitted_cells(eta, "xc7", "luts", coefficients).values()) - sum(
        fitted_cells(without, "xc7", "luts", coefficients).values()) == pytest.approx(13_440)
