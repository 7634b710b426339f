"""``report.html`` of a build: use of the device by engine, clock, slowest paths, time; one self-contained page."""

import html
from collections.abc import Mapping

from gradloom.boards.build_report import BuildReport, CriticalPath
from gradloom.boards.capacity import least_use
from gradloom.host.runs.page_parts import PAGE_WIDTH, Bar, colour_key, stacked_bars, table
from gradloom.host.runs.report import STYLE, svg

__all__ = ["by_engine", "engine_of", "render_build"]

_ENGINES = (
    ("machine.core.ccore", "C-Core", "#d9652b"), ("machine.core.acore", "A-Core", "#2f7f79"),
    ("machine.core.loader", "Loader", "#7a8fa6"), ("machine.core.storer", "Storer", "#b9a44c"),
    ("machine.core.read_manager", "AXI managers", "#8d6a9f"), ("machine.core.write_manager", "AXI managers", "#8d6a9f"),
    ("machine.core", "Sequencer", "#6a6f75"), ("machine", "registers", "#a9a29a"), ("link", "link", "#4f7cac"),
    ("memory", "board memory", "#7fb2a8"), ("arbiter", "board memory", "#7fb2a8"),
    ("", "board", "#c08497"),
)
"""Prefix of the parts' names, engine and colour; the first that fits."""
_KINDS = {"TRELLIS_COMB": "LUTs (TRELLIS_COMB)", "TRELLIS_FF": "flip-flops", "DP16KD": "block RAM", "MULT18X18D": "multipliers"}


def engine_of(part: str) -> tuple[str, str]:
    """Engine and colour of a part of the design."""
    part = part.removeprefix("design.")
    return next((name, colour) for prefix, name, colour in _ENGINES if part.startswith(prefix))


def by_engine(modules: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Cells of the device that each engine takes at least, by kind (:func:`~gradloom.boards.capacity.least_use`)."""
    found: dict[str, dict[str, int]] = {name: {} for _, name, _ in _ENGINES}
    for part, cells in modules.items():
        totals = found[engine_of(part)[0]]
        for kind, count in least_use(cells).items():
            totals[kind] = totals.get(kind, 0) + count
    return {name: totals for name, totals in found.items() if totals}


def _use(report: BuildReport) -> str:
    engines = by_engine(report.modules)
    colours = {name: colour for _, name, colour in _ENGINES}
    rows: list[Bar] = []
    for kind, title in _KINDS.items():
        if kind not in report.use:
            continue
        used, available = report.use[kind]
        parts = [(name, totals.get(kind, 0) / available, colours[name]) for name, totals in engines.items()]
        rest = used / available - sum(share for _, share, _ in parts)
        if rest > 0:
            parts.append(("added when placed", rest, "#e4e0d8"))
        rows.append((title, parts, f"{used:,} of {available:,} = {used / available:.0%}"))
    bars = stacked_bars(rows, "use of the device by engine", lambda share: f"{share:.1%}", texts=180, full=1.0)
    keys = colour_key((name, colours[name]) for name in engines)
    heads = ("engine (synthesised)", *(title for title in _KINDS.values()))
    counts = table(heads, [(name, *(f"{totals.get(kind, 0):,}" for kind in _KINDS)) for name, totals in engines.items()])
    return f"<h2>Use of the device</h2>{bars}<p class=note>{keys}</p>{counts}"


def _slack(report: BuildReport) -> str:
    if not report.slack:
        return ""
    low, high = report.slack[0][0], report.slack[-1][1]
    top = max(count for _, _, count in report.slack) or 1
    height, left = 180, 50
    body = ""
    for first, last, count in report.slack:
        x = left + (PAGE_WIDTH - left - 20) * (first - low) / (high - low)
        width = (PAGE_WIDTH - left - 20) * (last - first) / (high - low) - 1
        tall = (height - 50) * count / top
        colour = "#c0392b" if last <= 0 else "#2f7f79"
        body += (f'<rect x="{x:.1f}" y="{height - 34 - tall:.1f}" width="{width:.1f}" height="{tall:.1f}" fill="{colour}">'
                 f"<title>{first / 1000:.1f} to {last / 1000:.1f} ns: about {count:,}</title></rect>")
    for first, _, _ in report.slack[::5]:
        x = left + (PAGE_WIDTH - left - 20) * (first - low) / (high - low)
        body += f'<text x="{x:.1f}" y="{height - 18}" text-anchor="middle">{first / 1000:.1f}</text>'
    body += (f'<text x="{left - 6}" y="{24}" text-anchor="end">{top:,}</text>'
             f'<text x="{PAGE_WIDTH - 16}" y="{height - 4}" text-anchor="end">ns left of the period, by end point</text>')
    return f"<h2>Slack</h2>{svg(body, 'end points by slack', height)}"


def _part(cell: str) -> str:
    parts = cell.split(".")
    return ".".join(parts[:-1][:4]) or parts[0]


def _path(path: CriticalPath, title: str) -> str:
    """The path's way through the design: each part with its cells and times."""
    stretches: list[tuple[str, int, float, float]] = []
    for hop in path.hops:
        part = _part(hop.cell)
        if stretches and stretches[-1][0] == part:
            _, cells, logic, routing = stretches[-1]
            stretches[-1] = (part, cells + 1, logic + hop.logic_ns, routing + hop.routing_ns)
        else:
            stretches.append((part, 1, hop.logic_ns, hop.routing_ns))
    rows = [(part, str(cells), f"{logic:.2f}", f"{routing:.2f}") for part, cells, logic, routing in stretches]
    rows.append(("all", str(len(path.hops)), f"{path.ns * (1 - path.routing_share):.2f}", f"{path.ns * path.routing_share:.2f}"))
    return (f"<h3>{html.escape(title)}: {path.ns:.2f} ns</h3><p class=note>from {html.escape(path.hops[0].cell)} to "
            f"{html.escape(path.hops[-1].cell)}</p>{table(('part', 'cells', 'logic, ns', 'routing, ns'), rows)}")


def _ends(report: BuildReport) -> str:
    """Registers that are reached latest, and the way there."""
    if not report.ends:
        return ""

    def short(name: str) -> str:
        return name.removeprefix("design.").removeprefix("machine.").removeprefix("core.")

    rows = [(short(end.name), str(end.count), f"{end.ns:.2f}", f"{end.routing_ns:.2f}",
             " > ".join(short(name) for name in end.through)) for end in report.ends]
    return (f"<h2>Registers that are reached latest</h2><p class=note>Static timing of all wires and cells; registers of one name "
            f"together.</p>{table(('registers', 'inputs', 'latest, ns', 'wires, ns', 'from, through'), rows)}")


def _clock_name(text: str) -> str:
    return text.replace("posedge ", "").replace("$glbnet$", "").replace("<async>", "pads")


def render_build(report: BuildReport) -> str:
    """The page."""
    verdict = "reached" if report.reached else "<b>not reached</b>"
    facts = [("board", report.board), ("machine", f"{report.machine.name} (CONFIG 0x{report.machine.digest():08x})"),
             ("memory", report.memory),
             ("clock asked for", f"{report.clock_mhz:g} MHz"), ("clock reached", f"{report.reached_mhz:.2f} MHz (routed)"),
             ("seed", str(report.seed)), ("build", report.build), ("tools", ", ".join(report.versions))]
    paths = "".join(_path(path, f"{_clock_name(path.begin)} to {_clock_name(path.end)}") for path in report.paths[:4] if path.hops)
    times = table(("stage", "seconds"), [(stage, f"{seconds:,.0f}") for stage, seconds in report.seconds.items()])
    files = table(("file", "SHA-256"), list(report.files.items()))
    commands = "\n".join(report.commands)
    title = html.escape(f"{report.machine.name} on {report.board}")
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
            f"<style>{STYLE}pre{{overflow-x:auto;font-size:.8rem}}</style><h1>{title}</h1>"
            f"<p class=note>Clock of {report.clock_mhz:g} MHz {verdict}; every figure is <i>routed</i> unless it says otherwise, "
            f"and nothing was tried on hardware.</p>{table(('build', ''), facts)}{_use(report)}{_slack(report)}"
            f"<h2>Slowest paths</h2>{paths}{_ends(report)}<h2>Time</h2>{times}<h2>Files</h2>{files}<h2>Commands</h2>"
            f"<pre>{html.escape(commands)}</pre></html>\n")
