"""``bench.html`` of a bench on a board: where the time of a start goes, what the engines do, one self-contained page."""

import html
from typing import Any

from gradloom.host.runs.page_parts import Bar, colour_key, stacked_bars, table
from gradloom.host.runs.report import ENGINES, STYLE

__all__ = ["render_board_bench"]

_PARTS = (("program's head", "#7fb2a8"), ("steps", "#d9652b"), ("cable, to the board", "#7a8fa6"), ("cable, back", "#a5b7cc"))


def _start(bench: dict[str, Any]) -> str:
    start, clock = bench["start"], bench["clock_mhz"] * 1e3
    moved = max(1, start["bytes_sent"] + start["bytes_received"])
    cable = 1e3 * start["cable_seconds"]
    times = (start["head_cycles"] / clock, start["steps"] * bench["total"]["cycles"] / clock, cable * start["bytes_sent"] / moved,
             cable * start["bytes_received"] / moved)
    named = [(name, value, colour) for (name, colour), value in zip(_PARTS, times, strict=True)]
    rows: list[Bar] = [("machine", named[:2], f"{sum(times[:2]):.2f} ms"), ("cable", named[2:], f"{sum(times[2:]):.2f} ms")]
    bars = stacked_bars(rows, "time of a start", lambda value: f"{value:.2f} ms", names=100)
    return (f"<h2>A start of {start['steps']} steps</h2>{bars}<p class=note>{colour_key(_PARTS)}</p><p class=note>Machine: "
            f"{bench['kind']}, at {bench['clock_mhz']:g} MHz. Cable: computed from its bytes, ten bits each. What overlaps is not "
            f"taken off.</p>")


def _engines(bench: dict[str, Any]) -> str:
    busy, cycles = bench["total"]["busy"], bench["total"]["cycles"]
    rows: list[Bar] = [(name, [(name, busy[key] / cycles, colour)], f"{busy[key]:,} cycles, {busy[key] / cycles:.1%}")
                       for key, name, colour in ENGINES if key in busy]
    if not rows:
        return "<h2>Engines</h2><p class=note>This machine was built without counters.</p>"
    bars = stacked_bars(rows, "share of a step in which an engine is busy", lambda share: f"{share:.1%}", names=100, texts=180,
                        full=1.0)
    return f"<h2>Engines</h2>{bars}<p class=note>Busy cycles of a step, {bench['kind']}; the line is the whole step.</p>"


def render_board_bench(bench: dict[str, Any]) -> str:
    """The page for the dictionary that ``bench.json`` holds."""
    kind, total, start, guess = bench["kind"], bench["total"], bench["start"], bench["estimated"]
    moved = f"{total['read_bytes']:,}, {total['written_bytes']:,}" if total["busy"] else "not counted"
    rows = [
        ("cycles of a step", f"{total['cycles']:,}", kind),
        ("cost model's", f"{guess['cycles']:,} ({guess['error']:+.1%})", "estimated"),
        (f"images/s in the machine, at {bench['clock_mhz']:g} MHz", f"{total['images_per_second']:,.1f}", kind),
        ("DRAM bytes read, written in a step", moved, kind),
        ("bytes of the cable, there and back", f"{start['bytes_sent']:,}, {start['bytes_received']:,}", kind),
        ("round trips of a start", str(start["round_trips"]), kind),
    ]
    if start["seconds"] is not None:
        rows.append(("images/s with the cable, by the clock", f"{start['steps'] * bench['batch'] / start['seconds']:,.1f}", kind))
    checked = bench["check"]
    facts = [("network", bench["network"]["name"]), ("machine", f"{bench['configuration']['name']}, {bench['macs']} MACs"),
             ("device", bench["device"]), ("images a step", str(bench["batch"])), ("data", bench["data"]),
             ("check", f"equal to the golden model: {checked['tensors']:,} tensors, {checked['bytes']:,} bytes" if checked["steps"]
              else "none (--check off)"), ("parameters", bench["parameters"][:16])]
    title = html.escape(f"{bench['network']['name']} on {bench['device']}")
    return (f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
            f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{table(('one training step', 'value', 'kind'), rows)}"
            f"{_start(bench)}{_engines(bench)}<h2>Run</h2>{table(('', ''), facts)}</html>\n")
