"""Run mutants against the tests: one process each, forked from one that has imported everything and built the machine."""

import dataclasses
import functools
import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradloom.sim.rtl_device import RtlDevice
from gradloom.sim.verilate import cache_folder
from gradloom.verif.checkout import ROOT, TESTS
from gradloom.verif.mutants import instrument
from gradloom.verif.mutants.instrument import INVALID, RTL, Mutant
from gradloom.verif.mutants.killers import killers

__all__ = ["RESULTS", "Result", "Runner", "read_results", "sources_digest", "tests_digest"]

RESULTS = ROOT / "docs" / "results" / "mutants" / "results.jsonl"
"""One line for each run of a mutant; the last of a mutant counts."""
_LIMIT = 8
"""A test may take this many times the processor time and the machine's cycles that it takes without a mutant, and _SPARE."""
_SPARE_SECONDS, _SPARE_CYCLES = 15, 50_000


@dataclasses.dataclass(frozen=True)
class Result:
    """Outcome of one mutant.

    Parameters
    ----------
    outcome : :class:`str`
        ``killed`` (a test failed), ``timeout`` (it took far too many cycles or far too much processor time), ``crash`` (the
        process died), ``lives``, or ``invalid`` (it cannot be elaborated); the first three are kills.
    killer : :class:`str`
        The test, or nothing.
    message : :class:`str`
        The end of what that test said.
    seconds : :class:`float`
        Processor time of all tests that ran.
    """

    name: str
    outcome: str
    killer: str
    message: str
    seconds: float
    sources: str
    tests: str

    @property
    def dead(self) -> bool:
        return self.outcome in ("killed", "timeout", "crash")


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def sources_digest() -> str:
    """Of the RTL and of what mutates it: a result of other sources does not count."""
    here = Path(__file__).parent
    return _digest([*RTL.rglob("*.py"), here / "operators.py", here / "instrument.py"])


@functools.cache
def tests_digest() -> str:
    """Of the tests and what they use: a mutant that lived under others is tried again."""
    return _digest([*TESTS.rglob("*.py"), *TESTS.rglob("*.toml"),
                    *(path for path in (ROOT / "verif" / "gradloom").rglob("*.py") if "mutants" not in path.parts)])


def read_results(path: Path = RESULTS, *, stale: bool = False) -> dict[str, Result]:
    """Results by mutant that still count: a kill while the RTL is the same, a survival while the tests are, too."""
    found: dict[str, Result] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                result = Result(**json.loads(line))
            except (json.JSONDecodeError, TypeError):
                continue  # a line that was cut off when the run was stopped
            if stale or result.sources == sources_digest() and (result.dead or result.tests == tests_digest()):
                found[result.name] = result
    return found


@dataclasses.dataclass
class _Child:
    mutant: int
    test: str
    folder: tempfile.TemporaryDirectory[str]
    began: float


@dataclasses.dataclass
class _Baseline:
    seconds: float
    cycles: int
    passes: bool


class Runner:
    """Tests with one mutant each.

    Parameters
    ----------
    mutants : sequence of :class:`Mutant`
        All that one build holds, at most 65535.
    jobs : :class:`int`
        Processes at a time.
    """

    def __init__(self, mutants: Sequence[Mutant], *, jobs: int = 1,
                 choose: Callable[[Mutant], Sequence[str]] = lambda mutant: killers(mutant),
                 report: Callable[[str], None] = lambda line: print(line, flush=True)) -> None:
        self.mutants, self.jobs, self.choose, self.report = list(mutants), jobs, choose, report
        instrument.install(self.mutants)
        self._plan = hashlib.sha256(repr((self.mutants, sources_digest(), tests_digest())).encode()).hexdigest()[:24]
        self._baselines: dict[str, _Baseline] = {}
        self._store = cache_folder() / "mutants" / f"{self._plan}.json"
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

    def run(self, numbers: Iterable[int], done: Callable[[Result], None]) -> None:
        """Run the mutants of these numbers (from 1), each until a test kills it."""
        waiting = list(numbers)[::-1]
        state: dict[int, tuple[list[str], float]] = {}
        children: dict[int, _Child] = {}
        while waiting or children or state:
            while len(children) < self.jobs and waiting:
                number = waiting.pop()
                state[number] = (list(self.choose(self.mutants[number - 1])), 0.0)
                self._next(number, state, children, done)
            if not children:
                continue
            pid, status, usage = os.wait4(-1, 0)
            child = children.pop(pid)
            left, seconds = state[child.mutant]
            seconds += usage.ru_utime + usage.ru_stime
            state[child.mutant] = (left, seconds)
            outcome, message = _judge(status, Path(child.folder.name))
            child.folder.cleanup()
            if outcome == "passes":
                self._next(child.mutant, state, children, done)
            else:
                del state[child.mutant]
                done(self._result(child.mutant, outcome, child.test, message, seconds))

    def _next(self, number: int, state: dict[int, tuple[list[str], float]], children: dict[int, _Child],
              done: Callable[[Result], None]) -> None:
        left, seconds = state[number]
        while left:
            test = left.pop(0)
            baseline = self.baseline(test)
            if baseline.passes:
                pid, child = self._fork(number, test, baseline)
                children[pid] = child
                return
        del state[number]
        done(self._result(number, "lives", "", "", seconds))

    def _result(self, number: int, outcome: str, test: str, message: str, seconds: float) -> Result:
        return Result(self.mutants[number - 1].name, outcome, test, message, round(seconds, 2), sources_digest(), tests_digest())

    def baseline(self, test: str) -> _Baseline:
        """What the test takes without a mutant. One that fails then is left out, and said so."""
        if test not in self._baselines:
            pid, child = self._fork(0, test, _Baseline(1e6, 1 << 40, True))
            _, status, usage = os.wait4(pid, 0)
            folder = Path(child.folder.name)
            outcome, message = _judge(status, folder)
            cycles = int((folder / "cycles").read_text()) if (folder / "cycles").exists() else 0
            child.folder.cleanup()
            self._baselines[test] = _Baseline(round(usage.ru_utime + usage.ru_stime, 1), cycles, outcome == "passes")
            self.report(f"{test}: {self._baselines[test].seconds} s" if outcome == "passes"
                        else f"{test} fails without a mutant and is left out: {message}")
            self._store.parent.mkdir(parents=True, exist_ok=True)
            self._store.write_text(json.dumps({name: dataclasses.asdict(entry) for name, entry in self._baselines.items()}))
        return self._baselines[test]

    def _fork(self, number: int, test: str, baseline: _Baseline) -> tuple[int, _Child]:
        folder = tempfile.TemporaryDirectory(prefix="mutant-")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = _child(number, test, baseline, Path(folder.name))
            finally:
                os._exit(code)
        return pid, _Child(number, test, folder, time.monotonic())


def _arguments(test: str, base: str) -> list[str]:
    return ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"),
            "--basetemp", f"{base}/tmp", str(ROOT / test)]


def _child(number: int, test: str, baseline: _Baseline, folder: Path) -> int:
    os.setsid()
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    seconds = int(_LIMIT * baseline.seconds) + _SPARE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(60 * seconds)  # a test that waits for what never comes
    _cycles.update(taken=0, limit=_LIMIT * baseline.cycles + _SPARE_CYCLES if baseline.cycles else 1 << 40)
    instrument.select(number)
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
    """Machines stop with an error after :data:`_LIMIT` times the cycles that the test takes without a mutant."""
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
