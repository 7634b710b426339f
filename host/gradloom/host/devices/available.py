"""Which devices can be used on this computer, and what the others lack."""

import dataclasses
import functools
from collections.abc import Callable

from gradloom.boards.board import BOARDS
from gradloom.host.devices.board_choice import build_folder
from gradloom.host.devices.models import check_emulator
from gradloom.host.devices.routed_build import routed_build
from gradloom.host.environment import check_tools
from gradloom.host.files import UserError
from gradloom.host.link.cables import cable_of

__all__ = ["DeviceStatus", "available"]


@dataclasses.dataclass(frozen=True)
class DeviceStatus:
    """A device, and whether a network can train on it here.

    Parameters
    ----------
    name : :class:`str`
        As ``device`` takes it.
    title : :class:`str`
        What it is.
    reason : :class:`str`, optional
        Why it cannot be used, and what to do; ``None`` if it can.
    """

    name: str
    title: str
    reason: str | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be used."""
        return self.reason is None


def available() -> tuple[DeviceStatus, ...]:
    """Every device by name, with what it lacks; a compiler is tried, nothing is built and no board is opened."""
    tools = _lack(check_tools)
    found = [
        DeviceStatus("golden", "golden model in numpy"),
        DeviceStatus("rtl", "simulated hardware", tools),
        DeviceStatus("emulator", "exact emulator in PyTorch", _lack(check_emulator)),
        DeviceStatus("emulator:cuda", "the same on a GPU", _lack(functools.partial(check_emulator, "emulator:cuda"))),
    ]
    for board in BOARDS.values():
        found.append(DeviceStatus(f"sim:{board.name}", f"board {board.name}, all of it in simulation", tools))
        build = _lack(functools.partial(routed_build, board, build_folder(board)))
        found.append(DeviceStatus(f"netlist:{board.name}", f"board {board.name}, every cell of its build in simulation",
                                  tools or build))
        cable = _lack(functools.partial(cable_of, board))
        found.append(DeviceStatus(board.name, f"board {board.name} on a cable", cable))
    return tuple(found)


def _lack(check: Callable[[], object]) -> str | None:
    """What a check finds missing."""
    try:
        check()
    except UserError as error:
        return str(error)
    return None
