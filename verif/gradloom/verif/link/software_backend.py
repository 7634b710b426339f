"""A machine in software behind the model of a board: what travels on the cable, without simulated hardware."""

from gradloom.contracts.frame_format import LINK_WINDOW
from gradloom.contracts.regmap import offset, register
from gradloom.host.devices.software_device import SoftwareDevice
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.link import Link
from gradloom.host.link.transport import CountingTransport
from gradloom.verif.link.board_model import BoardModel
from gradloom.verif.link.machine_backend import MachineBackend
from gradloom.verif.link.model_transport import ModelTransport

__all__ = ["IdleDevice", "software_board"]


class IdleDevice(SoftwareDevice):
    """Programs end at once and do nothing."""

    def execute(self, address: int, steps: int) -> None:
        pass


class _Backend(MachineBackend):
    """Memory and registers of a machine in software, which counts its starts: a program has ended as it begins."""

    def __init__(self, device: SoftwareDevice) -> None:
        super().__init__(device)
        self.ended = 0
        """Programs that have ended."""

    def register_write(self, address: int, value: int) -> bool:
        taken = super().register_write(address, value)
        self.ended += address == offset("CONTROL") and bool(value & register("CONTROL").field("start").mask)
        return taken and address < LINK_WINDOW


class _Transport(ModelTransport):
    """The end of a program raises the interrupt."""

    def __init__(self, board: BoardModel, backend: _Backend) -> None:
        super().__init__(board)
        self._backend, self._told = backend, 0

    def write(self, data: bytes) -> None:
        super().write(data)
        if self._backend.ended != self._told:
            self._told = self._backend.ended
            self.board.set_irq(False)
            self.board.set_irq(True)


def software_board(device: SoftwareDevice, memory_bytes: int) -> BoardDevice:
    """A software device as a board; bytes and calls of its transport are counted.

    Parameters
    ----------
    memory_bytes : :class:`int`
        A power of two, no more than the device has.
    """
    backend = _Backend(device)
    board = BoardModel(backend, device.config.beat_bytes, memory_bytes=memory_bytes, config=device.config.digest())
    return BoardDevice(Link(CountingTransport(_Transport(board, backend))), baud=3_000_000)
