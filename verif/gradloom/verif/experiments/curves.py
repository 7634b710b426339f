"""Curves of training runs as SVG: the mean over the seeds, a band from the least to the largest."""

import html
from collections.abc import Mapping, Sequence

__all__ = ["COLOURS", "draw"]

Series = Sequence[tuple[float, Sequence[float]]]
"""(x, the values of every seed)."""

COLOURS = ("#1b6ca8", "#c8553d", "#2a9d5c", "#8a5fbf", "#d19a1f", "#4a5057", "#0f8b8d", "#b0457b")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 740, 352, 52, 210, 26, 40


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers that enclose low..high."""
    span = max(high - low, 1e-9)
    step = 10.0 ** int(f"{span:e}".partition("e")[2])
    step = next(step * factor for factor in (0.1, 0.2, 0.5, 1, 2) if span / (step * factor) <= 6)
    first = int(low / step // 1)
    return [step * n for n in range(first, first + 10) if step * (n - 1) < high]


def draw(series: Mapping[str, Series], x_label: str, y_label: str, numbers: Mapping[str, int] | None = None) -> str:
    """One drawing with a key on the right; ``series`` by title, ``numbers`` are those of their colours (default: in order)."""
    values = [value for points in series.values() for _, found in points for value in found]
    ticks = _ticks(min(values), max(values))
    xs = [x for points in series.values() for x, _ in points]
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1e-9)

    def place(x: float, y: float) -> str:
        across = (x - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)
        up = (y - ticks[0]) / (ticks[-1] - ticks[0]) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{_LEFT + across:.1f},{_HEIGHT - _BOTTOM - up:.1f}"

    parts = []
    for tick in ticks:
        y = float(place(x_low, tick).split(",")[1])
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#ece8e0"/>'
                     f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    for x in (tick for tick in _ticks(x_low, x_high) if x_low <= tick <= x_high and tick == int(tick)):
        parts.append(f'<text x="{place(x, ticks[0]).split(",")[0]}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    for number, (title, points) in enumerate(series.items()):
        colour = COLOURS[(numbers or {}).get(title, number) % len(COLOURS)]
        edge = [place(x, max(found)) for x, found in points] + [place(x, min(found)) for x, found in reversed(points)]
        line = [place(x, sum(found) / len(found)) for x, found in points]
        parts.append(f'<polygon points="{" ".join(edge)}" fill="{colour}" fill-opacity="0.10"/>'
                     f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        y = _TOP + 14 + 20 * number
        parts.append(f'<line x1="{_WIDTH - _RIGHT + 14}" x2="{_WIDTH - _RIGHT + 36}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" '
                     f'stroke-width="3"/><text x="{_WIDTH - _RIGHT + 42}" y="{y}">{html.escape(title)}</text>')
    labels = (f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{html.escape(x_label)}</text>'
              f'<text x="{_LEFT}" y="{_TOP - 12}">{html.escape(y_label)}</text>')
    style = "<style>text{font:12px system-ui,sans-serif;fill:#4a5057}</style><rect width='100%' height='100%' fill='#fff'/>"
    return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(y_label)} by {html.escape(x_label)}" '
            f'xmlns="http://www.w3.org/2000/svg">{style}{"".join(parts)}{labels}</svg>\n')
