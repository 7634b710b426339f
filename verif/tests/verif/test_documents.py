"""Documents name tests, modules, files and headings that exist, the navigation leads to every page, and no two decisions have the
same number or name."""

import re
from pathlib import Path

import pytest

from gradloom.verif.checkout import DOCS, ROOT, TESTS
from gradloom.verif.documents import Section, anchors, is_generated, links, modules, navigation, pages, reachable

PAGES = pages()
ROOMS = "host|rtl|models|verif|sim|system|formal|examples"


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


def name(page: Path) -> str:
    return str(page.relative_to(ROOT).with_suffix(""))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_that_a_page_names_exist(page):
    for file, test in nodes(page.read_text()):
        path = TESTS / file
        assert path.is_file(), f"{page.name}: {file}"
        assert not test or re.search(rf"^(async )?def {test}\(", path.read_text(), re.MULTILINE), f"{page.name}: {file}::{test}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page):
    for target in links(page.read_text()):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(file.read_text()), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_that_a_page_names_exist(page):
    for name in re.findall(r"gradloom\.(?:host|models|rtl|sim|verif)(?:\.\w+)+", page.read_text()):
        _, root, *parts = name.split(".")
        # The last one or two names may be what a module defines.
        found = [count for count in range(len(parts), 0, -1) if _is_module(root, parts[:count])]
        assert found and found[0] >= len(parts) - 2, f"{page.name}: {name}"


def test_the_navigation_leads_to_every_page():
    """Of the site, whose navigation is made from the lists of docs/index.md and docs/decisions.md."""
    missing = sorted(name(page) for page in set(DOCS.rglob("*.md")) - reachable())
    assert not missing, "a list of docs/index.md (of a decision: docs/decisions.md) must name them"


def test_modules_of_the_reference_lie_where_its_links_lead():
    text = (DOCS / "reference.md").read_text()
    places = [target for target in links(text) if target.endswith(".py")]
    assert len(places) == len(modules(text)) > 0
    for module, place in zip(modules(text), places, strict=True):
        path = module.replace(".", "/")
        assert place.endswith((f"/{path}.py", f"/{path}/__init__.py")), f"{module}: {place}"


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


def test_links_are_those_that_a_reader_can_follow():
    text = "# A [x](y.md)\n\n[b `c`](d.md#e) ![f](g.svg)\n\n| h |\n|---|\n| [i](j.md) |\n\n```\n[k](l.md)\n```\n`[m](n.md)`"
    assert links(text) == ["y.md", "d.md#e", "g.svg", "j.md"]


def test_anchors_are_those_of_a_code_host():
    text = ("# One\n## 4. The encoder (`pint.encode`)\n## Ring_buffer: A-Core's\n## One\n### One\n## [Link](x.md) text\n"
            "```\n# no heading\n```\n")
    assert anchors(text) == {"one", "4-the-encoder-pintencode", "ring_buffer-a-cores", "one-1", "one-2", "link-text"}


def test_a_section_of_the_navigation_lists_pages():
    text = ("# T\n[before](a.md)\n## One\n- [A `b`](a.md): says [more](b.md#c).\n- [C](sub/c.md)\n\nProse [d](d.md).\n"
            "## Two\n- [E](../e.md)\n- [F](http://f.md)\n## Three\n- [G](g.md)\n")
    assert navigation(text) == [Section("One", (("A b", "a.md"), ("C", "sub/c.md"))), Section("Three", (("G", "g.md"),))]


def test_generated_pages_say_so():
    generated = {page.stem for page in PAGES if is_generated(page.read_text())}
    assert generated >= {"accuracy", "boards", "fuzz", "link", "mutants", "paper-scale", "program", "registers", "synthesis"}
    assert not generated & {"README", "CHANGELOG", "arithmetic", "machine", "verification"}
