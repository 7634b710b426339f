"""Drawings of a layer's commands: all of the phase are in them, in the right row and time, and no text leaves its place."""

import re
from xml.etree import ElementTree

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode
from gradloom.host import cli
from gradloom.host.bench.layer_drawing import DRAWN, draw, find_layer
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.trace import Timeline, step_programs
from gradloom.host.files import UserError
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network
from gradloom.verif.drawing_texts import text_faults

SVG = "{http://www.w3.org/2000/svg}"
DIGITS = load_network("digits-cnn")


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    config = PRESETS["small"]
    plan = compile_network(DIGITS, config, 4, slots=2, table=2)
    return replay(step_programs(plan.instructions, plan.labels, 2), config, DramCost())[-1]


def bars(svg: ElementTree.Element) -> list[tuple[float, float, str, str]]:
    """(right end, top, colour, what it tells) of every command."""
    return [(float(rect.get("x", 0)) + float(rect.get("width", 0)), float(rect.get("y", 0)), rect.get("fill", ""), title.text or "")
            for rect in svg.iter(f"{SVG}rect") if (title := rect.find(f"{SVG}title")) is not None]


@pytest.mark.parametrize("wanted", ["conv1", "conv2", "conv2:BP", "conv2:norm", "conv3:WG", "fc", "fc:WG", "pool", "pool:BP"])
def test_every_command_of_the_phase_is_drawn_when_it_ran(timeline, wanted):
    found = find_layer(DIGITS, wanted)
    svg = ElementTree.fromstring(draw(timeline, DIGITS, found, title="digits-cnn on small"))
    number = [layer.name for layer in DIGITS.layers].index(found.layer) + 1
    tag = 8 * number + list(DRAWN).index(found.phase)
    own = [place for place, command in enumerate(timeline.program) if command.tag == tag and timeline.start[place] >= 0]
    drawn = [bar for bar in bars(svg) if f" tag={tag} " in bar[3]]
    assert 0 < min(len(own), 90) <= len(drawn) <= len(own)
    tops: dict[str, set[float]] = {}
    for _, top, colour, tip in drawn:
        assert colour != "#dde2e7", tip
        tops.setdefault(tip.split("\n")[1].split()[0], set()).add(top)
    engines = {Opcode[name].name: rows for name, rows in tops.items()}
    assert not engines.get("CONV", set()) & engines.get("RUN", set())
    # The drawing's width, less its margins, is the time between the cycles of the heading.
    first, last = (int(text.replace(",", "")) for text in re.search(r"cycles ([\d,]+) to ([\d,]+) of", text_of(svg)).groups())
    for right, _, _, tip in drawn:
        # Places have one decimal, and a bar is 0.6 narrower than its time, so that neighbours are told apart, but at least 1.5.
        done = min(last, int(re.search(r" to ([\d,]+)\n", tip)[1].replace(",", "")))
        assert right == pytest.approx(96 + 1048 * (done - first) / (last - first), abs=2.2), tip


def text_of(svg: ElementTree.Element) -> str:
    return "\n".join(text.text or "" for text in svg.iter(f"{SVG}text"))


@pytest.mark.parametrize("wanted", ["conv1", "conv2:BP", "conv3:WG", "fc"])
def test_texts_stay_in_their_places(timeline, wanted):
    svg = ElementTree.fromstring(draw(timeline, DIGITS, find_layer(DIGITS, wanted), title="digits-cnn on small, 4 images"))
    assert not text_faults(svg, font_size=11)


def test_bad_wishes_are_one_sentence(timeline):
    with pytest.raises(UserError, match=r"^network 'digits-cnn' has no layer 'conv9': give one of conv1, conv2, conv3, pool, fc$"):
        find_layer(DIGITS, "conv9")
    with pytest.raises(UserError, match=r"^there is no phase 'XX': give conv1:PHASE with one of FP, BP, norm, WG$"):
        find_layer(DIGITS, "conv1:XX")
    with pytest.raises(UserError, match=r"^layer 'pool' has no commands of the phase WG: give another of FP, BP, norm, WG$"):
        draw(timeline, DIGITS, find_layer(DIGITS, "pool:WG"), title="")


def test_bench_draws(tmp_path, capsys):
    arguments = ["bench", "--device", "model", "--batch", "2", "--draw", "conv2:bp", "--out", str(tmp_path / "run")]
    assert cli.main(arguments) == 0
    assert f"drawing {tmp_path / 'run' / 'conv2-BP.svg'}" in capsys.readouterr().out
    text = (tmp_path / "run" / "conv2-BP.svg").read_text()
    assert "conv2, backward: digits-cnn on small, 2 images" in text and "(estimated)" in text
    assert cli.main([*arguments[:-1], str(tmp_path / "other"), "--draw", "none"]) == 2
    assert "has no layer 'none'" in capsys.readouterr().err and not (tmp_path / "other").exists()
