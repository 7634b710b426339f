"""Planted in Sequencer, registers and what connects the engines; each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_RTL = "rtl/gradloom/rtl"
_TESTS = "verif/tests"

FAULTS = (
    Fault(
        "delayed scale is off by one",
        f"{_RTL}/sequencer/scale_unit.py",
        "e_then + length_now - self.f - 13",
        "e_then + length_now - self.f - 12",
        f"{_TESTS}/rtl/sequencer/test_scale_unit.py::test_scale_follows_the_rule_for_random_statistics",
    ),
    Fault(
        "statistics of successive cycles are lost",
        f"{_RTL}/sequencer/scale_unit.py",
        "stats.read_port(transparent_for=[stat_write])",
        "stats.read_port()",
        f"{_TESTS}/rtl/sequencer/test_scale_unit.py::test_statistics_are_ored_in_successive_cycles_beside_an_operation",
    ),
    Fault(
        "a granted semaphore is not decremented",
        f"{_RTL}/sequencer/semaphores.py",
        "for r in range(self.requesters)]) - taken)",
        "for r in range(self.requesters)]))",
        f"{_TESTS}/rtl/sequencer/test_queue.py::test_semaphores_against_a_model",
    ),
    Fault(
        "a fault does not keep commands from starting",
        f"{_RTL}/registers/control.py",
        "m.d.sync += ending.eq(1)",
        "m.d.sync += ending.eq(self.seq_done)",
        f"{_TESTS}/rtl/registers/test_control.py",
    ),
    Fault(
        "a fault is told with the offset of a cycle later",
        f"{_RTL}/registers/control.py",
        "self.error_offset.eq(chosen(culprit, offsets))",
        "self.error_offset.eq(chosen(culprit, self.offset))",
        f"{_TESTS}/rtl/registers/test_control.py::test_only_the_first_error_of_a_start_is_kept_and_the_next_start_forgets_it",
    ),
    Fault(
        "a command that is none is told with the tag of the one before",
        f"{_RTL}/sequencer/sequencer.py",
        "m.d.sync += words[0].eq(word)  # its tag",
        "m.d.sync += words[0].eq(words[0])",
        f"{_TESTS}/rtl/sequencer/test_sequencer.py::test_defects_of_a_program_are_told_by_code_and_place",
    ),
    Fault(
        "of several faults in one cycle all count",
        f"{_RTL}/registers/control.py",
        "first.eq(found & ~(found - 1))",
        "first.eq(found)",
        f"{_TESTS}/rtl/registers/test_control.py::test_of_several_faults_in_one_cycle_the_first_counts",
    ),
    Fault(
        "EXPSET never clears a statistic",
        f"{_RTL}/sequencer/own_commands.py",
        "ports.scale_clear.eq(expset.clear)",
        "ports.scale_clear.eq(0)",
        f"{_TESTS}/rtl/sequencer/test_sequencer.py::test_expset_clears_the_statistic_if_it_is_told_to",
    ),
    Fault(
        "hyperparameters are those of the step modulo 256",
        f"{_RTL}/sequencer/own_commands.py",
        "(ports.step << 4)",
        "(ports.step[:8] << 4)",
        f"{_TESTS}/rtl/sequencer/test_sequencer.py::test_the_entry_of_a_step_is_at_16_times_its_number",
    ),
    Fault(
        "a clear is lost beside a statistic of another tensor",
        f"{_RTL}/sequencer/scale_unit.py",
        "with m.If(~self.clear | ~update):",
        "with m.If(1):",
        f"{_TESTS}/rtl/sequencer/test_scale_events.py::test_a_clear_waits_for_a_free_cycle_of_the_statistics",
    ),
    Fault(
        "seeds are those of the tensor number modulo 256",
        f"{_RTL}/sequencer/seed_unit.py",
        "multiply(0, self.tid, 12)",
        "multiply(0, self.tid[:8], 12)",
        f"{_TESTS}/rtl/sequencer/test_scale_events.py::test_seeds_of_all_numbers_beside_reads_of_others",
    ),
    Fault(
        "several signals of one cycle count once",
        f"{_RTL}/sequencer/semaphores.py",
        "_ones([self.signal[r][n] for r in range(self.requesters)])",
        "Cat(self.signal[r][n] for r in range(self.requesters)).any()",
        f"{_TESTS}/rtl/sequencer/test_semaphores.py::test_signals_and_a_grant_in_one_cycle",
    ),
    Fault(
        "a queue is idle with words in its FIFO",
        f"{_RTL}/sequencer/queue.py",
        " & (count == 0) & (fifo.level == 0)",
        " & (count == 0)",
        f"{_TESTS}/rtl/sequencer/test_queue_bounds.py::test_idle_from_the_first_word_to_the_last_done",
    ),
    Fault(
        "answers to more requests than are counted take their places",
        f"{_RTL}/sequencer/program_fetch.py",
        " & (open_requests != depth - 1)",
        "",
        f"{_TESTS}/rtl/sequencer/test_program_fetch.py::test_very_many_jumps_before_the_first_answer",
    ),
    Fault(
        "what a stopped program signalled is still there for the next one",
        f"{_RTL}/accelerator.py",
        'semaphores = engine_side("semaphores", Semaphores(1 + len(units(config))))',
        "m.submodules.semaphores = semaphores = Semaphores(1 + len(units(config)))",
        f"{_TESTS}/verif/fuzzing/test_fuzz.py::test_cases_of_chance[nano]",
    ),
    Fault(
        "a statistic's bit length is that of another quarter of its bits",
        f"{_RTL}/sequencer/scale_unit.py",
        "Mux(high, ones[3], ones[1])",
        "Mux(high, ones[2], ones[1])",
        f"{_TESTS}/rtl/sequencer/test_scale_unit.py::test_scale_follows_the_rule_for_random_statistics",
    ),
    Fault(
        "a program that reaches to the end of the window is refused",
        f"{_RTL}/sequencer/sequencer.py",
        "program.length > room",
        "program.length >= room",
        f"{_TESTS}/rtl/sequencer/test_sequencer.py::test_defects_of_a_program_are_told_by_code_and_place",
    ),
    Fault(
        "hyperparameters behind the window are read",
        f"{_RTL}/sequencer/own_commands.py",
        "address[3:] >= ports.window_limit[3:]",
        "address[3:] > ports.window_limit[3:]",
        f"{_TESTS}/rtl/sequencer/test_sequencer.py::test_defects_of_a_program_are_told_by_code_and_place",
    ),
    Fault(
        "hyperparameters outside the window are asked for if the program is halted just then",
        f"{_RTL}/sequencer/own_commands.py",
        "with m.If(self.refused):\n            program.read(m, 0, 0)",
        "with m.If(self.refused & ~ports.halt):\n            program.read(m, 0, 0)",
        f"{_TESTS}/rtl/sequencer/test_sequencer.py::test_a_halt_beside_a_table_outside_the_window_lets_nothing_out",
    ),
    Fault(
        "a semaphore is ready a cycle late",
        f"{_RTL}/sequencer/semaphores.py",
        "self.ready[n].eq(update[:WIDTH].any())",
        "self.ready[n].eq(counter.any())",
        f"{_TESTS}/rtl/sequencer/test_queue.py::test_semaphores_against_a_model",
    ),
    Fault(
        "a counter that the machine lacks reads what another one latched",
        f"{_RTL}/registers/csr.py",
        'values |= {f"{name}_{half}": 0 for name',
        'values |= {f"{name}_{half}": latch for name',
        f"{_TESTS}/formal/test_formal_csr.py::test_csr[none]",
    ),
    Fault(
        "more commands are under way than the queue remembers",
        f"{_RTL}/sequencer/queue.py",
        "~self.port.start & under_way.i.ready",
        "~self.port.start",
        f"{_TESTS}/rtl/sequencer/test_queue.py",
    ),
)
