"""What channels share in a replay: the memory's bandwidth, and the banks of the weight buffer that several of them fill."""

import math
from collections import defaultdict

from gradloom.contracts.config import Config
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.dram.layout import ceil_div

__all__ = ["Banks", "Memory"]

_SLICE = 64
"""Cycles in which what channels share is dealt out at a time: whoever asks first takes what is left."""


class Banks:
    """Banks of the weight buffer, of which a load of kernel 1 fills one; other loads go from bank to bank and soon part, as many as
    there are banks.

    A channel waits while a lower one has a beat for its bank (:mod:`gradloom.rtl.memory_path.load_arbiter`).
    """

    def __init__(self, config: Config) -> None:
        self.beat_bytes = config.beat_bytes
        self.used: defaultdict[tuple[range, int], list[float]] = defaultdict(lambda: [0.0] * config.load_channels)
        """Bytes of every channel by banks and slice."""
        self.pushed = [0.0] * config.load_channels
        """Bytes that were dealt with before a lower channel came for the same bank."""

    def take(self, banks: range, number: int, wanted: float, channel: int) -> float:
        """Bytes of so many wanted ones that go to some banks in a slice of time."""
        room = len(banks) * self.beat_bytes * _SLICE
        used = self.used[banks, number]
        wanted = max(0.0, min(wanted, room - sum(used[:channel])))
        used[channel] += wanted
        over = sum(used) - room
        for other in reversed(range(channel + 1, len(used))):
            late = max(0.0, min(over, used[other]))
            used[other] -= late
            self.pushed[other] += late
            over -= late
        return wanted

    def delays(self) -> list[int]:
        """Cycles that every channel is late since the latest call."""
        cycles = [round(late / self.beat_bytes) for late in self.pushed]
        self.pushed = [0.0] * len(cycles)
        return cycles


class Memory:
    """What channels share: the memory's bandwidth, and banks."""

    def __init__(self, config: Config, dram: DramCost) -> None:
        channels = config.load_channels + config.store_channels
        self.slice_bytes = math.inf
        if dram.bytes_per_cycle is not None and dram.bytes_per_cycle < channels * config.beat_bytes:
            self.slice_bytes = dram.bytes_per_cycle * _SLICE
        self.burst_bytes = dram.burst_cycles * (dram.bytes_per_cycle or 0)
        """What could be moved in the time that a burst costs beside its bytes."""
        self.used: defaultdict[int, float] = defaultdict(float)
        self.banks = Banks(config)

    def move(self, first: int, cycles: int, size: int, bursts: int, banks: range | None = None, channel: int = 0) -> int:
        """Cycle after the last of ``size`` bytes in so many bursts, from ``first`` on; alone they take ``cycles``.

        ``banks``, ``channel``: as for :meth:`Banks.take`.
        """
        if self.slice_bytes == math.inf and banks is None:
            return first + cycles
        rate, left, time = size / cycles, float(size), first
        share = 1 + bursts * self.burst_bytes / size
        while True:
            number = time // _SLICE
            end = (number + 1) * _SLICE
            taken = min(left, rate * (end - time), (self.slice_bytes - self.used[number]) / share)
            if banks is not None:
                taken = self.banks.take(banks, number, taken, channel)
            self.used[number] += taken * share
            left -= taken
            if left < 1:
                return min(end, time + ceil_div(round(taken), round(rate) or 1))
            time = end
