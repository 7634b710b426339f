"""Mutants of a fixed seed die at the tests of the suite; outcomes, resumption and the page, each on a case that shows it."""

import dataclasses
import json

import pytest

from gradloom.verif.mutants import __main__ as command
from gradloom.verif.mutants import instrument, page, plan, run
from gradloom.verif.mutants.instrument import Mutant, Place
from gradloom.verif.mutants.killers import QUICK, killers
from gradloom.verif.mutants.run import Result, Runner, file_digest, read_results, untried

_TESTS = "verif/tests"


@pytest.fixture(autouse=True)
def no_mutants():
    yield
    instrument.install([])
    instrument.select(0)


def quick_mutants(count: int) -> list[Mutant]:
    """The first of the sample in modules with a quick test, less what computes the same."""
    found = [mutant for mutant in plan.read_plan() if mutant.place.file in QUICK and mutant.config == "nano"]
    return [mutant for mutant in found if mutant.name not in page.read_shown()][:count]


def outcomes(mutants, tests, numbers=None, **options) -> list[Result]:
    found: list[Result] = []
    runner = Runner(mutants, choose=lambda mutant: tests(mutant), report=lambda line: None, **options)
    runner.run(numbers or range(1, len(mutants) + 1), found.append)
    return found


def test_twenty_mutants_are_noticed():
    """One test each, on Amaranth's simulator; the whole sample: python -m gradloom.verif.mutants.

    None of them hangs: one that takes two minutes has not been noticed, the test is slow."""
    mutants = quick_mutants(20)
    found = outcomes(mutants, lambda mutant: [f"{_TESTS}/{QUICK[mutant.place.file]}"], seconds=30.0)
    assert {result.name for result in found} == {mutant.name for mutant in mutants} and len(found) == 20
    by_name = {mutant.name: mutant for mutant in mutants}
    lived = [by_name[result.name] for result in found if result.outcome not in ("killed", "crash")]
    assert not lived, "\n".join(map(str, lived))


CASES = {
    "passes": ("pass", "lives"),
    "fails": ("assert False, 'as it should'", "killed"),
    "crashes": ("import os; os.abort()", "crash"),
    "hangs": ("while True: pass", "timeout"),
    "broken": ("(", "invalid"),
    "cycles": ("assert False, 'the mutant takes far too many cycles'", "timeout"),
}


@pytest.mark.parametrize("name", CASES)
def test_outcomes(name, tmp_path, monkeypatch):
    """A failure, a crash and a test that does not end are kills; a test that cannot be read is none."""
    if name == "hangs":
        monkeypatch.setattr(run, "_SPARE_SECONDS", 2)  # the others come to their end, however slow the machine is
    body, outcome = CASES[name]
    (tmp_path / "test_case.py").write_text(f"def test_case():\n    {body}\n")
    found = outcomes(quick_mutants(1), lambda mutant: [str(tmp_path / "test_case.py")], seconds=0.0)
    assert [result.outcome for result in found] == [outcome], found
    assert found[0].dead == (outcome in ("killed", "crash", "timeout"))
    assert found[0].killer == ("" if outcome == "lives" else str(tmp_path / "test_case.py"))


def test_the_tests_come_in_their_order_until_one_fails(tmp_path):
    """The number of the mutant is in the environment; a mutant that the first test kills never meets the second; one that passes
    some is reported so, and what it has passed is not run again."""
    first, second = tmp_path / "test_first.py", tmp_path / "test_second.py"
    first.write_text("import os\ndef test_first():\n    assert os.environ['GRADLOOM_MUTANT'] != '1'\n")
    second.write_text("import os\ndef test_second():\n"
                      f"    open({str(tmp_path / 'log')!r}, 'a').write(os.environ['GRADLOOM_MUTANT'])\n"
                      "    assert os.environ['GRADLOOM_MUTANT'] != '2'\n")
    mutants, tests = quick_mutants(3), [str(first), str(second)]
    found = outcomes(mutants, lambda mutant: tests, seconds=1.0)
    assert [(result.name, result.outcome) for result in found] == [
        (mutants[0].name, "killed"), (mutants[1].name, "lives"), (mutants[2].name, "lives"),
        (mutants[1].name, "killed"), (mutants[2].name, "lives")]
    assert (tmp_path / "log").read_text() == "23" and list(found[-1].passed) == tests
    assert untried(tests, found[2]) == tests[1:] and untried(tests, found[-1]) == []
    again: list[Result] = []
    runner = Runner(mutants, choose=lambda mutant: tests, seconds=1.0)
    runner.run([3], again.append, {found[2].name: found[2]})
    assert again[-1].outcome == "lives" and (tmp_path / "log").read_text() == "233"


def test_a_test_that_has_changed_is_met_again(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text("def test_it():\n    pass\n")
    found = outcomes(quick_mutants(1), lambda mutant: [str(test)], seconds=1.0)
    assert untried([str(test)], found[-1]) == []
    file_digest.cache_clear()
    test.write_text("def test_it():\n    assert False\n")
    again: list[Result] = []
    Runner(quick_mutants(1), choose=lambda mutant: [str(test)], seconds=1.0).run([1], again.append, {found[-1].name: found[-1]})
    assert again[-1].outcome == "killed"


def test_a_test_that_fails_without_a_mutant_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "cache_folder", lambda: tmp_path)
    (tmp_path / "test_broken.py").write_text("def test_broken():\n    assert False\n")
    said: list[str] = []
    runner = Runner(quick_mutants(1), choose=lambda mutant: [str(tmp_path / "test_broken.py")], report=said.append)
    found: list[Result] = []
    runner.run([1], found.append)
    assert found[0].outcome == "lives" and found[0].passed == {}
    assert "fails without a mutant and is left out" in said[0]


def test_a_mutant_that_a_test_does_not_reach_passes_without_a_run(tmp_path, monkeypatch):
    """The run without a mutant says whose changes made a difference; one that cannot say reaches all."""
    monkeypatch.setattr(run, "cache_folder", lambda: tmp_path)
    tells, silent = tmp_path / "test_tells.py", tmp_path / "test_silent.py"
    tells.write_text("import os\ndef test_it():\n    if 'GRADLOOM_MUTANTS_REACHED' in os.environ:\n"
                     "        open(os.environ['GRADLOOM_MUTANTS_REACHED'], 'a').write('0\\n2\\n')\n"
                     f"    open({str(tmp_path / 'log')!r}, 'a').write(os.environ['GRADLOOM_MUTANT'])\n")
    silent.write_text("import os\ndef test_it():\n    assert os.environ['GRADLOOM_MUTANT'] != '1'\n")
    mutants = quick_mutants(2)
    found: list[Result] = []
    runner = Runner(mutants, choose=lambda mutant: [str(tells), str(silent)], report=lambda line: None)
    runner.run([1, 2], found.append)
    assert (tmp_path / "log").read_text() == "02"
    last = {result.name: result for result in found}
    assert last[mutants[0].name].outcome == "killed" and list(last[mutants[0].name].passed) == [str(tells)]
    assert last[mutants[1].name].outcome == "lives" and len(last[mutants[1].name].passed) == 2


def test_the_cheapest_of_the_next_tests_is_run_first(tmp_path, monkeypatch):
    """No mutant waits for another's dear test."""
    monkeypatch.setattr(run, "cache_folder", lambda: tmp_path)
    for name in ("dear", "cheap", "last"):
        (tmp_path / f"test_{name}.py").write_text(
            "import os\ndef test_it():\n"
            f"    open({str(tmp_path / 'log')!r}, 'a').write('{name}' + os.environ['GRADLOOM_MUTANT'] + ' ')\n")
    mutants = quick_mutants(2)
    lists = {mutants[0].name: ["dear", "last"], mutants[1].name: ["cheap", "last"]}
    runner = Runner(mutants, choose=lambda mutant: [str(tmp_path / f"test_{name}.py") for name in lists[mutant.name]],
                    report=lambda line: None)
    for name, seconds in (("dear", 50.0), ("cheap", 1.0), ("last", 2.0)):
        runner._baselines[run._key(str(tmp_path / f"test_{name}.py"))] = run._Baseline(seconds, 0, True)
    runner.run([1, 2], lambda result: None)
    assert (tmp_path / "log").read_text() == "cheap2 last2 dear1 last1 "


def _result(mutant: Mutant, outcome: str, **fields) -> Result:
    return dataclasses.replace(Result(mutant.name, outcome, "", "", 1.0, run.module_digest(mutant)), **fields)


def test_results_that_count(tmp_path):
    """Those of a module as it is; the last line of a mutant; not a line cut short."""
    a, b, c = quick_mutants(3)
    lines = [_result(a, "lives"), _result(a, "killed"), _result(b, "killed", sources="others"), _result(c, "lives")]
    text = "".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines)
    (tmp_path / "results.jsonl").write_text(text + text.splitlines()[0][:40])
    found = read_results(tmp_path / "results.jsonl")
    assert {name: result.outcome for name, result in found.items()} == {a.name: "killed", c.name: "lives"}
    assert len(read_results(tmp_path / "results.jsonl", stale=True)) == 3


def test_the_page_is_of_results_that_count(tmp_path, monkeypatch):
    """A kill in a module that has changed since is none."""
    kept, changed = quick_mutants(2)
    lines = [_result(kept, "killed"), _result(changed, "killed", sources="others")]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines))
    monkeypatch.setattr(page, "PAGE", tmp_path / "mutants.md")
    monkeypatch.setattr(plan, "read_plan", lambda: [kept, changed])
    monkeypatch.setattr(command, "read_results", lambda stale=False: read_results(tmp_path / "results.jsonl", stale=stale))
    assert command.main(["--page"]) == 0
    text = (tmp_path / "mutants.md").read_text()
    assert "| tried | 1 |" in text and "| killed | 1 (" in text


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    """Mutants with a result are not run again; every outcome is a line of the file."""
    mutants = quick_mutants(3)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(command, "read_results", lambda stale=False: read_results(tmp_path / "results.jsonl", stale=stale))
    monkeypatch.setattr(plan, "read_plan", lambda: mutants)
    monkeypatch.setattr(Runner, "warm", lambda self, tests: None)
    (tmp_path / "test_case.py").write_text("import os\ndef test_case():\n    assert os.environ['GRADLOOM_MUTANT'] != '2'\n")
    for module in (run, command, page):
        monkeypatch.setattr(module, "killers", lambda mutant: [str(tmp_path / "test_case.py")])
    monkeypatch.setattr(run, "cache_folder", lambda: tmp_path)
    assert command.main(["--first", "2"]) == 0
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["lives", "killed"]
    assert command.main(["--first", "2"]) == 0
    assert "every mutant has a result" in capsys.readouterr().out
    assert command.main([]) == 0
    assert {name: result.outcome for name, result in read_results(tmp_path / "results.jsonl").items()} == {
        mutants[0].name: "lives", mutants[1].name: "killed", mutants[2].name: "lives"}


def test_one_test_can_be_tried_on_named_mutants(tmp_path, monkeypatch, capsys):
    """It says what the test says and keeps a kill by one of the mutant's own tests; a name that the sample has not is an error."""
    mutants = quick_mutants(3)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(plan, "read_plan", lambda: mutants)
    monkeypatch.setattr(run, "cache_folder", lambda: tmp_path)
    test = tmp_path / "test_case.py"
    test.write_text("import os\ndef test_case():\n    assert os.environ['GRADLOOM_MUTANT'] != '2'\n")
    assert command.main(["--test", str(test), "--mutant", mutants[1].name, "--mutant", mutants[2].name]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(mutant.name for mutant in mutants))]
    assert f"killed by {test}" in said[0] and "passes 1 of 1" in said[1] and len(said) == 2
    assert not (tmp_path / "results.jsonl").exists()
    monkeypatch.setattr(command, "killers", lambda mutant: [str(test)])
    assert command.main(["--test", str(test)]) == 0
    assert [json.loads(line)["name"] for line in (tmp_path / "results.jsonl").read_text().splitlines()] == [mutants[1].name]
    for arguments in (["--test", str(test)], ["--equivalent"], []):
        with pytest.raises(SystemExit):
            command.main([*arguments, "--mutant", "nobody"])
        assert "no mutant of the sample is called nobody" in capsys.readouterr().err


def test_equivalence_without_its_tool_is_one_sentence(tmp_path, monkeypatch, capsys):
    mutants = quick_mutants(1)
    monkeypatch.setattr(plan, "read_plan", lambda: mutants)
    monkeypatch.setattr(command, "read_results", lambda stale=False: {mutants[0].name: _result(mutants[0], "lives")})
    monkeypatch.setattr(page, "read_shown", dict)

    def missing(found):
        raise command.equivalence.ToolError("equivalence needs ABC: install it")

    monkeypatch.setattr(command.equivalence, "show_all", missing)
    assert command.main(["--equivalent"]) == 1
    assert capsys.readouterr().err == "error: equivalence needs ABC: install it\n"


def test_the_page_counts_and_names_those_that_live():
    """What is only tried in part counts as not killed; what computes the same is not counted against the tests."""
    a, b, c, d, e = quick_mutants(5)
    results = {mutant.name: _result(mutant, outcome)
               for mutant, outcome in ((a, "killed"), (b, "lives"), (c, "lives"), (d, "lives"), (e, "invalid"))}
    all_passed = {test: file_digest(test) for test in killers(b)}
    results[b.name] = dataclasses.replace(results[b.name], passed=all_passed)
    text = page.render([a, b, c, d, e], results, {c.name: page.Shown(c.name, "induction from reset")})
    assert "| killed | 1 (25.0 % of those tried, 33.3 % of those not shown to compute the same) |" in text
    assert "| live | 1 |" in text and "| cannot be elaborated, not counted | 1 |" in text
    lives = text.split("## Those that live")[1].split("## Those tried in part")[0]
    same = text.split("## Those that compute the same")[1]
    assert b.name in lives and c.name not in lives and c.name in same and "induction from reset" in same


@pytest.mark.parametrize(("old", "new", "same"), [
    ("PRESETS: dict[str, Config] = {config.name: config for config in (",
     "PRESETS: dict[str, Config] = {config.name: config for config in (\n    Config(name='new'),", True),
    ('_ADDED = "added"', '# why\n_ADDED = "added"', True), ('_ADDED = "added"', '_ADDED = "new"', False)])
def test_results_outlive_other_presets(tmp_path, monkeypatch, old, new, same):
    """A machine that the sample does not have changes none that it has; another rule may."""
    text = run._CONFIG.read_text()
    assert text.count(old) == 1
    file = tmp_path / "config.py"
    file.write_text(text.replace(old, new))
    assert (run._rules(file, but="PRESETS") == run._rules(run._CONFIG, but="PRESETS")) == same


def test_results_outlive_other_modules(tmp_path, monkeypatch):
    """Not an edit of the file that a mutant stands in, or of the one that places it."""
    monkeypatch.setattr(run, "RTL", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "_machines", lambda: "")
    for name in ("part", "owner", "other"):
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    mutant = Mutant(Place("owner.py:1", "part.py", 1), 0, "statement", 0, "left out", "nano")

    def after(edited: str) -> str:
        run._files_digest.cache_clear()
        (tmp_path / f"{edited}.py").write_text("x = 2\n")
        return run.module_digest(mutant)

    run._files_digest.cache_clear()
    before = run.module_digest(mutant)
    assert after("other") == before
    assert after("part") != before
    (tmp_path / "part.py").write_text("x = 1\n")
    assert after("owner") != before
    run._files_digest.cache_clear()


@pytest.mark.parametrize(("new", "same"), [
    ('"""Other words."""\nx = 1  # why\n', True), ('"""Words."""\nx = 2\n', False), ('"""Words."""\n\nx = 1\n', False)])
def test_results_outlive_words(tmp_path, monkeypatch, new, same):
    """A mutant's result counts while the code stays, and the lines that name the mutant."""
    monkeypatch.setattr(run, "ROOT", tmp_path)
    file = tmp_path / "part.py"
    file.write_text('"""Words."""\nx = 1\n')
    before = run._digest([file])
    file.write_text(new)
    assert (run._digest([file]) == before) == same
