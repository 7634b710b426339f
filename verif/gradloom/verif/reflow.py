"""Prose of documents in lines of at most 120 characters.

``python -m gradloom.verif.reflow`` wraps the paragraphs that have longer lines. Tables, code and pages that programs
write stay as they are. A page is written only if it renders as before.
"""

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it.token import Token

from gradloom.host.files import write_text
from gradloom.verif.checkout import ROOT
from gradloom.verif.documents import is_generated, pages, parse, render

__all__ = ["WIDTH", "long_lines", "reflowed", "reflowed_pages"]

WIDTH = 120
"""Characters of a line."""
_NOT_PROSE = ("fence", "code_block", "html_block", "table_open")
_LOG = ROOT / "CHANGELOG.md"
"""A list of long paragraphs that others add to at its end; wrapped, every addition would meet every other."""

_WORD = re.compile(r"(?:(`+)(?!`).*?(?<!`)\1(?!`)|\S)+")
"""What no line may end in: a word, with the whole of a code span that it is or touches."""
_OPENS_A_BLOCK = re.compile(r"[-+*]$|#{1,6}$|\d+[.)]$|=+$|-+$|[>|<%]|```|~~~|\+\+\+|:::|\$\$|\(.*\)=$|\[[^\]]*\]:")
"""A word that would begin a list, a heading, a quotation, a table, HTML or (in MyST) a comment, a break or a target in its line."""


def reflowed_pages() -> list[Path]:
    """Pages whose lines are kept short."""
    return [page for page in pages() if page != _LOG and not is_generated(page.read_text())]


def long_lines(text: str) -> list[int]:
    """Numbers from 1 on of the lines of prose that are too long, but for those of one word (a code span counts as one)."""
    lines = text.split("\n")
    prose = set(range(len(lines)))
    for token in parse(text):
        if token.type in _NOT_PROSE and token.map:
            prose -= set(range(*token.map))
    return [number + 1 for number in sorted(prose) if len(lines[number]) > WIDTH and len(list(_WORD.finditer(lines[number]))) > 1]


def reflowed(text: str) -> str:
    """The page with every paragraph wrapped that has a line too long.

    Raises
    ------
    :exc:`ValueError`
        If it would render otherwise.
    """
    lines = text.split("\n")
    for opening, inline in reversed(list(_paragraphs(parse(text)))):
        first, end = opening.map or (0, 0)
        if any(len(line) > WIDTH for line in lines[first:end]):
            start = lines[first].index(inline.content.split("\n")[0])
            lines[first:end] = _wrapped(inline.content, lines[first][:start])
    wrapped = "\n".join(lines)
    if _shown(wrapped) != _shown(text):
        raise ValueError("wrapped, it renders otherwise")
    return wrapped


def _paragraphs(tokens: list[Token]) -> Iterator[tuple[Token, Token]]:
    for opening, inline in itertools.pairwise(tokens):
        if opening.type == "paragraph_open" and not any(child.type == "hardbreak" for child in inline.children or ()):
            yield opening, inline


def _wrapped(content: str, prefix: str) -> list[str]:
    """``prefix`` is what stands before the first line: marks of lists and quotations."""
    words: list[str] = []
    for match in _WORD.finditer(content.replace("\n", " ")):
        if words and _OPENS_A_BLOCK.match(match[0]):
            words[-1] += f" {match[0]}"
        else:
            words.append(match[0])
    following = re.sub(r"[^\s>]", " ", prefix)
    lines = [prefix + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(following + word)
    return lines


def _shown(text: str) -> tuple[str, list[str]]:
    """What a reader sees: HTML but for the kind of white space in prose, and code to the letter."""
    return re.sub(r"\s+", " ", render(text)), [token.content for token in parse(text) if token.type in ("fence", "code_block")]


def main() -> int:
    """Wrap all pages; 1 if some line stays too long."""
    status = 0
    for page in reflowed_pages():
        text = page.read_text()
        wrapped = reflowed(text)
        if wrapped != text:
            write_text(page, wrapped)
            print(page.relative_to(ROOT))
        for number in long_lines(wrapped):
            print(f"{page.relative_to(ROOT)}:{number}: this line has more than {WIDTH} characters and was not wrapped")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
