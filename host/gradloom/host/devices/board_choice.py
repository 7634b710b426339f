"""Names of boards on the command line: ``BOARD``, ``BOARD:PORT`` and ``sim:BOARD``; and the machine of a device."""

import dataclasses

from gradloom.boards.board import BOARDS, Board, board_named
from gradloom.contracts.config import Config, load_config
from gradloom.host.files import UserError

__all__ = ["BoardChoice", "board_choice", "machine_config"]

_SIMULATED = "sim"
_DEFAULT = "small"
"""Machine of devices that are no board."""


@dataclasses.dataclass(frozen=True)
class BoardChoice:
    """A board, simulated or at a port.

    Parameters
    ----------
    port : :class:`str`, optional
        A serial port, a URL of pyserial, or the USB serial number of the board's adapter; by default the only one that is there.
    """

    board: Board
    simulated: bool
    port: str | None = None


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
        return given if isinstance(given, Config) else load_config(given or _DEFAULT)
    own = choice.board.config
    if given is None:
        return own
    config = given if isinstance(given, Config) else load_config(given)
    if choice.simulated and config.digest() != own.digest():
        name = given.name if isinstance(given, Config) else given
        raise UserError(f"--config {name} (digest {config.digest():#010x}) is not the machine of {choice.board.name}, which is "
                        f"{own.name} ({own.digest():#010x}): leave --config out")
    return config
