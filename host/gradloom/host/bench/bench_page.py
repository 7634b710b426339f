"""``bench.html``: one self-contained page with the figures of ``bench.json`` as tables and SVG charts."""

import html
import math
from collections.abc import Callable, Sequence
from typing import Any

from gradloom.host.bench.bench_record import ETA_TARGET, LOSSES
from gradloom.host.cost_model.workload import PURPOSES
from gradloom.host.runs.page_parts import PAGE_WIDTH, colour_key, stacked_bars, table
from gradloom.host.runs.report import ENGINES, STYLE, number, svg

__all__ = ["render_bench"]

_CALC = "#d9652b"
_COLOURS = dict(zip(PURPOSES, ("#4f7cac", "#7fb2a8", "#b9a44c", "#8d6a9f", "#c08497", "#6a6f75", "#a9a29a"), strict=True))
_LOSS_TEXT = {"mapping": "MACs without a useful operand", "pipeline": "fill and drain of CONV commands", "load": "Loader",
              "acore": "A-Core", "store": "Storer", "sequencer": "Sequencer"}
_LOSS_COLOURS = {"mapping": "#e8b48f", "pipeline": "#f1d9c4", "load": "#7a8fa6", "acore": "#2f7f79", "store": "#b9a44c",
                 "sequencer": "#b7b2aa"}
_FIGURES = (("FP", ("FP",)), ("BP", ("BP", "norm BP")), ("WG", ("WG + WU",)))


def _cycles(value: float) -> str:
    return f"{value:,.0f} cycles"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _summary(bench: dict[str, Any]) -> str:
    total, kind = bench["total"], bench["kind"]
    rows = [
        ("cycles of a step", f"{total['cycles']:,}", kind),
        ("useful MACs", f"{total['useful_macs']:,}", "counted"),
        ("PE use", _percent(total["pe_use"]), kind),
        (f"images a second at {bench['clock_mhz']:g} MHz", f"{total['images_per_second']:,.1f}", kind),
        ("GOPS, useful operations only", f"{total['gops']:.2f}", kind),
        ("GOPS with the zeros that stride 2 would insert", f"{total['gops_with_inserted_zeros']:.2f}", kind),
        ("peak GOPS", f"{total['peak_gops']:.1f}", "counted"),
        ("DRAM bytes read, written", f"{total['read_bytes']:,}, {total['written_bytes']:,}", kind),
        ("DRAM bytes a cycle", f"{total['bytes_per_cycle']:.2f} of {total['peak_bytes_per_cycle']:g}", kind),
    ]
    return table(("one training step", "value", "kind"), rows)


def _published(bench: dict[str, Any]) -> str:
    paper = bench["published"]
    if paper is None:
        return ""
    total = bench["total"]
    ours = "gops_with_inserted_zeros" if paper["zeros_counted"] else "gops"
    images = paper["images_per_second"]
    rows = [
        ("PE use", _percent(total["pe_use"]), _percent(paper["pe_use"])),
        (f"GOPS{' with inserted zeros' if paper['zeros_counted'] else ''}", f"{total[ours]:.2f}", f"{paper['gops']:.2f}"),
        ("images a second", f"{total['images_per_second']:,.1f}", "not given" if images is None else f"{images:,.1f}"),
        ("MACs, clock", f"{bench['macs']}, {bench['clock_mhz']:g} MHz", "1728, 200 MHz"),
    ]
    heads = ("", f"here ({bench['kind']})", f"ETA, {paper['network']}")
    return (f"<h2>Beside the ETA paper</h2>{table(heads, rows)}<p class=note>ETA: table III and section V-B of Lu, Ni and Wang, "
            "latency simulated by its authors with 29.9 GB/s; the batch size is not given.</p>")


def _stack(entries: Sequence[dict[str, Any]]) -> list[tuple[str, float, str]]:
    calc = sum(entry["busy"]["ccore"] for entry in entries)
    parts = [("Calc", calc, _CALC)]
    for key in PURPOSES:
        parts.append((key, sum(entry["transfer_cycles"][key] for entry in entries), _COLOURS[key]))
    return parts


def _breakdown(bench: dict[str, Any]) -> str:
    text = "<h2>Latency breakdown by layer and phase</h2>"
    for title, phases in _FIGURES:
        rows = []
        for layer in dict.fromkeys(entry["layer"] for entry in bench["layers"]):
            entries = [entry for entry in bench["layers"] if entry["layer"] == layer and entry["phase"] in phases]
            if entries and layer:
                span = sum(entry["span_cycles"] for entry in entries)
                rows.append((layer, _stack(entries), f"span {span:,}" if span else ""))
        if rows:
            text += f"<h3>{title}</h3>{stacked_bars(rows, f'latency breakdown, {title}', _cycles)}"
    return text + (
        f"<p class=note>{colour_key([('Calc', _CALC), *_COLOURS.items()])}</p><p class=note>As figures 11 to 13 of the ETA paper: "
        "Calc is the time of the C-Core's commands, the rest that of the Loader's and Storer's commands by purpose. Engines "
        "overlap, so the parts of a bar may add up to more than its span on the array.</p>")


def _spans(bench: dict[str, Any]) -> str:
    rows = []
    for entry in bench["layers"]:
        if not entry["span_cycles"]:
            continue
        lost = entry["lost_cycles"]
        parts = [("useful", entry["span_cycles"] - sum(lost.values()), _CALC)]
        parts += [(_LOSS_TEXT[key], lost[key], _LOSS_COLOURS[key]) for key in LOSSES]
        rows.append((f"{entry['layer']} {entry['phase']}", parts, _percent(entry["pe_use"])))
    if not rows:
        return ""
    keys = [("useful", _CALC), *((_LOSS_TEXT[key], _LOSS_COLOURS[key]) for key in LOSSES)]
    return (f"<h2>What the array does in each phase</h2>{stacked_bars(rows, 'cycles of the array by layer and phase', _cycles)}"
            f"<p class=note>{colour_key(keys)}</p><p class=note>A phase's span runs from its first command on the array to the "
            "next phase's first. Percentages: useful MACs of MACs x span. Idle time counts for the engine that worked on what the "
            "array waited for.</p>")


def _below(bench: dict[str, Any]) -> str:
    rows = [(f"{entry['layer']} {entry['phase']}", _percent(entry["pe_use"]), f"{entry['lost_cycles']:,.0f}",
             f"{_LOSS_TEXT[entry['cause']]} ({entry['cause_cycles']:,.0f})") for entry in bench["below_target"]]
    title = f"Below {100 * ETA_TARGET:.0f} % of the array"
    if not rows:
        return f"<h2>{title}</h2><p class=note>No phase.</p>"
    return f"<h2>{title}</h2>{table(('layer and phase', 'PE use', 'cycles lost', 'most of them to'), rows)}"


def _roofline(bench: dict[str, Any]) -> str:
    """Log-log: useful operations per DRAM byte against operations per cycle of the span."""
    points = []
    for entry in bench["layers"]:
        moved = sum(entry["dram_bytes"].values())
        if entry["useful_macs"] and moved and entry["span_cycles"]:
            points.append((f"{entry['layer']} {entry['phase']}", 2 * entry["useful_macs"] / moved,
                           2 * entry["useful_macs"] / entry["span_cycles"]))
    total = bench["total"]
    moved = total["read_bytes"] + total["written_bytes"]
    if not points or not moved:
        return ""
    points.append(("whole step", 2 * total["useful_macs"] / moved, 2 * total["useful_macs"] / total["cycles"]))
    roof, slope = 2.0 * bench["macs"], total["peak_bytes_per_cycle"]
    left, height, bottom, top = 60, 300, 36, 12
    xs = [point[1] for point in points] + [roof / slope]
    low_x, high_x = 10 ** math.floor(math.log10(min(xs))), 10 ** math.ceil(math.log10(2 * max(xs)))
    low_y = 10 ** math.floor(math.log10(min(point[2] for point in points)))
    high_y = 10 ** math.ceil(math.log10(1.2 * roof))

    def place(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
        return lambda value: begin + (end - begin) * math.log(max(value, low) / low) / math.log(high / low)

    x, y = place(low_x, high_x, left, PAGE_WIDTH - 16), place(low_y, high_y, height - bottom, top)
    body = ""
    for low, high, axis in ((low_x, high_x, "x"), (low_y, high_y, "y")):
        for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
            value = 10.0**power
            if axis == "x":
                body += f'<text x="{x(value):.1f}" y="{height - 18}" text-anchor="middle">{value:g}</text>'
            else:
                body += (f'<line x1="{left}" x2="{PAGE_WIDTH - 16}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ece8e0"/>'
                         f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    ridge = roof / slope
    line = [(low_x, max(low_y, low_x * slope)), (ridge, roof), (high_x, roof)]
    if low_x * slope < low_y:
        line[0] = (low_y / slope, low_y)
    body += ('<polyline fill="none" stroke="#20262c" stroke-width="1.6" points="'
             + " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line) + '"/>')
    for name, intensity, speed in points:
        radius, colour = (6, "#20262c") if name == "whole step" else (4, _CALC)
        body += (f'<circle cx="{x(intensity):.1f}" cy="{y(speed):.1f}" r="{radius}" fill="{colour}">'
                 f"<title>{html.escape(name)}: {intensity:.1f} operations a byte, {speed:.1f} operations a cycle</title></circle>")
    body += f'<text x="{PAGE_WIDTH - 16}" y="{height - 4}" text-anchor="end">useful operations per DRAM byte</text>'
    return (f"<h2>Roofline</h2>{svg(body, 'roofline', height)}<p class=note>Useful operations (two a MAC) per cycle of a phase's "
            f"span; the line is what {bench['macs']} MACs and {slope:g} bytes a cycle allow. Black: the whole step.</p>")


def _engines(bench: dict[str, Any]) -> str:
    cycles = bench["total"]["cycles"]
    names = {key: name for key, name, _ in ENGINES}
    rows = []
    for key, engine in bench["engines"].items():
        waits = ", ".join(f"{names.get(cause, cause)} {number(value)}" for cause, value in engine["waits"].items())
        busy, wait = engine["busy"], engine["memory_wait"]
        rows.append((names.get(key, key), f"{engine['commands']:,}", f"{busy:,}", _percent(busy / cycles),
                     f"{wait:,}" if wait else "", waits))
    path = ", ".join(f"{names.get(key, key)} {_percent(value / cycles)}" for key, value in bench["critical_path"].items())
    heads = ("engine", "commands", "busy cycles", "of the step", "of them without a beat", "idle before a command, waiting for")
    return (f"<h2>Engines</h2>{table(heads, rows)}<p class=note>Chain of commands that fixes the length of the step: "
            f"{html.escape(path)}.</p>")


def _layers(bench: dict[str, Any]) -> str:
    rows = []
    for entry in bench["layers"]:
        busy = entry["busy"]
        moved = entry["dram_bytes"]
        rows.append((f"{entry['layer']} {entry['phase']}".strip(), f"{entry['span_cycles']:,}" if entry["span_cycles"] else "",
                     _percent(entry["pe_use"]) if entry["useful_macs"] else "", f"{entry['useful_macs']:,}",
                     " / ".join(f"{value:,}" for value in busy.values()),
                     f"{sum(v for k, v in moved.items() if k.startswith('Rd')):,}",
                     f"{sum(v for k, v in moved.items() if k.startswith('Wr')):,}"))
    busy_head = f"busy cycles {' / '.join(bench['engines'])}"
    heads = ("layer and phase", "span", "PE use", "useful MACs", busy_head, "bytes read", "written")
    return f"<h2>All phases</h2>{table(heads, rows)}"


def _compared(bench: dict[str, Any]) -> str:
    found = bench.get("compare")
    if not found:
        return ""
    rows = [(f"{row['layer']} {row['phase']}".strip(), *(f"{value:,}" for value in row["span_cycles"]), _percent(row["span_error"]))
            for row in found["layers"] if row["span_cycles"][0]]
    return (f"<h2>Cost model against RTL</h2><p class=note>Whole step: {_percent(found['cycles_error'])}.</p>"
            + table(("layer and phase", "simulated span", "estimated span", "error"), rows))


def _what_if(bench: dict[str, Any]) -> str:
    found = bench.get("what_if")
    if not found:
        return ""
    base = next(iter(found.values()))
    rows = [(name, [(name, cycles, _CALC)], f"{cycles:,} ({_percent(cycles / base - 1)})")
            for name, cycles in found.items()]
    bars = stacked_bars(rows, "cycles of a step if a part of the machine took no time", _cycles, names=210)
    return (f"<h2>If a part took no time</h2>{bars}<p class=note>Estimated: cycles of the step when the same program is replayed "
            "with the commands of one part after the other at next to no cycles, or with a memory without latency.</p>")


def render_bench(bench: dict[str, Any]) -> str:
    """The page for the dictionary that ``bench.json`` holds."""
    title = f"A training step of {bench['network']['name']} on {bench['configuration']['name']}"
    facts = [("machine", f"{bench['configuration']['name']}, {bench['macs']} MACs"), ("batch", str(bench["batch"])),
             ("step", bench["step"]), ("data", bench["data"]), ("memory", bench["memory_text"]), ("check", bench["check_text"])]
    if bench["simulation"]:
        facts.append(("simulation", f"{bench['simulation']['cycles']:,} cycles in {bench['simulation']['seconds']:.1f} s, "
                                    f"{bench['simulation']['cycles_per_second']:,.0f} cycles a second"))
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p class=note>Every figure of time here is {bench['kind']}; nothing was measured on a device.</p>{_summary(bench)}"
        f"{_published(bench)}{_spans(bench)}{_below(bench)}{_breakdown(bench)}{_roofline(bench)}{_engines(bench)}{_what_if(bench)}"
        f"{_compared(bench)}{_layers(bench)}<h2>Run</h2>{table(('', ''), facts)}</html>\n"
    )
