"""The directive ``structure``: the fields of a file or message, from the structure that reads it.

A field has its type, its default and the description in the docstring of the structure.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec
from docstrings import entries, sections
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_WORDS = {str: "text", int: "number", float: "number", bool: "true or false", type(None): "null"}


def found(name: str) -> type[msgspec.Struct]:
    """Structure of a dotted name."""
    module, _, attribute = name.rpartition(".")
    structure: type[msgspec.Struct] = getattr(import_module(module), attribute)
    return structure


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
        return f"mapping of {type_text(arguments[1])}"
    if origin in (list, tuple, set, frozenset) or str(origin).startswith("<class 'collections.abc"):
        inner = [each for each in arguments if each is not ...]
        return f"list of {' and '.join(dict.fromkeys(map(type_text, inner)))}"
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


class Structure(SphinxDirective):
    """The fields of a structure as a definition list.

    The argument is the dotted name; the option ``without`` names fields that users do not set.
    """

    required_arguments = 1
    option_spec: typing.ClassVar = {"without": str.split}

    def run(self) -> list[nodes.Node]:
        """Make the list."""
        structure = found(self.arguments[0])
        self.env.note_dependency(inspect.getfile(structure))
        lines = list(self._lines(structure, self.options.get("without", [])))
        content = StringList(lines, source=inspect.getfile(structure))
        parent = nodes.container()
        self.state.nested_parse(content, 0, parent)
        return parent.children

    def _lines(self, structure: type[msgspec.Struct], without: list[str]) -> Iterator[str]:
        texts = descriptions(structure)
        hints = typing.get_type_hints(structure, include_extras=True)
        for field in msgspec.structs.fields(structure):
            if field.encode_name in without:
                continue
            if field.name not in texts:
                raise self.error(f"{structure.__name__}.{field.name} has no description")
            kind = type_text(hints[field.name])
            about = ", ".join(filter(None, (kind, default_text(field))))
            yield f"``{field.encode_name}`` ({about})"
            text = " ".join(re.sub(r"\s+", " ", line).strip() for line in texts[field.name])
            yield f"    {text[:1].upper()}{text[1:]}"
            yield ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_directive("structure", Structure)
    return {"parallel_read_safe": True}
