"""A board by its name: which names there are, whose machine, which port; and what is said of a board that is not the one meant."""

import dataclasses

import pytest

from gradloom.boards.board import BOARDS
from gradloom.contracts.config import PRESETS
from gradloom.host import cli
from gradloom.host.devices.board_choice import BoardChoice, board_choice, machine_config
from gradloom.host.devices.board_opening import check_identity
from gradloom.host.devices.device import device_name
from gradloom.host.files import UserError
from gradloom.host.link import cables
from gradloom.host.link.frames import Identity

NAME = "ulx3s-85f"
BOARD = BOARDS[NAME]
IDENTITY = Identity(protocol=1, beat_bytes=4, data_bytes=992, ring_bytes=2048, board=BOARD.letters, config=BOARD.config.digest(),
                    memory_base=0, memory_bytes=1 << 25, clock=BOARD.clock, build=7)


def test_names():
    assert board_choice(NAME) == BoardChoice(BOARD, simulated=False)
    assert board_choice(f"{NAME}:socket://host:7000") == BoardChoice(BOARD, simulated=False, port="socket://host:7000")
    assert board_choice(f"sim:{NAME}") == BoardChoice(BOARD, simulated=True)
    assert board_choice("rtl") is None and board_choice("emulator:cuda:1") is None
    assert device_name(f"{NAME}:/dev/ttyUSB0") == f"{NAME}:/dev/ttyUSB0"


@pytest.mark.parametrize(("name", "message"), [
    ("sim:ulx", f"there is no board 'ulx' to simulate: give sim: and one of {NAME}"),
    ("sim:", "there is no board '' to simulate"),
    ("ulx", f"there is no device 'ulx': give one of rtl, golden, emulator, emulator:cuda, emulator:cuda:N, BOARD[:PORT], "
            f"sim:BOARD or netlist:BOARD[:FOLDER] (boards: {NAME})")])
def test_no_such_board(name, message):
    with pytest.raises(UserError) as told:
        device_name(name)
    assert message in str(told.value)


def test_the_machine_is_the_boards():
    assert machine_config("rtl", None) == PRESETS["small"] and machine_config("golden", "nano") == PRESETS["nano"]
    assert machine_config(NAME, None) == machine_config(f"sim:{NAME}", BOARD.machine) == BOARD.config
    # What is flashed on a board says WELCOME.
    assert machine_config(NAME, "nano") == PRESETS["nano"]
    with pytest.raises(UserError, match=r"^--config nano \(digest 0x\w{8}\) is not the machine of ulx3s-85f, which is "
                                        rf"{BOARD.machine} \(0x\w{{8}}\): leave --config out$"):
        machine_config(f"sim:{NAME}", "nano")


@pytest.mark.parametrize("command", ["train", "verify", "eval", "diff"])
def test_commands_refuse_another_machine(command, capsys):
    rest = {"eval": ["--weights", "none"], "diff": ["--device", "golden"]}.get(command, [])
    assert cli.main([command, "--device", f"sim:{NAME}", "--config", "nano", *rest]) == 2
    assert "--config nano (digest" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "verify"])
def test_no_board_is_told_before_any_work(command, monkeypatch, capsys):
    monkeypatch.setattr(cables, "cables", lambda board: [])
    assert cli.main([command, "--device", NAME]) == 2
    assert "error: no cable of a ulx3s-85f is plugged in: plug it in" in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "message"), [
    ({"board": "U45F"}, "the board at the port says that it is 'U45F', ulx3s-85f is 'U85F': name the board that is there"),
    ({"config": 5}, f"the bitstream on ulx3s-85f was built for the machine of digest 0x00000005, {BOARD.machine} has"),
    ({"build": 8}, "the bitstream on ulx3s-85f is of build 0000000000000008, not 0000000000000007: flash it anew"),
    ({"memory_bytes": 1000}, "1,001 bytes of memory are needed, the bitstream on ulx3s-85f has 1,000: take a smaller --batch")])
def test_another_board_than_meant(changes, message):
    choice = board_choice(NAME)
    check_identity(IDENTITY, choice, BOARD.config, 1000, build=7)
    with pytest.raises(UserError) as told:
        check_identity(dataclasses.replace(IDENTITY, **changes), choice, BOARD.config, 1001, build=7)
    assert str(told.value).startswith(message)
