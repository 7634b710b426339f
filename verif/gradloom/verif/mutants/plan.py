"""Which mutants are tried: every place of the elaborated RTL is found, and a sample of it drawn from a seed."""

import dataclasses
import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig, load_machine
from gradloom.rtl import shared_module
from gradloom.rtl.accelerator import Accelerator
from gradloom.verif.checkout import ROOT
from gradloom.verif.configs import machine_config
from gradloom.verif.mutants.instrument import RTL, Mutant, Place, listening

__all__ = ["CONFIGS", "FIRST", "LEAST", "MATRICES", "PLAN", "SEED", "TOTAL", "modules", "read_plan", "sample", "statements",
           "write_plan"]

SEED = 20261126
"""Of the sample."""
TOTAL, FIRST, LEAST = 1200, 300, 10
"""Mutants in all, in the first run, and at least of every module (fewer only if it has fewer)."""
CONFIGS = ("nano", "small", "channels", "laps", "ulx3s", "post-shift", "turns", "cells")
"""Machines whose statements count; a statement belongs to the first that has it."""
MATRICES = ("fox-4", "darkfpga-8x4", "barista-4x4x16")
"""The same of those that multiply matrices."""
DRAWN_AS = {
    "acore/result_writer.py": "acore/outputs.py", "acore/scalar_stage.py": "acore/prepare.py",
    "acore/shift_setup.py": "acore/setup.py", "acore/stream_address.py": "acore/planes.py",
    "ccore/abs_accumulator.py": "ccore/magnitude.py", "ccore/column_sequencer.py": "ccore/colwalk.py",
    "ccore/input_network.py": "ccore/feed.py", "ccore/plane_l1_sums.py": "ccore/psum_sums.py",
    "ccore/row_sequencer.py": "ccore/rowwalk.py", "ccore/window_registers.py": "ccore/operands.py",
    "memory_path/strided_address.py": "memory_path/runs.py", "sequencer/control_commands.py": "sequencer/own_commands.py"}
"""Files whose name is not the one under which the sample was drawn: a new name alone draws nothing anew."""
PLAN = ROOT / "docs" / "results" / "mutants" / "plan.jsonl"
"""The committed sample, in the order of the runs."""

Found = dict[Place, tuple[str, list[list[tuple[str, str]]]]]
"""Of every statement: the configuration and, for each of its instances in a module, its variants (operator, change)."""


def machine(name: str) -> Config | MatrixConfig:
    """The machine of one of :data:`CONFIGS` or :data:`MATRICES`."""
    if name in MATRICES:
        return load_machine(name)
    if name == "post-shift":
        return dataclasses.replace(machine_config("nano"), name=name, mac="post_shift")
    return machine_config(name)


def _keep(here: dict[Place, list[list[tuple[str, str]]]], place: Place, instance: int, variants: list[tuple[str, str]]) -> None:
    """Of modules that are elaborated more than once, the first and whatever larger ones add."""
    known = here.setdefault(place, [])
    if instance == len(known):
        known.append(variants)


def statements(configs: Iterable[str] = CONFIGS + MATRICES) -> Found:
    """Every statement of the RTL that something can be changed in."""
    found: Found = {}
    for config in configs:
        here: dict[Place, list[list[tuple[str, str]]]] = {}

        with listening(functools.partial(_keep, here)):
            shared_module.convert(functools.partial(Accelerator, machine(config)), "gradloom")
        for place, instances in here.items():
            if place not in found and any(instances):
                found[place] = (config, instances)
    return found


def modules(found: Found) -> dict[str, list[Place]]:
    """The statements of every source file."""
    result: dict[str, list[Place]] = defaultdict(list)
    for place in found:
        result[place.file].append(place)
    return dict(sorted(result.items()))


def _hash(*of: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:8], "big")


def _drawn_as(file: str) -> str:
    return DRAWN_AS.get(file, file)


def _draw(found: Found, places: list[Place], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants of one module: each statement once, in a random order, before any comes again."""
    texts = {place: (RTL / place.file).read_text().splitlines()[place.line - 1].strip() for place in places}
    owners = {place: _drawn_as(place.owner.rsplit(":", 1)[0]) for place in places}
    # By text, not by line number, so that an edit elsewhere in the file leaves the sample alone.
    order = sorted(places, key=lambda place: (
        _hash(seed, _drawn_as(place.file), owners[place], texts[place]), place.owner, place.line))
    chosen: dict[str, Mutant] = {}
    for turn in range(8):
        for place in order:
            if len(chosen) == count:
                return list(chosen.values())
            config, instances = found[place]
            key = (seed, _drawn_as(place.file), owners[place], texts[place], turn)
            instance = _hash("instance", *key) & 0xFFFF
            variants = instances[instance * len(instances) >> 16]
            if not variants:
                continue
            kinds = sorted({operator for operator, _ in variants})
            operator = kinds[_hash("operator", *key) % len(kinds)]
            site = _hash("site", *key) & 0xFFFF
            of_kind = [what for kind, what in variants if kind == operator]
            number = site * len(of_kind) >> 16
            # The middle of its share, so that two draws of one change have one name.
            site = (2 * number + 1 << 15) // len(of_kind)
            place_of = instance * len(instances) >> 16
            instance = (2 * place_of + 1 << 15) // len(instances)
            mutant = Mutant(place, instance, operator, site, of_kind[number], config)
            chosen.setdefault(mutant.name, mutant)
    return list(chosen.values())


def sample(found: Found, *, total: int = TOTAL, least: int = LEAST, seed: int = SEED) -> list[Mutant]:
    """A sample in the order of the runs: modules take turns by their share, so that every prefix is spread over all of them.

    A module gets mutants as it has statements, and at least ``least``.
    """
    by_module = modules(found)
    all_statements = sum(map(len, by_module.values()))
    ranked = []
    for file, places in by_module.items():
        count = max(least, round(total * len(places) / all_statements))
        drawn = _draw(found, places, count, seed)
        ranked += [((n + 0.5) / len(drawn), file, mutant) for n, mutant in enumerate(drawn)]
        # Every module has one near the front.
        ranked[-len(drawn)] = (0.0, file, drawn[0])
    ranked.sort(key=lambda entry: entry[:2])
    return [mutant for _, _, mutant in ranked]


def write_plan(mutants: Iterable[Mutant], path: Path = PLAN) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(dataclasses.asdict(mutant)) + "\n" for mutant in mutants))


def read_plan(path: Path = PLAN) -> list[Mutant]:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [Mutant(**(entry | {"place": Place(**entry["place"])})) for entry in entries]
