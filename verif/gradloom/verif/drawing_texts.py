"""Texts of an SVG drawing stay in their boxes and in the frame, cross no border, and lie on no line and no other text.

No renderer is needed: widths are those of DejaVu Sans, the widest of the common sans-serif fonts, so what fits here fits anywhere.
Understood is what the drawings of this project use: ``rect``, ``text``, ``line``, ``polyline``, ``path`` of straight lines, nested
``svg`` with ``x`` and ``y``, and fonts by attribute, ``style`` attribute or a style sheet of simple classes.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

__all__ = ["Box", "text_faults"]

_PLAIN = (
    "318 401 460 838 636 950 780 275 390 390 500 838 318 361 318 337 636 636 636 636 636 636 636 636 636 636 337 "
    "337 838 838 838 531 1000 684 686 698 770 632 575 775 752 295 295 656 557 863 748 787 603 787 695 635 611 732 "
    "684 989 685 611 685 390 337 390 838 500 500 613 635 550 635 615 352 635 634 278 278 579 278 974 634 612 635 "
    "635 411 521 392 634 592 818 592 592 525 636 337 636 838"
)
_BOLD = (
    "348 456 521 838 696 1002 872 306 457 457 523 838 380 415 380 365 696 696 696 696 696 696 696 696 696 696 400 "
    "400 838 838 838 580 1000 774 762 734 830 683 683 821 837 372 372 775 637 995 837 850 733 850 770 720 682 812 "
    "774 1103 771 724 725 457 365 457 838 500 500 675 716 593 716 678 435 716 712 343 343 665 343 1042 712 687 716 "
    "716 493 595 478 712 652 924 645 652 582 712 365 712 838"
)
_WIDTHS = {bold: [int(width) / 1000 for width in table.split()] for bold, table in ((False, _PLAIN), (True, _BOLD))}
"""Advance widths of the printable ASCII characters, of the font's size."""
_ASCENT, _DESCENT = 0.73, 0.2
"""Of the font's size: from the baseline to the top of capitals, and to the bottom of a p."""
_INHERITED = ("font-size", "font-weight", "text-anchor")
_BACKGROUND = 0.6
"""A rectangle of more than this share of the drawing's width and height is a background or a frame around boxes, not a box."""


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle in the drawing's units."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, other: "Box", margin: float = 0.0) -> bool:
        return (self.left + margin <= other.left and other.right <= self.right - margin
                and self.top <= other.top and other.bottom <= self.bottom)

    def touches(self, other: "Box") -> bool:
        return self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom


@dataclasses.dataclass(frozen=True)
class _Text:
    text: str
    box: Box
    anchor: tuple[float, float]


def _classes(drawing: Element) -> dict[str, str]:
    """Declarations by class or element name, of the drawing's style sheets."""
    found: dict[str, str] = {}
    for element in drawing.iter():
        if element.tag.endswith("style"):
            for names, body in re.findall(r"([^{}]+)\{([^}]*)\}", element.text or ""):
                for name in names.split(","):
                    found[name.strip().removeprefix(".")] = found.get(name.strip().removeprefix("."), "") + ";" + body
    return found


def _declared(element: Element, classes: dict[str, str]) -> dict[str, str]:
    names = [element.tag.rpartition("}")[2], *element.get("class", "").split()]
    sheets = [*(classes.get(name, "") for name in names), element.get("style", "")]
    found = {name: element.get(name, "") for name in _INHERITED if element.get(name)}
    for declaration in ";".join(sheets).split(";"):
        name, _, value = declaration.partition(":")
        if name.strip() == "font":
            size = re.search(r"([\d.]+)px", value)
            found |= {"font-size": size[1] if size else "16"}
            found |= {"font-weight": "bold"} if re.search(r"\b(bold|[6-9]00)\b", value) else {}
        elif value:
            found[name.strip()] = value.strip()
    return found


_Placed = tuple[Element, float, float, dict[str, str]]
"""An element, the place of the drawing that it lies in, and the declarations for its text."""


def _walk(drawing: Element, font_size: float = 16.0) -> Iterator[_Placed]:
    """Every element of a drawing; ``font_size`` holds where nothing is declared."""
    classes = _classes(drawing)

    def visit(element: Element, x: float, y: float, style: dict[str, str]) -> Iterator[_Placed]:
        style = style | {name: value for name, value in _declared(element, classes).items() if name in _INHERITED}
        yield element, x, y, style
        for child in element:
            nested = child.tag.rpartition("}")[2] == "svg"
            dx, dy = (float(child.get(name, "0")) if nested else 0.0 for name in ("x", "y"))
            yield from visit(child, x + dx, y + dy, style)

    return visit(drawing, 0.0, 0.0, {"font-size": str(font_size)})


def _texts(drawing: Element, font_size: float) -> list[_Text]:
    found = []
    for element, x, y, style in _walk(drawing, font_size):
        text = " ".join("".join(element.itertext()).split())
        if element.tag.rpartition("}")[2] != "text" or not text:
            continue
        size = float(style["font-size"].removesuffix("px"))
        bold = style.get("font-weight", "") in ("bold", "600", "700", "800", "900")
        widths = _WIDTHS[bold]
        width = size * sum(widths[ord(letter) - 32] if 32 <= ord(letter) < 127 else 1.0 for letter in text)
        at = (x + float(element.get("x", "0")), y + float(element.get("y", "0")))
        left = at[0] - {"middle": width / 2, "end": width}.get(style.get("text-anchor", ""), 0.0)
        found.append(_Text(text, Box(left, at[1] - _ASCENT * size, left + width, at[1] + _DESCENT * size), at))
    return found


_Segment = tuple[tuple[float, float], tuple[float, float]]


def _lines(element: Element) -> list[_Segment]:
    """Segments of a line, a polyline, or a path of straight lines; none of anything else."""
    kind = element.tag.rpartition("}")[2]
    if kind == "line":
        return [((float(element.get("x1", "0")), float(element.get("y1", "0"))),
                 (float(element.get("x2", "0")), float(element.get("y2", "0"))))]
    if kind == "polyline":
        numbers = [float(number) for number in re.split(r"[\s,]+", element.get("points", "").strip()) if number]
        corners = list(zip(numbers[::2], numbers[1::2], strict=True))
        return list(itertools.pairwise(corners))
    path, found, at = element.get("d", ""), [], (0.0, 0.0)
    if kind != "path" or re.search(r"[^MLHVmlhvz\d\s.,-]", path):
        return []
    for letter, text in re.findall(r"([MLHVmlhv])([^MLHVmlhvz]*)", path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text)]
        origin = (0.0, 0.0) if letter.isupper() else at
        if letter in "Hh":
            ends = [(origin[0] + number, at[1]) for number in numbers]
        elif letter in "Vv":
            ends = [(at[0], origin[1] + number) for number in numbers]
        else:
            ends = [(origin[0] + x, origin[1] + y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
        if letter not in "Mm":
            found += list(zip([at, *ends], ends, strict=False))
        at = ends[-1]
    return found


def _crosses(box: Box, start: tuple[float, float], end: tuple[float, float]) -> bool:
    """Whether a segment has a point inside a box (Liang and Barsky's clipping)."""
    first, last = 0.0, 1.0
    for at, to, low, high in ((start[0], end[0], box.left, box.right), (start[1], end[1], box.top, box.bottom)):
        if at == to:
            if not low < at < high:
                return False
            continue
        near, far = sorted(((low - at) / (to - at), (high - at) / (to - at)))
        first, last = max(first, near), min(last, far)
    return first < last


def _segments(drawing: Element) -> list[_Segment]:
    return [((x + start[0], y + start[1]), (x + end[0], y + end[1]))
            for element, x, y, _ in _walk(drawing) for start, end in _lines(element)]


def text_faults(drawing: Element, *, font_size: float = 16.0, margin: float = 1.0) -> list[str]:
    """One sentence for each text that does not stay where it belongs; none for a good drawing.

    A text whose middle lies in a box belongs to the smallest such box and keeps ``margin`` units from its sides. Other texts
    cross no border of a box. No text lies on a line or on another text. ``font_size`` is what the page around the drawing declares.
    """
    _, _, width, height = map(float, drawing.get("viewBox", "").split())
    frame, boxes = Box(0, 0, width, height), []
    for element, x, y, _ in _walk(drawing):
        if element.tag.rpartition("}")[2] == "rect" and not element.get("width", "").endswith("%"):
            left, top = x + float(element.get("x", "0")), y + float(element.get("y", "0"))
            wide, high = float(element.get("width", "0")), float(element.get("height", "0"))
            if wide < _BACKGROUND * width or high < _BACKGROUND * height:
                boxes.append(Box(left, top, left + wide, top + high))
    texts, segments, faults = _texts(drawing, font_size), _segments(drawing), []
    for number, text in enumerate(texts):
        middle = Box(*[(text.box.left + text.box.right) / 2, (text.box.top + text.box.bottom) / 2] * 2)
        around = [box for box in boxes if box.holds(middle)]
        if not frame.holds(text.box):
            faults.append(f"{text.text!r} leaves the frame")
        if around:
            home = min(around, key=lambda box: (box.right - box.left) * (box.bottom - box.top))
            if not home.holds(text.box, margin):
                faults.append(f"{text.text!r} leaves its box")
        for box in boxes:
            if box not in around and box.touches(text.box):
                faults.append(f"{text.text!r} crosses the border of a box")
                break
        if any(_crosses(text.box, *segment) for segment in segments):
            faults.append(f"{text.text!r} lies on a line")
        for other in texts[:number]:
            if other.box.touches(text.box):
                faults.append(f"{text.text!r} lies on {other.text!r}")
    return faults
