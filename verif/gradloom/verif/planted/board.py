"""Planted in a board's design, its pins and what the host keeps on it; each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_HOST = "host/gradloom/host"
_TESTS = "verif/tests"

FAULTS = (
    Fault(
        "a board's design leaves out a machine's second channel",
        "rtl/gradloom/rtl/board/board_design.py",
        "        for n in range(channels):",
        "        for n in range(1):",
        f"{_TESTS}/rtl/board/test_board_design.py::test_every_port_is_joined",
    ),
    Fault(
        "read data are registered twice, in the pads and behind them",
        "rtl/gradloom/rtl/board/memory/sdram.py",
        "        domain = m.d.comb if self.pad_registers else m.d.sync\n        domain += captured",
        "        domain = m.d.sync\n        domain += captured",
        f"{_TESTS}/rtl/board/memory/test_sdram.py::test_registers_in_the_pads",
    ),
    Fault(
        "the clock at the memory's pad is not late",
        "boards/gradloom/boards/clocking.py",
        "pll.output - 1 + cycles",
        "pll.output - 1",
        f"{_TESTS}/boards/test_sdram_board.py::test_pads",
    ),
    Fault(
        "a batch is gathered in the order in which its images came first",
        f"{_HOST}/devices/residence.py",
        "[self._places[key] for key, _ in run]",
        "sorted(self._places[key] for key, _ in run)",
        f"{_TESTS}/host/devices/test_residence.py::test_new_images_beside_known_ones",
    ),
    Fault(
        "images that passed count as there although others took their place",
        f"{_HOST}/devices/residence.py",
        "if place < self._kept}",
        "if place < self._room}",
        f"{_TESTS}/host/devices/test_residence.py::test_a_full_memory_takes_batches_as_they_are",
    ),
    Fault(
        "images that come ahead are sent before the machine starts",
        f"{_HOST}/link/board_device.py",
        "        if self._quiets(access):\n            self._send_script()\n",
        "",
        f"{_TESTS}/host/link/test_board_device.py::test_a_start_is_sent_at_once",
    ),
    Fault(
        "a program counts as there although the machine has failed since",
        f"{_HOST}/devices/runner.py",
        "            self._programs.forget()",
        "            pass",
        f"{_TESTS}/host/devices/test_residence.py::test_a_failed_program_is_written_anew",
    ),
    Fault(
        "address lines of a board's memory are not looked at",
        f"{_HOST}/link/memory_check.py",
        "    _check_addresses(device, part, base)\n",
        "",
        f"{_TESTS}/host/link/test_memory_check.py",
    ),
    Fault(
        "a board with another machine than meant is taken",
        f"{_HOST}/devices/board_opening.py",
        "    if identity.config != config.digest():",
        "    if False:",
        f"{_TESTS}/host/devices/test_board_opening.py::test_another_board_than_meant",
    ),
)
