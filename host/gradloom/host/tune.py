"""The search for a faster schedule: choices changed at random, tried on the cost model, kept if they save cycles.

A compilation takes seconds and its estimate is within a percent of the simulated machine, so hundreds of schedules can be tried
where one run in RTL would end. The search is a hill climb from the rules' choices or from those of an earlier search: every trial
changes one to three of the best choices so far. What is found depends on seed, trials and processes alone.
"""

import dataclasses
import functools
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from gradloom.contracts.config import Config
from gradloom.host.choices import BY_RULES, Choices, Offer, Schedule, schedule_key
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.trace import step_programs
from gradloom.host.schedule import compile_network
from gradloom.models.network import Network

__all__ = ["begin", "estimated_cycles", "search"]

_PLACES = (0, -20.5, -8.5, -4.5, -2.5, -1.5, 1.5, 2.5, 4.5, 8.5, 20.5)
"""By how much a work moves. Halves: it never stands where another one does."""
_VALUES: dict[str, tuple[int | bool, ...]] = {
    "patience": (0, 50, 100, 200, 400, 800),
    "brief": (0, 50, 100, 200, 400),
    "starved": (300, 1000, 2000, 5000),
    "ahead": (2, 3, 4),
    "balance": (False, True),
    "operands": (False, True),
    "share": (False, True),
    "twice": (False, True),
    "cut": (0, 32, 64, 96, 144, 192, 256),
}
_CHANGES = (1, 1, 1, 2, 3)
"""Changes of a trial, equally likely."""
_KINDS = ("tiles",) * 3 + ("stage",) * 2 + ("order",) * 7 + ("value",) + ("carried",)
"""What a change is of, equally likely. A stage: tiles of all layers of the same sizes alike, as one that is cut in another way than
its neighbours would wait for them. Carried: one layer more or fewer."""


@dataclasses.dataclass(frozen=True)
class _Problem:
    network: Network
    config: Config
    batch: int
    dram: DramCost


def estimated_cycles(
    network: Network, config: Config, batch: int, dram: DramCost, choices: Choices
) -> tuple[int, Offer]:
    """Cycles of a steady step, the second of one start, and what there is to choose from.

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If there is no program with these choices.
    """
    plan = compile_network(network, config, batch, slots=2, table=2, choices=choices)
    return replay(step_programs(plan.instructions, plan.labels, 2), config, dram)[1].cycles, plan.offer


def _try(problem: _Problem, choices: Choices) -> int | None:
    """Cycles with these choices; ``None`` if no program comes of them."""
    try:
        return estimated_cycles(problem.network, problem.config, problem.batch, problem.dram, choices)[0]
    except ScheduleError:
        return None


def _changed(choices: Choices, offer: Offer, dice: random.Random) -> Choices:
    """The same with one to three changes."""
    tiles, order, carried = dict(choices.tiles), dict(choices.order), set(choices.carried)
    values: dict[str, Any] = {}
    for _ in range(dice.choice(_CHANGES)):
        kind = dice.choice(_KINDS)
        if kind in ("tiles", "stage"):
            key = dice.choice(sorted(offer.tiles))
            found = dice.choice(offer.tiles[key])
            alike = [other for other, fitting in offer.tiles.items() if (other[-2:], fitting) == (key[-2:], offer.tiles[key])]
            tiles |= dict.fromkeys(alike if kind == "stage" else [key], found)
        elif kind == "order":
            key = dice.choice(sorted(set(offer.works)))
            order[key] = dice.choice(_PLACES)
        elif kind == "carried":
            carried ^= {dice.choice(offer.carriable)} if offer.carriable else set()
        else:
            name = dice.choice(sorted(_VALUES))
            values[name] = dice.choice(_VALUES[name])
    moved = {key: place for key, place in order.items() if place}
    return dataclasses.replace(choices, tiles=tiles, order=moved, carried=tuple(sorted(carried)), **values)


def begin(network: Network, config: Config, batch: int, dram: DramCost, seed: int) -> Schedule:
    """The rules' choices, from which a search starts."""
    cycles, _ = estimated_cycles(network, config, batch, dram, BY_RULES)
    memory = {"latency": dram.latency, "bytes_per_cycle": dram.bytes_per_cycle}
    key = schedule_key(network, config, batch)
    return Schedule(network.name, config.name, batch, key, BY_RULES, cycles, cycles, 0, seed, memory)


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
    offer = estimated_cycles(network, config, schedule.batch, problem.dram, schedule.choices)[1]
    end = schedule.trials + trials
    with ProcessPoolExecutor(jobs) as pool:
        while schedule.trials < end:
            numbers = range(schedule.trials, min(schedule.trials + jobs, end))
            dice = [random.Random(f"{schedule.seed} {number}") for number in numbers]
            candidates = [_changed(schedule.choices, offer, each) for each in dice]
            tried = pool.map(functools.partial(_try, problem), candidates)
            found = [(cycles, n) for n, cycles in enumerate(tried) if cycles is not None]
            schedule = dataclasses.replace(schedule, trials=numbers.stop)
            cycles, n = min(found, default=(schedule.cycles, 0))
            if cycles < schedule.cycles:
                schedule = dataclasses.replace(schedule, choices=candidates[n], cycles=cycles)
            yield schedule
