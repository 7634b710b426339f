"""Runs cases and keeps what comes of them."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gradloom.sim.rtl_device import DramModel
from gradloom.verif.fuzzing.bench import Bench, Hang
from gradloom.verif.fuzzing.cases import Trouble
from gradloom.verif.fuzzing.classes import make_trouble
from gradloom.verif.fuzzing.outcomes import Outcome
from gradloom.verif.fuzzing.record import BLOCK, Block, Result, Store, in_order

__all__ = ["run_all", "run_block", "run_one"]


def run_block(bench: Bench, seed: int, first: int, revision: str, count: int = BLOCK) -> Block:
    """Cases ``first`` and on, on a fresh machine; one that hangs or breaks the protocol is replaced behind the case."""
    bench.renew()
    began = time.process_time()
    results, problems = [], []
    for number in range(first, first + count):
        trouble = make_trouble(seed, bench.name, number, bench.scenes, bench.cycles)
        result, found = _attempt(bench, trouble)
        results.append(result)
        problems += [(number, f"{trouble.kind}, {trouble.text}: {text}") for text in found]
    return Block(seed, revision, bench.name, first, round(time.process_time() - began, 3), tuple(results), tuple(problems))


def _attempt(bench: Bench, trouble: Trouble) -> tuple[Result, list[str]]:
    usual = trouble.dram == DramModel()
    try:
        outcome = bench.run(trouble)
    except (Hang, RuntimeError) as error:
        # No end, no answer of a register, or a rule of a bus broken.
        bench.renew()
        return Result(trouble.kind, trouble.target, "broken", "", 0, 0, usual), [f"{type(error).__name__}: {error}"]
    result = Result(trouble.kind, trouble.target, outcome.name, outcome.reported, outcome.cycles, outcome.heeded, usual)
    return result, list(outcome.problems)


def run_one(bench: Bench, seed: int, number: int, *, alone: bool) -> tuple[Trouble, Outcome]:
    """One case on a fresh machine, or (not ``alone``) on one that has run what comes before it in its block.

    Raises
    ------
    :exc:`Hang`, :exc:`RuntimeError`
        If the machine does not end, does not answer, or breaks a rule of a bus.
    """
    bench.renew()
    if not alone:
        for earlier in range(number // BLOCK * BLOCK, number):
            _attempt(bench, make_trouble(seed, bench.name, earlier, bench.scenes, bench.cycles))
    trouble = make_trouble(seed, bench.name, number, bench.scenes, bench.cycles)
    return trouble, bench.run(trouble)


def run_all(folder: Path, configs: Sequence[str], cases: int, seed: int, revision: str,
            open_bench: Callable[[str], Bench] = Bench) -> int:
    """Every block that the folder lacks, in order. Returns the number of problems of all."""
    stores = {config: Store(folder, config, seed) for config in configs}
    have = {config: {block.first for block in store.blocks} for config, store in stores.items()}
    due = [(config, first) for config, first in in_order(cases, configs) if first not in have[config]]
    benches: dict[str, Bench] = {}
    began = time.monotonic()
    for done, (config, first) in enumerate(due):
        if config not in benches:
            benches[config] = open_bench(config)
        block = run_block(benches[config], seed, first, revision)
        stores[config].append(block)
        for number, text in block.problems:
            print(f"\n{config}-{number}: {text}", flush=True)
        left = (time.monotonic() - began) / (done + 1) * (len(due) - done - 1)
        total = sum(store.cases for store in stores.values())
        print(f"\r{total} of {cases} cases, {left / 60:.0f} minutes left ", end="" if sys.stdout.isatty() else "\n", flush=True)
    for bench in benches.values():
        bench.close()
    return sum(len(block.problems) for store in stores.values() for block in store.blocks)
