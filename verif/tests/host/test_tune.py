"""The search for schedules: what it finds is better, comes again, goes on, and gives the golden model's bytes."""

import dataclasses
import json
import random

import pytest

from gradloom.contracts.config import PRESETS, load_config
from gradloom.host import cli
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.knobs import Knobs, load_schedule
from gradloom.host.schedule import compile_network
from gradloom.host.tune import _changed, begin, estimated_cycles, search
from gradloom.models.network import load_network
from gradloom.verif.checkout import TESTS
from gradloom.verif.interpreting.step_check import check_steps

DIGITS, SMALL = load_network("digits-cnn"), PRESETS["small"]
TRIALS = 12


def found(jobs=1, trials=TRIALS, seed=3):
    *_, last = search(DIGITS, SMALL, begin(DIGITS, SMALL, 4, DramCost(), seed), trials=trials, jobs=jobs)
    return last


def test_a_search_finds_something_better_and_goes_on_where_it_was():
    schedule = found()
    assert schedule.cycles < schedule.default_cycles and schedule.trials == TRIALS and schedule.knobs.record()
    assert estimated_cycles(DIGITS, SMALL, 4, DramCost(), schedule.knobs)[0] == schedule.cycles
    *_, in_two_parts = search(DIGITS, SMALL, found(trials=TRIALS // 2), trials=TRIALS // 2, jobs=1)
    assert in_two_parts == schedule


def test_more_processes_try_as_many():
    schedule = found(jobs=2, trials=5)
    assert schedule.trials == 5 and schedule.cycles <= schedule.default_cycles


@pytest.mark.parametrize(("name", "machine", "seed"), [
    pytest.param(*case, seed, marks=[pytest.mark.long("further knobs of the same kind")] if seed >= in_suite else [])
    for *case, in_suite in (("tiny-residual", "small", 2), ("tiny-strided", "channels", 1), ("tiny-rows", "rows", 1))
    for seed in range(4)
])
def test_no_choice_changes_a_byte(name, machine, seed):
    network = load_network(str(TESTS / "networks" / f"{name}.toml"))
    config = PRESETS.get(machine) or load_config(str(TESTS / "configs" / f"{machine}.toml"))
    dice, knobs = random.Random(seed), Knobs()
    # What `estimated_cycles` compiles, without the estimate.
    search_space = compile_network(network, config, 3, slots=2, table=2, knobs=knobs).search_space
    for _ in range(5):
        tried = _changed(knobs, search_space, dice)
        try:
            compile_network(network, config, 3, slots=2, table=2, knobs=tried)
        except ScheduleError:
            continue
        knobs = tried
    # Two of the images that it has chosen for: a plane in rows takes ten seconds each.
    check_steps(network, config, batch=2 if machine == "rows" else 3, order=seed, knobs=knobs)


def tune(folder, *more):
    return cli.main(["tune", "--batch", "4", "--jobs", "1", "--trials", "2", "--out", str(folder / "s.json"), *more])


def test_command(tmp_path, capsys):
    assert tune(tmp_path) == 0
    assert "of the rules, after 2 trials: give --schedule" in capsys.readouterr().out
    assert tune(tmp_path) == 0
    schedule = load_schedule(tmp_path / "s.json")
    assert schedule.trials == 4 and [path.name for path in tmp_path.iterdir()] == ["s.json"]
    out = tmp_path / "bench"
    assert cli.main(["bench", "--device", "model", "--batch", "4", "--schedule", str(tmp_path / "s.json"), "--out", str(out)]) == 0
    bench = json.loads((out / "bench.json").read_text())
    assert bench["total"]["cycles"] == schedule.cycles and bench["schedule"] == schedule.knobs.record()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--seed", "2"), "holds a search with seed 1"),
        (("--dram-latency", "99"), "a memory of"),
        (("--config", "nano"), "is for digits-cnn on small"),
        (("--network", "vgg19"), "vgg19"),
        (("--trials", "0"), "must lie in"),
    ],
)
def test_wrong_requests_are_refused(more, told, tmp_path, capsys):
    begin(DIGITS, SMALL, 4, DramCost(), 1).save(tmp_path / "s.json")
    before = (tmp_path / "s.json").read_text()
    assert tune(tmp_path, *more) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert (tmp_path / "s.json").read_text() == before


def test_an_interrupted_search_keeps_what_it_has(tmp_path, monkeypatch):
    from gradloom.host.commands import tune_command

    def interrupted(*arguments, **options):
        yield dataclasses.replace(begin(DIGITS, SMALL, 4, DramCost(), 1), trials=1, knobs=Knobs(prefetch_depth=2))
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_command, "search", interrupted)
    assert tune(tmp_path) == 130
    assert load_schedule(tmp_path / "s.json").knobs == Knobs(prefetch_depth=2)


def test_a_run_without_a_schedule_in_its_record_is_resumed_by_the_rules(tmp_path):
    """Runs that began before schedules were recorded."""
    run = tmp_path / "run"
    assert cli.main(["train", "--device", "golden", "--batch", "4", "--steps", "2", "--out", str(run)]) == 0
    record = json.loads((run / "run.json").read_text())
    del record["schedule"]
    (run / "run.json").write_text(json.dumps(record | {"total_steps": 3}))
    assert cli.main(["train", "--resume", str(run)]) == 0
    assert len(json.loads((run / "run.json").read_text())["steps"]) == 3
