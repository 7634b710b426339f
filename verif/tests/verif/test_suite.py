"""Nothing is skipped in silence: the options of :mod:`gradloom.verif.suite`, on a suite of their own, with and without xdist."""

import subprocess
import sys

import pytest

from gradloom.verif.checkout import ROOT
from gradloom.verif.suite import FIRST, beginning_with_the_longest

SUITE = '''
import pytest
def test_runs(): pass
@pytest.mark.long("a larger machine")
def test_long(): pass
def test_package(): pytest.importorskip("no_such_package", reason="no_such_package is not installed")
def test_gpu(): pytest.skip("needs a GPU")
@pytest.mark.xfail(reason="known", strict=True)
def test_known(): assert False
'''
FILE = 'import pytest\npytest.importorskip("no_such_package")\ndef test_it(): pass\n'


@pytest.fixture
def run(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p gradloom.verif.suite\n")
    (tmp_path / "test_some.py").write_text(SUITE)
    (tmp_path / "test_file.py").write_text(FILE)

    def pytest_there(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments], cwd=tmp_path,
                              capture_output=True, text=True, check=False)
    return pytest_there


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_what_was_skipped_is_written_and_runs_from_the_file(run, tmp_path, workers):
    done = run(*workers, "--skips-to", "out/skips.txt")
    assert done.returncode == 0, done.stdout
    assert sorted((tmp_path / "out/skips.txt").read_text().split()) == [
        "test_file.py", "test_some.py::test_gpu", "test_some.py::test_package"]
    (tmp_path / "no_such_package.py").write_text("")
    again = run(*workers, "@out/skips.txt", "--no-skips")
    assert again.returncode == 0 and "2 passed, 1 skipped" in again.stdout, again.stdout


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_a_skip_that_is_not_allowed_fails(run, workers):
    done = run(*workers, "--no-skips")
    assert done.returncode == 1
    told = [line for line in done.stdout.splitlines() if "--no-skips" in line]
    assert len(told) == 2 and any("test_package: Skipped: no_such_package is not installed" in line for line in told), done.stdout


def test_long_tests_run_when_asked(run):
    assert "2 passed" in run("test_some.py", "--long", "-k", "runs or long").stdout


def test_the_options_are_known_before_any_folder_is_read():
    """pytest takes the value of an option that it does not know yet for a path; it need not exist, as in a fresh clone."""
    command = [sys.executable, "-m", "pytest", "--markers", "--skips-to", "no/such/folder/skips.txt", "--netlist", "all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "long(reason)" in done.stdout, done.stderr


def test_the_longest_come_first_in_both_halves():
    """Every test runs once, files stay together, and a worker that begins in the middle begins with long ones, too."""
    short = [f"verif/tests/host/test_{i}.py::test_{k}" for i in range(10) for k in range(8)]
    long = [f"{file}::test_{k}" for file in FIRST for k in range(2)]
    names = [*short[:30], *long, *short[30:]]
    places = beginning_with_the_longest(names)
    assert sorted(places) == list(range(len(names)))
    ordered = [names[n] for n in places]
    for half in (ordered, ordered[len(ordered) // 2:]):
        assert [name.split("::")[0] for name in half[:len(FIRST)]] == [
            file for file in FIRST[0 if half is ordered else 1::2] for _ in range(2)]
    assert [name for name in ordered if name in short] == short
    assert beginning_with_the_longest(long[:3]) == [0, 1, 2] and beginning_with_the_longest([]) == []


def test_what_comes_first_is_there():
    assert [file for file in FIRST if not (ROOT / file).is_file()] == []
