"""The program's fetch in a replay: when its words are at the Sequencer, on a port that the first Loader uses too."""

from bisect import bisect_right
from collections.abc import Sequence

from gradloom.contracts.config import Config
from gradloom.contracts.pipeline import FETCH_AHEAD, FETCH_BEATS, FETCH_CHUNK, FETCH_LATENCY, LOAD_REQUEST, OUTSTANDING_READS
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay_engine import QueuedEngine
from gradloom.host.cost_model.replay_memory import Memory
from gradloom.host.dram.layout import ceil_div

__all__ = ["Fetch"]


class Fetch:
    """The program on its way to the Sequencer: bursts read ahead, on the read channel that the first Loader uses too."""

    def __init__(self, config: Config, dram: DramCost, memory: Memory) -> None:
        self.dram, self.memory = dram, memory
        self.beats = FETCH_CHUNK // config.beat_bytes
        self.pairs = FETCH_CHUNK // 8
        self.under_way = FETCH_BEATS // self.beats
        self.ahead = 4 * FETCH_AHEAD // FETCH_CHUNK
        self.jump(0)

    def jump(self, time: int) -> None:
        """Begin anew; the first request leaves at ``time``."""
        self.origin = time
        self.ends: list[int] = []
        self.taken: list[int] = []
        self.used = 0

    def take(self, count: int, time: int, loaders: Sequence[QueuedEngine]) -> int:
        """Cycle in which the last of ``count`` pairs of words is taken, one a cycle from ``time`` on; the first Loader shares its
        port."""
        while count:
            if len(self.ends) == len(self.taken):
                self._request(loaders)
            step = min(count, self.pairs - self.used)
            self.used += step
            count -= step
            time = max(time + step, self.ends[-1] - self.beats + ceil_div(self.used * self.beats, self.pairs))
            if self.used == self.pairs:
                self.taken.append(time)
                self.used = 0
        return time

    def _request(self, loaders: Sequence[QueuedEngine]) -> None:
        load, number = loaders[0], len(self.ends)
        issue = self.origin
        if number >= self.under_way:
            issue = max(issue, self.ends[number - self.under_way])
        if number >= self.ahead:
            issue = max(issue, self.taken[number - self.ahead])
        first = issue + self.dram.latency + FETCH_LATENCY
        # Data come in the order of the requests: those of the Loader's commands that started earlier come first, as far as they
        # have been requested.
        place = bisect_right(load.commands, issue - LOAD_REQUEST, key=lambda command: command.start) - 1
        if place >= 0:
            first = max(first, self._requested(load, place, issue - LOAD_REQUEST))
        end = self.memory.move(max(first, self.ends[-1] if self.ends else 0), self.beats, FETCH_CHUNK, 1)
        if load.bus > first:
            load.bus += self.beats
        # A Loader that stands while its port brings the program falls back by a block, into the bank of the next one, which waits
        # for it, and so on.
        if load.walks(first):
            for other in loaders[1:]:
                if other.walks(first):
                    other.delay(self.beats)
        self.ends.append(end)

    @staticmethod
    def _requested(load: QueuedEngine, place: int, time: int) -> int:
        """When the data have come that the Loader has requested until ``time``, at which its command ``place`` is the latest one.

        It requests a burst a cycle, and no more than can be under way.
        """
        command = load.commands[place]
        before, rate = (load.commands[place - 1].end, load.commands[place - 1].rate) if place else (0, 1.0)
        come = max(0.0, time - (command.end - command.bursts * command.rate)) / max(command.rate, 1.0)
        earlier = max(0, before - time) / max(rate, 1.0)
        asked = min(command.bursts, time - command.start, come + OUTSTANDING_READS - earlier)
        return before if asked <= 0 else int(command.end - (command.bursts - asked) * command.rate)
