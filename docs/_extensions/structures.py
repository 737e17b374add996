"""Directives for the fields of files, messages, records and policies, from their structures.

A field has its type, its default and the description in the docstring of the structure.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec
from docstrings import entries, sections
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from scheduler.policies.registry import find, known

_WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    type(None): "null",
}


def found(name: str) -> Any:
    """Object of a dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def descriptions(structure: type) -> dict[str, list[str]]:
    """Description of each field in the docstring of a structure or of one that it extends."""
    result: dict[str, list[str]] = {}
    for each in reversed(structure.__mro__):
        parts = dict(sections(each.__doc__ or ""))
        for title in ("Parameters", "Attributes"):
            for names, text in entries(parts.get(title, [])):
                result |= dict.fromkeys(names, text)
    return result


def type_text(kind: Any) -> str:
    """A type in words, as the author of a YAML or JSON file thinks of it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _WORDS:
        return _WORDS[kind]
    if origin is typing.Annotated:
        return type_text(arguments[0])
    if origin is typing.Literal:
        return " or ".join(
            f'"{value}"' if isinstance(value, str) else str(value) for value in arguments
        )
    if origin in (typing.Union, types.UnionType):
        words = dict.fromkeys(type_text(each) for each in arguments)
        return " or ".join(words)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping to {type_text(arguments[1])}"
    if origin in (list, tuple, set, frozenset) or str(origin).startswith("<class 'collections.abc"):
        inner = [each for each in arguments if each is not ...]
        return f"list of {' and '.join(dict.fromkeys(map(type_text, inner)))}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "mapping"
    return getattr(kind, "__name__", str(kind))


def default_text(field: Any) -> str:
    """Default of a field, or a note that it is required."""
    if field.default is not msgspec.NODEFAULT:
        value = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        return "required"
    if value is None or value in ("", (), {}, []) or isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, bool):
        return f"default: ``{str(value).lower()}``"
    if isinstance(value, int | float | str):
        return f"default: ``{value}``"
    return ""


def fields(
    structure: type, without: Collection[str] = (), *, is_answer: bool = False
) -> Iterator[str]:
    """Lines of a definition list of the fields of a structure.

    Parameters
    ----------
    without : names of fields that users do not set.
    is_answer : whether it is always complete, so that defaults do not matter.

    Raises
    ------
    ValueError : a field has no description.
    """
    if not issubclass(structure, msgspec.Struct):
        return
    texts = descriptions(structure)
    hints = typing.get_type_hints(structure, include_extras=True)
    for field in msgspec.structs.fields(structure):
        if field.encode_name in without:
            continue
        if field.name not in texts:
            raise ValueError(f"{structure.__name__}.{field.name} has no description")
        default = "" if is_answer else default_text(field)
        about = ", ".join(filter(None, (type_text(hints[field.name]), default)))
        yield f"``{field.encode_name}`` ({about})"
        text = " ".join(" ".join(texts[field.name]).split())
        yield from (f"    {text[:1].upper()}{text[1:]}", "")


def summary(structure: type) -> list[str]:
    """Text of a docstring before its sections."""
    return next(sections(structure.__doc__ or ""))[1]


class _Generated(SphinxDirective):
    """A directive whose content is made from the sources."""

    required_arguments = 1

    def parsed(self, lines: Iterable[str], *sources: type) -> list[nodes.Node]:
        """Nodes of generated lines; the page is made anew when a source changes."""
        for source in sources:
            self.env.note_dependency(inspect.getfile(source))
        parent = nodes.container()
        self.state.nested_parse(StringList(list(lines), source=self.arguments[0]), 0, parent)
        return parent.children


class Structure(_Generated):
    """The fields of a structure, by its dotted name."""

    option_spec: typing.ClassVar = {"without": str.split, "answer": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Make the list."""
        structure = found(self.arguments[0])
        without, is_answer = self.options.get("without", ()), "answer" in self.options
        return self.parsed(fields(structure, without, is_answer=is_answer), structure)


class Records(_Generated):
    """The structures of a union, such as the events of the core, with the types of their fields."""

    def run(self) -> list[nodes.Node]:
        """Make a definition list."""
        structures = typing.get_args(found(self.arguments[0]))
        return self.parsed(self._lines(structures), *structures)

    @staticmethod
    def _lines(structures: Sequence[type[msgspec.Struct]]) -> Iterator[str]:
        for each in structures:
            yield f"``{each.__name__}``"
            yield from (f"    {line}".rstrip() for line in summary(each))
            hints = typing.get_type_hints(each, include_extras=True)
            shown = (
                f"``{field.encode_name}`` ({type_text(hints[field.name])})"
                for field in msgspec.structs.fields(each)
            )
            yield from ("", f"    Fields: {', '.join(shown)}", "")


class Policies(_Generated):
    """All built-in policies of a kind, with their fields."""

    def run(self) -> list[nodes.Node]:
        """Make a definition list."""
        kind = self.arguments[0]
        policies = {name: find(kind, name) for name in known(kind)}
        return self.parsed(self._lines(policies), *policies.values())

    @staticmethod
    def _lines(policies: Mapping[str, type]) -> Iterator[str]:
        for name, policy in policies.items():
            yield f"``{name}``"
            yield from (f"    {line}".rstrip() for line in summary(policy))
            yield ""
            yield from (f"    {line}".rstrip() for line in fields(policy))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_directive("structure", Structure)
    app.add_directive("records", Records)
    app.add_directive("policies", Policies)
    return {"parallel_read_safe": True}
