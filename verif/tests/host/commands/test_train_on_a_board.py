"""``gradloom train`` on a board (a model of the link before a machine that computes nothing): what is told when the board is reset
in the middle of a run, or is too small, and that the run goes on."""

import json

import pytest

from gradloom.host import cli, environment
from gradloom.host.devices import opening
from gradloom.verif.cli_desk import lay
from gradloom.verif.link.software_backend import IdleDevice, software_board

MEMORY = 1 << 22
TRAIN = ["train", "--network", "tiny.toml", "--data", "data.npz", "--device", "sim:ulx3s-85f", "--check", "off", "--batch", "4"]


class Board:
    """Opens boards; the first one is reset after a number of starts."""

    def __init__(self, starts):
        self.starts = starts

    def __call__(self, choice, config, size):
        idle = IdleDevice(config, MEMORY)
        device = software_board(idle, MEMORY)
        line = device.link.transport.inner
        write, backend = line.write, line._backend

        def resetting(data):
            write(data)
            if self.starts is not None and backend.ended == self.starts:
                self.starts = None
                line.board.reset()

        line.write = resetting
        return device


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path)
    monkeypatch.setattr(environment, "check_tools", lambda: None)
    return tmp_path


def test_a_reset_in_mid_run(desk, monkeypatch, capsys):
    """One sentence with what happened, how far the run is, and how it goes on; it goes on to its end."""
    monkeypatch.setattr(opening, "open_board", Board(3))
    assert cli.main([*TRAIN, "--steps", "20", "--out", "run"]) == 1
    told = capsys.readouterr().err
    assert ("gradloom: error: the board was reset, or another host took it: what was asked last may have happened or not; run "
            "holds the state after ") in told and ": go on with --resume run" in told and "Traceback" not in told
    done = len(json.loads((desk / "run" / "run.json").read_text())["steps"])
    assert 1 <= done < 20
    assert cli.main(["train", "--resume", "run"]) == 0
    out = capsys.readouterr().out
    record = json.loads((desk / "run" / "run.json").read_text())
    assert [entry["step"] for entry in record["steps"]] == list(range(20))
    assert "on the board: " in out and " at 3 Mbaud if nothing overlaps" in out


def test_a_network_that_is_too_large_for_the_board(desk, monkeypatch, capsys):
    """Told before the board is opened, with a batch that fits."""
    def never(*arguments):
        raise AssertionError("the board was opened")

    monkeypatch.setattr(opening, "open_board", never)
    monkeypatch.setattr(type(opening.board_choice("sim:ulx3s-85f").board.part), "size", 61_000)
    assert cli.main([*TRAIN, "--steps", "2", "--out", "run"]) == 2
    told = capsys.readouterr().err
    assert "bytes of memory, ulx3s-85f has 61,000: take --batch 3, which fits, or a smaller one" in told
