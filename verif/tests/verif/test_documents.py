"""Documents name tests, modules and files that exist, and no two decisions have the same number or name."""

import re

import pytest

from gradloom.verif.checkout import DOCS, ROOT, TESTS

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "decisions").glob("*.md"))]
ROOMS = "host|rtl|models|verif|sim|system|formal"


def nodes(text: str) -> set[tuple[str, str]]:
    """(file below the tests, test) of every node in backquotes; ``::test`` alone goes on with the file before it."""
    found, file = set(), ""
    for quoted in re.findall(r"`([^`\n]+)`", text):
        path, _, test = quoted.partition("::")
        if re.fullmatch(rf"(verif/tests/)?({ROOMS})/[\w/]*test_\w+\.py", path):
            file = path.removeprefix("verif/tests/")
        elif path or not test:
            continue
        found.add((file, test.partition("[")[0]))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tests_that_a_page_names_exist(page):
    for file, test in nodes(page.read_text()):
        path = TESTS / file
        assert path.is_file(), f"{page.name}: {file}"
        assert not test or re.search(rf"^(async )?def {test}\(", path.read_text(), re.MULTILINE), f"{page.name}: {file}::{test}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_modules_that_a_page_names_exist(page):
    for name in re.findall(r"gradloom\.(?:host|models|rtl|sim|verif)(?:\.\w+)+", page.read_text()):
        _, root, *parts = name.split(".")
        # The last one or two names may be what a module defines.
        found = [count for count in range(len(parts), 0, -1) if _is_module(root, parts[:count])]
        assert found and found[0] >= len(parts) - 2, f"{page.name}: {name}"


def test_decisions_have_a_number_and_a_name_of_their_own():
    records = [path.stem.partition("-") for path in sorted((DOCS / "decisions").glob("*.md"))]
    assert [int(number) for number, _, _ in records] == list(range(1, len(records) + 1))
    assert len({name for _, _, name in records}) == len(records)


def _is_module(root: str, parts: list[str]) -> bool:
    path = ROOT.joinpath(root, "gradloom", root, *parts)
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_nodes_are_found_where_they_are_named():
    text = ("| a | `host/test_x.py::test_one`, `::test_two[3]`, proof `formal/test_y.py` | `verif/tests/rtl/acore/test_z.py` | "
            "`::x` `no.py` |")
    assert nodes(text) == {("host/test_x.py", "test_one"), ("host/test_x.py", "test_two"), ("formal/test_y.py", ""),
                           ("rtl/acore/test_z.py", ""), ("rtl/acore/test_z.py", "x")}
