"""report.html: one self-contained, well-formed page, and numbers that are those of run.json; report.svg: its drawings."""

import copy
from typing import Any
from xml.etree import ElementTree

import pytest

from gradloom.contracts.engines import Unit
from gradloom.host.runs import report
from gradloom.host.runs.report import picture, render
from gradloom.verif.drawing_texts import text_faults
from gradloom.verif.pages import Page, check_frame, drawings

ENGINES = ("load", "ccore", "acore", "store")


def record(steps: int = 40, device: str = "rtl") -> dict[str, Any]:
    rows = [
        {
            "layer": layer,
            "phase": phase,
            "busy": {"load": 4000 + 10 * k, "ccore": 9000, "acore": 7000, "store": 1500},
            "windows": 8000,
            "use": 8000 / 9000,
        }
        for k, (layer, phase) in enumerate(
            (layer, phase) for layer in ("conv1", "<b>&fc") for phase in ("FP", "BP", "WG + WU")
        )
    ]
    return {
        "network": {"name": "digits-cnn"},
        "configuration": {"name": "small"},
        "macs": 36,
        "device": device,
        "data": {"name": "digits"},
        "batch": 16,
        "seed": 1,
        "hyper": {"lr": 0.02, "momentum": 0.9},
        "number_format": "pint8",
        "rounding": {"errors": "nearest", "weights": "stochastic"},
        "steps_per_epoch": 20,
        "total_steps": steps,
        "steps": [{"step": k, "loss": 2.3 * 0.95**k, "accuracy": min(1.0, k / steps)} for k in range(steps)],
        "epochs": [
            {
                "epoch": e,
                "steps": 20 * (e + 1),
                "train_accuracy": min(1.0, 0.4 + 0.3 * e),
                "test_accuracy": min(1.0, 0.5 + 0.3 * e),
                "cycles": 1_000_000 * (e + 1) if device == "rtl" else None,
                "sha256": f"{e:064x}",
            }
            for e in range(steps // 20)
        ],
        "cycles": {
            "kind": "simulated",
            "total": 120_000,
            "by_layer_phase": rows,
            "engines": {name: sum(row["busy"][name] for row in rows) for name in ENGINES},
        }
        if device == "rtl"
        else None,
    }


CASES = {
    "rtl": record(),
    "golden": record(device="golden"),
    "one step": record(1),
    "no steps": record(0),
    "long": record(3000),
}


@pytest.mark.parametrize("name", list(CASES))
def test_page_is_whole_and_self_contained(name):
    page = Page(render(CASES[name]))
    assert "digits-cnn trained on small" in page.text


@pytest.mark.parametrize("name", list(CASES))
def test_drawings_stay_inside_their_frame(name):
    page = render(CASES[name])
    found = drawings(page)
    assert len(found) >= {"rtl": 2, "golden": 1, "one step": 2, "no steps": 1, "long": 2}[name]
    for drawing in found:
        check_frame(drawing)


@pytest.mark.parametrize("name", list(CASES))
def test_picture_holds_the_drawings_and_their_keys(name):
    """It stands without the page: a key says what each colour means, and no text leaves its place."""
    root = ElementTree.fromstring(picture(CASES[name]))
    assert text_faults(root) == []
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert len(drawings(render(CASES[name]))) == sum(element.tag.endswith("svg") for element in root.iter()) - 1
    assert name == "no steps" or "each step" in texts
    assert name in ("golden", "one step", "no steps") or {"training images", "test images", "Loader", "C-Core"} <= set(texts)


def test_numbers_come_from_the_record():
    text = Page(render(record())).text
    for expected in ("40.00 %", "80.00 %", "0000000000000000", "120,000", "36 MACs", "conv1 FP", "89 %"):
        assert expected in text
    assert "conv1" in text and "<b>&fc BP" in text, "names are escaped"


@pytest.mark.parametrize("kind", ["simulated", "on-board"])
@pytest.mark.parametrize("counters", ["all", "totals"])
def test_cycles_are_of_the_kind_that_the_record_says(kind, counters):
    run = record()
    run["cycles"]["kind"] = kind
    run["configuration"]["counters"] = counters
    if counters == "totals":
        run["cycles"]["by_layer_phase"] = []
    text = Page(render(run)).text
    assert f"120,000 {kind} cycles" in text
    assert "simulated" not in text.replace(kind, "")


def test_every_engine_of_a_machine_has_a_name_and_a_colour():
    named = {key for key, _, _ in report.ENGINES}
    assert {unit.name.lower() for unit in Unit} - {"seq"} <= named
    assert len({colour for _, _, colour in report.ENGINES}) == len(report.ENGINES)


def test_busy_bars_are_in_proportion():
    run = record()
    run["cycles"]["by_layer_phase"][0]["busy"] = {"load": 2000, "ccore": 4000, "acore": 1000, "store": 500}
    drawing = drawings(render(run))[-1]
    bars = [float(element.get("width")) for element in drawing.iter() if element.tag.endswith("rect") and len(element)][:4]
    assert [round(width / bars[0], 2) for width in bars] == [1, 2, 0.5, 0.25]


def test_device_without_cycles_says_so():
    assert "counts no cycles" in Page(render(record(device="golden"))).text


@pytest.mark.parametrize("counters", ["totals", "none"])
def test_machine_with_fewer_counters_says_what_is_missing(counters):
    """One sentence, the run's cycles, and the engines' totals of a machine that has them."""
    run = record()
    run["configuration"]["counters"] = counters
    run["cycles"]["by_layer_phase"] = []
    if counters == "none":
        run["cycles"]["engines"] = {}
    text = Page(render(run)).text
    assert (f"This machine was built with counters = {counters} and does not count cycles by layer and phase: "
            "120,000 simulated cycles in all.") in text
    assert ("C-Core" in text) == (counters == "totals") and "counts no cycles." not in text
    assert "Busy cycles" not in picture(run)


def test_record_is_not_changed():
    run = record()
    before = copy.deepcopy(run)
    render(run)
    assert run == before
