"""gradloom first-light: the digest is that of the golden model; a board that differs, or is not loaded, is told."""

import pytest

from gradloom.host import cli
from gradloom.host.boards import first_light, flash_command
from gradloom.host.boards.first_light import BATCH, EXPECTED, NETWORK, STEPS
from gradloom.host.commands import verify_command


def test_expected_digest(capsys):
    """What every device ends with."""
    assert cli.main(["verify", "--network", NETWORK, "--device", "golden", "--steps", str(STEPS), "--batch", str(BATCH)]) == 0
    assert f"parameters {EXPECTED}" in capsys.readouterr().out


@pytest.fixture
def desk(monkeypatch):
    """What was loaded, and what was verified; both go well."""
    done = []
    monkeypatch.setattr(flash_command, "run", lambda options: (done.append(("flash", options.board, options.port)), 0)[1])
    monkeypatch.setattr(verify_command, "verify", lambda options: (done.append(("verify", options.device, options.steps)),
                                                                   (0, EXPECTED + "00"))[1])
    return done


def test_a_board(desk, capsys):
    assert cli.main(["first-light", "--board", "ulx3s-85f", "--port", "K001"]) == 0
    assert desk == [("flash", "ulx3s-85f", "K001"), ("verify", "ulx3s-85f:K001", STEPS)]
    assert f"expected {EXPECTED}, ulx3s-85f has {EXPECTED}: first light" in capsys.readouterr().out


def test_simulated(desk):
    """Nothing is loaded."""
    assert cli.main(["first-light", "--board", "ulx3s-85f", "--simulated"]) == 0
    assert desk == [("verify", "sim:ulx3s-85f", STEPS)]


def test_another_digest(desk, monkeypatch, capsys):
    monkeypatch.setattr(verify_command, "verify", lambda options: (0, "0" * 64))
    assert cli.main(["first-light", "--board", "ulx3s-85f"]) == 1
    assert "has 0000000000000000: another gradloom?" in capsys.readouterr().out


def test_a_difference(desk, monkeypatch, capsys):
    monkeypatch.setattr(first_light.verify_command, "verify", lambda options: (1, ""))
    assert cli.main(["first-light", "--board", "ulx3s-85f"]) == 1
    assert "expected" not in capsys.readouterr().out
