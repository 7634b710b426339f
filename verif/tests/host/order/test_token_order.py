"""Tokens of whole programs: every conflict is ordered, no semaphore passes its largest value, no barrier stands for want of one."""

import dataclasses
import random

import pytest

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import SEMAPHORES, Dest, Opcode, Source
from gradloom.host.order.accesses import Access
from gradloom.host.order.synchronize import Recorder
from gradloom.host.program.assembler import Instruction
from gradloom.host.program.token_check import check_tokens
from gradloom.host.schedule import compile_network
from gradloom.models.network import (
    Conv,
    FullyConnected,
    Network,
    load_network,
)
from gradloom.verif.checkout import NETWORKS


def _before(instructions: list[Instruction], config: Config) -> list[set[int]]:
    """Commands that have surely finished when each command starts, if engines overlap theirs and finish them in order."""
    started: list[set[int]] = []
    finished: list[set[int]] = []
    last: dict[Unit, int] = {}
    signals: dict[int, list[int]] = {}
    floor: set[int] = set()
    for number, instruction in enumerate(instructions):
        unit, known = instruction.unit(config), set(floor)
        if instruction.opcode == Opcode.BARRIER:
            floor = set(range(number))
        if unit in last:
            known |= started[last[unit]]
        for i in range(SEMAPHORES):
            if instruction.wait >> i & 1:
                known |= finished[signals[i].pop(0)]
        started.append(known)
        finished.append(known | {number} | (finished[last[unit]] if unit in last else set()))
        last[unit] = number
        for i in range(SEMAPHORES):
            if instruction.signal >> i & 1:
                signals.setdefault(i, []).append(number)
    assert not any(signals.values())
    return started


def _most_open(instructions: list[Instruction]) -> int:
    """Most tokens of one semaphore that are signalled and not yet waited for, in the order of the program."""
    counts, most = [0] * SEMAPHORES, 0
    for instruction in instructions:
        for i in range(SEMAPHORES):
            counts[i] += (instruction.signal >> i & 1) - (instruction.wait >> i & 1)
        most = max(most, *counts)
    return most


def test_no_semaphore_passes_its_largest_value():
    """A fully connected layer on many positions: hundreds of small updates, each free to run far ahead of the next load."""
    layers = (
        Conv(name="conv", out=13, kernel=3, pad=2, act="none"),
        FullyConnected(name="fc", input="conv", out=9),
    )
    network = Network("many-tiles", (5, 14, 14), 9, layers)
    for calibrate in (False, True):
        plan = compile_network(network, PRESETS["small"], 2, calibrate=calibrate, export_dw=True)
        assert check_tokens(plan.instructions, PRESETS["small"]) == []


@pytest.mark.parametrize(("loads", "stores"), [(1, 1), (2, 1), (4, 2)])
def test_recorded_tokens_order_every_conflict(loads, stores):
    """Random accesses of tensors and of memories on chip, also of engines without a semaphore for each other: tokens or barriers
    order every pair of conflicting commands, every signal has its wait."""
    rng = random.Random(2)
    config = dataclasses.replace(PRESETS["small"], load_channels=loads, store_channels=stores)
    opcodes = (Opcode.LOAD, Opcode.CONV, Opcode.RUN, Opcode.STORE)
    barriers = 0
    for run in range(20):
        most = 128 if run % 2 else 2
        recorder, accesses, places = Recorder(config, most), [], []
        for _ in range(80):

            def box():
                low, space = rng.randrange(8), rng.choice("ABcd")
                rows = low, low + rng.randint(1, 3)
                return Access(space, (rows, (0, 1)) if space.isupper() else (rows,))

            reads, writes = (
                [box() for _ in range(rng.randint(0, 2))],
                [box() for _ in range(rng.randint(0, 1))],
            )
            opcode = rng.choice(opcodes)
            runs = {"n0": 1, "n1": 1, "n2": 1}
            fields = {"dest": rng.choice(list(Dest)), **runs} if opcode == Opcode.LOAD else {}
            fields |= {"src": rng.choice(list(Source)), **runs} if opcode == Opcode.STORE else {}
            places.append(recorder.emit(opcode, fields, reads=reads, writes=writes))
            accesses.append([(access, False) for access in reads] + [(access, True) for access in writes])
        found = recorder.instructions
        barriers += sum(instruction.opcode == Opcode.BARRIER for instruction in found) if most == 128 else 0
        done = _before(found, config)
        assert _most_open(found) <= most
        for late in range(80):
            for early in range(late):
                conflict = any(
                    a.space == b.space
                    and (wa or wb)
                    and a.box[0][0] < b.box[0][1]
                    and b.box[0][0] < a.box[0][1]
                    for a, wa in accesses[early]
                    for b, wb in accesses[late]
                )
                first, second = places[early], places[late]
                if conflict and found[first].unit(config) != found[second].unit(config):
                    assert first in done[second]
    assert barriers, "engines without a semaphore for each other never met"


@pytest.mark.parametrize("config", ["small", "channels"])
def test_machine_programs_need_no_barrier_for_want_of_a_semaphore(config, monkeypatch):
    """Every conflict of a step is between engines that have a semaphore for each other."""
    machine = PRESETS["small"] if config == "small" else dataclasses.replace(
        PRESETS["small"], wpus=2, load_channels=4, store_channels=2)
    needed = Recorder._needs_barrier
    refused = []

    def watch(self, engine, needs, unordered):
        if needed(self, engine, needs, unordered):
            refused.append((engine, needs))
        return needed(self, engine, needs, unordered)

    monkeypatch.setattr(Recorder, "_needs_barrier", watch)
    for name in ("digits-cnn", "tiny-residual"):
        file = NETWORKS / f"{name}.toml"
        compile_network(load_network(str(file) if file.exists() else name), machine, 4, calibrate=True, export_dw=True)
    assert not refused
