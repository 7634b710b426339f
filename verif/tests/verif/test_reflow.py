"""Documents have short lines of prose, and wrapping changes nothing that a reader sees."""

import re

import pytest

from gradloom.verif import reflow
from gradloom.verif.checkout import ROOT
from gradloom.verif.documents import render
from gradloom.verif.reflow import WIDTH, long_lines, reflowed, reflowed_pages

WORDS = "one two three four five six seven eight nine ten " * 4
LONG = "x" * (WIDTH + 1)


@pytest.mark.parametrize("page", reflowed_pages(), ids=lambda page: str(page.relative_to(ROOT).with_suffix("")))
def test_lines_of_prose_are_short(page):
    assert not long_lines(page.read_text()), "run python -m gradloom.verif.reflow"


def test_lines_are_too_long_in_prose_alone():
    text = f"# T\n\n{WORDS}\n\n```\n{WORDS}\n```\n\n    {WORDS}\n\n| h |\n|---|\n| {WORDS} |\n\n- {WORDS}\n\n{LONG}\n`{WORDS}`\n"
    assert long_lines(text) == [3, 15]


def test_paragraphs_of_lists_and_quotations_keep_their_marks():
    text = f"1. {WORDS}\n   goes on\n   - {WORDS}\n\n> {WORDS}\n"
    wrapped = reflowed(text).split("\n")
    assert max(len(line) for line in wrapped) <= WIDTH
    assert [line[:5] for line in wrapped] == ["1. on", "   fi", "   - ", "     ", "", "> one", "> fiv", ""]


def test_what_a_line_may_not_begin_with_stays_in_the_line_before():
    words = "w" * (WIDTH - 1)
    for mark in ("-", "+", "*", "#", "12.", "3)", ">", "|", "%", "===", "---", "<b>", "(a)=", "+++", ":::", "$$"):
        first, second = reflowed(f"{words} {mark} rest and more\n").rstrip().split("\n")
        assert (first, second) == (f"{words} {mark}", "rest and more")


def test_code_spans_are_not_divided():
    span = f"`{'a b ' * 20}c`"
    assert reflowed(f"{'w ' * 30}{span} and ``x ` y`` {WORDS}").split("\n")[1].startswith(f"{span} and ``x ` y`` one")


def test_short_paragraphs_tables_code_and_hard_breaks_stay():
    text = f"a\nb\n\n| h |\n|---|\n| {WORDS} |\n\n```\n{WORDS}\n```\n\n{WORDS}  \nafter a break\n"
    assert reflowed(text) == text


def test_a_page_that_would_render_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr(reflow, "_OPENS_A_BLOCK", re.compile("(?!)"))
    text = f"{'w' * (WIDTH - 1)} - rest\n"
    with pytest.raises(ValueError, match="renders otherwise"):
        reflowed(text)


def test_wrapping_twice_is_wrapping_once():
    text = f"{WORDS}\n\n- {WORDS}`{WORDS}` {WORDS}\n"
    once = reflowed(text)
    assert reflowed(once) == once
    assert render(once).replace("\n", " ") == render(text).replace("\n", " ")
