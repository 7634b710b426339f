"""The picture of an exploration."""

import xml.etree.ElementTree as ElementTree

from gradloom.host.explore.explore_drawing import Mark, draw_front

MARKS = [Mark("large", 40_000, 900.0, "MACs", True), Mark("beaten", 41_000, 800.0, "bandwidth", False),
         Mark("small & cheap", 20_000, 100.0, "A-Core", True)]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(limit: float | None = 43_000.0) -> ElementTree.Element:
    return ElementTree.fromstring(draw_front(MARKS, title="net on board", subtitle="estimated", cost="LUTs", limit=limit))


def test_a_circle_for_each_point_and_each_limit():
    circles = drawn().findall(f"{SVG}circle")
    assert len(circles) == len(MARKS) + 3
    assert [circle.get("fill") == "#ffffff" for circle in circles[:3]] == [False, True, False]
    assert circles[0].find(f"{SVG}title").text == "large: 900.0 images/s, 40,000; limited by MACs"


def test_faster_is_higher_and_dearer_is_further_right():
    large, _, small = drawn().findall(f"{SVG}circle")[:3]
    assert float(large.get("cy")) < float(small.get("cy"))
    assert float(large.get("cx")) > float(small.get("cx"))


def test_the_line_joins_the_front_alone():
    _, line = drawn().findall(f"{SVG}polyline")
    assert len(line.get("points").split()) == 2


def test_the_limit_of_the_device():
    texts = [text.text for text in drawn().findall(f"{SVG}text")]
    assert "limit" in texts and "small & cheap" in texts and "beaten" not in texts
    assert "limit" not in [text.text for text in drawn(None).findall(f"{SVG}text")]


def test_names_do_not_cover_each_other():
    marks = [Mark(f"m{number}", 100.0, 50.0 + number / 100, "MACs", True) for number in range(3)]
    picture = ElementTree.fromstring(draw_front(marks, title="t", subtitle="s", cost="LUTs", limit=None))
    heights = sorted(float(text.get("y")) for text in picture.findall(f"{SVG}text") if (text.text or "").startswith("m"))
    assert heights[1] - heights[0] >= 16 and heights[2] - heights[1] >= 16
