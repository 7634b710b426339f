"""Schedules as files keep them: what they are for, what is refused, and those of the package."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradloom.contracts.config import PRESETS
from gradloom.host import cli
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.files import UserError
from gradloom.host.knobs import FOLDER, Knobs, Schedule, choose, find_knobs, load_schedule, schedule_key
from gradloom.host.schedule import compile_network
from gradloom.host.tune import begin, estimated_cycles
from gradloom.models.network import load_network

DIGITS, SMALL = load_network("digits-cnn"), PRESETS["small"]
SHIPPED = sorted(FOLDER.glob("*.json"))
NAMES = st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=12)
KNOBS = st.builds(
    Knobs,
    tiles=st.dictionaries(NAMES, st.integers(1, 64), max_size=4),
    order=st.dictionaries(NAMES, st.floats(-30, 30), max_size=4),
    prefetch_depth=st.integers(1, 5),
    subtile_beats=st.integers(0, 256),
    split_leftover_rows=st.booleans(),
    reserve_second_pass=st.booleans(),
    deferred_layers=st.lists(NAMES, max_size=3, unique=True).map(tuple),
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A file with a knob of its own."""
    path = tmp_path_factory.mktemp("schedules") / "digits.json"
    schedule = begin(DIGITS, SMALL, 4, DramCost(), 1)
    dataclasses.replace(schedule, knobs=Knobs(prefetch_depth=2)).save(path)
    return path


@given(KNOBS)
def test_records_come_back(knobs):
    assert Knobs.from_record(json.loads(json.dumps(knobs.record()))) == knobs


def test_rules_leave_no_record():
    assert Knobs().record() == {}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"patients": 3}, "no knob 'patients'"),
        ({"prefetch_depth": "3"}, "prefetch_depth cannot be '3'"),
        ({"split_leftover_rows": 1}, "split_leftover_rows cannot be 1"),
        ({"subtile_beats": -3}, "subtile_beats cannot be -3"),
        ({"deferred_layers": "fc"}, "deferred_layers cannot be 'fc'"),
        ({"tiles": {"a FP": 1.5}}, "tiles cannot be"),
        ({"order": [1]}, "order cannot be"),
    ],
)
def test_wrong_records_are_refused(record, told):
    with pytest.raises(ValueError, match=told):
        Knobs.from_record(record)


def test_a_key_stands_for_layers_machine_and_batch():
    key = schedule_key(DIGITS, SMALL, 4)
    assert key == schedule_key(dataclasses.replace(DIGITS, name="other"), dataclasses.replace(SMALL, name="other"), 4)
    others = [(DIGITS, SMALL, 5), (DIGITS, PRESETS["nano"], 4), (load_network("resnet20"), SMALL, 4)]
    assert len({schedule_key(*other) for other in others} | {key}) == 4


def test_a_file_is_for_one_network_machine_and_batch(kept):
    assert choose(str(kept), DIGITS, SMALL, 4) == Knobs(prefetch_depth=2)
    with pytest.raises(UserError, match=r"digits-cnn on small with 4 images a step, not for digits-cnn on small with 5"):
        choose(str(kept), DIGITS, SMALL, 5)
    assert choose("rules", DIGITS, SMALL, 4) == choose(None, DIGITS, SMALL, 4) == Knobs()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "gradloom schedule 0"}', '{"format": "gradloom schedule 2", "knobs": {}}',
             '{"format": "gradloom schedule 1", "choices": {}}', '{"format": "gradloom schedule 2"}']
)
def test_other_files_are_refused(text, tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(text)
    arguments = ["bench", "--device", "model", "--batch", "4", "--schedule", str(path), "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 2
    told = capsys.readouterr().err
    assert "is no schedule" in told and "gradloom tune" in told and told.count("\n") == 1
    assert cli.main([*arguments[:-4], "--schedule", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_files_of_the_format_before_are_read(kept, tmp_path):
    """By their former names; what is gone is told."""
    path, told = tmp_path / "former.json", list[str]()
    record = json.loads(kept.read_text())
    del record["knobs"]
    former = {"tiles": {"conv1 FP": 2}, "patience": 50, "ahead": 2, "balance": True, "cut": 32, "share": False, "twice": True,
              "carried": ["fc"]}
    path.write_text(json.dumps(record | {"format": "gradloom schedule 1", "choices": former}))
    found = load_schedule(path, told.append)
    assert found.knobs == Knobs({"conv1 FP": 2}, {}, 2, 32, False, True, ("fc",))
    assert len(told) == 1 and "patience, balance are not used any more" in told[0]
    path.write_text(json.dumps(record | {"format": "gradloom schedule 1", "choices": {"ahead": 2}}))
    assert load_schedule(path, told.append).knobs == Knobs(prefetch_depth=2) and len(told) == 1


@pytest.mark.parametrize(
    ("field", "value"), [("cycles", "many"), ("memory", {"latency": 40, "size": 3}), ("memory", None), ("key", 7), ("knobs", [])]
)
def test_files_with_wrong_fields_are_refused(field, value, kept, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(json.loads(kept.read_text()) | {field: value}))
    with pytest.raises(UserError, match=r"other\.json is no schedule \("):
        load_schedule(path)


@pytest.mark.parametrize(
    "knobs", [Knobs(tiles={"conv1 FP": 99}), Knobs(tiles={"conv9 FP": 1}), Knobs(order={"conv1 Y": 1.5})]
)
def test_what_cannot_be_chosen_is_refused(knobs):
    with pytest.raises(ScheduleError, match=r"^schedule: .*gradloom tune"):
        compile_network(DIGITS, SMALL, 4, knobs=knobs)


def test_programs_that_do_not_train_a_batch_follow_the_rules():
    for other in ({"calibrate": True}, {"training": False}, {"parts": 2}):
        rules, chosen = (compile_network(DIGITS, SMALL, 4, knobs=knobs, **other) for knobs in (None, Knobs(prefetch_depth=2)))
        assert rules.instructions == chosen.instructions


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_schedules_of_the_package_are_found(path):
    schedule: Schedule = load_schedule(path)
    network, config = load_network(schedule.network), PRESETS[schedule.config]
    schedule.check(network, config, schedule.batch, path)
    assert path.stem == f"{schedule.network}-{schedule.config}-{schedule.batch}"
    assert find_knobs(network, config, schedule.batch) == schedule.knobs
    assert schedule.cycles < schedule.default_cycles


KEYS = {"resnet18-eta-16": "1770041db957c4ab", "resnet18-eta-4": "a66e333786bf570c", "resnet20-eta-1": "8a542a3fa7132517",
        "resnet20-eta-16": "b5da6a01a9c7e698", "resnet20-eta2x-16": "b3d9f930928448cf", "vgg16-eta-16": "df9a71d365d8d4f7"}


def test_keys_stay():
    """What does not change a step's schedule does not change its key either, or the package's schedules fit nothing any more."""
    found = {path.stem: load_schedule(path) for path in SHIPPED}
    assert {stem: schedule_key(load_network(schedule.network), PRESETS[schedule.config], schedule.batch)
            for stem, schedule in found.items()} == KEYS


def test_a_schedule_of_the_package_that_fits_no_more_is_told():
    network, config, told = load_network("resnet20"), PRESETS["eta"], []
    assert choose(None, network, config, 16, told.append) == find_knobs(network, config, 16) and not told
    assert choose(None, network, config, 8, told.append) == Knobs() and not told, "none is promised"
    other = dataclasses.replace(config, abuf_depth=1024)
    assert choose(None, network, other, 16, told.append) == Knobs()
    assert len(told) == 1 and told[0].startswith("the package's schedule for resnet20 on eta with 16 images a step is for another")


@pytest.mark.parametrize("name", ["resnet20-eta-1", "resnet20-eta-16"])
def test_a_schedule_of_the_package_gives_the_cycles_that_it_tells(name):
    """That of one image takes planes in parts, whose operands lie on chip for long: an update of weights has to wait for room."""
    schedule = load_schedule(FOLDER / f"{name}.json")
    network, config = load_network(schedule.network), PRESETS[schedule.config]
    assert estimated_cycles(network, config, schedule.batch, DramCost(**schedule.memory), schedule.knobs)[0] == schedule.cycles
