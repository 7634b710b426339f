"""The netlist of a build as a device: which names there are, which machine it has, and what is said of a folder that has none."""

import dataclasses
import json

import pytest

from gradloom.boards.board import BOARDS
from gradloom.contracts.config import PRESETS
from gradloom.host import cli
from gradloom.host.devices.board_choice import BoardChoice, board_choice, machine_config
from gradloom.host.devices.device import device_name
from gradloom.host.devices.routed_build import RoutedBuild, routed_build
from gradloom.host.files import UserError
from gradloom.verif.board_reports import REPORT

NAME = "ulx3s-85f"
BOARD = BOARDS[NAME]
BUILT = dataclasses.replace(REPORT, board=NAME, config=dataclasses.asdict(PRESETS["nano"]), memory="SDRAM ULX3S", clock_mhz=37.5,
                            build="00000000000000ff")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "report.json").write_text(BUILT.json())
    (tmp_path / "routed.json").write_text(json.dumps({"modules": {}}))
    return tmp_path


def test_names(folder, monkeypatch):
    assert board_choice(f"netlist:{NAME}:{folder}") == BoardChoice(BOARD, simulated=True, build=folder)
    assert device_name(f"netlist:{NAME}") == f"netlist:{NAME}"
    # What gradloom build writes to if nothing else is said.
    monkeypatch.chdir(folder)
    assert str(board_choice(f"netlist:{NAME}").build) == f"build/{NAME}"
    with pytest.raises(UserError, match=r"^there is no board 'ulx' whose netlist could be simulated: give netlist: and one"):
        device_name("netlist:ulx")


def test_the_build(folder):
    """Its machine and its clock are those that were built, not the board's."""
    assert routed_build(BOARD, folder) == RoutedBuild(folder / "routed.json", PRESETS["nano"], 37_500_000, 0xFF)
    assert routed_build(BOARD, folder).design() == {"modules": {}}
    assert machine_config(f"netlist:{NAME}:{folder}", None) == PRESETS["nano"]
    with pytest.raises(UserError, match=rf"^--config small \(digest 0x\w+\) is not the machine of {folder}, which is nano "):
        machine_config(f"netlist:{NAME}:{folder}", "small")


@pytest.mark.parametrize(("changes", "message"), [
    ({"board": "ulx3s-45f"}, "the build in {} is of ulx3s-45f, not of ulx3s-85f: gradloom build --board ulx3s-85f --out {}"),
    ({"memory": "128 KiB of block RAM"}, "the build in {} has 128 KiB of block RAM in the place of the SDRAM, which is simulated "
                                         "at the pins: build it without --block-ram")])
def test_another_build(folder, changes, message):
    (folder / "report.json").write_text(dataclasses.replace(BUILT, **changes).json())
    with pytest.raises(UserError) as told:
        routed_build(BOARD, folder)
    assert str(told.value).startswith(message.format(folder, folder))


def test_no_build(folder):
    for name, message in (("routed.json", f"the build in {folder} left no routed.json: route it anew with gradloom build"),
                          ("report.json", f"there is no build of {NAME} in {folder}: gradloom build --board {NAME} --out ")):
        (folder / name).unlink()
        with pytest.raises(UserError, match=f"^{message}"):
            routed_build(BOARD, folder)


def test_damaged_files(folder):
    build = routed_build(BOARD, folder)
    (folder / "routed.json").write_text("{")
    with pytest.raises(UserError, match=r"routed\.json cannot be read \(.*\): route it anew with gradloom build$"):
        build.design()
    (folder / "report.json").write_text("{}")
    with pytest.raises(UserError, match=r"report\.json is no report of a build"):
        routed_build(BOARD, folder)


def test_a_command_without_a_build(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["verify", "--device", f"netlist:{NAME}", "--network", "digits-cnn", "--steps", "1"]) == 2
    assert f"gradloom: error: there is no build of {NAME} in build/{NAME}: gradloom build --board {NAME}" in capsys.readouterr().err
