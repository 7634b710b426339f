"""Documents as parsed Markdown: their links, the anchors of their headings, the navigation, and which of them programs write.

The documentation's ``docs/conf.py`` and the tests of documents read pages by these functions.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gradloom.verif.checkout import DOCS, ROOT

__all__ = ["NAVIGATION", "Section", "anchors", "is_generated", "links", "modules", "navigation", "pages", "parse", "reachable",
           "render"]

NAVIGATION = (DOCS / "index.md", DOCS / "decisions.md")
"""Pages whose lists are the navigation: each heading of the second level names a section, each link in a list a page of it."""

_ELSEWHERE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "boards/README.md")
_GENERATED = re.compile(r"^(<!-- )?(This page is made|Made|Generated|written) by `?python", re.MULTILINE)
_OPENING = 400
"""Characters of a page in which it says that a program writes it."""
_PUNCTUATION = re.compile(r"[^\w\- ]")


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of the navigation.

    Parameters
    ----------
    title : :class:`str`
    entries : tuple of (:class:`str`, :class:`str`)
        Text and target of each link, in order.
    """

    title: str
    entries: tuple[tuple[str, str], ...]


def pages() -> list[Path]:
    """Every document of the checkout."""
    return [*(ROOT / name for name in _ELSEWHERE), *sorted(DOCS.rglob("*.md"))]


def _reader() -> MarkdownIt:
    """CommonMark with tables, as GitHub reads it."""
    return MarkdownIt("commonmark").enable("table")


def parse(text: str) -> list[Token]:
    """Block tokens of a page."""
    return _reader().parse(text)


def render(text: str) -> str:
    """A page in HTML."""
    return str(_reader().render(text))


def is_generated(text: str) -> bool:
    """Whether a page says at its top that a program writes it."""
    return _GENERATED.search(text[:_OPENING]) is not None


def links(text: str) -> list[str]:
    """Targets of all links and images of a page, in order."""
    targets = []
    for token in parse(text):
        for child in token.children or ():
            target = child.attrGet("href" if child.type == "link_open" else "src")
            if child.type in ("link_open", "image"):
                targets.append(str(target))
    return targets


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them: lower case, no punctuation, hyphens for spaces, a number if repeated."""
    found: set[str] = set()
    for opening, inline in itertools.pairwise(parse(text)):
        if opening.type == "heading_open":
            slug = _PUNCTUATION.sub("", _plain(inline).lower()).replace(" ", "-")
            number = 0
            while (name := f"{slug}-{number}" if number else slug) in found:
                number += 1
            found.add(name)
    return found


def navigation(text: str) -> list[Section]:
    """Sections of a page of :data:`NAVIGATION` that name pages of ``docs/``."""
    sections: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    tokens = parse(text)
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token.type == "list_item_open") - (token.type == "list_item_close")
        if token.type == "heading_open" and token.tag == "h2":
            sections.append((_plain(tokens[position + 1]), []))
        elif token.type == "inline" and depth:
            sections[-1][1].extend(_entries(token))
    return [Section(title, tuple(entries)) for title, entries in sections if entries]


def modules(text: str) -> list[str]:
    """Modules that a page lists as links to their sources."""
    return re.findall(r"\[`(gradloom[\w.]*)`\]\([^)]*\.py\)", text)


def reachable() -> set[Path]:
    """Pages that the navigation leads to, and itself."""
    found = set(NAVIGATION)
    for page in NAVIGATION:
        found |= {(page.parent / target).resolve() for section in navigation(page.read_text()) for _, target in section.entries}
    return found


def _entries(inline: Token) -> Iterator[tuple[str, str]]:
    children = inline.children or []
    for position, child in enumerate(children):
        target = str(child.attrGet("href"))
        if child.type == "link_open" and target.endswith(".md") and not target.startswith(("http", "..")):
            end = next(place for place in range(position, len(children)) if children[place].type == "link_close")
            yield "".join(part.content or " " for part in children[position + 1:end]), target


def _plain(inline: Token) -> str:
    return "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))
