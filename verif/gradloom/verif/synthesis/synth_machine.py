"""Cells of a whole machine by group of parts, for either family, in as few runs of Yosys as its parts need.

:mod:`gradloom.verif.synth_xc7` starts Yosys for every part, which a machine of 1728 MACs needs. Here all parts that have not been
synthesised before share one run that keeps their borders (:mod:`gradloom.verif.synthesis.synth_hierarchy`), so that machines of a
few MACs take minutes, and machines that differ in one engine less.
"""

import collections
import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gradloom.contracts.config import Config
from gradloom.rtl.verilog import TOP, emit_verilog
from gradloom.rtl.xc7 import with_dsp48
from gradloom.sim.verilate import cache_folder
from gradloom.verif.synth import SynthError, yosys_path, yosys_version
from gradloom.verif.synth_xc7 import RAM_LUTS
from gradloom.verif.synthesis.synth_combine import free_luts, pairs
from gradloom.verif.synthesis.synth_hierarchy import Design, is_part

__all__ = ["FAMILIES", "Cells", "group_of", "measure_machine"]

Cells = dict[str, float]
"""``luts``, of them ``ram_luts`` in distributed RAM, ``flip_flops``, ``dsps``, ``brams``."""
FAMILIES = {"xc7": "synth_xilinx -family xc7 -flatten -noiopad -noclkbuf", "ecp5": "synth_ecp5 -nowidelut"}
"""Synthesis for each family, as :mod:`gradloom.verif.synth_xc7` and ``gradloom build`` run it."""
_GROUPS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gradloom_pe", "gradloom_mac_"), "processing elements"),
    (("gradloom_wpu", "gradloom_psum", "gradloom_sums", "gradloom_magnitude"), "window processing units"),
    (("gradloom_windows",), "window registers"), (("gradloom_weights",), "weight registers"), (("gradloom_gather",), "gathers"),
    ((f"{TOP}.core.ccore.feed",), "input network"), ((f"{TOP}.core.ccore.weights",), "weight network"),
    ((f"{TOP}.core.ccore.drain",), "drain"), ((f"{TOP}.core.ccore", "gradloom_cluster"), "C-Core's control"),
    (("apu", "align", "product_align", "converter", "dither"), "A-Core's lanes"),
    ((f"{TOP}.core.acore", "channel_sums", "divider", "serial_divider"), "A-Core's rest"),
    (("loader", "storer", "read_manager", "write_manager"), "DMA channels"),
    (("command_queue", "tag_table"), "queues and counters"), (("",), "Sequencer and registers"),
)
_TOP = "every_part"
_SCRIPT = f"""read_verilog parts.v
{{flags}} -top {_TOP} -run :map_luts
splitnets
{{flags}} -top {_TOP} -run map_luts:
write_json netlist.json
"""
_MODULE = re.compile(r"^module (\\\S+ |[^\s(]+)\(.*?^endmodule\n", re.MULTILINE | re.DOTALL)


def measure_machine(config: Config, family: str) -> dict[str, Cells]:
    """Cells of a machine by group of parts (:func:`group_of`).

    LUTs are those that a device is filled with. xc7: LUT6 with small ones combined, shift registers and distributed RAM; ecp5: LUT4
    with two for a carry cell and four for a distributed RAM. Block RAMs are of 36 Kbit (xc7) or 18 Kbit (ecp5).

    Raises
    ------
    :exc:`SynthError`
        If Yosys fails.
    """
    text = "\n".join(emit_verilog(config).values())
    design = Design.read(with_dsp48(text) if family == "xc7" else text, TOP)
    counts = design.counts(_is_part)
    parts = _parts(config.name, design, list(counts), family)
    found: dict[str, collections.Counter[str]] = {}
    for name, number in counts.items():
        group = found.setdefault(group_of(name), collections.Counter())
        for key, value in parts[name].items():
            group[key] += number * value  # type: ignore[assignment]
    return {name: dict(cells) for name, cells in found.items()}


def group_of(name: str) -> str:
    """The group of a part, a row of :data:`gradloom.host.explore.resource_model.GROUPS` for xc7."""
    return next(group for prefixes, group in _GROUPS if name.startswith(prefixes))


def _is_part(name: str) -> bool:
    return is_part(name, TOP)


def _parts(machine: str, design: Design, names: Iterable[str], family: str) -> dict[str, Cells]:
    """Cells of one of each part, from the cache or from a run over those that are not there."""
    folder = cache_folder() / "synth"
    folder.mkdir(parents=True, exist_ok=True)
    sources = {name: design.source(name, _is_part) for name in names}
    version = yosys_version()
    files = {name: folder / f"part-{family}-{_digest(name, source, family, version)}.json" for name, source in sources.items()}
    missing = [name for name in names if not files[name].is_file()]
    if missing:
        for name, cells in _synthesise(machine, {name: sources[name] for name in missing}, family).items():
            files[name].write_text(json.dumps(cells))
    return {name: json.loads(file.read_text()) for name, file in files.items()}


def _digest(name: str, source: str, family: str, version: str) -> str:
    # Names of emitted modules end in a hash of the configuration, whose other fields do not shape this part.
    key = re.sub(r"_[0-9a-f]{8}\b", "_", "\n".join([version, FAMILIES[family], _SCRIPT, name, source]))
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _synthesise(machine: str, sources: Mapping[str, str], family: str) -> dict[str, Cells]:
    modules: dict[str, str] = {}
    for name, source in sources.items():
        for match in _MODULE.finditer(source):
            module = match[1].strip().removeprefix("\\")
            box = source[:match.start()].endswith("(* blackbox *)\n")
            if module == name:
                modules[module] = "(* keep_hierarchy *)\n" + match[0]
            elif not box:
                modules.setdefault(module, match[0])
            elif module not in sources:
                modules.setdefault(module, "(* blackbox *)\n" + match[0])
    instances = "".join(f"  (* keep *) {_escaped(name)} part{number} ();\n" for number, name in enumerate(sources))
    with tempfile.TemporaryDirectory(prefix="gradloom-machine-") as path:
        folder = Path(path)
        (folder / "parts.v").write_text("\n".join([*modules.values(), f"module {_TOP}();\n{instances}endmodule\n"]))
        (folder / "parts.ys").write_text(_SCRIPT.format(flags=FAMILIES[family]))
        done = subprocess.run([yosys_path(), "-q", "-l", "parts.log", "parts.ys"], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SynthError(f"{machine}: Yosys failed with status {done.returncode}:\n"
                             + "\n".join(done.stdout.splitlines()[-20:]))
        netlist = json.loads((folder / "netlist.json").read_text())["modules"]
    return {name: (_xc7 if family == "xc7" else _ecp5)(netlist[name]["cells"].values()) for name in sources}


def _escaped(name: str) -> str:
    return f"\\{name} " if re.search(r"\W", name) else name


def _kinds(cells: Iterable[Mapping[str, Any]]) -> collections.Counter[str]:
    # Cells with parameters are called $paramod...\TYPE.
    return collections.Counter(cell["type"].rsplit("\\", 1)[-1] for cell in cells)


def _xc7(cells: Iterable[Mapping[str, Any]]) -> Cells:
    kinds = _kinds(cells)
    logic = sum(kinds[f"LUT{n}"] for n in range(1, 7)) + kinds["LUT6_2"] - len(pairs(free_luts(cells)))
    ram = sum(RAM_LUTS.get(kind, 0) * number for kind, number in kinds.items())
    return {"luts": logic + kinds["SRL16E"] + kinds["SRLC32E"] + ram, "ram_luts": ram,
            "flip_flops": sum(number for kind, number in kinds.items() if re.match(r"FD[CPRS]E", kind)),
            "dsps": kinds["DSP48E1"], "brams": kinds["RAMB36E1"] + kinds["RAMB18E1"] / 2}


def _ecp5(cells: Iterable[Mapping[str, Any]]) -> Cells:
    kinds = _kinds(cells)
    ram = 4 * kinds["TRELLIS_DPR16X4"]
    return {"luts": kinds["LUT4"] + 2 * kinds["CCU2C"] + ram, "ram_luts": ram, "flip_flops": kinds["TRELLIS_FF"],
            "dsps": kinds["MULT18X18D"], "brams": kinds["DP16KD"] + kinds["PDPW16KD"]}
