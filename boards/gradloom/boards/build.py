"""A bitstream of a whole design: sources, synthesis, placement, routing, packing. ``gradloom build`` is its command."""

import dataclasses
import hashlib
import importlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradloom.boards.block_ram_board import BlockRamBoard, PlatformBoard
from gradloom.boards.board import Board
from gradloom.boards.build_report import BuildReport, cells_by_module, critical_paths, read_json, slack_histogram, use_and_clocks
from gradloom.boards.capacity import check_fit
from gradloom.boards.clocking import find_pll
from gradloom.boards.routing import Diverges
from gradloom.boards.sdram_board import SdramBoard
from gradloom.boards.slow_ends import slow_ends
from gradloom.boards.stages import Stages, locked
from gradloom.boards.tools import BuildError, Hopeless, run_tool, tool_path, tool_version
from gradloom.contracts.config import Config, ConfigError
from gradloom.rtl.verilog import TOP, emit_verilog

__all__ = ["MARGIN", "PLACER_OPTIONS", "ROUTER_OPTIONS", "STAGES", "BuildRequest", "build", "platform_files", "routable",
           "synthesis_script", "write_sources"]

STAGES = ("sources", "synthesis", "placement", "routing", "bitstream")
PLACER_OPTIONS = ("--placer", "heap")
"""HeAP, timing-driven: a fifth more wire than by the static placer without timing, and a faster clock (docs/ecp5.md). With
timing the static placer leaves a spot that does not route."""
ROUTER_OPTIONS = ("--router", "router2")
"""Timing-driven. Nets near the longest path then pay next to nothing for a wire that another net has, so it takes more iterations
(76 for 56 of one placement), and few detours are left in them: 43.5 MHz, 0.7 less than estimated, for 34.4 and 39.3 without."""
NO_TIMING = "--no-tmdriv"
"""Where nets on the longest paths keep each other from an end, in two placements. It is reached then, at a slower clock."""
SECOND_SEED = 1000
"""What is added to the seed of a placement that does not route with timing, as one in four or so does not. Another one costs a
quarter of an hour; without timing a clock is some 5 MHz slower."""
MARGIN = 12
"""Tiles by which a net may leave its bounding box. With nextpnr's own number, 3, the last of a machine's nets did not find their
way."""
# ABC9 aborts on clashing names of bus bits (Yosys issue 4349) unless buses are split before it. Without wide LUTs fewer LUT4 and
# no PFU multiplexers are needed, which tie cells to each other's sites.
_SCRIPT = """{sources}
synth_ecp5 -nowidelut -top {top} -run :map_luts
splitnets
synth_ecp5 -nowidelut -top {top} -run map_luts:
write_json top.json
"""
_SOURCE_LINE = re.compile(r'^ *attribute \\src ".*"\n', re.MULTILINE)
_YOSYS_PROGRESS = r"^\d+\.\d+\. (Executing \w+ pass)"
_NEXTPNR_PROGRESS = r"Info: +(.*(?:at iteration|iter=|wirelen|Running|Router|Placing|Packing|Routing|arcs|\d{3,}).*)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What decides a bitstream, beside the tools and the chance in nextpnr's router, which takes other ways each time that it runs.

    Parameters
    ----------
    board : :class:`Board`
    config : :class:`Config`
        Of the machine.
    clock : :class:`int`
        Hz of the whole design.
    block_ram : :class:`int`, optional
        Bytes of block RAM behind the machine, a power of two, in place of the board's SDRAM.
    seed : :class:`int`
        Of the placement.
    margin : :class:`int`
        Tiles by which a net may leave its bounding box.
    placer, router : tuple of :class:`str`
        Options of nextpnr.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`, :exc:`ValueError`
        If the board cannot have such a machine, memory or clock.
    """

    board: Board
    config: Config
    clock: int
    block_ram: int | None = None
    seed: int = 1
    margin: int = MARGIN
    placer: tuple[str, ...] = PLACER_OPTIONS
    router: tuple[str, ...] = ROUTER_OPTIONS

    def __post_init__(self) -> None:
        if self.block_ram is None:
            self.board.part.timing(self.clock)
        elif self.block_ram < 1024 or self.block_ram & (self.block_ram - 1):
            raise ConfigError(f"the block RAM behind a machine must be a power of two of KiB, not {self.block_ram / 1024:g} KiB")
        if self.clock != self.board.oscillator:
            find_pll(self.board.oscillator, self.clock)

    @property
    def memory(self) -> str:
        """What is behind the machine, for a reader."""
        return f"SDRAM {self.board.memory}" if self.block_ram is None else f"{self.block_ram >> 10} KiB of block RAM"

    def number(self, machine: str) -> int:
        """64-bit hash of the Verilog of the machine and of what else decides the netlist; neither seed nor routing do."""
        text = f"{self.board.name} {self.block_ram} {self.clock} {synthesis_script()}\n{machine}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def design(self, number: int) -> PlatformBoard:
        """For the board's platform."""
        if self.block_ram is None:
            return SdramBoard(self.config, self.board, clock=self.clock, build=number)
        return BlockRamBoard(self.config, memory_bytes=self.block_ram, clock=self.clock, board=self.board.letters, build=number)


def synthesis_script(sources: Sequence[str] = (f"{TOP}.v", "top.il"), top: str = "top") -> str:
    """Commands of Yosys from files of Verilog (``.v``) and RTLIL (``.il``) to ``top.json``, a netlist of the module ``top``."""
    kinds = {".v": "read_verilog", ".il": "read_rtlil"}
    return _SCRIPT.format(sources="\n".join(f"{kinds[Path(name).suffix]} {name}" for name in sources), top=top)


def write_sources(folder: Path, request: BuildRequest) -> int:
    """``gradloom.v``, ``top.il``, ``top.lpf`` and ``top.ys`` in ``folder``; returns the number of the build
    (:meth:`BuildRequest.number`)."""
    machine = emit_verilog(request.config)[f"{TOP}.v"]
    number = request.number(machine)
    files = platform_files(request.board, request.design(number))
    for file, text in {f"{TOP}.v": machine, **files, "top.ys": synthesis_script()}.items():
        (folder / file).write_text(text)
    return number


def platform_files(board: Board, design: PlatformBoard) -> dict[str, str]:
    """``top.il``, the design on the pins of the board's platform, and ``top.lpf``, where these are."""
    module, _, name = board.platform.partition(":")
    # The platform asks the environment for this tool even if it only writes files.
    os.environ.setdefault("OPENFPGALOADER", "openFPGALoader")
    files = getattr(importlib.import_module(module), name)().prepare(design, "top").files
    texts = {file: files[file] for file in ("top.il", "top.lpf")}
    # Where the sources lie is no part of the design.
    return {file: _SOURCE_LINE.sub("", text if isinstance(text, str) else text.decode()) for file, text in texts.items()}


def routable(placed: dict[str, Any], margin: int) -> dict[str, Any]:
    """A placed design as nextpnr writes it, ready to be routed by options.

    nextpnr takes its settings from the design before its options: its router, and whether that looks at timing, must not stand
    there, nor routes. The margin must: it has no option.
    """
    for module in placed["modules"].values():
        settings = module.setdefault("settings", {})
        for name in ("router", "timing_driven", "route"):
            settings.pop(name, None)
        settings.update({f"router2/bbMargin/{axis}": str(margin) for axis in "xy"})
        for net in module.get("netnames", {}).values():
            net.get("attributes", {}).pop("ROUTING", None)
    return placed


@dataclasses.dataclass
class _Build:
    """One run of :func:`build` in its folder."""

    folder: Path
    request: BuildRequest
    stages: Stages
    report: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self.commands: list[str] = []
        self.versions = {tool: tool_version(tool) for tool in ("yosys", "nextpnr-ecp5")}
        self.number = 0

    def run(self, stage: str, tool: str, arguments: list[str], progress: str, inputs: list[str], outputs: list[str]) -> None:
        """A stage that is one call of a tool."""
        self.commands.append(" ".join([tool, *arguments]))

        def work() -> None:
            self._call(stage, tool, arguments, progress)

        if not self.stages.run(stage, [self.versions.get(tool, ""), *arguments], inputs, outputs, work):
            self.report(stage, "done before")

    def _call(self, stage: str, tool: str, arguments: list[str], progress: str, *, log: str = "",
              hopeless: Callable[[str], bool] = lambda line: False) -> str:
        """One call of a tool within a stage, with its output in ``log`` (by default of the stage); returns the command."""
        run_tool(log or stage, [tool_path(tool), *arguments], self.folder, progress, lambda line: self.report(stage, line),
                 hopeless)
        return " ".join([tool, *arguments])

    def sources(self) -> None:
        self.report("sources", f"{self.request.config.name} for {self.request.board.name} at {self.request.clock / 1e6:g} MHz, "
                               f"{self.request.memory}")
        # Never kept: they are what decides whether anything else is.
        self.stages.run("sources", [os.urandom(8).hex()], [], [], self._write)

    def _write(self) -> None:
        self.number = write_sources(self.folder, self.request)

    def place_and_route(self) -> None:
        request, tool = self.request, "nextpnr-ecp5"
        self.run("placement", tool, self._placing(request.seed, "placed.json"), _NEXTPNR_PROGRESS, ["top.json", "top.lpf"],
                 ["placed.json"])

        def work() -> None:
            # For the report of a build that finds the stage done.
            (self.folder / "router.json").write_text(json.dumps(self._route()))

        outputs = ["top.config", "nextpnr.json", "top.sdf", "routed.json", "routing.log", "router.json"]
        given = [self.versions[tool], *self._routing(request.seed), *request.router, f"margin {request.margin}"]
        if not self.stages.run("routing", given, ["placed.json", "top.lpf"], outputs, work):
            self.report("routing", "done before")
        self.commands += read_json(self.folder / "router.json")["commands"]

    def _nextpnr(self, seed: int) -> list[str]:
        request = self.request
        return [*request.board.nextpnr, "--lpf", "top.lpf", "--seed", str(seed), "--freq", f"{request.clock / 1e6:g}"]

    def _placing(self, seed: int, placed: str) -> list[str]:
        return [*self._nextpnr(seed), "--json", "top.json", *self.request.placer, "--no-route", "--write", placed]

    def _routing(self, seed: int, options: tuple[str, ...] = ()) -> list[str]:
        return [*self._nextpnr(seed), "--json", "routable.json", "--no-pack", "--no-place", *options, "--textcfg", "top.config",
                "--report", "nextpnr.json", "--sdf", "top.sdf", "--write", "routed.json", "--timing-allow-fail"]

    def _route(self) -> dict[str, list[str]]:
        """Commands that led to an end: of the placement, of another one if nothing else did, without regard to timing at last."""
        request, again = self.request, self.request.seed + SECOND_SEED
        attempts = [("", request.seed, request.router), ("cells are placed anew", again, request.router)]
        if NO_TIMING not in request.router:
            attempts.append(("once more, without regard to timing", again, (*request.router, NO_TIMING)))
        placed, commands = {request.seed: "placed.json"}, list[str]()
        hopeless: Hopeless | None = None
        for why, seed, options in attempts:
            if why:
                self.report("routing", f"ever more wires are wanted twice: {why}")
            if seed not in placed:
                placed[seed] = "placed-again.json"
                commands.append(self._call("routing", "nextpnr-ecp5", self._placing(seed, placed[seed]), _NEXTPNR_PROGRESS,
                                           log="placement"))
            ready = routable(read_json(self.folder / placed[seed]), request.margin)
            (self.folder / "routable.json").write_text(json.dumps(ready))
            try:
                commands.append(self._call("routing", "nextpnr-ecp5", self._routing(seed, options), _NEXTPNR_PROGRESS,
                                           hopeless=Diverges()))
            except Hopeless as error:
                hopeless = error
            else:
                return {"commands": commands}
        raise BuildError(f"{hopeless}: give another --seed")

    def result(self, modules: dict[str, dict[str, int]]) -> BuildReport:
        request = self.request
        table = read_json(self.folder / "nextpnr.json")
        use, clocks = use_and_clocks(table)
        names = (f"{TOP}.v", "top.il", "top.lpf", "top.bit")
        files = {name: hashlib.sha256((self.folder / name).read_bytes()).hexdigest() for name in names
                 if (self.folder / name).exists()}
        return BuildReport(
            board=request.board.name, config=dataclasses.asdict(request.config), build=f"{self.number:016x}",
            memory=request.memory, use=use, modules=modules, clock_mhz=request.clock / 1e6,
            reached_mhz=min(clocks.values(), default=request.clock / 1e6), paths=critical_paths(table),
            ends=tuple(slow_ends(self.folder / "top.sdf")),
            slack=slack_histogram((self.folder / "routing.log").read_text()), seed=request.seed, seconds=dict(self.stages.seconds),
            versions=list(self.versions.values()), commands=self.commands, files=files)


def build(folder: Path, request: BuildRequest, *, fresh: bool = False,
          report: Callable[[str, str], None] = lambda stage, text: print(f"{stage}: {text}", flush=True)) -> BuildReport:
    """``top.bit`` and ``report.json`` in ``folder``, beside all that they are made of.

    A stage that has been done with the same inputs and tools in this folder is not done again, so an interrupted build goes on.

    Parameters
    ----------
    fresh : :class:`bool`
        Do every stage again.
    report : callable
        Takes the stage (:data:`STAGES`) and a line that says how far it is.

    Raises
    ------
    :exc:`BuildError`
        If the machine cannot fit, a tool is missing or fails, or the clock is not reached.
    """
    with locked(folder):
        work = _Build(folder, request, Stages(folder, fresh), report)
        # What was there is of another request or is made again.
        for name in ("top.bit", "report.json"):
            (folder / name).unlink(missing_ok=True)
        work.sources()
        work.run("synthesis", "yosys", ["top.ys"], _YOSYS_PROGRESS, [f"{TOP}.v", "top.il", "top.ys"], ["top.json"])
        modules = cells_by_module(read_json(folder / "top.json"), depth=4)
        total: Counter[str] = Counter()
        for cells in modules.values():
            total.update(cells)
        check_fit(total, request.board.die, request.config.name)
        work.place_and_route()
        result = work.result(modules)
        if result.reached:
            work.run("bitstream", "ecppack", ["--compress", "top.config", "top.bit"], "$^", ["top.config"], ["top.bit"])
            result = work.result(modules)
        staging = folder / "report.json.new"
        staging.write_text(result.json())
        os.replace(staging, folder / "report.json")
    if not result.reached:
        raise BuildError(f"the clock of {result.clock_mhz:g} MHz is not reached, {result.reached_mhz:.2f} MHz is: give a slower "
                         f"one with --freq or another --seed (what is slowest: {folder / 'report.json'})")
    return result
