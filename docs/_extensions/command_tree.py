"""The reference of the commands: each command by name, and help texts in the markup of Sphinx.

The pages in docs/reference name the commands as attributes of this module.
"""

from __future__ import annotations

import re
from typing import Any

import click
from sphinx.application import Sphinx

from reshape.__main__ import main

_COMMANDS = main.loaded().commands
#: A page that a help text names.
PAGE = re.compile(r"\bdocs/([\w/-]+)\.md")


def __getattr__(name: str) -> click.Command:
    """Command of a name, in which underscores stand for hyphens."""
    try:
        return _COMMANDS[name.replace("_", "-")]
    except KeyError:
        raise AttributeError(name) from None


def escaped(line: str) -> str:
    """A line of a help text, which is no markup, with links to the pages that it names."""
    return PAGE.sub(r":doc:`/\1`", re.sub(r"([|*`]|(?<=\w)_)", r"\\\1", line))


def on_description(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Show the examples of a command as code."""
    start = next((i for i, line in enumerate(lines) if line == "| Example:"), len(lines))
    example = [line.removeprefix("| ").removeprefix("|") for line in lines[start + 1 :]]
    lines[:start] = map(escaped, lines[:start])
    if example:
        code = [f"   {line.removeprefix('  ')}".rstrip() for line in example]
        lines[start:] = [".. code-block:: none", "", *code, ""]


def on_options(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Escape what is no markup in the texts of options, not in their names and types."""
    for i, line in enumerate(lines):
        if line.startswith("    ") and not line.lstrip().startswith(":"):
            lines[i] = escaped(line)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("sphinx-click-process-description", on_description)
    app.connect("sphinx-click-process-options", on_options)
    return {"parallel_read_safe": True}
