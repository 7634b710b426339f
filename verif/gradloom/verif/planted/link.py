"""Planted in the cable between host and board (``rtl/board/link``, ``host/link``); each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_RTL = "rtl/gradloom/rtl/board/link"
_HOST = "host/gradloom/host/link"
_TESTS = "verif/tests/rtl/board/link"
_WHOLE = f"{_TESTS}/test_board_link.py"

FAULTS = (
    Fault(
        "a frame is taken whatever its FCS is",
        f"{_RTL}/receiver.py",
        "~broken & ~escaped & (crc.state == GOOD)",
        "~broken & ~escaped",
        f"{_TESTS}/test_receiver.py::test_frames_are_those_that_the_host_finds",
    ),
    Fault(
        "an escaped byte of a frame is not turned back",
        f"{_RTL}/receiver.py",
        "byte[5] ^ escaped",
        "byte[5]",
        f"{_TESTS}/test_receiver.py::test_frames_are_those_that_the_host_finds",
    ),
    Fault(
        "a byte that the line lost is not noticed",
        f"{_RTL}/receiver.py",
        "self.error | (taken & escape & escaped)",
        "taken & escape & escaped",
        f"{_TESTS}/test_receiver.py::test_a_lost_byte_breaks_the_frame_around_it_and_no_other",
    ),
    Fault(
        "a request overwrites those that wait in the ring",
        f"{_RTL}/receiver.py",
        "over | (self.write & (behind == read_at))",
        "over",
        f"{_TESTS}/test_receiver.py::test_the_ring_holds_all_but_one_byte_and_forgets_what_is_not_kept",
    ),
    Fault(
        "a request that comes again is executed again",
        f"{_RTL}/session.py",
        "ours & (self.number == self.expected)",
        "ours",
        f"{_WHOLE}::test_a_host_on_a_line_with_faults",
    ),
    Fault(
        "requests of another session are executed",
        f"{_RTL}/session.py",
        "self.open & (self.session == self.current)",
        "self.open",
        f"{_WHOLE}::test_nonsense_changes_nothing_that_its_model_does_not_change",
    ),
    Fault(
        "a session opens without the token of its welcome",
        f"{_RTL}/session.py",
        "(self.session == self.proposed) & (self.number == self.token)",
        "(self.session == self.proposed)",
        "verif/tests/formal/test_formal_link.py::test_session",
    ),
    Fault(
        "a late acknowledgement drops answers that the host has not got",
        f"{_RTL}/transmitter.py",
        "(gone != 0) & (gone <= kept)",
        "(gone != 0)",
        f"{_WHOLE}::test_nonsense_changes_nothing_that_its_model_does_not_change",
    ),
    Fault(
        "answers are not sent again",
        f"{_RTL}/transmitter.py",
        "[again.eq(0), send.eq(tail), send_number.eq(tail_number)]",
        "[again.eq(0)]",
        f"{_WHOLE}::test_interrupts",
    ),
    Fault(
        "flags in an answer are sent as they are",
        f"{_RTL}/transmitter.py",
        "((held == FLAG) | (held == ESCAPE))",
        "(held == ESCAPE)",
        f"{_WHOLE}::test_requests_of_every_kind_and_size",
    ),
    Fault(
        "a write spoils the bytes before it in its first beat",
        f"{_RTL}/bridge.py",
        "(self.first_lane <= lane)",
        "(self.first_lane >= 0)",
        f"{_WHOLE}::test_requests_of_every_kind_and_size",
    ),
    Fault(
        "a write spoils the bytes after it in its last beat",
        f"{_RTL}/bridge.py",
        "(self.last_lane >= lane)",
        "(self.last_lane >= 0)",
        f"{_WHOLE}::test_requests_of_every_kind_and_size",
    ),
    Fault(
        "a request reaches behind the end of the board's memory",
        f"{_RTL}/bridge.py",
        "return address[bits:] == self.memory_base >> bits if bits < 32 else Const(1)",
        "return Const(1)",
        f"{_WHOLE}::test_requests_that_are_refused",
    ),
    Fault(
        "an error of the memory in the last beat of a read is not told",
        f"{_RTL}/bridge.py",
        "with m.If(self.failed | self.m_axi_rresp[1]):",
        "with m.If(self.failed):",
        f"{_WHOLE}::test_errors_of_the_buses",
    ),
    Fault(
        "a script goes on after a register refused",
        f"{_RTL}/bridge.py",
        "with m.If(denied):",
        "with m.If(0):",
        f"{_WHOLE}::test_errors_of_the_buses",
    ),
    Fault(
        "the rate changes before its answer has left",
        f"{_RTL}/board_link.py",
        "with m.If(after & bridge.idle & transmitter.idle & ~self.tx.valid & self.tx_idle):",
        "with m.If(pending):",
        f"{_WHOLE}::test_rate_changes_when_its_answer_has_left_and_a_break_takes_it_back",
    ),
    Fault(
        "bits are sampled at their edges",
        f"{_RTL}/uart.py",
        "phase.eq(1 << STEP_BITS - 1)",
        "phase.eq(0)",
        f"{_TESTS}/test_uart.py::test_receiver_of_a_sender_two_per_cent_off",
    ),
    Fault(
        "a byte without a stop bit is taken",
        f"{_RTL}/uart.py",
        "with m.If(line):\n                    m.d.sync += [self.o.payload",
        "with m.If(1):\n                    m.d.sync += [self.o.payload",
        f"{_TESTS}/test_uart.py::test_a_wrong_stop_bit_is_told_and_its_byte_not",
    ),
    Fault(
        "the host takes an answer that comes before its turn",
        f"{_HOST}/link.py",
        "elif frame.number != self._expected:",
        "elif frame.number == self._expected - 1:",
        "verif/tests/host/link/test_link.py::test_ten_thousand_faults",
    ),
    Fault(
        "the host sends requests again from the oldest on, under new numbers",
        f"{_HOST}/link.py",
        "            self.statistics.resent += 1\n",
        "            self._number = request.number = (self._number + 1) % 256\n",
        "verif/tests/host/link/test_link.py::test_ten_thousand_faults",
    ),
    Fault(
        "an interrupt of an earlier program ends the next",
        f"{_HOST}/board_device.py",
        "if quiets:",
        "if False:",
        "verif/tests/host/link/test_board_device.py::test_an_interrupt_of_an_earlier_program_is_none_of_the_next",
    ),
)
