"""The tests that may kill a mutant of a module, from cheap to dear; ``.ci/run`` runs all of them."""

from gradloom.verif.checkout import ROOT
from gradloom.verif.mutants.instrument import Mutant
from gradloom.verif.mutants.plan import MATRICES

__all__ = ["MACHINE", "QUICK", "killers"]

_TESTS = "verif/tests"
MACHINE = tuple(f"{_TESTS}/system/test_verify.py::test_nano[{name}]" for name in ("tiny-relu", "tiny-residual"))
"""Two short training steps on the smallest machine, in every byte: one build holds the mutants of all modules."""

_ACORE = "rtl/acore/test_acore.py::test_acore[g4w2]"
_TURNS = "rtl/acore/test_acore.py::test_acore_in_turns"
_CCORE = "rtl/ccore/test_ccore.py::test_ccore[g1_w1]"
_ACCELERATOR = "rtl/test_accelerator.py::test_accelerator[channels]"
_FAULTS = "system/test_faults.py"
_PLACES = "rtl/memory_path/test_fault_places.py"
_NANO = tuple(f"system/test_verify.py::{test}" for test in (
    "test_hyperparameters_at_their_edges", "test_nano[tiny-awkward]", "test_nano[tiny-rows]", "test_nano[tiny-branches]",
    "test_nano[tiny-strided]"))
"""Some seconds each, on the same build as :data:`MACHINE`."""
_NUMBERS = ("system/test_programs.py", "system/test_registers.py")
"""Every bit of what programs and registers hold, on that build, too."""
_SMALL = tuple(f"system/test_verify.py::{test}" for test in ("test_small[tiny-awkward]", "test_small[tiny-residual]"))
_CHANNELS = ("system/test_channels.py",)
_MATRIX = ("system/test_matrix_machine.py",)
_ROOMS = {
    "acore": (_ACORE, _TURNS, "system/test_overflow_rtl.py", *_SMALL),
    "ccore": (_CCORE, "system/test_overflow_rtl.py", *_SMALL),
    "matrix": _MATRIX,
    "memory_path": (_FAULTS, _PLACES, "system/test_stalls.py", *_CHANNELS, *_SMALL),
    "registers": (_ACCELERATOR, _FAULTS, "system/test_autonomy.py"),
    "sequencer": (_ACCELERATOR, _FAULTS, _PLACES, *_CHANNELS, *_SMALL),
    "": (_ACCELERATOR, _FAULTS, _PLACES, *_CHANNELS, _ACORE, _CCORE, *_SMALL),
}
"""Whole cores and machines, behind the tests of the part itself and the small machine's networks."""
_PARTS = {
    "acore/acore.py": ("rtl/acore/test_acore_order.py",),
    "acore/align.py": ("formal/test_formal_align.py::test_align", "formal/test_formal_align.py::test_align_narrow"),
    "acore/apu.py": ("rtl/acore/test_lanes.py",),
    "acore/converter.py": ("formal/test_formal_arith.py::test_converter",),
    "acore/dither.py": ("rtl/acore/test_dither_rtl.py", "formal/test_formal_seed_unit.py::test_dither"),
    "acore/divider.py": ("formal/test_formal_divider.py::test_divider",),
    "acore/lanes.py": ("formal/test_formal_flags.py::test_flags[lanes]",),
    "acore/scalar_stage.py": ("rtl/acore/test_acore_order.py", "rtl/acore/test_tail.py",
                         "formal/test_formal_flags.py::test_flags[prepare]",),
    "acore/scalars.py": ("rtl/acore/test_scalar_stage.py",),
    "acore/shift_setup.py": ("rtl/acore/test_tail.py", "rtl/acore/test_scalar_stage.py", "rtl/acore/test_scalars.py"),
    "acore/turns.py": ("rtl/acore/test_turns.py", "rtl/acore/test_acore.py::test_acore_in_turns"),
    "acore/softmax.py": ("rtl/acore/test_softmax_rtl.py",),
    "ccore/ccore.py": ("rtl/ccore/test_ccore_commands.py", "formal/test_formal_flags.py::test_flags[ccore]"),
    "ccore/cluster.py": ("rtl/ccore/test_ccore_commands.py",),
    "ccore/column_sequencer.py": ("rtl/ccore/test_input_network.py", "rtl/ccore/test_ccore_commands.py"),
    "ccore/drain.py": ("rtl/ccore/test_ccore_commands.py",),
    "ccore/input_network.py": ("rtl/ccore/test_ccore_commands.py",),
    "ccore/row_sequencer.py": ("rtl/ccore/test_input_network.py", "rtl/ccore/test_plane_l1_sums.py",
                               "rtl/ccore/test_ccore_commands.py"),
    "ccore/window_registers.py": ("rtl/ccore/test_pe.py",),
    "ccore/mac.py": ("rtl/ccore/test_wpu.py::test_the_largest_product",
                     "rtl/ccore/test_wpu.py::test_each_code_of_an_error_counts_as_its_value", "rtl/ccore/test_pe.py",
                     "formal/test_formal_arith.py::test_multiplier", "formal/test_formal_xc7.py::test_slice_is_the_mac",
                     "formal/test_double_pumped.py"),
    "ccore/abs_accumulator.py": ("rtl/ccore/test_plane_l1_sums.py", "formal/test_formal_sums.py::test_magnitude",
                           "formal/test_formal_xc7.py::test_slice_is_the_sum_of_magnitudes"),
    "ccore/pe.py": ("rtl/ccore/test_pe_accumulator.py", "formal/test_formal_sums.py::test_accumulator_flag"),
    "ccore/psum.py": ("rtl/ccore/test_plane_l1_sums.py", "formal/test_formal_sums.py::test_partial_sums"),
    "ccore/weight_network.py": ("rtl/ccore/test_ccore_commands.py",),
    "command.py": ("rtl/sequencer/test_queue.py", "rtl/sequencer/test_tails.py"),
    "delay.py": ("rtl/acore/test_align.py", "rtl/acore/test_scalars.py"),
    "fifo.py": ("formal/test_formal_memsys.py::test_fifo",),
    "memory_path/axi.py": ("formal/test_formal_memsys.py::test_splitter", "formal/test_formal_read_manager.py::test_fault_report",
                           "rtl/memory_path/test_axi_read.py", "rtl/memory_path/test_axi_write.py",
                           "rtl/memory_path/test_axi_read_faults.py", "rtl/memory_path/test_axi_write_faults.py"),
    "memory_path/axi_read.py": ("formal/test_formal_memsys.py::test_read_window", "formal/test_formal_read_manager.py::test_order",
                                "formal/test_formal_read_manager.py::test_data", "rtl/memory_path/test_axi_read_faults.py"),
    "memory_path/axi_write.py": ("formal/test_formal_memsys.py::test_write", "formal/test_formal_write_manager.py::test_order",
                                 "formal/test_formal_write_manager.py::test_data", "rtl/memory_path/test_axi_write_faults.py"),
    "memory_path/load_arbiter.py": ("formal/test_formal_load_arbiter.py::test_arbiter",),
    "memory_path/loader.py": ("rtl/memory_path/test_transfers.py",),
    "memory_path/strided_address.py": ("rtl/memory_path/test_loader.py", "rtl/memory_path/test_storer.py"),
    "memory_path/storer.py": ("rtl/memory_path/test_transfers.py",),
    "memory_path/window.py": ("formal/test_formal_memsys.py::test_window", "rtl/memory_path/test_axi_write_faults.py"),
    "pint.py": ("formal/test_formal_arith.py::test_codec",),
    "registers/control.py": ("formal/test_formal_control.py::test_control",),
    "registers/csr.py": ("formal/test_formal_csr.py::test_csr",),
    "sequencer/control_commands.py": ("rtl/sequencer/test_sequencer.py",),
    "sequencer/program_fetch.py": ("formal/test_formal_program_fetch.py::test_fetch", "rtl/sequencer/test_sequencer.py"),
    "sequencer/program_window.py": ("rtl/sequencer/test_program_fetch.py::test_window",
                                    "formal/test_formal_program_fetch.py::test_fetch", "rtl/sequencer/test_sequencer.py"),
    "sequencer/queue.py": ("rtl/sequencer/test_queue_bounds.py", "rtl/sequencer/test_tails.py",
                           "formal/test_formal_queue.py::test_queue"),
    "sequencer/scale_unit.py": ("rtl/sequencer/test_scale_events.py", "formal/test_formal_scale_unit.py::test_scale_unit"),
    "sequencer/seed_unit.py": ("rtl/sequencer/test_scale_unit.py", "formal/test_formal_seed_unit.py::test_seed_unit"),
    "sequencer/semaphores.py": ("rtl/sequencer/test_queue.py", "formal/test_formal_semaphores.py::test_semaphores"),
}
"""Tests of a part that are not in the file of its name, from cheap to dear."""


_MACHINES = {
    "small": ("system/test_verify.py::test_small[tiny-relu]", "system/test_verify.py::test_small[tiny-residual]"),
    "channels": _CHANNELS,
    "laps": ("system/test_random_networks_rtl.py",),
    "ulx3s": ("system/test_kept.py::test_every_kind_of_piece[1-None]",),
    "post-shift": ("rtl/ccore/test_mac.py", "rtl/ccore/test_pe.py"),
    "turns": ("system/test_turns_rtl.py::test_every_byte[tiny-residual]",),
    **dict.fromkeys(MATRICES, _MATRIX),
    "cells": ("formal/test_formal_ecp5.py", "rtl/ccore/test_ccore.py::test_ccore[g2_w1_ecp5]"),
}
"""Whole machines that have what the smallest one lacks."""


def _mirrored(file: str) -> list[str]:
    room, _, name = file.rpartition("/")
    folder = f"rtl/{room}" if room else "rtl"
    names = (f"{folder}/test_{name}", f"{folder}/test_{name.removesuffix('.py')}_rtl.py")
    return [found for found in names if (ROOT / _TESTS / found).exists()]


def killers(mutant: Mutant) -> list[str]:
    """pytest nodes, relative to the repository, for a mutant."""
    file, owner = mutant.place.file, mutant.place.owner.rpartition(":")[0]
    # A whole core's bench is its own parts' test, too, but takes longer than the networks. What several modules share, such as a
    # delay or a limit, is tested by the module that it is in, too.
    cores = (_ACORE, _CCORE)
    parts = [test for of in (file, owner) for test in (*_mirrored(of), *_PARTS.get(of, ()))
             if not any(core.startswith(test) for core in cores)]
    room = _ROOMS[owner.rpartition("/")[0]]
    found = [*parts, *_NUMBERS, *_NANO, *room] if mutant.config == "nano" else [*parts, *_MACHINES[mutant.config], *room]
    first = MACHINE if mutant.config == "nano" else ()
    return list(dict.fromkeys([*first, *(f"{_TESTS}/{test}" for test in found)]))


QUICK = {
    "acore/divider.py": "rtl/acore/test_divider.py::test_quotients",
    "acore/poolwalk.py": "rtl/acore/test_poolwalk.py::test_wide_padding",
    "ccore/banks.py": "rtl/ccore/test_banks.py",
    "fifo.py": "rtl/test_fifo.py",
    "memory_path/load_arbiter.py": "rtl/memory_path/test_load_arbiter.py",
    "sequencer/queue.py": "rtl/sequencer/test_queue.py",
    "sequencer/semaphores.py": "rtl/sequencer/test_queue.py::test_semaphores_against_a_model",
}
"""Modules with a test that takes a second or two on Amaranth's simulator, where nothing is built: the suite keeps twenty of their
mutants."""
