"""A machine in software behind the model of a board: what travels on the cable, without simulated hardware."""

from gradloom.host.devices.software_device import SoftwareDevice
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.link import Link
from gradloom.host.link.transport import CountingTransport
from gradloom.rtl.board.link.frame_format import LINK_WINDOW
from gradloom.rtl.regmap import offset, register
from gradloom.verif.link.board_model import BoardModel
from gradloom.verif.link.model_transport import ModelTransport

__all__ = ["IdleDevice", "software_board"]


class IdleDevice(SoftwareDevice):
    """Programs end at once and do nothing."""

    def execute(self, address: int, steps: int) -> None:
        pass


class _Backend:
    """Memory and registers (:class:`~gradloom.verif.link.board_model.Backend`)."""

    may_fail = False

    def __init__(self, device: SoftwareDevice) -> None:
        self.device = device
        self.ended = 0
        """Programs that have ended."""

    def memory_write(self, address: int, data: bytes) -> bool:
        self.device.write(address, data)
        return True

    def memory_read(self, address: int, n: int) -> bytes | None:
        return self.device.read(address, n)

    def register_write(self, address: int, value: int) -> bool:
        self.device.csr_write(address, value)
        self.ended += address == offset("CONTROL") and bool(value & register("CONTROL").field("start").mask)
        return address < LINK_WINDOW

    def register_read(self, address: int) -> int | None:
        return self.device.csr_read(address)


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
