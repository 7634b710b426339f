"""Parts that pages of results share: tables, keys of colours, stacked bars."""

import html
from collections.abc import Callable, Iterable, Sequence

from gradloom.host.runs.report import svg

__all__ = ["PAGE_WIDTH", "Bar", "colour_key", "stacked_bars", "table"]

PAGE_WIDTH = 720
"""Units of the drawings' width (:func:`gradloom.host.runs.report.svg`)."""
_BAR = 18

Bar = tuple[str, Sequence[tuple[str, float, str]], str]
"""Name of a row, its parts (name, value, colour), and the text at its end."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def colour_key(colours: Iterable[tuple[str, str]]) -> str:
    """What colours stand for: (name, colour)."""
    return "".join(f'<span class=key style="background:{colour}"></span>{html.escape(name)}' for name, colour in colours)


def stacked_bars(rows: Sequence[Bar], label: str, tip: Callable[[float], str], *, names: int = 160, texts: int = 130,
                 full: float | None = None) -> str:
    """Horizontal stacked bars.

    Parameters
    ----------
    tip : callable
        What a part tells of its value.
    names, texts : :class:`int`
        Room for the names, and for the texts behind the bars.
    full : :class:`float`, optional
        What is the whole width, with a line there and the texts behind it; else that of the longest bar.
    """
    longest = max((sum(value for _, value, _ in parts) for _, parts, _ in rows), default=0) or 1
    span, top = PAGE_WIDTH - names - texts, longest if full is None else full
    body = "" if full is None else (
        f'<line x1="{names + span}" x2="{names + span}" y1="0" y2="{_BAR * len(rows) + 8}" stroke="#20262c"/>')
    for index, (name, parts, text) in enumerate(rows):
        y, x = 6 + index * _BAR, float(names)
        body += f'<text x="{names - 8}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>'
        for part, value, colour in parts:
            width = span * max(0.0, value) / top
            if width:
                body += (f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{_BAR - 4}" fill="{colour}">'
                         f"<title>{html.escape(part)}: {html.escape(tip(value))}</title></rect>")
            x += width
        body += f'<text x="{(x if full is None else names + span) + 6:.1f}" y="{y + 13}">{html.escape(text)}</text>'
    return svg(body, label, _BAR * len(rows) + 12)
