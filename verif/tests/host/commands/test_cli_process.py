"""The command line as a process: exit codes, streams, a run that is killed or interrupted and goes on to the same bytes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.verif.cli_desk import GOOD


def _listen() -> None:
    """A run that was started in the background of a shell ignores SIGINT; its children must not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(arguments: list[str], folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "gradloom.host.cli", *arguments],
        cwd=folder,
        env=os.environ,
        text=True,
        preexec_fn=_listen,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_exit_code_and_streams_of_the_process(desk):
    process = start(["train", *GOOD, "--batch", "0"], desk)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2 and out == "" and len(err.splitlines()) == 1


def test_broken_pipe(desk):
    process = start(["doctor"], desk)
    process.stdout.close()
    process.wait(timeout=120)
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def wait_for_checkpoint(process: subprocess.Popen, folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint.npz").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_stopped_run_resumes_to_the_same_bytes(desk, how):
    """A run that is killed or interrupted in the middle goes on to the parameters and the record of one that was not."""
    arguments = ["train", *GOOD, "--epochs", "12"]
    process = start([*arguments, "--out", "cut"], desk)
    wait_for_checkpoint(process, desk / "cut")
    process.send_signal(how)
    _, err = process.communicate(timeout=120)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    if how == signal.SIGINT:
        assert err.splitlines()[-1].startswith("gradloom: interrupted") and "Traceback" not in err
    cut = json.loads((desk / "cut" / "run.json").read_text())
    assert len(cut["steps"]) < cut["total_steps"], "the run must be stopped in its middle"
    assert cli.main(["train", "--resume", "cut"]) == 0
    assert cli.main([*arguments, "--out", "whole"]) == 0
    cut, whole = (json.loads((desk / name / "run.json").read_text()) for name in ("cut", "whole"))
    assert cut == whole
    if how == signal.SIGINT:
        assert not [path for path in (desk / "cut").iterdir() if path.name.startswith(".")], (
            "no half-written file stays"
        )
    with np.load(desk / "cut" / "checkpoint.npz") as a, np.load(desk / "whole" / "checkpoint.npz") as b:
        assert set(a.files) == set(b.files)
        assert all(np.array_equal(a[key], b[key]) for key in a.files)
