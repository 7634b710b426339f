"""Serial adapters of boards that are plugged into this computer."""

import dataclasses

from gradloom.boards.board import Board
from gradloom.host.files import UserError

__all__ = ["Cable", "cable_of", "cables"]


@dataclasses.dataclass(frozen=True)
class Cable:
    """One adapter: its port, such as ``/dev/ttyUSB0``, and the serial number that tells two boards apart."""

    port: str
    serial: str


def cables(board: Board) -> list[Cable]:
    """Adapters of the kind that the board has.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the package that looks for them is missing.
    """
    try:
        from serial.tools import list_ports
    except ImportError:
        raise UserError("a board on a serial port needs pyserial, which is not installed: pip install 'gradloom[boards]'") from None
    return sorted((Cable(port.device, port.serial_number or "") for port in list_ports.comports()
                   if (port.vid, port.pid) == board.usb), key=lambda cable: cable.port)


def cable_of(board: Board, wanted: str | None = None) -> Cable:
    """The one adapter, or that of the port or serial number ``wanted``.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If there is none, or it is not clear which.
    """
    found = cables(board)
    if wanted is not None:
        chosen = [cable for cable in found if wanted in (cable.port, cable.serial)]
        return chosen[0] if chosen else Cable(wanted, "")
    if not found:
        raise UserError(f"no cable of a {board.name} is plugged in: plug it in (gradloom boards lists what is found), or name its "
                        "port as BOARD:PORT")
    if len(found) > 1:
        listed = ", ".join(f"{cable.port} ({cable.serial})" for cable in found)
        raise UserError(f"{len(found)} boards that may be a {board.name} are plugged in, {listed}: choose one by its port or "
                        f"serial number, such as {board.name}:{found[0].serial or found[0].port}")
    return found[0]
