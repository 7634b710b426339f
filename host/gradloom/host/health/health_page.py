"""``health.html``: how the numbers of training steps sit in PINT, one bar for every tensor."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from gradloom.host.health.health_measure import CLASSES, TITLES, Health
from gradloom.host.runs.page_parts import Bar, colour_key, stacked_bars, table
from gradloom.host.runs.report import STYLE

__all__ = ["render_health", "worst"]

_COLOURS = ("#d8d4cc", "#2f7f79", "#8fb6a8", "#d9b44a", "#c0392b")
_NOTE = """\
A PINT(8, 3) element is a whole number from -4096 to 4032 times 2 to the power of its tensor's exponent. Steps are 1 up to 8, 8 up
to 512, and 64 beyond: the coarse segment. A tensor that is mostly zero has lost what was small; one whose elements sit at the ends
of the range has lost what was large. Both follow from its exponent, which goes by the largest magnitude of the step before."""


def worst(found: Sequence[Health], name: str, count: int = 3) -> list[Health]:
    """The tensors with the largest share of a class, those without any left out."""
    ranked = sorted(found, key=lambda health: -health.share(name))
    return [health for health in ranked[:count] if health.share(name) > 0]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share >= 5e-5 or share == 0 else "<0.01 %"


def _bar(health: Health) -> Bar:
    parts = [(name, health.share(name), colour) for name, colour in zip(CLASSES, _COLOURS, strict=True)]
    text = f"2^{health.exponent}, {_percent(health.share('zero'))} zero"
    if health.share("saturated"):
        text += f", {_percent(health.share('saturated'))} saturated"
    return health.layer, parts, text


def _row(health: Health) -> tuple[str, ...]:
    shares = health.counts / health.counts.sum(axis=1, keepdims=True)
    spread = [f"{_percent(column.min())} to {_percent(column.max())}" if len(column) > 1 else _percent(column[0])
              for column in (shares[:, CLASSES.index("zero")], shares[:, CLASSES.index("saturated")])]
    return (health.layer, health.tensor, f"{int(health.counts[0].sum()):,}", str(health.exponent),
            *(_percent(health.share(name)) for name in CLASSES[1:-1]), *spread)


def render_health(record: Mapping[str, Any]) -> str:
    """The page for the dictionary that ``health.json`` holds."""
    found = [Health.from_record(entry) for entry in record["tensors"]]
    title = f"Numbers of {record['network']} in training"
    body = ""
    for tensor, name in TITLES.items():
        rows = [_bar(health) for health in found if health.tensor == tensor]
        if rows:
            body += f"<h2>{html.escape(name[0].upper() + name[1:])}</h2>" + stacked_bars(
                rows, f"classes of elements, {name}", _percent, names=100, texts=230, full=1.0)
    facts = [("steps", f"{record['steps']} of {record['batch']} images, {record['begins']}"), ("data", record["data"]),
             ("device", record["device"]), ("seed", str(record["seed"]))]
    heads = ("layer", "tensor", "elements", "exponent", *CLASSES[1:-1], "zero, by step", "saturated, by step")
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1><p class=note>{_NOTE}</p>"
        f"<p>{colour_key(zip(CLASSES, _COLOURS, strict=True))}</p>{body}"
        f"<h2>All tensors</h2>{table(heads, map(_row, found))}<h2>Run</h2>{table(('', ''), facts)}</html>\n"
    )
