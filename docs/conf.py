"""The documentation's site: ``nox -s docs``, or ``sphinx-build -W docs build/docs`` with the extra ``docs`` installed.

Pages are the Markdown files of this folder as they stand, so that they read the same on a code host. What Sphinx needs beyond them
is made here: the navigation from the lists of ``index.md`` and ``decisions.md``, a page of the reference for every module that
``reference.md`` lists, and addresses for links that leave the folder.
"""

import importlib
import os
import re
from importlib.metadata import version as installed
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import desc_annotation
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock

from gradloom.verif.documents import NAVIGATION, modules, navigation

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPOSITORY = os.environ.get("GRADLOOM_REPOSITORY")
"""Address of the repository, such as ``https://example.org/gradloom``: links to sources lead there. Without it they lead to copies
of these files in the site."""

project = "gradloom"
author = "the gradloom authors"
version = release = installed("gradloom")

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
root_doc = "index"
exclude_patterns = ["results"]
templates_path: list[str] = []

myst_heading_anchors = 6

autodoc_mock_imports = ["torch", "onnx"]  # gigabytes, of which only names are needed here
autodoc_default_options = {"members": True, "show-inheritance": True}
numpydoc_show_class_members = False  # autodoc lists them
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"gradloom {release}"
html_copy_source = False


LONGEST_VALUE = 200
"""Characters of a constant's value that the reference shows."""


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_reference)
    app.connect("source-read", complete)
    app.connect("doctree-read", leave_out_long_values)


def write_reference(app: Sphinx) -> None:
    """A page of ``reference/``, which git ignores, for each module; what is no longer listed goes."""
    folder = DOCS / "reference"
    folder.mkdir(exist_ok=True)
    texts = reference_pages(modules((DOCS / "reference.md").read_text()))
    for path in folder.glob("*.rst"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def reference_pages(names: list[str]) -> dict[str, str]:
    """Texts by file name. What several modules export is described with the first one; the others refer to it."""
    pages, described = {}, {}
    for name in names:
        with mock(autodoc_mock_imports):
            module = importlib.import_module(name)
        again = []
        for export in module.__all__:
            value = getattr(module, export)
            if hasattr(value, "__qualname__") and described.setdefault(id(value), f"{name}.{export}") != f"{name}.{export}":
                again.append((export, described[id(value)]))
        text = f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n"
        if again:
            text += f"   :exclude-members: {', '.join(export for export, _ in again)}\n\n"
            text += "Also here: " + ", ".join(f":py:obj:`{export} <{place}>`" for export, place in again) + ".\n"
        pages[f"{name}.rst"] = text
    return pages


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a page what only the site needs."""
    page = DOCS / f"{docname}.md"
    if not page.is_file():
        return
    text = source[0]
    trees = []
    if page in NAVIGATION:
        trees = [(section.title, [f"{title} <{target.removesuffix('.md')}>" for title, target in section.entries])
                 for section in navigation(text)]
    if docname == "reference":
        trees = [("", [f"{name} <reference/{name}>" for name in modules(text)])]
    text = re.sub(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))", lambda link: _outside(page, link[1], link[2] or ""), text)
    for title, entries in trees:
        text += "\n```{toctree}\n:hidden:\n" + f":caption: {title}\n" * bool(title) + "\n" + "\n".join(entries) + "\n```\n"
    source[0] = text


def _outside(page: Path, target: str, anchor: str) -> str:
    """The address of a link that leads to no page or picture of the site, else the link as it is."""
    path = (page.parent / target).resolve()
    within = path.is_relative_to(DOCS) and path.suffix in (".md", ".svg")
    if within or "://" in target or not path.exists():
        return target + anchor
    if REPOSITORY:
        return f"{REPOSITORY.rstrip('/')}/{'tree' if path.is_dir() else 'blob'}/main/{path.relative_to(ROOT).as_posix()}{anchor}"
    return f"path:{target}"  # a copy, of Markdown too


def leave_out_long_values(app: Sphinx, doctree: nodes.document) -> None:
    """A table of presets tells nothing in a line."""
    for node in list(doctree.findall(desc_annotation)):
        if len(node.astext()) > LONGEST_VALUE:
            node.parent.remove(node)
