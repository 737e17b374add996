"""Docstrings in the NumPy style of this project, as reStructuredText.

Text after the colon of a parameter is its description, not its type, which the signature has.
Single backticks name an object of the project, or are code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyXRefRole

#: Sections whose lines are names with descriptions; the others are text.
OF_NAMES = ("Parameters", "Attributes", "Raises")
_UNDERLINE = re.compile(r"-{3,}$")
_ENTRY = re.compile(r"(\S.*?) : (.*)$")


def sections(docstring: str) -> Iterator[tuple[str, list[str]]]:
    """Split a docstring into the text before its sections, under "", and its sections."""
    lines = cleandoc(docstring).splitlines()
    heads = [i - 1 for i, line in enumerate(lines) if i and _UNDERLINE.match(line)]
    yield "", lines[: heads[0] if heads else None]
    for start, end in zip(heads, [*heads[1:], len(lines)][: len(heads)], strict=True):
        yield lines[start], lines[start + 2 : end]


def entries(lines: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Names and lines of the description of each entry of a section.

    An entry is ``name, name : description``, whose further lines are indented.
    """
    names: list[str] = []
    text: list[str] = []
    for line in lines:
        found = _ENTRY.match(line)
        if found is None:
            text.append(line.removeprefix("    "))
            continue
        if names:
            yield names, text
        names, text = found[1].split(", "), [found[2]]
    if names:
        yield names, text


def as_markup(docstring: str) -> Iterator[str]:
    """Lines of a docstring in the markup of Sphinx."""
    for title, lines in sections(docstring):
        if title:
            yield from ("", f".. rubric:: {title}", "")
        found = list(entries(lines)) if title in OF_NAMES else []
        if not found:
            yield from lines
        for names, text in found:
            mark = "`" if title == "Raises" else "``"
            yield ", ".join(f"{mark}{name}{mark}" for name in names)
            yield from (f"    {line}".rstrip() for line in text)
            yield ""


def on_docstring(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Translate the docstring of an object."""
    lines[:] = [*as_markup("\n".join(lines)), ""]


class NameRole(PyXRefRole):
    """Link a class, function, module or dotted name; show other words as code.

    A word in small letters is mostly a parameter or an attribute, which many classes have.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Make the nodes of one use of the role."""
        if self.text.islower() and "." not in self.text:
            return [nodes.literal(self.rawtext, self.text)], []
        self.name, self.refdomain, self.reftype = "py:obj", "py", "obj"
        self.classes = ["xref", "py", "py-obj"]
        return self.create_xref_node()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_role("name", NameRole())
    app.connect("autodoc-process-docstring", on_docstring)
    return {"parallel_read_safe": True}
