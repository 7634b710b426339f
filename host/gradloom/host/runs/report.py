"""``report.html`` of a run: one self-contained page; training curve, cycles by layer and phase, use of the array.

``report.svg`` holds its drawings alone, for a README or a talk.
"""

import dataclasses
import html
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["ENGINES", "STYLE", "number", "picture", "render", "svg"]

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 34
ENGINES = (
    ("load", "Loader", "#7a8fa6"),
    ("ccore", "C-Core", "#d9652b"),
    ("acore", "A-Core", "#2f7f79"),
    ("store", "Storer", "#b9a44c"),
    ("load1", "Loader 1", "#8fa3ba"),
    ("load2", "Loader 2", "#a5b7cc"),
    ("load3", "Loader 3", "#bccbde"),
    ("store1", "Storer 1", "#cdbb6c"),
)
"""Name in the records, title and colour. A machine has the first four and, with more DMA channels, some of the others."""
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#20262c;background:#fbfaf7;max-width:800px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem} h2{font-size:1.1rem;margin:2rem 0 .5rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e4e0d8}
td:first-child,th:first-child{text-align:left} .note{color:#6a6f75;font-size:.9rem}
svg{width:100%;height:auto;background:#fff;border:1px solid #e4e0d8}
svg text{font:12px system-ui,sans-serif;fill:#4a5057}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em;vertical-align:-.05em}
"""


def _axis_ticks(top: float, count: int = 4) -> list[float]:
    if top <= 0:
        return [0.0, 1.0]
    step = 10.0 ** len(str(int(top))) / 1000
    for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if top / (step * factor) <= count:
            step *= factor
            break
    return [step * i for i in range(int(top / step) + 2)]


def number(value: float) -> str:
    """Three significant digits, with k and M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1e3:
        return f"{value / 1e3:.3g} k"
    return f"{value:.3g}"


def _curve(points: Sequence[tuple[float, float]], x_top: float, y_top: float, colour: str, dots: bool = False) -> str:
    span_x, span_y = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    place = [(_LEFT + span_x * x / x_top, _TOP + span_y * (1 - y / y_top)) for x, y in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in place)
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in place) if dots else ""
    return f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>{marks}'


def _frame(x_top: float, y_ticks: Sequence[float], x_label: str, y_format: str = "{}") -> str:
    span_x, span_y = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    parts = []
    for tick in y_ticks:
        y = _TOP + span_y * (1 - tick / y_ticks[-1])
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ece8e0"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{y_format.format(number(tick))}</text>'
        )
    for tick in _axis_ticks(x_top, 6):
        if tick <= x_top and tick == int(tick):
            x = _LEFT + span_x * tick / x_top
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{number(tick)}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">{html.escape(x_label)}</text>')
    return "".join(parts)


def svg(body: str, label: str, height: int = _HEIGHT) -> str:
    """A drawing of the page's width that a screen reader calls ``label``."""
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )


@dataclasses.dataclass(frozen=True)
class _Drawing:
    """One drawing of the page, ``height`` high; the key of its colours lies in it."""

    title: str
    body: str
    height: int = _HEIGHT

    def heading_and_svg(self) -> str:
        return f"<h2>{self.title}</h2>{svg(self.body, self.title.lower(), self.height)}"


_KEY_HEIGHT, _LETTER = 22, 7.4
"""Of a key's line, and the room of a letter of it: the widest of the common sans-serif fonts at 12 pixels."""


def _key(entries: Iterable[tuple[str, str]], y: float, x: float = _LEFT) -> str:
    """Squares of a colour, each with its name behind it, on one line."""
    body = ""
    for colour, name in entries:
        body += (f'<rect x="{x:.1f}" y="{y:.1f}" width="10" height="10" fill="{colour}"/>'
                 f'<text x="{x + 15:.1f}" y="{y + 9:.1f}">{name}</text>')
        x += 35 + _LETTER * len(name)
    return body


_SETS = (("train_accuracy", "#7a8fa6", "training images"), ("validation_accuracy", "#b0568a", "validation images"),
         ("test_accuracy", "#2f7f79", "test images"))
"""Key in the records, colour and name of images that an accuracy is of."""


def _training_drawings(run: dict[str, Any]) -> list[_Drawing]:
    steps = [(record["step"] + 1, record["loss"]) for record in run["steps"] if record.get("loss") is not None]
    if not steps:
        return []
    window = max(1, len(steps) // 60)
    smooth = [
        (steps[i][0], sum(y for _, y in steps[max(0, i - window) : i + 1]) / len(steps[max(0, i - window) : i + 1]))
        for i in range(len(steps))
    ]
    x_top = float(steps[-1][0])
    ticks = _axis_ticks(max(y for _, y in steps))
    found = [_Drawing("Loss per step", (
        _frame(x_top, ticks, "step")
        + _curve(steps, x_top, ticks[-1], "#e7c3ae")
        + _curve(smooth, x_top, ticks[-1], "#d9652b")
        + _key((("#e7c3ae", "each step"), ("#d9652b", f"mean of the last {window + 1} steps")), _HEIGHT - 12)))]
    epochs = run["epochs"]
    if epochs:
        x_top = float(len(epochs))
        body = _frame(x_top, [0, 20, 40, 60, 80, 100], "epoch", "{} %")
        sets = [entry for entry in _SETS if any(e.get(entry[0]) is not None for e in epochs)]
        for key, colour, _ in sets:
            body += _curve(
                [(e["epoch"] + 1, 100 * e[key]) for e in epochs if e.get(key) is not None], x_top, 100.0, colour, True
            )
        body += _key([(colour, name) for _, colour, name in sets], _HEIGHT - 12)
        found.append(_Drawing("Accuracy per epoch", body))
    return found


def _epochs(run: dict[str, Any]) -> str:
    epochs = run["epochs"]
    if not epochs:
        return ""
    # The test images' column stands there even if it is empty.
    sets = {key: name.removesuffix(" images") for key, _, name in _SETS
            if key == "test_accuracy" or any(e.get(key) is not None for e in epochs)}
    rows = "".join(
        f"<tr><td>{e['epoch'] + 1}</td>{''.join(f'<td>{_percent(e.get(key))}</td>' for key in sets)}"
        f"<td>{e.get('cycles') or 0:,}</td>"
        f"<td><code>{e['sha256'][:16]}</code></td></tr>"
        for e in epochs
    )
    heads = "".join(f"<th>{head}</th>" for head in ("epoch", *sets.values(), "cycles", "parameters (SHA-256)"))
    return f"<table><tr>{heads}</tr>{rows}</table>"


def _training(run: dict[str, Any]) -> str:
    drawings = _training_drawings(run)
    if not drawings:
        return "<p class=note>No training step was recorded.</p>"
    return "".join(drawing.heading_and_svg() for drawing in drawings) + _epochs(run)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def _engines(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [engine for engine in ENGINES if any(engine[0] in row["busy"] for row in rows)]


def _engine_table(cycles: dict[str, Any]) -> str:
    total, engines = cycles.get("total", 0), cycles.get("engines", {})
    rows = "".join(
        f"<tr><td>{name}</td><td>{engines[key]:,}</td><td>{100 * engines[key] / max(total, 1):.1f} %</td></tr>"
        for key, name, _ in ENGINES if key in engines
    )
    heads = f"<tr><th>engine</th><th>busy cycles</th><th>of {total:,} {cycles['kind']} cycles</th></tr>"
    return f"<table>{heads}{rows}</table>" if rows else ""


def _uncounted(run: dict[str, Any]) -> str:
    """What is said of a run whose cycles are not known by layer and phase."""
    counters, cycles = run["configuration"].get("counters", "all"), run.get("cycles")
    if cycles is None or counters == "all":
        return "<h2>Cycles</h2><p class=note>This device counts no cycles.</p>"
    return (f"<h2>Cycles</h2><p class=note>This machine was built with counters = {counters} and does not count "
            f"cycles by layer and phase: {cycles['total']:,} {cycles['kind']} cycles in all.</p>{_engine_table(cycles)}")


def _layer_rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    return (run.get("cycles") or {}).get("by_layer_phase") or []


def _cycles_drawing(rows: Sequence[dict[str, Any]]) -> _Drawing:
    present = _engines(rows)
    top = max(sum(row["busy"].get(key, 0) for key, _, _ in present) for row in rows) or 1
    label_width, bar_height = 150, 20
    body = _key([(colour, name) for _, name, colour in present], 8, label_width)
    for index, row in enumerate(rows):
        y, x = 6 + _KEY_HEIGHT + index * bar_height, float(label_width)
        name = html.escape(f"{row['layer']} {row['phase']}")
        body += f'<text x="{label_width - 8}" y="{y + 14}" text-anchor="end">{name}</text>'
        for key, name, colour in present:
            width = (_WIDTH - label_width - 70) * row["busy"].get(key, 0) / top
            body += (
                f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{bar_height - 5}" fill="{colour}">'
                f"<title>{name}: {row['busy'].get(key, 0):,} cycles busy</title></rect>"
            )
            x += width
        if row.get("use") is not None:
            body += f'<text x="{x + 6:.1f}" y="{y + 14}">{100 * row["use"]:.0f} %</text>'
    return _Drawing("Busy cycles by layer and phase", body, bar_height * len(rows) + _KEY_HEIGHT + 12)


def _cycles(run: dict[str, Any]) -> str:
    rows = _layer_rows(run)
    if not rows:
        return _uncounted(run)
    return (
        f"{_cycles_drawing(rows).heading_and_svg()}"
        f"<p class=note>Cycles of each engine, {run['cycles']['kind']}; they overlap, so they add up to more than the run's "
        f"length. At a bar's end: share of its busy cycles in which the C-Core took a window (all MACs work at once).</p>"
        f"{_engine_table(run['cycles'])}"
    )


def picture(run: dict[str, Any]) -> str:
    """The drawings of the page, one below the other, as one SVG, for the dictionary that ``run.json`` holds."""
    rows = _layer_rows(run)
    body, y = "", 0
    for drawing in (*_training_drawings(run), *([_cycles_drawing(rows)] if rows else [])):
        body += (f'<text x="8" y="{y + 20}" style="font:600 15px system-ui,sans-serif">{drawing.title}</text>'
                 f'<svg x="0" y="{y + 28}" width="{_WIDTH}" height="{drawing.height}">{drawing.body}</svg>')
        y += drawing.height + 44
    if not body:
        body, y = '<text x="8" y="20">No training step was recorded.</text>', 30
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img" '
            f'aria-label="{html.escape(run["network"]["name"])}: training and cycles">'
            f"<style>text{{font:12px system-ui,sans-serif;fill:#4a5057}}</style>"
            f'<rect width="100%" height="100%" fill="#fff"/>{body}</svg>\n')


def _data(data: dict[str, Any]) -> str:
    """Name, and what was done with the images."""
    found = [data["name"]]
    found += ["every channel normalised"] if data.get("channels") else []
    found += [f"moved at random ({data['augment']})"] if data.get("augment", "none") != "none" else []
    found += [f"{data['validation']} training images held out for validation"] if data.get("validation") else []
    return ", ".join(found)


def render(run: dict[str, Any]) -> str:
    """The page for the dictionary that ``run.json`` holds."""
    config = run["configuration"]
    facts = (
        ("network", run["network"]["name"]),
        ("configuration", f"{config['name']}, {run['macs']} MACs"),
        ("device", run["device"]),
        ("data", _data(run["data"])),
        ("batch", run["batch"]),
        ("seed", run["seed"]),
        ("steps", len(run["steps"])),
        ("learning rate", run["hyper"]["lr"]),
        ("momentum", run["hyper"]["momentum"]),
        ("number format", run["number_format"]),
        ("rounding", ", ".join(f"{key} {value}" for key, value in run["rounding"].items())),
    )
    table = "".join(f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>" for name, value in facts)
    title = f"{run['network']['name']} trained on {config['name']}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p class=note>Every step is a pure integer function of network, data, seed and step.</p>"
        f"{_training(run)}{_cycles(run)}<h2>Run</h2><table>{table}</table></html>\n"
    )
