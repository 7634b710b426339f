"""docs/paper-scale.md: what the runs of :mod:`gradloom.verif.paper_scale` gave, beside ETA's figures, and where cycles go."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SMALL_PHASE", "curve_figure", "page", "phase_errors"]

SMALL_PHASE = 0.001
"""Share of the step below which the cost model's error of a layer's phase is not counted."""
_WORST = 12
"""Phases of each run that are listed with the cause of their loss."""
_WIDTH, _HEIGHT = 720, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 16, 40
_MEAN = 8
"""Steps of the curve's running mean."""


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(row) + " |" for row in rows), ""]


def phase_errors(bench: Mapping[str, Any]) -> list[tuple[str, int, int, float]]:
    """(layer and phase, simulated span, estimated span, relative error) of phases above :data:`SMALL_PHASE` of the step."""
    return [
        (f"{row['layer']} {row['phase']}", row["span_cycles"][0], row["span_cycles"][1], row["span_error"])
        for row in bench["compare"]["layers"] if row["span_cycles"][0] > SMALL_PHASE * bench["total"]["cycles"]
    ]


def _overview(benches: Mapping[str, dict[str, Any]]) -> list[str]:
    rows = []
    for bench in benches.values():
        total, paper = bench["total"], bench["published"] or {}
        same = bench["macs"] == 1728
        images = paper.get("images_per_second")
        rows.append((
            bench["network"]["name"], f"`{bench['configuration']['name']}`", str(bench["macs"]), str(bench["batch"]),
            "tuned" if bench.get("schedule") else "rules", f"{total['cycles']:,}",
            _percent(total["pe_use"]), _percent(paper.get("pe_use")) if same else "",
            f"{total['images_per_second']:,.1f}", f"{images:,.1f}" if images and same else "",
            f"{total['gops_with_inserted_zeros']:.0f}", f"{total['bytes_per_cycle']:.1f}", f"`{bench['parameters'][:16]}`",
            bench["revision"],
        ))
    heads = ("network", "machine", "MACs", "batch", "schedule", "cycles of a step", "PE use", "ETA's", "images/s at 200 MHz",
             "ETA's", "GOPS with inserted zeros", "DRAM bytes a cycle", "parameters (SHA-256)", "revision")
    return _table(heads, rows)


def _twice(benches: Mapping[str, dict[str, Any]]) -> list[str]:
    """``eta2x`` against ``eta``, where both have run a network and batch."""
    by_key = {(bench["network"]["name"], bench["batch"], bench["configuration"]["name"]): bench for bench in benches.values()}
    rows = []
    for (network, batch, machine), twice in by_key.items():
        once = by_key.get((network, batch, "eta"))
        if machine != "eta2x" or once is None:
            continue
        rows.append((
            network, str(batch), f"{once['total']['cycles']:,}", f"{twice['total']['cycles']:,}",
            f"{once['total']['cycles'] / twice['total']['cycles']:.3f}", f"{once['total']['bytes_per_cycle']:.1f}",
            f"{twice['total']['bytes_per_cycle']:.1f}", _same(once, twice),
        ))
    if not rows:
        return []
    heads = ("network", "batch", "cycles on `eta`", "on `eta2x`", "ratio", "DRAM bytes a cycle on `eta`", "on `eta2x`",
             "same parameters")
    return [
        "## Twice the MACs", "",
        "`eta2x` has 3456 MACs, behind the same memory ([how](decisions/0012-two-laps.md)). The ratio is that of images per cycle.",
        "", *_table(heads, rows),
    ]


def _checks(benches: Mapping[str, dict[str, Any]]) -> list[str]:
    rows = []
    for name, bench in benches.items():
        run, errors = bench["simulation"], phase_errors(bench)
        worst = max(errors, key=lambda error: abs(error[3]))
        beyond = sum(abs(error[3]) > 0.1 for error in errors)
        rows.append((
            name, f"{bench['check']['tensors']:,} tensors, {bench['check']['bytes']:,} bytes",
            f"{run['cycles']:,} in {run['seconds']:.0f} s", f"{run['cycles_per_second']:,.0f}", f"{bench['seconds'] / 60:.1f}",
            _percent(bench["compare"]["cycles_error"], 2), f"{worst[0]} {_percent(worst[3])}", f"{beyond} of {len(errors)}",
        ))
    heads = ("run", "equal to golden", "simulated cycles (with the calibrating step, if the machine took it)", "cycles a second",
             "minutes in all",
             "cost model, whole step", "its worst phase", "phases beyond 10 %")
    return _table(heads, rows)


def _causes(benches: Mapping[str, dict[str, Any]]) -> list[str]:
    lines = []
    for name, bench in benches.items():
        below = bench["below_target"]
        rows = [(f"{entry['layer']} {entry['phase']}", _percent(entry["pe_use"]), f"{entry['lost_cycles']:,.0f}",
                 _percent(entry["lost_cycles"] / bench["total"]["cycles"]), f"{entry['cause']} ({entry['cause_cycles']:,.0f})")
                for entry in below[:_WORST]]
        lines += [f"### {name}", ""]
        if not rows:
            lines += ["No phase.", ""]
            continue
        more = f" The {_WORST} that cost most:" if len(below) > _WORST else ""
        lines += [f"{len(below)} phases.{more}", ""]
        lines += _table(("layer and phase", "PE use", "cycles lost", "of the step", "most of them to"), rows)
    return lines


def _model(benches: Mapping[str, dict[str, Any]]) -> list[str]:
    lines = []
    for name, bench in benches.items():
        rows = [(layer, f"{true:,}", f"{guess:,}", _percent(error)) for layer, true, guess, error in phase_errors(bench)]
        lines += ["<details><summary>" + name + "</summary>", ""]
        lines += _table(("layer and phase", "simulated span", "estimated span", "error"), rows)
        lines += ["</details>", ""]
    return lines


def curve_figure(curve: Mapping[str, Any]) -> str:
    """SVG: the loss of every step, and its running mean."""
    losses: list[float] = curve["losses"]
    top = float(int(max(losses)) + 1)
    span_x, span_y = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def line(values: Sequence[float], colour: str, width: float) -> str:
        points = " ".join(f"{_LEFT + span_x * (i + 1) / len(losses):.1f},{_TOP + span_y * (1 - value / top):.1f}"
                          for i, value in enumerate(values))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'

    mean = [sum(losses[max(0, i - _MEAN + 1) : i + 1]) / len(losses[max(0, i - _MEAN + 1) : i + 1]) for i in range(len(losses))]
    body = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
    for tick in range(int(2 * top) + 1):
        y = _TOP + span_y * (1 - tick / 2 / top)
        body += (f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ece8e0"/>'
                 f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick / 2:g}</text>')
    for step in range(0, len(losses) + 1, 10):
        body += f'<text x="{_LEFT + span_x * step / len(losses):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{step}</text>'
    title = f"{curve['network']} in RTL on {curve['configuration']}: loss of every step, pale; mean of {_MEAN} steps, strong"
    body += f'<text x="{_LEFT}" y="{_HEIGHT - 5}">{html.escape(title)}</text>'
    body += f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 5}" text-anchor="end">step</text>'
    body += line(losses, "#e7c3ae", 1.2) + line(mean, "#d9652b", 2.0)
    return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'aria-label="{html.escape(title)}">'
            f"<style>text{{font:12px system-ui,sans-serif;fill:#4a5057}}</style>{body}</svg>\n")


def _curve(curve: Mapping[str, Any] | None) -> list[str]:
    if curve is None:
        return []
    data, losses = curve["data"], curve["losses"]
    tenth = max(1, len(losses) // 10)
    first, last = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
    hyper = curve["hyper"]
    lines = [
        "## A learning curve in RTL", "", "![loss by step](figures/learning-curve.svg)", "",
        f"{curve['network']} on `{curve['configuration']}` ({curve['macs']} MACs), {len(losses)} steps of {curve['batch']} images, "
        f"learning rate {hyper['lr']:g} ({hyper['schedule']}), on {data['train']} training and {data['test']} test images of "
        f"32 x 32 from a folder of CIFAR-10 pictures in {curve['classes']} classes. Mean loss of the first {tenth} steps "
        f"{first:.2f}, of the last {tenth} {last:.2f}. {curve['simulated_cycles']:,} cycles were simulated, evaluations included. "
        "Every loss, and the parameters at the end of each epoch, equal those of the same run with "
        f"{' and '.join(f'`--device {device}`' for device in curve['equal_to'])}.",
        "",
    ]
    rows = [(str(entry["steps"]), _percent(entry["train_accuracy"]), _percent(entry["test_accuracy"]), f"`{entry['sha256'][:16]}`")
            for entry in curve["epochs"]]
    raw = "" if data.get("divisor", 1) > 1 else " --integers raw"
    common = (f"gradloom train --network {curve['network']} --config {curve['configuration']} --data FOLDER{raw} "
              f"--batch {curve['batch']} --steps {len(losses)} --lr {hyper['lr']:g}")
    share, memory = curve["memory"]["bytes_per_cycle"], f"--dram-latency {curve['memory']['latency']}"
    if share is not None:
        memory += f" --dram-bytes-per-cycle {share:g}"
    lines += _table(("steps", "accuracy on training images", "on test images", "parameters (SHA-256)"), rows)
    return [
        *lines, "```sh", f"{common} --device rtl {memory} --out runs/rtl",
        *(f"{common} --device {device} --out runs/{device}" for device in curve["equal_to"]),
        f"python -m gradloom.verif.paper_scale curve runs/rtl {' '.join(f'runs/{device}' for device in curve['equal_to'])} "
        f"--classes {curve['classes']}", "```", "",
    ]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Whether two runs end with the same parameters, if they have as many steps of the same network."""
    if one["network"]["toml"] != other["network"]["toml"]:
        return "runs of different rounding"
    if one["step"].split(" of ")[0] != other["step"].split(" of ")[0]:
        return "runs of different length"
    return "yes" if one["parameters"] == other["parameters"] else "NO"


def _starts(benches: Mapping[str, dict[str, Any]]) -> str:
    """Which steps have the program's head."""
    middle = ", ".join(name for name, bench in benches.items() if "start of its own" not in bench["step"])
    head = "with the program's head of 2 to 3 k cycles"
    others = f"{'the others' if middle else 'All steps'} have a start of their own, {head}."
    return f"The steps of {middle} follow another one in the same start, {others}" if middle else others


def page(benches: Mapping[str, dict[str, Any]], curve: Mapping[str, Any] | None) -> str:
    """The page for kept results by name of their case, and the learning curve."""
    memory = next(iter(benches.values()))["memory_text"] if benches else ""
    lines = [
        "# Training at the size of the paper", "",
        "Generated by `python -m gradloom.verif.paper_scale page` from `docs/results/paper-scale/`; "
        "`python -m gradloom.verif.paper_scale run` (`nox -s bench`) makes the results. Cycles are *simulated*: whole training "
        f"steps (FP, BP, WG and weight update) of the RTL, with a memory of {memory}. [bench](bench.md) says what is counted. "
        "ETA's figures are those of its table III and section V-B, simulated by its authors; its batch size is not given.", "",
        *_overview(benches),
        "A network and batch end with the same parameters on every machine after as many steps. Schedule: the rules' of the "
        "scheduler, or one that [gradloom tune](tuning.md) has found. Revision: the commit that was run; before 2026-11-27 "
        "weights had no rests, which change a step's bytes and cost cycles "
        "([why](decisions/0002-exact-integers.md)). " + _starts(benches), "",
        *_twice(benches),
        "## Checked, and how fast", "",
        *_checks(benches),
        "Cycles a second and minutes depend on the computer and on what else it does; phases are those of more than "
        f"{100 * SMALL_PHASE:g} % of a step. `python -m gradloom.verif.paper_scale estimate` sets the present cost model beside a "
        "run as long as the scheduler makes the program that was run; else the model is that of the day of the run.", "",
        *_curve(curve),
        "## Phases below 90 % of the array", "",
        *_causes(benches),
        "## The cost model against RTL, by layer and phase", "",
        "Spans in cycles ([bench](bench.md) says what a span is), phases of more than "
        f"{100 * SMALL_PHASE:g} % of a step.", "",
        *_model(benches),
    ]
    return "\n".join(lines).rstrip() + "\n"
