"""Names of boards on the command line: ``BOARD``, ``BOARD:PORT``, ``sim:BOARD`` and ``netlist:BOARD[:FOLDER]``; and the machine of
a device."""

import dataclasses
from pathlib import Path

from gradloom.boards.board import BOARDS, Board, board_named
from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import load_training_machine
from gradloom.host.devices.routed_build import RoutedBuild, routed_build
from gradloom.host.files import UserError

__all__ = ["BoardChoice", "board_choice", "build_folder", "machine_config"]

_SIMULATED = "sim"
_NETLIST = "netlist"
_DEFAULT = "small"
"""Machine of devices that are no board."""


@dataclasses.dataclass(frozen=True)
class BoardChoice:
    """A board, simulated or at a port.

    Parameters
    ----------
    simulated : :class:`bool`
        As RTL, or cell by cell if there is a ``build``.
    build : :class:`~pathlib.Path`, optional
        Folder of the build whose netlist is simulated.
    port : :class:`str`, optional
        A serial port, a URL of pyserial, or the USB serial number of the board's adapter; by default the only one that is there.
    """

    board: Board
    simulated: bool
    port: str | None = None
    build: Path | None = None

    @property
    def routed(self) -> RoutedBuild:
        """What was built in :attr:`build`.

        Raises
        ------
        :exc:`UserError`
            If nothing that can be simulated was.
        """
        assert self.build is not None
        return routed_build(self.board, self.build)

    @property
    def config(self) -> Config:
        """The machine of a simulated board."""
        return self.board.config if self.build is None else self.routed.machine


def build_folder(board: Board) -> Path:
    """Where a build of a board is if nothing else is said."""
    return Path("build") / board.name


def board_choice(device: str) -> BoardChoice | None:
    """The board that a device's name stands for; :class:`None` if it stands for none.

    Raises
    ------
    :exc:`UserError`
        If there is no such board, or a simulated one is given a port.
    """
    first, _, rest = device.partition(":")
    if first == _SIMULATED:
        if rest not in BOARDS:
            raise UserError(f"there is no board {rest!r} to simulate: give sim: and one of {', '.join(BOARDS)}")
        return BoardChoice(board_named(rest), simulated=True)
    if first == _NETLIST:
        name, _, folder = rest.partition(":")
        if name not in BOARDS:
            raise UserError(f"there is no board {name!r} whose netlist could be simulated: give netlist: and one of "
                            f"{', '.join(BOARDS)}")
        board = board_named(name)
        return BoardChoice(board, simulated=True, build=Path(folder) if folder else build_folder(board))
    if first in BOARDS:
        return BoardChoice(board_named(first), simulated=False, port=rest or None)
    return None


def machine_config(device: str, given: Config | str | None) -> Config:
    """The machine for a device: what ``--config`` gives, or a configuration, else that of the board, else ``small``.

    Raises
    ------
    :exc:`UserError`
        If a simulated board is given another machine than its own.
    """
    choice = board_choice(device)
    if choice is None:
        return given if isinstance(given, Config) else load_training_machine(given or _DEFAULT)
    own = choice.config
    if given is None:
        return own
    config = given if isinstance(given, Config) else load_training_machine(given)
    if choice.simulated and config.digest() != own.digest():
        name = given.name if isinstance(given, Config) else given
        raise UserError(f"--config {name} (digest {config.digest():#010x}) is not the machine of "
                        f"{choice.build or choice.board.name}, which is {own.name} ({own.digest():#010x}): leave --config out")
    return config
