"""Netlists of ECP5 cells: what Yosys makes of a machine or a component with the script that makes a board's bitstream."""

import functools
import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gradloom.boards.build import synthesis_script
from gradloom.contracts.config import Config
from gradloom.rtl.verilog import TOP, emit_verilog
from gradloom.sim.netlist.cells import models
from gradloom.sim.netlist.netlist_verilog import cell_counts, netlist_verilog
from gradloom.sim.power_up import without_initial_values
from gradloom.sim.rtl_device import DramModel, RtlDevice
from gradloom.sim.verilate import alone, cache_folder
from gradloom.verif.synth import SynthError, yosys_path, yosys_version
from gradloom.verif.synthesis.gates import Netlist, around

__all__ = ["netlist_device", "netlist_files", "synthesised", "with_ecp5_netlist"]


def synthesised(source: str, top: str, kind: str = "v") -> dict[str, Any]:
    """Yosys' JSON of the netlist of module ``top`` of ``source``, Verilog (``v``) or RTLIL (``il``); kept in the cache.

    Raises
    ------
    :exc:`SynthError`
        If Yosys is absent or fails.
    """
    script = synthesis_script([f"source.{kind}"], top)
    key = hashlib.sha256("\n".join([yosys_version(), script, source]).encode()).hexdigest()
    path = cache_folder() / "ecp5" / f"{key[:32]}.json"
    with alone(path):
        if not path.is_file():
            _synthesise(path, f"source.{kind}", source, script, top)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _synthesise(path: Path, file: str, source: str, script: str, top: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ecp5-", dir=path.parent) as name:
        folder = Path(name)
        (folder / file).write_text(source)
        (folder / "top.ys").write_text(script)
        done = subprocess.run([yosys_path(), "-q", "top.ys"], cwd=folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-20:])
            raise SynthError(f"{top}: Yosys failed with status {done.returncode}:\n{tail}")
        design = json.loads((folder / "top.json").read_text())
        # The library's own modules are most of the file.
        (folder / "kept.json").write_text(json.dumps({"modules": {top: design["modules"][top]}}))
        (folder / "kept.json").replace(path)


def netlist_files(source: str, top: str) -> dict[str, str]:
    """Verilog files of the netlist of module ``top`` of ``source``: its cells, and their models."""
    return {"netlist.v": netlist_verilog(synthesised(source, top), top), **models()}


@functools.cache
def _machine_files(config: Config) -> dict[str, str]:
    return netlist_files(emit_verilog(config)[f"{TOP}.v"], TOP)


def netlist_device(config: Config, *, dram_bytes: int, dram: DramModel | None = None, power_up: int = 0,
                   track_writes: bool = False) -> RtlDevice:
    """The machine as a netlist of ECP5 cells behind the harness of :class:`RtlDevice`, which says what the parameters mean. Minutes
    of synthesis unless the cache has it.

    With ``power_up`` every flip-flop and every memory but tables wakes up at random, though a device would set them: what a machine
    computes must hang on its reset alone.
    """
    return RtlDevice(_machine_files(config), dram_bytes=dram_bytes, dram=dram, power_up=power_up, track_writes=track_writes)


def with_ecp5_netlist(source: str, top: str) -> tuple[str, list[Netlist]]:
    """A component's Verilog as a netlist of ECP5 cells in a module that has its ports and nothing else; registers wake up as the
    simulator says.

    Raises
    ------
    :exc:`SynthError`
        As for :func:`synthesised`.
    :exc:`~gradloom.sim.netlist.netlist_verilog.NetlistError`
        If a cell has no model.
    """
    design, name = synthesised(source, top), f"{top}_cells"
    ports = {port: (fields["direction"], len(fields["bits"])) for port, fields in design["modules"][top]["ports"].items()}
    made = Netlist(name, netlist_verilog(design, top, name=name), dict(cell_counts(design, top)), 0, ports)
    text = "".join([without_initial_values(text) for text in models().values()])
    return made.verilog + around(top, made) + text, [made]
