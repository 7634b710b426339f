"""Every drawing of the documents is one that a reader can read: no text leaves its box, crosses a border, or lies on something."""

from xml.etree import ElementTree

import pytest

from gradloom.verif.checkout import DOCS
from gradloom.verif.drawing_texts import text_faults

FIGURES = sorted((DOCS / "figures").glob("*.svg"))


def drawing(body: str, style: str = "") -> ElementTree.Element:
    return ElementTree.fromstring(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 200" font-size="10"><style>{style}</style>{body}</svg>')


BOX = '<rect x="100" y="50" width="100" height="40"/>'


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.stem)
def test_figures_of_the_documents(figure):
    assert text_faults(ElementTree.parse(figure).getroot()) == []


@pytest.mark.parametrize("body", [
    BOX + '<text x="150" y="70" text-anchor="middle">short</text>',
    BOX + '<text x="150" y="30" text-anchor="middle">longer than the box, above it</text>',
    '<text x="20" y="30">one</text><text x="20" y="44">two</text>',
    '<line x1="0" y1="40" x2="400" y2="40"/><text x="20" y="36">above the line</text>',
    '<rect width="400" height="200"/><rect x="10" y="10" width="380" height="180"/><text x="20" y="100">in frames</text>',
])
def test_good_drawings(body):
    assert text_faults(drawing(body)) == []


@pytest.mark.parametrize(("body", "fault"), [
    (BOX + '<text x="110" y="70">much too long for its box</text>', "'much too long for its box' leaves its box"),
    (BOX + '<text x="90" y="70" text-anchor="middle">commands</text>', "'commands' crosses the border of a box"),
    ('<text x="380" y="70">at the edge</text>', "'at the edge' leaves the frame"),
    ('<text x="380" y="70" text-anchor="end">and</text><text x="370" y="72">beside</text>', "'beside' lies on 'and'"),
    ('<polyline points="20,10 20,90 90,90"/><text x="10" y="50">crossed</text>', "'crossed' lies on a line"),
    ('<path d="M20 10v80h70"/><text x="10" y="50">crossed</text>', "'crossed' lies on a line"),
    ('<path d="M20 10 V90 L90 90"/><text x="50" y="93">crossed</text>', "'crossed' lies on a line"),
    ('<svg x="300" y="0"><text x="80" y="70">nested</text></svg>', "'nested' leaves the frame"),
    ('<g font-size="90"><text x="10" y="150">inherited</text></g>', "'inherited' leaves the frame"),
])
def test_each_fault_is_told(body, fault):
    assert fault in text_faults(drawing(body))


def test_fonts_come_from_attributes_styles_and_classes():
    text = '<rect x="0" y="0" width="62" height="40"/><text x="31" y="20" {}>0123456789</text>'
    for attributes, sheet in (
        ('font-size="20" text-anchor="middle"', ""),
        ('style="font:600 12px x;text-anchor:middle"', ""),
        ('class="a b"', ".a{font-size:12px} .b { text-anchor: middle }"),
        ("", "text{font:12px x;text-anchor:middle}"),
    ):
        assert text_faults(drawing(text.format(attributes), sheet)), (attributes, sheet)
    assert text_faults(drawing(text.format('class="a"'), ".a{font-size:9px;text-anchor:middle}")) == []
