"""A line to the model of a board, and a line that loses, damages, doubles and delays."""

import random
from collections.abc import Callable, Sequence

from gradloom.host.link.transport import Transport
from gradloom.verif.link.board_model import BoardModel

__all__ = ["DISTURBANCES", "FaultyTransport", "ModelTransport"]


class ModelTransport:
    """The model behind a line whose clock runs while the host waits.

    Parameters
    ----------
    board : :class:`BoardModel`
    pass_time : callable, optional
        What else happens in so many seconds; returns how many of them passed until the board had something to say.
    """

    patience = 0.001

    def __init__(self, board: BoardModel, pass_time: Callable[[float], float] | None = None) -> None:
        self.board = board
        self._pass_time = pass_time
        self._now = 0.0
        self.byte_time = 1e-6
        self.closed = False

    def now(self) -> float:
        return self._now

    def write(self, data: bytes) -> None:
        self._now += len(data) * self.byte_time
        self.board.feed(data)

    def read(self, wait: float) -> bytes:
        data = self.board.take()
        if not data and wait > 0:
            self._now += wait if self._pass_time is None else self._pass_time(wait)
            data = self.board.take()
        return data

    def set_baud(self, baud: int) -> None:
        """The model has no bits."""

    def line_break(self) -> None:
        """As :meth:`set_baud`."""

    def close(self) -> None:
        self.closed = True


def _flip(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1:]


def _cut(rng: random.Random, data: bytes) -> bytes:
    first, limit = sorted(rng.choices(range(len(data) + 1), k=2))
    return data[:first] + data[limit:]


def _noise(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    noise = bytes(rng.choice([0x7E, 0x7D, rng.randrange(256)]) for _ in range(rng.randint(1, 9)))
    return data[:place] + noise + data[place:]


DISTURBANCES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "drop": lambda rng, data: b"",
    "flip": _flip,
    "double": lambda rng, data: data + data,
    "cut": _cut,
    "noise": _noise,
    "byte": lambda rng, data: data[:(place := rng.randrange(len(data)))] + data[place + 1:],
}
"""What may happen to bytes on their way; ``late`` is one more: the bytes, or a copy of them, come after later ones."""


class FaultyTransport:
    """Another transport, on whose bytes something may happen in either direction.

    Parameters
    ----------
    rate : :class:`float`
        Share of the calls that are disturbed.
    kinds : sequence of :class:`str`
        Of :data:`DISTURBANCES`, and ``late``.
    """

    def __init__(self, inner: Transport, rng: random.Random, rate: float,
                 kinds: Sequence[str] = (*DISTURBANCES, "late")) -> None:
        self.inner, self.rng, self.rate, self.kinds = inner, rng, rate, tuple(kinds)
        self.patience = inner.patience
        self.faults = dict.fromkeys(self.kinds, 0)
        """How often each kind has happened."""
        self._late: dict[str, list[tuple[int, bytes]]] = {"out": [], "in": []}

    @property
    def byte_time(self) -> float:
        return self.inner.byte_time

    def now(self) -> float:
        return self.inner.now()

    def _disturb(self, data: bytes, way: str) -> bytes:
        due = b""
        for age, late in self._late[way]:
            due += late if age == 0 else b""
        self._late[way] = [(age - 1, late) for age, late in self._late[way] if age]
        if not data or self.rng.random() >= self.rate:
            return data + due
        kind = self.rng.choice(self.kinds)
        self.faults[kind] += 1
        if kind == "late":
            self._late[way].append((self.rng.randrange(6), data))
            return (data if self.rng.random() < 0.5 else b"") + due
        return DISTURBANCES[kind](self.rng, data) + due

    def write(self, data: bytes) -> None:
        data = self._disturb(data, "out")
        if data:
            self.inner.write(data)

    def read(self, wait: float) -> bytes:
        return self._disturb(self.inner.read(wait), "in")

    def set_baud(self, baud: int) -> None:
        self.inner.set_baud(baud)

    def line_break(self) -> None:
        self.inner.line_break()

    def close(self) -> None:
        self.inner.close()
