"""Cycles in which the A-Core's first pass waits for the sweeps before it, as :mod:`gradloom.rtl.acore.first_pass` does.

Even and odd addresses of a stream are memories of their own, with one side that reads; the sweep goes first. A sweep of successive
addresses keeps a first pass for a cycle, and from then on the two alternate. A pool reads one address for several taps, or those of
a window's rows again and again: the first pass goes on where the parity changes, a beat each time.
"""

import dataclasses
import itertools
from collections import deque

import numpy as np

from gradloom.contracts.pipeline import ACORE_TO_PASS, POOL_START, RUNS_IN_FLIGHT, SWEEP_LEAST
from gradloom.host.cost_model.cost import Cost
from gradloom.host.cost_model.pool_walk import pool_addresses
from gradloom.host.dram.layout import ceil_div
from gradloom.host.program.assembler import Instruction

__all__ = ["StreamReads"]

_SWEEP_BEGINS, _POOL_BEGINS = 1, 1 + POOL_START
"""From the cycle from which the cost model counts a sweep to its first beat; a pool's walk is set up before."""


@dataclasses.dataclass(frozen=True)
class _Sweep:
    """What a sweep reads: a beat a cycle, or ``turns`` times, from cycle ``first`` to ``end``, behind ``before`` other cycles;
    ``tapped``: a pool's taps."""

    instruction: Instruction
    turns: int
    first: int
    end: int
    before: int = 0
    tapped: bool = False

    @property
    def parities(self) -> np.ndarray:
        """Of the addresses in its cycles, from the first ones of the streams: 0 even, 1 odd."""
        if not self.tapped:
            return np.arange(self.before, self.before + self.end - self.first) // self.turns & 1
        plane = pool_addresses(self.instruction) & 1
        step = self.instruction["pyi"] * ceil_div(self.instruction["pxi"], 2)
        return (plane ^ (np.arange(self.instruction["planes"]) * step & 1)[:, None]).reshape(-1).repeat(self.turns)


class StreamReads:
    """Sweeps of the A-Core that are still under way, or will be, when the first pass of a later command begins."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._sweeps: deque[_Sweep] = deque(maxlen=2 * RUNS_IN_FLIGHT)

    def copy(self) -> "StreamReads":
        found = StreamReads(self._turns)
        found._sweeps.extend(self._sweeps)
        return found

    def sweep(self, instruction: Instruction, cost: Cost, first: int) -> None:
        """The next command's sweep; ``first`` as :meth:`gradloom.host.cost_model.cost.StagedState.first` gives it."""
        begin = first + (_POOL_BEGINS if cost.tapped else _SWEEP_BEGINS)
        if cost.tapped or cost.swept >= SWEEP_LEAST:
            self._sweeps.append(_Sweep(instruction, self._turns, begin, begin + cost.swept, tapped=cost.tapped))
            return
        # The last beat of a few is held, or its last turn.
        last = cost.swept - 1
        self._sweeps.append(_Sweep(instruction, self._turns, begin, begin + last))
        self._sweeps.append(_Sweep(instruction, self._turns, begin + SWEEP_LEAST - 1, begin + SWEEP_LEAST, last))

    def late(self, instruction: Instruction, cost: Cost, time: int) -> int:
        """Cycles that the first pass of the next command waits in all, which starts at ``time``."""
        done, clock = 0, time + ACORE_TO_PASS
        for sweep in self._sweeps:
            if sweep.end <= clock or done == cost.passed:
                continue
            if sweep.first > clock:
                step = min(cost.passed - done, sweep.first - clock)
                done, clock = done + step, clock + step
            if done < cost.passed:
                step, clock = self._beside(sweep, instruction, done, cost.passed - done, clock)
                done += step
        return clock - time - ACORE_TO_PASS - done

    def _beside(self, sweep: _Sweep, instruction: Instruction, done: int, left: int, clock: int) -> tuple[int, int]:
        """Turns of a first pass, of ``left`` ones behind ``done`` others, that go on beside a sweep, and the cycle behind them."""
        aa, ab = ((instruction[name] ^ sweep.instruction[name]) & 1 for name in ("sa0", "sb0"))
        if aa != ab or sweep.first == sweep.end:  # one of the two streams always meets; of a single beat there are none before
            return 0, sweep.end
        parity = sweep.parities[clock - sweep.first:] ^ aa
        # Behind a beat beside an address of one parity, the next one goes beside the other.
        changes = [0, *(np.flatnonzero(np.diff(parity)) + 1).tolist(), len(parity)]
        other, went = int(parity[0]), 0
        for begin, end in itertools.pairwise(changes):
            if other != (done + went) // self._turns & 1:
                step = min(end - begin, self._turns - (done + went) % self._turns, left - went)
                went += step
                if went == left:
                    return left, clock + begin + step
            other ^= 1
        return went, sweep.end
