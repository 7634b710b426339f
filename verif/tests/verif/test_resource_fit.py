"""The resource fit: least squares without negative terms, and the committed coefficients and page, which it makes of the tables."""


import json

import pytest

from gradloom.host.explore.block_ram import grouped_block_rams
from gradloom.host.explore.resource_model import COEFFICIENTS, FITTED, GROUPS, fitted_cells, predict
from gradloom.verif.resource_fit import PAGE, fit, held_out, least_squares, page, synthesised


def test_least_squares_of_what_is_a_sum():
    assert least_squares([[1, 2], [1, 4], [1, 9]], [110, 210, 460]) == pytest.approx([10, 50])


def test_no_term_is_negative():
    """The slope alone would need a negative fixed part; it is left out, and the slope comes relatively closest."""
    found = least_squares([[1, 1], [1, 2]], [1, 4])
    assert found[0] == 0 and 1 < found[1] < 2


def test_terms_that_no_machine_tells_apart_share():
    assert least_squares([[1, 1], [2, 2]], [10, 20]) == pytest.approx([5, 5])


def test_coefficients_and_page_are_those_of_the_tables():
    """``python -m gradloom.verif.resource_fit fit`` changes nothing, but for the last of six digits on another computer."""
    machines = synthesised()
    kept = json.loads(COEFFICIENTS.read_text())["coefficients"]
    for family, groups in fit(machines).items():
        for group, kinds in groups.items():
            for kind, values in kinds.items():
                assert kept[family][group][kind] == pytest.approx(values, rel=1e-4), (family, group, kind)
    assert PAGE.read_text() == page(machines, kept)


def test_the_fit_sees_only_what_it_may():
    machines = synthesised()
    seen = [machine for machine in machines if machine.fitted]
    assert fit(seen) == fit(machines)


@pytest.mark.parametrize("machine", [machine for machine in synthesised() if set(machine.groups) == set(GROUPS[machine.family])],
                         ids=lambda machine: f"{machine.config.name} {machine.family}")
def test_predictions_are_near_synthesis(machine):
    """A tenth at most in LUTs and flip-flops, also for machines that the fit has not seen; multipliers exactly."""
    found = predict(machine.config, machine.family)
    coefficients = json.loads(COEFFICIENTS.read_text())["coefficients"]
    luts = sum(fitted_cells(machine.config, machine.family, "luts", coefficients).values())
    assert luts == pytest.approx(machine.total("luts"), rel=0.10)
    assert found.flip_flops == pytest.approx(machine.total("flip_flops"), rel=0.10)
    assert found.dsps == machine.total("dsps")
    assert found.brams == pytest.approx(machine.total("brams"), abs=0.5)


def test_a_small_machines_parts():
    """Groups of parts that were synthesised of it: block RAMs exactly, LUTs and flip-flops within 150."""
    [machine] = [machine for machine in synthesised() if machine.config.name == "xc7-2x2x2"]
    coefficients = json.loads(COEFFICIENTS.read_text())["coefficients"]
    brams = grouped_block_rams(machine.config, "xc7")
    for group, cells in machine.groups.items():
        assert brams.get(group, 0) == cells["brams"]
        for kind in FITTED:
            assert fitted_cells(machine.config, "xc7", kind, coefficients)[group] == pytest.approx(cells[kind], abs=150)


@pytest.mark.parametrize("whole", held_out(), ids=lambda whole: whole.config.name)
def test_earlier_builds_are_near(whole):
    """Of sources of an earlier day, which took a few hundredths more."""
    found = predict(whole.config, "ecp5", board=True)
    assert found.flip_flops == pytest.approx(whole.flip_flops, rel=0.05)
    assert found.dsps == pytest.approx(whole.dsps, rel=0.02)
    assert found.brams == pytest.approx(whole.brams, rel=0.03)
