"""The search for a faster schedule: knobs turned at random, tried on the cost model, kept if they save cycles.

A compilation takes seconds and its estimate is within a percent of the simulated machine, so hundreds of schedules can be tried
where one run in RTL would end. The search is a hill climb from the rules' knobs or from those of an earlier search: every trial
changes one to three of the best knobs so far. What is found depends on seed, trials and processes alone.
"""

import dataclasses
import functools
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from gradloom.contracts.config import Config
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.trace import step_programs
from gradloom.host.knobs import DEFAULT_KNOBS, Knobs, Schedule, SearchSpace, schedule_key
from gradloom.host.schedule import compile_network
from gradloom.models.network import Network

__all__ = ["begin", "estimated_cycles", "search"]

_PLACES = (0, -20.5, -8.5, -4.5, -2.5, -1.5, 1.5, 2.5, 4.5, 8.5, 20.5)
"""By how much a work moves. Halves: it never stands where another one does."""
_VALUES: dict[str, tuple[int | bool, ...]] = {
    "prefetch_depth": (2, 3, 4),
    "split_leftover_rows": (False, True),
    "reserve_second_pass": (False, True),
    "subtile_beats": (0, 32, 64, 96, 144, 192, 256),
}
_CHANGES = (1, 1, 1, 2, 3)
"""Changes of a trial, equally likely."""
_KINDS = ("tiles",) * 3 + ("stage",) * 2 + ("order",) * 7 + ("value",) + ("deferred",)
"""What a change is of, equally likely. A stage: tiles of all layers of the same sizes alike, as one that is cut in another way than
its neighbours would wait for them. Deferred: one layer more or fewer."""


@dataclasses.dataclass(frozen=True)
class _Problem:
    network: Network
    config: Config
    batch: int
    dram: DramCost


def estimated_cycles(
    network: Network, config: Config, batch: int, dram: DramCost, knobs: Knobs
) -> tuple[int, SearchSpace]:
    """Cycles of a steady step, the second of one start, and what there is to choose from.

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If there is no program with these knobs.
    """
    plan = compile_network(network, config, batch, slots=2, table=2, knobs=knobs)
    return replay(step_programs(plan.instructions, plan.labels, 2), config, dram)[1].cycles, plan.search_space


def _try(problem: _Problem, knobs: Knobs) -> int | None:
    """Cycles with these knobs; ``None`` if no program comes of them."""
    try:
        return estimated_cycles(problem.network, problem.config, problem.batch, problem.dram, knobs)[0]
    except ScheduleError:
        return None


def _changed(knobs: Knobs, search_space: SearchSpace, dice: random.Random) -> Knobs:
    """The same with one to three changes."""
    tiles, order, deferred = dict(knobs.tiles), dict(knobs.order), set(knobs.deferred_layers)
    values: dict[str, Any] = {}
    for _ in range(dice.choice(_CHANGES)):
        kind = dice.choice(_KINDS)
        if kind in ("tiles", "stage"):
            key = dice.choice(sorted(search_space.tiles))
            found = dice.choice(search_space.tiles[key])
            same = key[-2:], search_space.tiles[key]
            alike = [other for other, fitting in search_space.tiles.items() if (other[-2:], fitting) == same]
            tiles |= dict.fromkeys(alike if kind == "stage" else [key], found)
        elif kind == "order":
            key = dice.choice(sorted(set(search_space.works)))
            order[key] = dice.choice(_PLACES)
        elif kind == "deferred":
            deferred ^= {dice.choice(search_space.deferrable)} if search_space.deferrable else set()
        else:
            name = dice.choice(sorted(_VALUES))
            values[name] = dice.choice(_VALUES[name])
    moved = {key: place for key, place in order.items() if place}
    return dataclasses.replace(knobs, tiles=tiles, order=moved, deferred_layers=tuple(sorted(deferred)), **values)


def begin(network: Network, config: Config, batch: int, dram: DramCost, seed: int) -> Schedule:
    """The rules' knobs, from which a search starts."""
    cycles, _ = estimated_cycles(network, config, batch, dram, DEFAULT_KNOBS)
    memory = {"latency": dram.latency, "bytes_per_cycle": dram.bytes_per_cycle}
    key = schedule_key(network, config, batch)
    return Schedule(network.name, config.name, batch, key, DEFAULT_KNOBS, cycles, cycles, 0, seed, memory)


def search(
    network: Network,
    config: Config,
    schedule: Schedule,
    *,
    trials: int,
    jobs: int,
) -> Iterator[Schedule]:
    """So many trials more, ``jobs`` at a time; yields the best schedule after each round.

    ``schedule``: the best one so far, from :func:`begin` or an earlier search.
    """
    problem = _Problem(network, config, schedule.batch, DramCost(**schedule.memory))
    search_space = estimated_cycles(network, config, schedule.batch, problem.dram, schedule.knobs)[1]
    end = schedule.trials + trials
    with ProcessPoolExecutor(jobs) as pool:
        while schedule.trials < end:
            numbers = range(schedule.trials, min(schedule.trials + jobs, end))
            dice = [random.Random(f"{schedule.seed} {number}") for number in numbers]
            candidates = [_changed(schedule.knobs, search_space, each) for each in dice]
            tried = pool.map(functools.partial(_try, problem), candidates)
            found = [(cycles, n) for n, cycles in enumerate(tried) if cycles is not None]
            schedule = dataclasses.replace(schedule, trials=numbers.stop)
            cycles, n = min(found, default=(schedule.cycles, 0))
            if cycles < schedule.cycles:
                schedule = dataclasses.replace(schedule, knobs=candidates[n], cycles=cycles)
            yield schedule
