"""A run of the fuzzer goes on where it was interrupted, and what it publishes is what its blocks say."""

import dataclasses
import itertools
import json

import pytest

from gradloom.contracts.isa import Engine
from gradloom.contracts.regmap import ErrorCode
from gradloom.host.files import UserError
from gradloom.verif import fuzz
from gradloom.verif.checkout import DOCS
from gradloom.verif.configs import machine_config
from gradloom.verif.fuzzing import run
from gradloom.verif.fuzzing.counts import counts_of, read_blocks
from gradloom.verif.fuzzing.outcomes import possible
from gradloom.verif.fuzzing.page import LAST, RESULTS, render
from gradloom.verif.fuzzing.record import BLOCK, CONFIGS, Block, Result, Store, in_order

GOOD = Result("field", "CONV", "good", "", 5000, 0, True)
ABORTED = Result("abort", "once", "SEQ aborted", "SEQ aborted", 4000, 70, True)


def block(config="nano", first=0, result=GOOD, problems=()):
    return Block(1, "abc", config, first, 1.5, (result,) * BLOCK, problems)


class Bench:
    """Stands for a machine that is never used."""

    def __init__(self, config: str) -> None:
        self.name = config

    def close(self) -> None:
        pass


def test_order_gives_every_machine_its_share():
    """nano and small come three and two times as often as channels, block by block, whatever the number of cases."""
    blocks = in_order(30_000)
    assert len(blocks) == 600 and len(set(blocks)) == 600
    shares = {config: sum(BLOCK for name, _ in blocks if name == config) for config in CONFIGS}
    assert shares == {"nano": 15_000, "small": 10_000, "channels": 5_000}
    assert blocks[:100] == in_order(100 * BLOCK)
    assert in_order(120, ["channels"]) == [("channels", 0), ("channels", 50), ("channels", 100)]


def test_store_keeps_blocks_and_forgets_a_broken_end(tmp_path):
    store = Store(tmp_path, "nano", 1)
    store.append(block())
    store.append(block(first=BLOCK, result=ABORTED, problems=((57, "a problem"),)))
    assert Store(tmp_path, "nano", 1).blocks == store.blocks and Store(tmp_path, "nano", 2).blocks == []
    whole = store.path.read_bytes()
    store.path.write_bytes(whole + b'{"seed":1,"rev')
    assert Store(tmp_path, "nano", 1).blocks == store.blocks
    assert store.path.read_bytes() == whole, "the next block begins a line of its own"
    store.path.write_bytes(b'{"seed":1}\n' + whole)
    with pytest.raises(UserError, match="line 1 is no block of results"):
        Store(tmp_path, "nano", 1)


def test_interrupted_run_goes_on(tmp_path, monkeypatch):
    """Every block is run once, in order, however often the run is interrupted."""
    asked = []

    def run_block(bench, seed, first, revision):
        asked.append((bench.name, first))
        if len(asked) in (3, 8):
            raise KeyboardInterrupt
        return block(bench.name, first)

    monkeypatch.setattr(run, "run_block", run_block)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run.run_all(tmp_path, CONFIGS, 600, 1, "abc", Bench)
    assert run.run_all(tmp_path, CONFIGS, 600, 1, "abc", Bench) == 0
    assert [key for key, _ in itertools.groupby(asked)] == in_order(600)
    asked.clear()
    assert run.run_all(tmp_path, CONFIGS, 600, 1, "abc", Bench) == 0 and asked == []
    assert [(one.config, one.first) for one in read_blocks(tmp_path, 1)] == in_order(600)


def test_command_says_what_is_wrong(tmp_path, capsys):
    for case in ("nano", "nano-x", "eta-3", "-3"):
        assert fuzz.main(["case", "--work", str(tmp_path), "--", case]) == 2
        assert f"there is no case {case!r}" in capsys.readouterr().err
    assert fuzz.main(["run", "--work", str(tmp_path), "--cases", "0"]) == 2
    assert "--cases must be at least 1, not 0" in capsys.readouterr().err


def test_problems_fail_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "run_block", lambda bench, seed, first, revision: block(bench.name, first, problems=((3, "wrong"),)))
    assert run.run_all(tmp_path, ["nano"], BLOCK, 1, "abc", Bench) == 1


def test_engine_codes_are_those_of_the_documents():
    """Every code but 0 belongs to some engine; the cores and channels of a machine decide which pairs it has."""
    nano, channels = (possible(machine_config(name)) for name in ("nano", "channels"))
    assert {code for _, code in nano} == set(ErrorCode) - {ErrorCode.NONE}
    assert len(nano) == 8 + 3 * len(Engine) - 3 and len(channels) == len(nano) + 4 * 3
    assert len(set(channels)) == len(channels)


def test_counts_and_page(tmp_path):
    blocks = [block(), block("small"), block(first=BLOCK, result=ABORTED, problems=((57, "a problem"),)),
              block("channels", result=dataclasses.replace(ABORTED, usual=False, heeded=999))]
    found = counts_of(blocks)
    assert found["machines"]["nano"] == {
        "cases": 100, "cycles": 450_000, "seconds": 3.0, "heeded": 70, "reported": {"SEQ aborted": 50}}
    assert found["machines"]["channels"]["heeded"] == 0
    assert found["kinds"] == [
        [0, "nano", "good"], [50, "small", "good"], [100, "nano", "SEQ aborted"], [150, "channels", "SEQ aborted"]]
    assert found["classes"]["abort"] == {"nano": {"SEQ aborted": 50}, "channels": {"SEQ aborted": 50}}
    assert found["problems"] == [["nano-57", "a problem"]]
    page = render(found, tmp_path)
    assert "- nano-57: a problem" in page and f"4 in the last {LAST:,}: nano good" in page
    assert "`nano` SEQ program_header" in page and "`nano` SEQ aborted" not in page
    assert (tmp_path / "fuzz-kinds.svg").is_file()


def test_published_page_is_that_of_the_published_results(tmp_path):
    """docs/fuzz.md and its figure follow from docs/results/fuzz.json, which names no problem."""
    found = json.loads(RESULTS.read_text())
    assert render(found, tmp_path) == (DOCS / "fuzz.md").read_text()
    assert (tmp_path / "fuzz-kinds.svg").read_text() == (DOCS / "figures" / "fuzz-kinds.svg").read_text()
    assert found["problems"] == []
