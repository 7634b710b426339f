"""A board by its name: its port is found, it says who it is, and one sentence tells what does not fit."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradloom.boards.board import Board
from gradloom.contracts.config import Config
from gradloom.host.devices.board_choice import BoardChoice
from gradloom.host.devices.routed_build import RoutedBuild
from gradloom.host.files import UserError
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.cables import cable_of
from gradloom.host.link.direct_memory import DirectMemoryDevice
from gradloom.host.link.frames import Identity
from gradloom.host.link.link import Link
from gradloom.host.link.memory_check import check_memory
from gradloom.host.link.transport import SerialTransport, SimulatedTransport, Transport

if TYPE_CHECKING:
    from gradloom.sim.board.board_simulation import BoardSimulation

__all__ = ["check_board", "check_identity", "link_netlist", "open_board"]

_SIMULATED_WAIT = 0.005
"""Seconds of the board's time between two looks at a simulated board, whose seconds are long."""
_POWER_UP = 1
"""Seed by which registers and memories of a netlist wake up: what it computes must hang on its reset alone."""


def check_board(choice: BoardChoice) -> None:
    """Whether the port of a board can be found, before any work for it.

    Raises
    ------
    :exc:`UserError`
        If not.
    """
    if not choice.simulated:
        cable_of(choice.board, choice.port)


def check_identity(identity: Identity, choice: BoardChoice, config: Config, size: int, *, build: int | None = None) -> None:
    """Whether a board is the one that is meant.

    Parameters
    ----------
    identity : :class:`Identity`
        What it says of itself.
    size : :class:`int`
        Bytes of memory that are needed.
    build : :class:`int`, optional
        Number of the build that it must come from.

    Raises
    ------
    :exc:`UserError`
        If it is not.
    """
    board = choice.board
    if identity.board != board.letters:
        raise UserError(f"the board at the port says that it is {identity.board!r}, {board.name} is {board.letters!r}: name the "
                        f"board that is there, or another port")
    if identity.config != config.digest():
        raise UserError(f"the bitstream on {board.name} was built for the machine of digest {identity.config:#010x}, {config.name} "
                        f"has {config.digest():#010x}: give the --config that it was built for, or build and flash it anew")
    if build is not None and identity.build != build:
        raise UserError(f"the bitstream on {board.name} is of build {identity.build:016x}, not {build:016x}: flash it anew")
    if size > identity.memory_bytes:
        raise UserError(f"{size:,} bytes of memory are needed, the bitstream on {board.name} has {identity.memory_bytes:,}: take a "
                        f"smaller --batch")


def open_board(choice: BoardChoice, config: Config, size: int = 0, *, build: int | None = None) -> BoardDevice:
    """A board, opened and checked, with its cable at the board's best rate.

    Parameters
    ----------
    config : :class:`Config`
        The machine that it must have.
    size : :class:`int`
        Bytes of memory that it must have.
    build : :class:`int`, optional
        Number of the build that it must come from.

    Raises
    ------
    :exc:`UserError`
        If it cannot be opened or is another one.
    :exc:`~gradloom.host.link.link.LinkError`
        If it does not answer.
    """
    board = choice.board
    if choice.build is not None:
        routed = choice.routed
        simulation = _netlist_board(board, routed)
        try:
            return link_netlist(choice, routed, config, simulation, size, build=build)
        except BaseException:
            simulation.close()
            raise
    if choice.simulated:
        transport: Transport = SimulatedTransport(_rtl_board(board, config), board.clock)
    else:
        transport = SerialTransport(cable_of(choice.board, choice.port).port)
    try:
        link = Link(transport, session=0 if choice.simulated else os.urandom(1)[0])
        check_identity(link.identity, choice, config, size, build=build)
        if choice.simulated:
            device = BoardDevice(link, kind="simulated", baud=board.baud, wait=_SIMULATED_WAIT)
        else:
            link.set_baud(board.baud)
            device = BoardDevice(link, kind="on-board", baud=board.baud)
        check_memory(device, board.part, link.identity.memory_base)
        return device
    except BaseException:
        transport.close()
        raise


def link_netlist(choice: BoardChoice, routed: RoutedBuild, config: Config, simulation: "BoardSimulation", size: int = 0, *,
                 build: int | None = None) -> DirectMemoryDevice:
    """A routed board in simulation, opened and checked as :func:`open_board` does. Its registers are reached over its UART; so is
    its memory while it is checked, which is then written and read at once.

    Parameters
    ----------
    routed : :class:`~gradloom.host.devices.routed_build.RoutedBuild`
        What ``simulation`` simulates.
    """
    board = choice.board
    link = Link(SimulatedTransport(simulation, routed.clock))
    check_identity(link.identity, choice, config, size, build=routed.number if build is None else build)
    link.set_baud(board.baud)
    check_memory(BoardDevice(link), board.part, link.identity.memory_base)
    return DirectMemoryDevice(link, simulation.memory, baud=board.baud, wait=_SIMULATED_WAIT)


@contextlib.contextmanager
def _built() -> Iterator[None]:
    """A simulator that cannot be built is told in one sentence."""
    from gradloom.sim.verilate import BuildError

    try:
        yield
    except BuildError as error:
        raise UserError(f"the simulator cannot be built ({error}): run gradloom doctor") from None


def _rtl_board(board: Board, config: Config) -> "BoardSimulation":
    from gradloom.sim.board.board_simulation import rtl_board

    with _built():
        return rtl_board(config, board.part, clock=board.clock, capture=board.capture, board=board.letters)


def _netlist_board(board: Board, routed: RoutedBuild) -> "BoardSimulation":
    from gradloom.sim.board.routed_board import routed_board
    from gradloom.sim.netlist.netlist_verilog import NetlistError

    try:
        with _built():
            return routed_board(routed.design(), board.part, clock=routed.clock, capture=board.capture,
                                power_up=_POWER_UP)
    except NetlistError as error:
        raise UserError(f"{routed.netlist} cannot be simulated ({error}): build it anew with this version of the tools") from None
