"""A picture of an exploration: images a second against what they cost, the points that no other beats joined by a line."""

import html
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Mark", "draw_front"]

_WIDTH, _HEIGHT = 900, 480
_LEFT, _RIGHT, _TOP, _FOOT = 84, 170, 88, 62
_TICKS = 8
_COLOURS = {"MACs": "#2f7f79", "bandwidth": "#5b8fc7", "A-Core": "#4f7a2e", "order of commands": "#8a6bb0", "host": "#a07a5a",
            "bandwidth exceeded": "#b0568a"}
"""By what limits a point; those of ``gradloom bench --draw`` where both have one."""
_OTHER = "#5b6670"
_LETTER = 6.6
"""Width of a letter of a name, at 11 pixels."""
_NEAR = 16
"""Pixels within which two names would cover each other."""


class Mark(NamedTuple):
    """A point: its name, what it costs, images a second, what limits it, and whether no other beats it."""

    name: str
    cost: float
    rate: float
    limit: str
    best: bool


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{html.escape(text)}</text>'


def _ticks(most: float) -> Iterator[float]:
    """Round values from 0, :data:`_TICKS` of them at most."""
    step = next(digit * 10.0**power for power in itertools.count(-3) for digit in (1, 2, 5)
                if most / (digit * 10.0**power) <= _TICKS)
    return (number * step for number in range(int(most / step) + 1))


def draw_front(marks: Sequence[Mark], *, title: str, subtitle: str, cost: str, limit: float | None) -> str:
    """An SVG drawing.

    Parameters
    ----------
    cost : :class:`str`
        What the points cost: LUTs or DSP slices.
    limit : :class:`float`, optional
        What a device has of it for the design; a line.
    """
    most_cost = 1.08 * max([mark.cost for mark in marks] + ([limit] if limit is not None and limit < 2 * max(
        mark.cost for mark in marks) else []))
    most_rate = 1.1 * max(mark.rate for mark in marks)

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / most_cost

    def y(value: float) -> float:
        return _HEIGHT - _FOOT - (_HEIGHT - _TOP - _FOOT) * value / most_rate

    body = _text(16, 26, title, ' font-size="15" font-weight="600"') + _text(16, 46, subtitle)
    bottom = _HEIGHT - _FOOT
    body += f'<polyline points="{_LEFT},{_TOP} {_LEFT},{bottom} {_WIDTH - _RIGHT},{bottom}" fill="none" stroke="#9aa4ad"/>'
    for value in _ticks(most_cost):
        body += f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="#9aa4ad"/>'
        body += _text(x(value), bottom + 20, f"{value:,g}", ' text-anchor="middle" fill="#5b6670"')
    for value in _ticks(most_rate):
        body += f'<line x1="{_LEFT - 5}" x2="{_LEFT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#9aa4ad"/>'
        body += _text(_LEFT - 10, y(value) + 4, f"{value:,g}", ' text-anchor="end" fill="#5b6670"')
    body += _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 16, cost, ' text-anchor="middle"')
    body += _text(16, _TOP - 10, "images/s")
    if limit is not None and limit <= most_cost:
        body += (f'<line x1="{x(limit):.1f}" x2="{x(limit):.1f}" y1="{_TOP}" y2="{_HEIGHT - _FOOT}" stroke="#b0568a" '
                 'stroke-dasharray="5 4"/>')
        body += _text(x(limit) + 6, _TOP + 12, "limit", ' fill="#b0568a"')
    line = sorted((mark for mark in marks if mark.best), key=lambda mark: mark.cost)
    path = " ".join(f"{x(mark.cost):.1f},{y(mark.rate):.1f}" for mark in line)
    body += f'<polyline points="{path}" fill="none" stroke="#9aa4ad" stroke-width="1.5"/>'
    body += "".join(_mark(mark, x(mark.cost), y(mark.rate)) for mark in marks)
    body += "".join(_names([(mark, x(mark.cost), y(mark.rate)) for mark in line]))
    body += _key(dict.fromkeys(mark.limit for mark in marks))
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{html.escape(title)}" '
            f'font-family="sans-serif" font-size="11" fill="#20262c"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
            f"{body}</svg>\n")


def _mark(mark: Mark, x: float, y: float) -> str:
    colour = _COLOURS.get(mark.limit, _OTHER)
    fill = colour if mark.best else "#ffffff"
    tip = f"{mark.name}: {mark.rate:,.1f} images/s, {mark.cost:,.0f}; limited by {mark.limit}"
    return (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2">'
            f"<title>{html.escape(tip)}</title></circle>")


def _names(places: Sequence[tuple[Mark, float, float]]) -> Iterator[str]:
    """Names of the points of the front, above the line that joins them: left of a point, or near the axis right of it and below. A
    name that would cover the one above it moves down."""
    last = float("-inf")
    for mark, x, y in sorted(places, key=lambda place: place[2]):
        left = x - 8 - _LETTER * len(mark.name) > _LEFT + 4
        at = max(y - 6 if left else y + 14, last + _NEAR)
        last = at
        yield _text(x - 8, at, mark.name, ' text-anchor="end"') if left else _text(x + 8, at, mark.name)


def _key(limits: dict[str, None]) -> str:
    """A circle of each colour with what limits points of it."""
    x, body = _WIDTH - _RIGHT + 22, ""
    body += _text(x, _HEIGHT - _FOOT - 14 - 18 * len(limits), "limited by", ' fill="#5b6670"')
    for number, limit in enumerate(limits):
        y = _HEIGHT - _FOOT - 18 * (len(limits) - number) + 6
        body += f'<circle cx="{x + 4}" cy="{y - 4}" r="5" fill="{_COLOURS.get(limit, _OTHER)}"/>' + _text(x + 15, y, limit)
    return body
