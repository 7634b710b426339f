"""A whole board in simulation: link, machine, arbiter, packer and SDRAM controller as they are built, a protocol-checking SDRAM at
their pins, and the host's own code on the cable."""

import json
import re

import pytest

from gradloom.boards.board import BOARDS
from gradloom.host import cli
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.link.memory_check import check_memory
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.sim.simulation import ProtocolError
from gradloom.verif.board.simulated_board import TEST_BOARD, opened, simulated
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.pages import Page, check_frame, drawings
from gradloom.verif.system_bench import golden_digest, make_case, verify_step


def runner_on(case, device, slots=8):
    return ProgramRunner(case.network, TEST_BOARD.config, case.batch, slots, lambda size: device)


def test_a_network_trains_on_a_whole_board():
    """Calibration, three steps of one start, evaluation, a step: every byte is golden, no rule of the SDRAM is broken, nothing is
    sent twice. What a start costs in round trips is pinned."""
    case = make_case("tiny-relu", 2, 5)
    device = opened(simulated())
    runner, state = runner_on(case, device), case.initial()
    trips = device.link.statistics
    try:
        runner.load(state)
        verify_step(case, runner, state, 0)
        before = trips.round_trips
        runner.train(case.images[1:4], case.labels[1:4], case.hypers[1:4])
        assert trips.round_trips - before == 2  # the start; registers, logits and state
        found = runner.state()
        assert trips.round_trips - before == 2
        for step in range(1, 4):
            golden.train_step(case.network, state, case.images[step], case.labels[step], case.hypers[step])
        assert digests.parameters_digest(case.network, found) == digests.parameters_digest(case.network, state)
        assert found.exponents == state.exponents
        before, sent = trips.round_trips, trips.bytes_sent
        expected = golden.evaluate(case.network, state, case.images[4], case.labels[4])
        assert runner.evaluate(case.images[4], case.labels[4]).loss == expected.loss
        assert trips.round_trips - before == 2
        first = trips.bytes_sent - sent
        assert (runner.logits(case.images[4]) == expected.logits).all()
        # The second evaluation moves neither program nor weights.
        assert trips.bytes_sent - sent - first < first / 20
        verify_step(case, runner, state, 4)
        assert digests.parameters_digest(case.network, runner.state()) == golden_digest(case)
        assert (trips.syncs, trips.resent, trips.bad_frames) == (0, 0, 0)
        assert runner.kind == "simulated" and runner.cycle_table(None)["total"] == runner.cycles > 10_000
    finally:
        runner.close()


@pytest.fixture
def test_board(monkeypatch):
    monkeypatch.setitem(BOARDS, TEST_BOARD.name, TEST_BOARD)


def test_commands_on_a_simulated_board(test_board, tmp_path, capsys):
    """``verify`` and ``train`` with ``--device sim:BOARD`` and no ``--config``: the board's machine, labels, what it takes."""
    common = ["--network", str(NETWORKS / "tiny-relu.toml"), "--batch", "2", "--steps", "2", "--device", "sim:test-board"]
    assert cli.main(["verify", *common]) == 0
    told = capsys.readouterr().out
    assert re.search(r"verifying tiny-relu on nano \(9 MACs\), device sim:test-board", told)
    assert re.search(r"0 differences: .* simulated cycles", told)
    assert re.search(r"on the board: [\d.]+ s at 50 MHz; cable: [\d,]+ bytes there \([\d,]+ of images while it computed\), .* s at "
                     r"3 Mbaud", told)


def test_bench_on_a_simulated_board(test_board, tmp_path, capsys):
    """Cycles of the steps of one start and of a start of one step, engines, memory and cable; the last step is golden. The cost
    model, with the SDRAM's rows and refreshes on average, is as near as it is said to be."""
    folder = tmp_path / "bench"
    assert cli.main(["bench", "--batch", "4", "--steps", "2", "--device", "sim:test-board", "--out", str(folder)]) == 0
    told = capsys.readouterr().out
    bench = json.loads((folder / "bench.json").read_text())
    total, start = bench["total"], bench["start"]
    assert f"cycles of a step      {total['cycles']:,} (simulated); cost model {bench['estimated']['cycles']:,}" in told
    assert bench["kind"] == "simulated" and bench["clock_mhz"] == 50 and bench["check"]["steps"] == 1
    # A step is no shorter than its bytes in the memory's words, and no engine is busy for longer than the step.
    assert 2 * total["cycles"] > total["read_bytes"] + total["written_bytes"] > 0
    assert all(0 <= busy <= total["cycles"] for busy in total["busy"].values()) and total["busy"]["ccore"] > 0
    assert start["cycles"] == start["steps"] * total["cycles"] + start["head_cycles"] and start["steps"] == 2
    assert start["round_trips"] == 2 and start["seconds"] is None and start["head_cycles"] < total["cycles"]
    assert start["cable_seconds"] == 10 * (start["bytes_sent"] + start["bytes_received"]) / 3e6
    # 0.6 % when it was written; 3 % are what docs/bench.md promises.
    assert abs(bench["estimated"]["error"]) < 0.03
    page = (folder / "bench.html").read_text()
    assert f"{total['cycles']:,}" in Page(page).text
    for drawing in drawings(page):
        check_frame(drawing)


def test_who_calibrates_a_board_changes_nothing(test_board, tmp_path):
    found = []
    for who in ("device", "golden"):
        asked = ["bench", "--network", str(NETWORKS / "tiny-relu.toml"), "--batch", "2", "--steps", "1", "--calibrate", who]
        assert cli.main([*asked, "--device", "sim:test-board", "--out", str(tmp_path / who)]) == 0
        found.append(json.loads((tmp_path / who / "bench.json").read_text()))
    device, golden = found
    assert all(device[key] == golden[key] for key in ("parameters", "check", "program")) and device["check"]["tensors"]


def test_a_lost_byte_changes_nothing(capsys):
    """A byte of a write of the state is lost on the cable: the frame is sent again, and the step is golden."""
    case = make_case("tiny-relu", 2, 1)
    simulation = simulated()
    device = opened(simulation)
    runner, state = runner_on(case, device), case.initial()
    try:
        simulation.lose(1500)
        runner.load(state)
        verify_step(case, runner, state, 0)
        seen = device.link.statistics
        assert seen.syncs >= 1 and seen.resent >= 1
        # The board counted one frame that was none.
        assert device.csr_read(0xC004) & 0xFF == 1
    finally:
        runner.close()


@pytest.mark.long("a second build with Verilator, and 80 cycles a byte")
def test_a_step_over_uart_waveforms():
    """Start bits, data bits and stop bits at 8 clocks a bit, both ways: the state after the step is golden, no byte was wrong."""
    case = make_case("tiny-relu", 1, 1)
    simulation = simulated(uart=True)
    device = opened(simulation)
    runner = runner_on(case, device, slots=1)
    try:
        runner.load(case.initial())
        runner.train(case.images, case.labels, case.hypers)
        assert digests.parameters_digest(case.network, runner.state()) == golden_digest(case)
        seen = device.link.statistics
        assert (seen.syncs, seen.resent, seen.bad_frames) == (0, 0, 0) and device.csr_read(0xC004) == 0
        # A byte lasts 80 cycles, and the board executes while others come.
        assert simulation.cycle > 80 * seen.bytes_sent
    finally:
        runner.close()


FAULTS = {
    "data lines exchanged": (
        lambda board: board.swap_data(3, 12), {},
        "data: line 3 reads what was written to line 12; line 12 reads what was written to line 3"),
    "row bit stuck low": (lambda board: board.stick_row(9), {}, "addresses: row bit 9 does nothing: a track or pin is stuck"),
    "row bit stuck high": (lambda board: board.stick_row(2, 1), {}, "addresses: row bit 2 does nothing: a track or pin is stuck"),
    "wrong latency": (lambda board: None, {"capture": 1}, "read data are taken in a wrong cycle"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_the_memory_are_named(name):
    """What is wrong between FPGA and SDRAM is told when the board is opened, with the line; nothing is said of a good one."""
    plant, memory, message = FAULTS[name]
    simulation = simulated(**memory)
    device = opened(simulation)
    try:
        if not memory:
            check_memory(device, TEST_BOARD.part)
        plant(simulation)
        with pytest.raises(MachineError, match=re.escape(message)):
            check_memory(device, TEST_BOARD.part)
    finally:
        device.close()


def test_a_missing_refresh_is_named():
    """The memory itself says it, with rule and cycle, as soon as the time is up."""
    simulation = simulated()
    device = opened(simulation)
    device.read(0, 2)  # the memory has been initialised
    with pytest.raises(ProtocolError, match=r"^SDRAM protocol violated: in cycle \d+: tREFI: no REFRESH for too long"):
        simulation.drop_refreshes()
        simulation.wait(2000)
    device.link.transport.inner._board.close()
