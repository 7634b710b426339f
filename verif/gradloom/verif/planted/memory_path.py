"""Planted in AXI managers, Loaders, Storers and the FIFO; each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_RTL = "rtl/gradloom/rtl"
_TESTS = "verif/tests"

FAULTS = (
    Fault(
        "FIFO takes an element when it is full",
        f"{_RTL}/fifo.py",
        "self.i.ready.eq(self.level != self.depth)",
        "self.i.ready.eq(1)",
        f"{_TESTS}/rtl/test_fifo.py",
    ),
    Fault(
        "window check is off by one byte",
        f"{_RTL}/memory_path/window.py",
        "(Value.cast(end) <= limit)",
        "(Value.cast(end) <= limit + 1)",
        f"{_TESTS}/rtl/memory_path/test_window.py::test_window",
    ),
    Fault(
        "window check wraps at 2^32",
        f"{_RTL}/memory_path/axi.py",
        "beat[grid:] + (~final | reach[grid])) << shift)",
        "(beat[grid:] + (~final | reach[grid]))[:32 - shift - grid]) << shift)",
        f"{_TESTS}/rtl/memory_path/test_axi.py::test_bursts_of_a_request",
    ),
    Fault(
        "a loaded row is put one bank too far on the wrap",
        f"{_RTL}/memory_path/loader.py",
        "Mux(wraps, next_bank - banks, next_bank)",
        "Mux(wraps, next_bank - banks + 1, next_bank)",
        f"{_TESTS}/rtl/memory_path/test_loader.py",
    ),
    Fault(
        "a refused beat is lost",
        f"{_RTL}/memory_path/loader.py",
        "moves.eq(~self.bus.valid | self.ready)",
        "moves.eq(1)",
        f"{_TESTS}/rtl/memory_path/test_loader.py",
    ),
    Fault(
        "beats for different banks of the weight buffer wait for each other",
        f"{_RTL}/memory_path/load_arbiter.py",
        " & (other.bank == bus.bank)",
        "",
        f"{_TESTS}/rtl/memory_path/test_load_arbiter.py",
    ),
    Fault(
        "a block of weights that has begun is interrupted by a lower channel",
        f"{_RTL}/memory_path/load_arbiter.py",
        "return within | ~behind if this < other else within & ~behind",
        "return Value.cast(this < other)",
        f"{_TESTS}/rtl/memory_path/test_load_arbiter.py",
    ),
    Fault(
        "flushed write bursts still write",
        f"{_RTL}/memory_path/axi_write.py",
        "(~self.flush).replicate(self.config.beat_bytes)",
        "(~self.flush | 1).replicate(self.config.beat_bytes)",
        f"{_TESTS}/rtl/memory_path/test_axi_write.py",
    ),
    Fault(
        "write bursts go out behind a refused one",
        f"{_RTL}/memory_path/axi_write.py",
        "stopped = report.refused | report.failed",
        "stopped = report.failed",
        f"{_TESTS}/rtl/memory_path/test_axi_write_faults.py::test_nothing_is_written_behind_a_refused_burst",
    ),
    Fault(
        "commands are completed behind an error answer",
        f"{_RTL}/memory_path/axi_write.py",
        "due.o.payload & ~report.failed & ~bad_response",
        "due.o.payload & ~bad_response",
        f"{_TESTS}/rtl/memory_path/test_axi_write_faults.py::test_nothing_is_completed_from_an_error_answer_on",
    ),
    Fault(
        "an error on the last beat of a burst is ignored",
        f"{_RTL}/memory_path/axi_read.py",
        "self.beat & (self.m_axi_rresp != 0) & ~self.flush",
        "self.beat & (self.m_axi_rresp != 0) & ~self.flush & ~self.m_axi_rlast",
        f"{_TESTS}/rtl/memory_path/test_axi_read_faults.py::test_no_beat_is_handed_on_from_an_error_answer_on",
    ),
    Fault(
        "an AXI fault is told before the commands ahead have ended",
        f"{_RTL}/memory_path/axi.py",
        "SETTLE = 8",
        "SETTLE = 2",
        f"{_TESTS}/rtl/memory_path/test_fault_places.py::test_the_faulty_command_is_the_oldest_one_when_its_fault_is_told",
    ),
    Fault(
        "an AXI fault is told while a beat ahead waits for its bank",
        f"{_RTL}/memory_path/axi.py",
        "(self.failed | self.drained) & ~self.waiting",
        "self.failed | self.drained",
        f"{_TESTS}/rtl/memory_path/test_fault_places.py::test_a_beat_that_waits_for_its_memory_holds_the_report_up",
    ),
    Fault(
        "loops count 11 bits",
        f"{_RTL}/memory_path/strided_address.py",
        'Signal(16, name=f"count{level}"',
        'Signal(11, name=f"count{level}"',
        f"{_TESTS}/rtl/memory_path/test_strided_address.py::test_counter",
    ),
    Fault(
        "stores end in successive cycles",
        f"{_RTL}/memory_path/storer.py",
        "finish.eq((answered != 0) & ~self.port.done)",
        "finish.eq(answered != 0)",
        f"{_TESTS}/rtl/memory_path/test_transfers.py::test_a_store_ends_once_for_each_answer_and_never_in_two_cycles_on_end",
    ),
    Fault(
        "writes go on behind a refused burst",
        f"{_RTL}/memory_path/axi_write.py",
        "stopped = report.refused | report.failed",
        "stopped = report.failed",
        f"{_TESTS}/formal/test_formal_memsys.py::test_write",
    ),
    Fault(
        "a command that a flush cuts short is called complete",
        f"{_RTL}/memory_path/axi_write.py",
        "~report.failed & ~bad_response & ~self.flush)",
        "~report.failed & ~bad_response)",
        f"{_TESTS}/formal/test_formal_write_manager.py::test_data",
    ),
    Fault(
        "a port of 32 bits for narrow beats holds data back until their address is taken",
        f"{_RTL}/axi32.py",
        "writes.ready.eq(free)",
        "writes.ready.eq(self.port.aw.valid & self.port.aw.ready)",
        f"{_TESTS}/rtl/test_axi32.py::test_a_subordinate_may_wait_for_write_data",
    ),
    Fault(
        "a port of 32 bits for narrow beats drops the response of a write",
        f"{_RTL}/axi32.py",
        '("b", ("resp",))',
        '("b", ())',
        f"{_TESTS}/rtl/test_axi32.py::test_signals_that_pass_the_widener_by",
    ),
)
