"""The tests that may kill a mutant of a module, from cheap to dear; ``.ci/run`` runs all of them."""

from gradloom.verif.checkout import ROOT
from gradloom.verif.mutants.instrument import Mutant

__all__ = ["MACHINE", "QUICK", "killers"]

_TESTS = "verif/tests"
MACHINE = tuple(f"{_TESTS}/system/test_verify.py::test_nano[{name}]" for name in ("tiny-relu", "tiny-residual"))
"""Two short training steps on the smallest machine, in every byte: one build holds the mutants of all modules."""

_ACORE = f"{_TESTS}/rtl/acore/test_acore.py"
_CCORE = f"{_TESTS}/rtl/ccore/test_ccore.py"
_ACCELERATOR = f"{_TESTS}/rtl/test_accelerator.py::test_accelerator"
_FAULTS = f"{_TESTS}/system/test_faults.py"
_NETWORKS = tuple(f"{_TESTS}/system/test_verify.py::{test}" for test in (
    "test_nano[tiny-awkward]", "test_nano[tiny-rows]", "test_nano[tiny-branches]", "test_nano[tiny-strided]",
    "test_small[tiny-awkward]", "test_small[tiny-residual]"))
_CHANNELS = (f"{_TESTS}/system/test_channels.py",)
_ROOMS = {
    "acore": (_ACORE, *_NETWORKS),
    "ccore": (_CCORE, *_NETWORKS),
    "memory_path": (_FAULTS, f"{_TESTS}/system/test_stalls.py", *_CHANNELS, *_NETWORKS),
    "registers": (_ACCELERATOR, _FAULTS, f"{_TESTS}/system/test_autonomy.py"),
    "sequencer": (_ACCELERATOR, _FAULTS, *_CHANNELS, *_NETWORKS),
    "": (_ACCELERATOR, _FAULTS, *_CHANNELS, _ACORE, _CCORE, *_NETWORKS),
}
"""Behind the tests of the part itself."""
_PARTS = {
    "acore/acore.py": ("rtl/acore/test_acore.py",),
    "acore/apu.py": ("rtl/acore/test_acore.py",),
    "acore/buffers.py": ("rtl/acore/test_acore.py",),
    "acore/converter.py": ("formal/test_formal_arith.py",),
    "acore/dither.py": ("rtl/acore/test_dither_rtl.py",),
    "acore/scalars.py": ("rtl/acore/test_prepare.py",),
    "acore/setup.py": ("rtl/acore/test_prepare.py", "rtl/acore/test_scalars.py"),
    "acore/softmax.py": ("rtl/acore/test_softmax_rtl.py",),
    "ccore/colwalk.py": ("rtl/ccore/test_feed.py",),
    "ccore/rowwalk.py": ("rtl/ccore/test_feed.py", "rtl/ccore/test_psum_sums.py"),
    "ccore/operands.py": ("rtl/ccore/test_pe.py",),
    "ccore/mac.py": ("rtl/ccore/test_pe.py", "formal/test_formal_arith.py", "formal/test_double_pumped.py"),
    "ccore/magnitude.py": ("rtl/ccore/test_psum_sums.py", "formal/test_formal_xc7.py"),
    "ccore/pe.py": ("rtl/ccore/test_pe_accumulator.py",),
    "delay.py": ("rtl/acore/test_align.py", "rtl/acore/test_scalars.py"),
    "fifo.py": ("formal/test_formal_memsys.py",),
    "memory_path/axi.py": ("rtl/memory_path/test_axi_read.py", "rtl/memory_path/test_axi_write.py", "formal/test_formal_memsys.py"),
    "memory_path/axi_read.py": ("formal/test_formal_memsys.py",),
    "memory_path/axi_write.py": ("formal/test_formal_memsys.py",),
    "memory_path/runs.py": ("rtl/memory_path/test_loader.py", "rtl/memory_path/test_storer.py"),
    "memory_path/window.py": ("formal/test_formal_memsys.py",),
    "pint.py": ("rtl/test_pint_rtl.py", "formal/test_formal_arith.py"),
    "sequencer/own_commands.py": ("rtl/sequencer/test_sequencer.py",),
    "sequencer/program_fetch.py": ("rtl/sequencer/test_sequencer.py",),
    "sequencer/program_window.py": ("rtl/sequencer/test_sequencer.py",),
    "sequencer/seed_unit.py": ("rtl/sequencer/test_scale_unit.py",),
    "sequencer/semaphores.py": ("rtl/sequencer/test_queue.py",),
}
"""Tests of a part that are not in the file of its name."""


_MACHINES = {
    "small": tuple(f"{_TESTS}/system/test_verify.py::test_small[{name}]" for name in ("tiny-relu", "tiny-residual")),
    "channels": _CHANNELS,
    "laps": (f"{_TESTS}/system/test_random_networks_rtl.py",),
    "ulx3s": (f"{_TESTS}/system/test_verify.py::test_ulx3s[tiny-awkward]",),
    "post-shift": (f"{_TESTS}/rtl/ccore/test_mac.py", f"{_TESTS}/rtl/ccore/test_pe.py"),
}
"""Whole machines that have what the smallest one lacks."""


def _mirrored(file: str) -> list[str]:
    room, _, name = file.rpartition("/")
    folder = f"{_TESTS}/rtl/{room}" if room else f"{_TESTS}/rtl"
    names = (f"{folder}/test_{name}", f"{folder}/test_{name.removesuffix('.py')}_rtl.py")
    return [found for found in names if (ROOT / found).exists()]


def killers(mutant: Mutant) -> list[str]:
    """pytest nodes, relative to the repository, for a mutant."""
    file = mutant.place.file
    parts = [*_mirrored(file), *(f"{_TESTS}/{test}" for test in _PARTS.get(file, ()))]
    room = _ROOMS[file.rpartition("/")[0]]
    found = [*MACHINE, *parts, *room] if mutant.config == "nano" else [*parts, *_MACHINES[mutant.config], *room]
    return list(dict.fromkeys(found))


QUICK = {
    "acore/divider.py": "rtl/acore/test_divider.py::test_quotients",
    "acore/poolwalk.py": "rtl/acore/test_poolwalk.py",
    "ccore/banks.py": "rtl/ccore/test_banks.py",
    "fifo.py": "rtl/test_fifo.py",
    "memory_path/load_arbiter.py": "rtl/memory_path/test_load_arbiter.py",
    "sequencer/queue.py": "rtl/sequencer/test_queue.py",
    "sequencer/semaphores.py": "rtl/sequencer/test_queue.py",
}
"""Modules with a test that takes a second or two on Amaranth's simulator, where nothing is built: the suite keeps twenty of their
mutants."""
