"""The program's fetch beside Loaders on its way: it waits for what they have requested, and they for it."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.pipeline import FETCH_LATENCY
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay_engine import Command, QueuedEngine
from gradloom.host.cost_model.replay_fetch import Fetch
from gradloom.host.cost_model.replay_memory import Memory


@pytest.mark.parametrize(
    ("earlier", "bursts", "cycles", "end", "through"),
    [
        (0, 10, 4, 150, 150),  # all has been requested
        (0, 1000, 4, 4040, 40 + 4 * (13 + 32)),  # 13 of 1000 bursts have come since cycle 40, 32 more are under way
        (222, 1000, 4, 4222, 222),  # the 32 bursts under way are those of the command before
    ],
)
def test_the_program_waits_for_what_a_loader_has_requested_and_no_more(earlier, bursts, cycles, end, through):
    """A fetch that leaves at cycle 98 beside a command of 4 cycles a burst whose data come until ``end``."""
    eta, dram = PRESETS["eta"], DramCost()
    free, taken = QueuedEngine(4), QueuedEngine(4)
    taken.commands = [Command(0, 0, earlier, 100, 4.0), Command(1, 1, end, bursts, float(cycles))]
    times = []
    for engine in (free, taken):
        fetch = Fetch(eta, dram, Memory(eta, dram))
        fetch.jump(98)
        times.append(fetch.take(1, 98, [engine]))
    first = 98 + dram.latency + FETCH_LATENCY
    assert times[1] - times[0] == max(0, through - first)


@pytest.mark.parametrize(("walks", "late"), [((900, 900, 0), [4, 4, 0]), ((0, 900, 900), [4, 0, 0])])
def test_channels_that_fill_the_banks_in_turns_wait_while_the_program_comes(walks, late):
    """A fetch of 4 beats holds up channel 0's port: its load of weights, and the one behind it, which goes from bank to bank beside
    it, are late by as much; so is no other load."""
    eta, dram = PRESETS["eta"], DramCost()
    loaders = [QueuedEngine(4) for _ in walks]
    for loader, end in zip(loaders, walks, strict=True):
        loader.commands = [Command(0, 0, 900, 100, 9.0, walks=bool(end))]
        loader.bus, loader.free = 900, 10
    fetch = Fetch(eta, dram, Memory(eta, dram))
    fetch.jump(98)
    fetch.take(1, 98, loaders)
    assert [loader.bus - 900 for loader in loaders] == late
    assert [loader.free - 10 for loader in loaders[1:]] == late[1:]
