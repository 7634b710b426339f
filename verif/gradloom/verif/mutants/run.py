"""Run mutants against the tests: one process each, forked from one that has imported everything and built the machine."""

import ast
import dataclasses
import functools
import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradloom.sim.rtl_device import RtlDevice
from gradloom.sim.verilate import cache_folder
from gradloom.verif.checkout import ROOT
from gradloom.verif.mutants import instrument, plan
from gradloom.verif.mutants.instrument import INVALID, RTL, Mutant
from gradloom.verif.mutants.killers import killers

__all__ = ["RESULTS", "Result", "Runner", "file_digest", "module_digest", "read_results", "sources_digest", "untried"]

RESULTS = ROOT / "docs" / "results" / "mutants" / "results.jsonl"
"""One line for each run of a mutant; the last of a mutant counts."""
_CONTRACTS = RTL.parent / "contracts"
_CONFIG = _CONTRACTS / "config.py"
VERSION = 1
"""Of what the operators mean: one more, and every mutant is run anew."""
_LIMIT, _CYCLE_LIMIT = 4, 3
"""A test may take these times the processor time and the machine's cycles that it takes without a mutant, and some to spare. The
cycles are always the same, so that the second alone decides for whole machines."""
_UNKNOWN_SECONDS = 45.0
"""What a test is taken to need until it has been run."""
_SPARE_SECONDS, _SPARE_CYCLES = 15, 50_000


@dataclasses.dataclass(frozen=True)
class Result:
    """Outcome of one mutant.

    Parameters
    ----------
    outcome : :class:`str`
        ``killed`` (a test failed), ``timeout`` (it took far too many cycles or far too much processor time), ``crash`` (the
        process died), ``lives`` (as far as it was tried), or ``invalid`` (it cannot be elaborated); the first three are kills.
    killer : :class:`str`
        The test, or nothing.
    message : :class:`str`
        The end of what that test said.
    seconds : :class:`float`
        Processor time of all tests that ran.
    passed : mapping
        Tests that did not notice it, each with its :func:`file_digest` of that time.
    """

    name: str
    outcome: str
    killer: str
    message: str
    seconds: float
    sources: str
    passed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def dead(self) -> bool:
        return self.outcome in ("killed", "timeout", "crash")


def _code(path: Path) -> str:
    """The text of a file; of good Python what it computes: neither comments nor docstrings, but where each statement stands, as
    mutants are named by lines."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    try:
        tree = _wordless(text)
    except SyntaxError:
        return text
    return ast.dump(tree, include_attributes=True)


def _rules(path: Path, but: str) -> str:
    """What a file of no hardware computes, wherever it stands there, less what it gives the name ``but``."""
    tree = _wordless(path.read_text())
    tree.body = [node for node in tree.body
                 if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == but)]
    return ast.dump(tree)


def _wordless(text: str) -> ast.Module:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
            node.end_lineno = node.value.end_lineno = node.end_col_offset = node.value.end_col_offset = 0
    return tree


def _digest(paths: Iterable[Path], more: str = "") -> str:
    digest = hashlib.sha256(more.encode())
    for path in sorted(paths):
        digest.update(f"{path.relative_to(ROOT)}\n{_code(path)}".encode())
    return digest.hexdigest()[:16]


@functools.cache
def _machines() -> str:
    """The sample's machines, and what a configuration means; other presets are no part of it."""
    return _rules(_CONFIG, but="PRESETS") + repr([plan.machine(name) for name in plan.CONFIGS])


@functools.cache
def sources_digest() -> str:
    """Of the RTL of the sample's machines, in which a test without a mutant takes its time and reaches what it reaches. What
    surrounds a machine on a board is no part of it."""
    machine = [path for path in RTL.rglob("*.py") if path.relative_to(RTL).parts[0] != "board"]
    machine += [path for path in _CONTRACTS.rglob("*.py") if path != _CONFIG]
    return f"{_digest(machine, _machines())}-{VERSION}"


@functools.cache
def _matrices() -> str:
    """The same of machines that multiply matrices."""
    return _rules(_CONTRACTS / "matrix_config.py", but="") + repr([plan.machine(name) for name in plan.MATRICES])


@functools.cache
def _files_digest(files: frozenset[str]) -> str:
    matrices = _matrices() if any(file.startswith("matrix/") for file in files) else ""
    return f"{_digest((RTL / file for file in files), _machines() + matrices)}-{VERSION}"


def module_digest(mutant: Mutant) -> str:
    """Of the module that a mutant changes: its result counts as long as this stays, and :data:`VERSION`.

    A change of another module that no byte shows seldom hides a fault of this one; all anew, from time to time: ``--fresh``.
    """
    return _files_digest(frozenset({mutant.place.file, mutant.place.owner.partition(":")[0]}))


@functools.cache
def file_digest(node: str) -> str:
    """Of the file of a test: a mutant that it did not notice meets it again when the file has changed."""
    return hashlib.sha256(_code(ROOT / node.partition("::")[0]).encode()).hexdigest()[:16]


def _key(test: str) -> str:
    return f"{test} {file_digest(test)}"


def untried(tests: Sequence[str], result: "Result | None") -> list[str]:
    """Those of a mutant's tests that it has not met as they are now."""
    passed = {} if result is None else result.passed
    return [test for test in tests if passed.get(test) != file_digest(test)]


def read_results(path: Path = RESULTS, *, stale: bool = False) -> dict[str, Result]:
    """Results by mutant, the last one of each; only those of modules as they are, unless ``stale``."""
    found: dict[str, Result] = {}
    sources = {} if stale else {mutant.name: module_digest(mutant) for mutant in plan.read_plan()}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                result = Result(**json.loads(line))
            except (json.JSONDecodeError, TypeError):
                continue  # a line that was cut off when the run was stopped
            if stale or result.sources == sources.get(result.name):
                found[result.name] = result
    return found


@dataclasses.dataclass
class _Work:
    """A mutant on its way through its tests."""

    number: int
    left: list[str]
    passed: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    test: str = ""
    folder: Any = None


@dataclasses.dataclass
class _Baseline:
    """A test without a mutant: processor time, cycles of whole machines, and the names of the mutants that it reaches, if it can
    tell."""

    seconds: float
    cycles: int
    passes: bool
    reached: list[str] | None = None

    def reaches(self, mutant: Mutant) -> bool:
        return self.reached is None or mutant.name in self.reached


class Runner:
    """Tests with one mutant each.

    Parameters
    ----------
    mutants : sequence of :class:`Mutant`
        All that one build holds, at most 65535.
    jobs : :class:`int`
        Processes at a time.
    choose : callable
        The tests of a mutant, in their order.
    seconds : :class:`float`, optional
        What every test takes without a mutant, instead of a run of each to find out.
    """

    def __init__(self, mutants: Sequence[Mutant], *, jobs: int = 1,
                 choose: Callable[[Mutant], Sequence[str]] = lambda mutant: killers(mutant),
                 seconds: float | None = None,
                 report: Callable[[str], None] = lambda line: print(line, flush=True)) -> None:
        self.mutants, self.jobs, self.choose, self.report = list(mutants), jobs, choose, report
        self._seconds = seconds
        instrument.install(self.mutants)
        self._baselines: dict[str, _Baseline] = {}
        names = hashlib.sha256(" ".join(mutant.name for mutant in self.mutants).encode()).hexdigest()[:16]
        self._store = cache_folder() / "mutants" / f"baselines-{sources_digest()}-{names}.json"
        if self._store.exists():
            self._baselines = {test: _Baseline(**entry) for test, entry in json.loads(self._store.read_text()).items()}
        _count_cycles()
        _remember_programs()

    def warm(self, tests: Sequence[str]) -> None:
        """Run these tests in this process without a mutant, so that its children find modules loaded, machines built and
        programs compiled."""
        instrument.select(0)
        for test in tests:
            code = pytest.main(_arguments(test, tempfile.mkdtemp(prefix="mutants-")))
            assert code == 0, f"{test} fails without a mutant"

    def run(self, numbers: Iterable[int], done: Callable[[Result], None], earlier: Mapping[str, Result] | None = None) -> None:
        """Run the mutants of these numbers (from 1), each against its tests in their order until one notices it. Of all that come
        next, the cheapest test is run first, for every mutant that waits for it. What has passed is reported in between, and not
        run again when ``earlier`` says so."""
        working = [self._work(number, earlier or {}) for number in numbers]
        for work in working:
            if not work.left:
                done(self._result(work, "lives", ""))
        while working := [work for work in working if work.left]:
            test = min((work.left[0] for work in working), key=self._guess)
            self._meet(test, [work for work in working if work.left[0] == test], done)

    def _guess(self, test: str) -> float:
        """Seconds that a test takes; one that was never run may first build a machine."""
        known = self._baselines.get(_key(test))
        return _UNKNOWN_SECONDS if known is None else known.seconds

    def _meet(self, test: str, works: Sequence["_Work"], done: Callable[[Result], None]) -> None:
        """Run one test for all who wait for it; a mutant that it does not reach passes without being run."""
        baseline = self.baseline(test)
        waiting: list[_Work] = []
        for work in works:
            work.left.pop(0)
            if baseline.passes and baseline.reaches(self.mutants[work.number - 1]):
                waiting.append(work)
                continue
            if baseline.passes:
                work.passed[test] = file_digest(test)
            if not work.left:
                done(self._result(work, "lives", ""))
        self.report(f"{test}: {len(waiting)} of {len(works)} mutants are reached, {baseline.seconds} s each")
        children: dict[int, _Work] = {}
        while waiting or children:
            while len(children) < self.jobs and waiting:
                work = waiting.pop(0)
                work.test = test
                children[self._fork(work, baseline)] = work
            pid, status, usage = os.wait4(-1, 0)
            work = children.pop(pid)
            work.seconds += usage.ru_utime + usage.ru_stime
            outcome, message = _judge(status, Path(work.folder.name))
            work.folder.cleanup()
            if outcome == "passes":
                work.passed[test] = file_digest(test)
                work.test = ""
                done(self._result(work, "lives", ""))
            else:
                work.left = []
                done(self._result(work, outcome, message))

    def _work(self, number: int, earlier: Mapping[str, Result]) -> "_Work":
        mutant = self.mutants[number - 1]
        tests, known = self.choose(mutant), earlier.get(mutant.name)
        left = untried(tests, known)
        if known is None:
            return _Work(number, left)
        passed = {test: digest for test, digest in known.passed.items() if digest == file_digest(test)}
        return _Work(number, left, passed, known.seconds)

    def _result(self, work: "_Work", outcome: str, message: str) -> Result:
        mutant = self.mutants[work.number - 1]
        return Result(mutant.name, outcome, work.test, message, round(work.seconds, 2), module_digest(mutant), dict(work.passed))

    def baseline(self, test: str) -> _Baseline:
        """What the test takes without a mutant. One that fails then is left out, and said so."""
        if self._seconds is not None:
            return _Baseline(self._seconds, 0, True)
        key = _key(test)
        if key not in self._baselines:
            child = _Work(0, [], test=test)
            pid = self._fork(child, _Baseline(1e6, 1 << 40, True))
            _, status, usage = os.wait4(pid, 0)
            folder = Path(child.folder.name)
            outcome, message = _judge(status, folder)
            cycles = int((folder / "cycles").read_text()) if (folder / "cycles").exists() else 0
            reached = self._reached(folder / "reached")
            child.folder.cleanup()
            self._baselines[key] = _Baseline(round(usage.ru_utime + usage.ru_stime, 1), cycles, outcome == "passes", reached)
            if outcome != "passes":
                self.report(f"{test} fails without a mutant and is left out: {message}")
            self._store.parent.mkdir(parents=True, exist_ok=True)
            self._store.write_text(json.dumps({name: dataclasses.asdict(entry) for name, entry in self._baselines.items()}))
        return self._baselines[key]

    def _reached(self, told: Path) -> list[str] | None:
        """Names of the mutants that a run without one said it reaches; nothing if none of what it ran could say."""
        if not told.exists():
            return None
        return sorted({self.mutants[int(number) - 1].name for number in told.read_text().split() if number != "0"})

    def _fork(self, work: "_Work", baseline: _Baseline) -> int:
        work.folder = tempfile.TemporaryDirectory(prefix="mutant-")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = _child(work.number, work.test, baseline, Path(work.folder.name))
            finally:
                os._exit(code)
        return pid


def _arguments(test: str, base: str) -> list[str]:
    return ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"),
            "--basetemp", f"{base}/tmp", str(ROOT / test)]


def _child(number: int, test: str, baseline: _Baseline, folder: Path) -> int:
    os.setsid()
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = sys.stderr = os.fdopen(log, "w")  # also where the parent's were replaced
    seconds = int(_LIMIT * baseline.seconds) + _SPARE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(60 * seconds)  # a test that waits for what never comes
    _cycles.update(taken=0, limit=_CYCLE_LIMIT * baseline.cycles + _SPARE_CYCLES if baseline.cycles else 1 << 40)
    instrument.select(number)
    if number == 0:
        instrument.tell(folder / "reached")
    code = int(pytest.main(_arguments(test, str(folder))))
    (folder / "cycles").write_text(str(_cycles["taken"]))
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _judge(status: int, folder: Path) -> tuple[str, str]:
    log = (folder / "log").read_text(errors="replace").splitlines() if (folder / "log").exists() else []
    said = next((line for line in log if line.startswith(("FAILED", "ERROR"))), log[-1] if log else "")[:300]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ("timeout" if number in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL) else "crash"), f"signal {number}"
    code = os.WEXITSTATUS(status)
    if code == 0:
        return "passes", ""
    if code == INVALID:
        return "invalid", said
    if code == 1:
        return ("timeout" if _TIMEOUT in "\n".join(log) else "killed"), said
    return "invalid", f"exit code {code}: {said}"


_TIMEOUT = "the mutant takes far too many cycles"
_cycles = {"taken": 0, "limit": 1 << 40}


@functools.cache
def _count_cycles() -> None:
    """Machines stop with an error after :data:`_CYCLE_LIMIT` times the cycles that the test takes without a mutant."""
    run = RtlDevice.run

    def limited(self: RtlDevice, max_cycles: int) -> int:
        taken = run(self, min(max_cycles, max(1, _cycles["limit"] - _cycles["taken"])))
        _cycles["taken"] += taken
        assert _cycles["taken"] < _cycles["limit"], _TIMEOUT
        return taken

    RtlDevice.run = limited  # type: ignore[method-assign]


@functools.cache
def _remember_programs() -> None:
    """Programs do not depend on mutants: they are compiled once for all children."""
    from gradloom.host.devices import runner

    compiled: dict[str, Any] = {}
    compile_network = runner.compile_network

    def remembered(*args: Any, **kwargs: Any) -> Any:
        key = repr((args, kwargs))
        if key not in compiled:
            compiled[key] = compile_network(*args, **kwargs)
        return compiled[key]

    runner.compile_network = remembered
