"""What lies in a machine's memory already, so that it does not travel again: programs, images; and bytes that were read at once."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradloom.host.devices.device import Device
from gradloom.host.plan import Plan

__all__ = ["Images", "Programs", "Snapshot"]

_BRIDGED = 16
"""Equal bytes between two differing ones that are sent along: a write of its own costs more."""


class Snapshot:
    """Bytes of a memory as they were when they were read."""

    def __init__(self, ranges: Sequence[tuple[int, int]], pieces: Sequence[bytes]) -> None:
        self._pieces = dict(zip(ranges, pieces, strict=True))

    def read(self, addr: int, n: int) -> bytes:
        """Bytes of one of the ranges."""
        return self._pieces[addr, n]


class Programs:
    """Programs stay where they are: of one that lies there already only what differs is written, the place of the hyperparameters.

    Training programs of one base take each other's place; a forward pass has its own.
    """

    def __init__(self) -> None:
        self._there: dict[bool, tuple[Plan, bytes]] = {}

    def place(self, device: Device, plan: Plan, first_step: int) -> None:
        """Have the program in the memory, to be started at step ``first_step``."""
        plan_there, before = self._there.get(plan.training, (None, b""))
        program = plan.program(first_step)
        self._there.pop(plan.training, None)  # until all of it is written
        if plan_there is plan:
            for first, last in _differences(before, program):
                device.write(plan.program_address + first, program[first:last])
        else:
            for address, data in plan.constants():
                device.write(address, data)
            device.write(plan.program_address, program)
        self._there[plan.training] = plan, program

    def forget(self) -> None:
        """Take it that none is there."""
        self._there.clear()


class Images:
    """Images travel once: they are kept behind the memory that a machine may touch, and batches are gathered from there.

    A device without :meth:`~gradloom.host.link.board_device.BoardDevice.gather`, whose memory costs nothing to write, gets every
    batch as it is; so does one without room for a batch, and one that is full gets the images that it has not got.

    Parameters
    ----------
    first : :class:`int`
        First byte that no program touches.
    """

    def __init__(self, device: Any, plan: Plan, first: int) -> None:
        self._device, self._first, self._size = device, first, plan.image_bytes
        room = device.memory_limit - first if hasattr(device, "gather") else 0
        self._most = room // self._size
        self._numbers: dict[bytes, int] = {}

    def place(self, plan: Plan, slot: int, codes: np.ndarray, labels: np.ndarray) -> None:
        """Images (B, C, Y, X) and class numbers (B,) of a step, as of :meth:`~gradloom.host.plan.Plan.write_batch`."""
        address, data = plan.batch_images(slot, codes)
        pieces = [data[place:place + self._size] for place in range(0, len(data), self._size)]
        keys = [hashlib.sha256(piece).digest() for piece in pieces]
        new = {key: piece for key, piece in zip(keys, pieces, strict=True) if key not in self._numbers}
        if len(self._numbers) + len(new) > self._most:
            self._device.write(address, data)
        else:
            self._device.write(self._first + len(self._numbers) * self._size, b"".join(new.values()))
            self._numbers |= {key: len(self._numbers) + n for n, key in enumerate(new)}
            self._device.gather([self._numbers[key] for key in keys], self._size, self._first, address, self._size)
        plan.write_labels(self._device, slot, labels)


def _differences(before: bytes, after: bytes) -> list[tuple[int, int]]:
    """First byte and end of the pieces that differ, of two byte strings of one length."""
    found: list[tuple[int, int]] = []
    for place in np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)):
        if found and place - found[-1][1] < _BRIDGED:
            found[-1] = (found[-1][0], int(place) + 1)
        else:
            found.append((int(place), int(place) + 1))
    return found
