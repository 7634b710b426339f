"""What lies in a machine's memory already, so that it does not travel again: programs, images; and bytes that were read at once."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gradloom.host.devices.device import Device
from gradloom.host.machine_program import MachineProgram

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
        self._there: dict[bool, tuple[MachineProgram, bytes]] = {}

    def place(self, device: Device, plan: MachineProgram, first_step: int) -> None:
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
    """Images travel once: they are kept behind the memory that a machine may touch, and batches are gathered from there. Those of
    the next start travel while the machine computes.

    A device without :meth:`~gradloom.host.link.board_device.BoardDevice.gather`, whose memory costs nothing to write, gets every
    batch as it is. A last part of the memory, as large as the batches of a start, keeps nothing: when the rest is full, images that
    come ahead pass through it. What neither has room for is written to its batch.

    Parameters
    ----------
    plan : :class:`~gradloom.host.machine_program.MachineProgram`
        Of any of the programs: their images are laid out alike.
    first : :class:`int`
        First byte that no program touches.
    start_images : :class:`int`
        The most images of a start.
    """

    def __init__(self, device: Any, plan: MachineProgram, first: int, start_images: int) -> None:
        self._device, self._plan, self._first, self._size = device, plan, first, plan.image_bytes
        self._room = (device.memory_limit - first) // self._size if hasattr(device, "gather") else 0
        self._most = max(0, self._room - start_images)
        """Images that can stay."""
        self._places: dict[bytes, int] = {}
        """Images in the memory, by what they are."""
        self._kept = 0
        """How many of them stay; the others pass."""
        self.ahead = 0
        """Bytes that were brought ahead."""

    def bring(self, batches: Callable[[], Iterable[np.ndarray]]) -> None:
        """Send images (B, C, Y, X) of batches that will be placed next, while the machine computes: of what was brought before only
        what stays is left."""
        if not self._room:
            return
        self._places = {key: place for key, place in self._places.items() if place < self._kept}
        new = {key: piece for batch in batches() for key, piece in self._pieces(self._plan, 0, batch)[1]
               if key not in self._places}
        self.ahead += self._keep(new) + self._send(new, self._most, self._room - self._most)

    def place(self, plan: MachineProgram, slot: int, codes: np.ndarray, labels: np.ndarray) -> None:
        """Images (B, C, Y, X) and class numbers (B,) of a step, as of
        :meth:`~gradloom.host.machine_program.MachineProgram.write_batch`."""
        if not self._room:
            plan.write_batch(self._device, slot, codes, labels)
            return
        address, pieces = self._pieces(plan, slot, codes)
        self._keep({key: piece for key, piece in pieces if key not in self._places})
        for there, group in itertools.groupby(enumerate(pieces), key=lambda each: each[1][0] in self._places):
            numbers, run = zip(*group, strict=True)
            target = address + numbers[0] * self._size
            if there:
                self._device.gather([self._places[key] for key, _ in run], self._size, self._first, target, self._size)
            else:
                self._device.write(target, b"".join(piece for _, piece in run))
        plan.write_labels(self._device, slot, labels)

    def _pieces(self, plan: MachineProgram, slot: int, codes: np.ndarray) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Address of a batch, and its images, each with what it is known by."""
        address, data = plan.batch_images(slot, codes)
        pieces = [data[place:place + self._size] for place in range(0, len(data), self._size)]
        return address, [(hashlib.sha256(piece).digest(), piece) for piece in pieces]

    def _keep(self, new: dict[bytes, bytes]) -> int:
        """Images that stay, taken from ``new`` as long as there is room; the bytes that they take."""
        sent = self._send(new, self._kept, self._most - self._kept)
        self._kept += sent // self._size
        return sent

    def _send(self, new: dict[bytes, bytes], first: int, room: int) -> int:
        keys = list(itertools.islice(new, room))
        if keys:
            self._device.write(self._first + first * self._size, b"".join(new.pop(key) for key in keys))
            self._places |= {key: first + n for n, key in enumerate(keys)}
        return len(keys) * self._size


def _differences(before: bytes, after: bytes) -> list[tuple[int, int]]:
    """First byte and end of the pieces that differ, of two byte strings of one length."""
    found: list[tuple[int, int]] = []
    for place in np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)):
        if found and place - found[-1][1] < _BRIDGED:
            found[-1] = (found[-1][0], int(place) + 1)
        else:
            found.append((int(place), int(place) + 1))
    return found
