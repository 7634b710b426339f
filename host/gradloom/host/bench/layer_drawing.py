"""A picture of how one phase of a layer runs: a row for each engine, a bar for each command, a line for each semaphore.

What is drawn is a :class:`~gradloom.host.cost_model.trace.Timeline`, recorded in RTL or estimated, so the picture shows the
program that ran. docs/one-convolution.md reads one.
"""

import dataclasses
import html
import itertools
import re
from collections.abc import Collection, Iterator

from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Dest, Engine, Opcode, Source
from gradloom.contracts.microprograms import TABLE
from gradloom.host.cost_model.trace import Timeline, engine_name
from gradloom.host.cost_model.workload import PHASES, layer_phase
from gradloom.host.files import UserError
from gradloom.host.program.assembler import Instruction
from gradloom.host.program.disassembler import disassemble
from gradloom.models.network import Network

__all__ = ["DRAWN", "LayerPhase", "draw", "find_layer"]

DRAWN = {"FP": "forward", "BP": "backward", "norm": "backward of the normalisation", "WG": "weight gradient and update"}
"""Phases that can be drawn, as they are asked for, and in words."""
_PHASES = dict(zip(DRAWN, PHASES[:4], strict=True))

_WIDTH, _LEFT, _RIGHT = 1160, 96, 16
_TOP, _ROW, _BAR, _FOOT = 66, 46, 24, 62
_LETTER = 6.6
"""Width of a letter of a bar's text, at 11 pixels."""
_MOST = 90
"""Commands of the phase until whose end a drawing goes: more are too narrow to be told apart."""
_LEAST_BAR, _TICKS = 1.5, 12
_NAMES = {Engine.LOAD: "Loader", Engine.CCORE: "array", Engine.ACORE: "A-Core", Engine.STORE: "Storer"}
_LOADS = {
    Dest.IBUF: ("inputs", "#5b8fc7"), Dest.EBUF: ("errors", "#b0568a"), Dest.WBUF: ("weights", "#d08a2f"),
    Dest.AA: ("operands of the A-Core", "#a9bf7a"), Dest.AB: ("operands of the A-Core", "#a9bf7a"),
    Dest.AM: ("operands of the A-Core", "#a9bf7a"), Dest.PBUF: ("parameters", "#8a6bb0"),
    Dest.XIN: ("sums of gradients", "#a07a5a"), Dest.LABEL: ("labels", "#8a6bb0"),
}
_STORES = {
    Source.OA: ("results", "#4f6d8f"), Source.OB: ("results", "#4f6d8f"), Source.OM: ("results", "#4f6d8f"),
    Source.PBUF: ("parameters", "#8a6bb0"), Source.XOUT: ("sums of gradients", "#a07a5a"), Source.LOGIT: ("results", "#4f6d8f"),
}
_ARRAY, _AUXILIARY, _OTHER = "#2f7f79", "#4f7a2e", "#dde2e7"
"""Colours of the commands of the array and of the A-Core, and of those that belong to other phases."""
_PROGRAMS = {address: name for name, address in TABLE.items()}


@dataclasses.dataclass(frozen=True)
class LayerPhase:
    """A layer by its name, and one of :data:`DRAWN`."""

    layer: str
    phase: str

    @property
    def file(self) -> str:
        """Name of a drawing's file."""
        return f"{re.sub(r'[^A-Za-z0-9._-]', '_', self.layer)}-{self.phase}.svg"


def find_layer(network: Network, text: str) -> LayerPhase:
    """``LAYER`` or ``LAYER:PHASE`` of a network; without a phase the forward one.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the network has no such layer, or there is no such phase.
    """
    names = [layer.name for layer in network.layers]
    layer, _, phase = (text, "", "FP") if text in names else text.rpartition(":")
    if layer not in names:
        raise UserError(f"network {network.name!r} has no layer {layer or text!r}: give one of {', '.join(names)}")
    for name in DRAWN:
        if phase.lower() == name.lower():
            return LayerPhase(layer, name)
    raise UserError(f"there is no phase {phase!r}: give {layer}:PHASE with one of {', '.join(DRAWN)}")


def _kind(instruction: Instruction) -> tuple[str, str]:
    """What a command does in a word, and its colour."""
    if instruction.opcode == Opcode.LOAD:
        # What the array takes as its inputs in a backward pass are errors.
        backward = instruction.tag % 8 == list(DRAWN).index("BP")
        dest = Dest(instruction["dest"])
        return _LOADS[Dest.EBUF if backward and dest == Dest.IBUF else dest]
    if instruction.opcode == Opcode.STORE:
        return _STORES[Source(instruction["src"])]
    if instruction.opcode == Opcode.RUN:
        return _PROGRAMS.get(instruction["uprog"], instruction.opcode.name), _AUXILIARY
    return instruction.opcode.name, _ARRAY if instruction.opcode == Opcode.CONV else _AUXILIARY


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{html.escape(text)}</text>'


def _ticks(first: int, last: int) -> Iterator[int]:
    """Round cycles, a dozen of them at most."""
    step = next(digit * 10**power for power in itertools.count() for digit in (1, 2, 5)
                if (last - first) / (digit * 10**power) <= _TICKS)
    tick = -(-first // step) * step
    while tick <= last:
        yield tick
        tick += step


@dataclasses.dataclass(frozen=True)
class _Scene:
    """What is drawn: positions of the phase's commands, and the cycles from the first one's start to the last one's end."""

    timeline: Timeline
    places: tuple[int, ...]
    first: int
    last: int

    def x(self, cycle: int) -> float:
        share = (min(max(cycle, self.first), self.last) - self.first) / max(1, self.last - self.first)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share


def draw(timeline: Timeline, network: Network, wanted: LayerPhase, *, title: str) -> str:
    """An SVG drawing of one phase of a layer, or of its first commands if there are too many.

    Parameters
    ----------
    timeline : :class:`~gradloom.host.cost_model.trace.Timeline`
    wanted : :class:`LayerPhase`
    title : :class:`str`
        Network, machine and batch.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If no command belongs to this phase of the layer.
    """
    own = [place for place, command in enumerate(timeline.program)
           if timeline.start[place] >= 0 and layer_phase(network, command.tag) == (wanted.layer, _PHASES[wanted.phase])]
    if not own:
        raise UserError(f"layer {wanted.layer!r} has no commands of the phase {wanted.phase}: give another of {', '.join(DRAWN)}")
    own.sort(key=lambda place: int(timeline.start[place]))
    window = own[:_MOST]
    first, last = int(timeline.start[window[0]]), int(max(timeline.done[place] for place in window))
    shown = tuple(place for place in own if timeline.start[place] < last)
    scene = _Scene(timeline, shown, first, last)
    units = [unit for unit, places in timeline.by_engine.items() if len(places) and timeline.program[places[0]].engine in _NAMES]
    rows = {unit: _TOP + _ROW * number for number, unit in enumerate(units)}
    body = _heading(timeline, wanted, title, len(own), len(shown), scene)
    body += _axis(scene, _TOP + _ROW * len(units))
    body += "".join(_semaphores(scene, rows))
    for unit, y in rows.items():
        body += _text(_LEFT - 10, y + _BAR - 8, _row_name(timeline, unit), ' text-anchor="end" font-weight="600"')
        body += f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y + _BAR + 6}" y2="{y + _BAR + 6}" stroke="#eef1f4"/>'
        for place in timeline.by_engine[unit]:
            body += _command(scene, int(place), y)
    body += _key(scene, _TOP + _ROW * len(units) + 34)
    height = _TOP + _ROW * len(units) + _FOOT
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
            f'aria-label="{html.escape(f"commands of {wanted.layer} in time")}" font-family="sans-serif" font-size="11" '
            f'fill="#20262c"><rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>{body}</svg>\n')


def _row_name(timeline: Timeline, unit: Unit) -> str:
    engine = timeline.program[timeline.by_engine[unit][0]].engine
    number = engine_name(unit).removeprefix(engine.name.lower())
    return f"{_NAMES[engine]} {number}".strip()


def _heading(timeline: Timeline, wanted: LayerPhase, title: str, count: int, shown: int, scene: _Scene) -> str:
    part = f"{count} commands" if count == shown else f"the first {shown} of {count} commands"
    line = (f"{part}, cycles {scene.first:,} to {scene.last:,} of a step of {timeline.cycles:,} ({timeline.kind}); "
            "grey: other phases and layers; lines: semaphores between commands of this phase")
    return (_text(16, 24, f"{wanted.layer}, {DRAWN[wanted.phase]}: {title}", ' font-size="15" font-weight="600"')
            + _text(16, 44, line))


def _axis(scene: _Scene, y: float) -> str:
    body = ""
    for tick in _ticks(scene.first, scene.last):
        x = scene.x(tick)
        body += f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 16:.1f}" y2="{y - 4:.1f}" stroke="#9aa4ad"/>'
        if _LEFT + 20 < x < _WIDTH - _RIGHT - 80:
            body += _text(x, y + 12, f"{tick:,}", ' text-anchor="middle" fill="#5b6670"')
    return body + _text(_WIDTH - _RIGHT, y + 12, "cycles", ' text-anchor="end" fill="#5b6670"')


def _command(scene: _Scene, place: int, y: float) -> str:
    """A command's bar; where two of an engine overlap, from the end of the one before."""
    timeline = scene.timeline
    done, begin = int(timeline.done[place]), int(timeline.done[place]) - int(timeline.busy[place])
    if done <= scene.first or begin >= scene.last:
        return ""
    left, own = scene.x(begin), place in scene.places
    width = max(_LEAST_BAR, scene.x(done) - left - 0.6)
    name, colour = _kind(timeline.program[place])
    if not own:
        colour = _OTHER
    tip = f"{name}: cycles {int(timeline.start[place]):,} to {done:,}\n{disassemble([timeline.program[place]]).strip()}"
    body = (f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{colour}">'
            f"<title>{html.escape(tip)}</title></rect>")
    if own and width > _LETTER * len(name) + 8:
        body += _text(left + width / 2, y + _BAR - 8, name, ' text-anchor="middle" fill="#ffffff"')
    return body


def _semaphores(scene: _Scene, rows: dict[Unit, int]) -> Iterator[str]:
    """A line from the end of each command of the phase to the start of each one that waits for it."""
    timeline, shown = scene.timeline, set(scene.places)
    for place in scene.places:
        for producer in timeline.producers[place]:
            if producer in shown:
                above, below = rows[timeline.units[producer]], rows[timeline.units[place]]
                down = below > above
                y1, y2 = (above + _BAR, below) if down else (above, below + _BAR)
                yield from _between_rows(scene, rows.values(), y1, y2, int(timeline.done[producer]), int(timeline.start[place]))


def _between_rows(scene: _Scene, tops: Collection[int], y1: int, y2: int, done: int, start: int) -> Iterator[str]:
    """A line from row to row, left out where it would pass under the bars, whose names it would cross, of rows between them."""
    x1, x2 = scene.x(done), scene.x(start)
    low, high = min(y1, y2), max(y1, y2)
    edges = sorted({low, high, *(edge for top in tops for edge in (top, top + _BAR) if low < edge < high)})
    for first, last in itertools.pairwise(edges):
        if any(top <= first and last <= top + _BAR for top in tops):
            continue
        left, right = (x1 + (x2 - x1) * (y - y1) / (y2 - y1) for y in (first, last))
        yield f'<line x1="{left:.1f}" y1="{first}" x2="{right:.1f}" y2="{last}" stroke="#20262c" stroke-opacity="0.45"/>'


def _key(scene: _Scene, y: float) -> str:
    """Squares of the colours that occur, each with its name."""
    found: dict[str, str] = {}
    for place in scene.places:
        name, colour = _kind(scene.timeline.program[place])
        found.setdefault(colour, "microprogram of the A-Core" if scene.timeline.program[place].opcode == Opcode.RUN else name)
    body, x = "", float(_LEFT)
    for colour, name in found.items():
        body += f'<rect x="{x:.1f}" y="{y}" width="10" height="10" fill="{colour}"/>' + _text(x + 15, y + 9, name)
        x += 36 + 7 * len(name)
    return body

