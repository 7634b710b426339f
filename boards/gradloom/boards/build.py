"""A bitstream with one command: ``python -m gradloom.boards.build --config MACHINE --out FOLDER``."""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from amaranth.build import Platform
from amaranth_boards.ulx3s import ULX3S_45F_Platform, ULX3S_85F_Platform

from gradloom.boards.block_ram_board import BlockRamBoard, PlatformBoard
from gradloom.boards.board import board_named
from gradloom.boards.build_report import BuildReport, cells_by_module, read_report
from gradloom.boards.sdram_board import SdramBoard
from gradloom.boards.tools import BuildError, run_tool, tool_path, tool_version
from gradloom.rtl.config import Config, ConfigError, load_config
from gradloom.rtl.emission import TOP, EmissionError, emit_verilog

__all__ = ["BOARDS", "MARGIN", "PLACER_OPTIONS", "ROUTER_OPTIONS", "build", "build_number", "main", "synthesis_script",
           "with_margin", "write_sources"]

BOARDS: dict[str, tuple[type[Platform], str, list[str]]] = {
    "ulx3s-45f": (ULX3S_45F_Platform, "U45F", ["--45k"]),
    "ulx3s-85f": (ULX3S_85F_Platform, "U85F", ["--85k"]),
}
"""Platform, the four letters that the board tells the host, and the device for nextpnr."""
PLACER_OPTIONS = ["--placer", "static", "--no-tmdriv"]
ROUTER_OPTIONS = ["--router", "router2", "--no-tmdriv"]
"""Timing-driven, the second router lets nets near the longest path pay next to nothing for a wire that another net has, so that
they do not yield: a counter of 32 bits took 20 iterations, and 4 without."""
MARGIN = 3
"""Tiles by which a net may leave its bounding box; nextpnr's own number."""
_PACKAGE = ["--package", "CABGA381", "--speed", "6"]
# ABC9 aborts on clashing names of bus bits (Yosys issue 4349) unless buses are split before it. Without wide LUTs fewer LUT4 and
# no PFU multiplexers are needed, which tie cells to each other's sites.
_SCRIPT = """read_verilog {machine}
read_rtlil top.il
synth_ecp5 -nowidelut -top top -run :map_luts
splitnets
synth_ecp5 -nowidelut -top top -run map_luts:
write_json top.json
"""
_YOSYS_PROGRESS = r"^\d+\.\d+\. (Executing \w+ pass)"
_NEXTPNR_PROGRESS = r"Info: +(.*(?:at iteration|iter=|wirelen|Running|Router|Placing|Packing|Routing|arcs|\d{3,}).*)"


def synthesis_script() -> str:
    """Commands of Yosys from the sources to ``top.json``."""
    return _SCRIPT.format(machine=f"{TOP}.v")


def build_number(machine: str, board: str, memory_bytes: int | None, clock: int) -> int:
    """64-bit hash of the Verilog of the machine and of what else decides what is built, but the seed."""
    text = f"{board} {memory_bytes} {clock} {synthesis_script()}\n{machine}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def write_sources(folder: Path, board: str, config: Config, *, memory_bytes: int | None, clock: int) -> int:
    """``gradloom.v``, ``top.il``, ``top.lpf`` and ``top.ys`` in ``folder``; returns the number of the build
    (:func:`build_number`). Without ``memory_bytes`` of block RAM the memory is the board's SDRAM."""
    platform, letters, _ = BOARDS[board]
    machine = emit_verilog(config)[f"{TOP}.v"]
    number = build_number(machine, board, memory_bytes, clock)
    design: PlatformBoard
    if memory_bytes is None:
        design = SdramBoard(config, board_named(board), clock=clock, build=number)
    else:
        design = BlockRamBoard(config, memory_bytes=memory_bytes, clock=clock, board=letters, build=number)
    files = platform().prepare(design, "top").files
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{TOP}.v").write_text(machine)
    for name in ("top.il", "top.lpf"):
        text = files[name]
        (folder / name).write_text(text if isinstance(text, str) else text.decode())
    (folder / "top.ys").write_text(synthesis_script())
    return number


def with_margin(placed: dict[str, Any], margin: int) -> dict[str, Any]:
    """A placed design as nextpnr writes it, with the margin among its settings, which have no option for it."""
    for module in placed["modules"].values():
        module.setdefault("settings", {}).update({f"router2/bbMargin/{axis}": str(margin) for axis in "xy"})
    return placed


def build(folder: Path, board: str, config: Config, *, memory_bytes: int | None = 1 << 16, clock: int = 25_000_000, seed: int = 1,
          options: Sequence[str] = ROUTER_OPTIONS, margin: int = MARGIN, report: Callable[[str], None] = print) -> BuildReport:
    """``top.bit``, ``report.txt`` and ``report.json`` in ``folder``, beside all that they are made of.

    The same arguments and tools give the same bitstream.

    Parameters
    ----------
    board : :class:`str`
        One of :data:`BOARDS`.
    memory_bytes : :class:`int`, optional
        Block RAM behind the machine, a power of two; :class:`None`: the board's SDRAM.
    clock : :class:`int`
        Hz of the whole design.
    options : sequence of :class:`str`
        Of nextpnr, for routing.
    margin : :class:`int`
        Tiles by which a net may leave its bounding box.
    report : callable
        Takes lines that say how far it is.

    Raises
    ------
    :exc:`BuildError`
        If a tool is missing or fails, or the clock is not reached.
    """
    device = BOARDS[board][2]
    seconds: dict[str, float] = {}
    begin = time.monotonic()
    memory = "its SDRAM" if memory_bytes is None else f"{memory_bytes >> 10} KiB of block RAM"
    report(f"sources of {config.name} on {board} with {memory} at {clock / 1e6:g} MHz")
    write_sources(folder, board, config, memory_bytes=memory_bytes, clock=clock)
    seconds["sources"] = time.monotonic() - begin
    seconds["synthesis"] = run_tool("synthesis", [tool_path("yosys"), "top.ys"], folder, _YOSYS_PROGRESS, report)
    modules = cells_by_module(json.loads((folder / "top.json").read_text()), depth=4)
    nextpnr = [tool_path("nextpnr-ecp5"), *device, *_PACKAGE, "--lpf", "top.lpf", "--seed", str(seed)]
    seconds["placement"] = run_tool(
        "placement", [*nextpnr, "--json", "top.json", *PLACER_OPTIONS, "--no-route", "--write", "placed.json"], folder,
        _NEXTPNR_PROGRESS, report)
    (folder / "placed.json").write_text(json.dumps(with_margin(json.loads((folder / "placed.json").read_text()), margin)))
    seconds["routing"] = run_tool(
        "routing", [*nextpnr, "--json", "placed.json", "--no-pack", "--no-place", *options, "--textcfg", "top.config", "--report",
                    "nextpnr.json", "--timing-allow-fail"], folder, _NEXTPNR_PROGRESS, report)
    use, reached, critical = read_report(folder / "nextpnr.json", clock / 1e6)
    pack = [tool_path("ecppack"), "--compress", "top.config", "top.bit"]
    seconds["bitstream"] = run_tool("bitstream", pack, folder, "$^", report)
    names = (f"{TOP}.v", "top.il", "top.lpf", "top.bit")
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    result = BuildReport(use=use, modules=modules, clock_mhz=clock / 1e6, reached_mhz=reached, critical=critical, seed=seed,
                         seconds=seconds, versions=[tool_version("yosys"), tool_version("nextpnr-ecp5")], files=files)
    (folder / "report.txt").write_text(result.text())
    (folder / "report.json").write_text(result.json())
    if reached < clock / 1e6:
        (folder / "top.bit").unlink()
        raise BuildError(f"the clock of {clock / 1e6:g} MHz is not reached, {reached:.2f} MHz is: take a slower one with --clock "
                         f"or another --seed (the whole report: {folder / 'report.txt'})")
    return result


def _memory(text: str) -> int | None:
    """Bytes of block RAM, or :class:`None` for the SDRAM."""
    return None if text == "sdram" else int(text) << 10


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gradloom.boards.build", description=__doc__)
    parser.add_argument("--config", required=True, help="a preset or a TOML file")
    parser.add_argument("--board", choices=sorted(BOARDS), default="ulx3s-85f")
    parser.add_argument("--memory", type=_memory, default=64 << 10, metavar="KIB|sdram",
                        help="block RAM behind the machine, a power of two (64), or the board's SDRAM")
    parser.add_argument("--clock", type=float, default=25.0, metavar="MHZ", help="of the whole design (25)")
    parser.add_argument("--seed", type=int, default=1, help="of the placement (1)")
    parser.add_argument("--margin", type=int, default=MARGIN, metavar="TILES",
                        help=f"by which a net may leave its bounding box ({MARGIN})")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("options", nargs="*", metavar="-- ROUTER OPTIONS", help=f"instead of {' '.join(ROUTER_OPTIONS)}")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if the build fails, 2 if an argument is wrong."""
    given = _arguments(arguments)
    try:
        config = load_config(given.config)
        result = build(given.out, given.board, config, memory_bytes=given.memory, clock=round(given.clock * 1e6),
                       seed=given.seed, options=given.options or ROUTER_OPTIONS, margin=given.margin,
                       report=lambda line: print(line, flush=True))
    except (BuildError, EmissionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (ConfigError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(result.text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
