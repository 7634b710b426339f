"""A simulated machine behind the model of a board, so that the host reaches it over a cable."""

from gradloom.host.devices.device import Device
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.link import Link
from gradloom.sim.rtl_device import BusError, RtlDevice
from gradloom.verif.link.board_model import BoardModel
from gradloom.verif.link.model_transport import ModelTransport

__all__ = ["MachineBackend", "board_with"]

_CLOCK = 50_000_000


class MachineBackend:
    """Memory and registers of a machine (:class:`~gradloom.verif.link.board_model.Backend`)."""

    may_fail = False

    def __init__(self, device: Device) -> None:
        self.device = device

    def memory_write(self, address: int, data: bytes) -> bool:
        self.device.write(address, data)
        return True

    def memory_read(self, address: int, n: int) -> bytes | None:
        return self.device.read(address, n)

    def register_write(self, address: int, value: int) -> bool:
        try:
            self.device.csr_write(address, value)
        except BusError:
            return False
        return True

    def register_read(self, address: int) -> int | None:
        try:
            return self.device.csr_read(address)
        except BusError:
            return None


class _MachineTransport(ModelTransport):
    """The machine runs while the host waits; its interrupt reaches the board."""

    def __init__(self, board: BoardModel, device: RtlDevice) -> None:
        super().__init__(board, self._run)
        self._device = device

    def _run(self, seconds: float) -> float:
        if self._device.irq and self.board._irq:  # nothing new will come
            return seconds
        self.board.set_irq(self._device.irq)
        passed = self._device.run(max(1, round(seconds * _CLOCK))) / _CLOCK
        self.board.set_irq(self._device.irq)
        return max(passed, self.byte_time)

    def write(self, data: bytes) -> None:
        super().write(data)
        self.board.set_irq(self._device.irq)  # a start or an acknowledgement takes it back

    def close(self) -> None:
        super().close()
        self._device.close()


def board_with(device: RtlDevice) -> BoardDevice:
    """The machine as a device over a cable; its memory is rounded down to a power of two that the link may touch."""
    size = 1 << device.dram_bytes.bit_length() - 1
    board = BoardModel(MachineBackend(device), device.beat_bytes, memory_bytes=size, clock=_CLOCK)
    return BoardDevice(Link(_MachineTransport(board, device)))
