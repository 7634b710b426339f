"""What every generated page must be: whole, self-contained, with drawings that stay inside their frames."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from gradloom.verif.drawing_texts import text_faults

__all__ = ["PAGE_FONT", "Page", "check_frame", "drawings"]

PAGE_FONT = 12.0
"""Size of texts in the drawings of :data:`gradloom.host.runs.report.STYLE`, the style of all pages."""
_VOID = ("meta", "br", "hr", "img", "link")


class Page(HTMLParser):
    """An HTML page, checked while it is read.

    Attributes
    ----------
    text : :class:`str`
        Everything that is not a tag, a line for each piece.

    Raises
    ------
    :exc:`AssertionError`
        If elements are not closed in order, or anything would be loaded from elsewhere.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self.text = ""
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "img"), "nothing is loaded from elsewhere"
        found = dict(attrs)
        assert "src" not in found and not (found.get("href") or "#").startswith("http")

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def drawings(page: str) -> list[ElementTree.Element]:
    """The SVG drawings of a page."""
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def check_frame(drawing: ElementTree.Element) -> None:
    """:exc:`AssertionError` if a part of an SVG drawing lies outside its frame, or a text not where it belongs."""

    def inside(x: float, y: float) -> bool:
        return 0 <= x <= width and 0 <= y <= height

    def numbers(element: ElementTree.Element, *names: str) -> list[float]:
        # A coordinate that is not given is 0; a size has to be there.
        return [float(element.get(name, "nan" if name in ("width", "height") else "0")) for name in names]

    _, _, width, height = map(float, drawing.get("viewBox", "").split())
    for element in drawing.iter():
        kind = element.tag.rpartition("}")[2]
        if kind == "rect":
            x, y, w, h = numbers(element, "x", "y", "width", "height")
            assert inside(x, y) and inside(x + w, y + h) and min(w, h) >= 0
        elif kind == "circle":
            assert inside(*numbers(element, "cx", "cy"))
        elif kind == "text":
            assert inside(*numbers(element, "x", "y"))
        elif kind == "polyline":
            assert all(inside(*map(float, point.split(","))) for point in element.get("points", "").split())
    faults = text_faults(drawing, font_size=PAGE_FONT)
    assert not faults, faults
