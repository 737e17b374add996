"""Plain values that remember where they came from, so that an error can name file, line and field.

A :class:`Located` is what a YAML file says, with values of other sources laid over it; `convert`
checks it by the types of a msgspec struct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from reshape.errors import ConfigError, nearest

if TYPE_CHECKING:
    import yaml  # at run time only where a file is read: most commands need none

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")
#: Way to a value from the root, such as ("nodes", 0, "processors").
Place: TypeAlias = tuple[str | int, ...]
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[`]+)")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "null": "nothing",
    "array": "a list",
    "object": "a mapping",
}


class Origin(NamedTuple):
    """Source of a value: a file with a line (from 1), or an environment variable or option."""

    source: str | None = None
    line: int | None = None


class Located:
    """A tree of plain values with the origin of each.

    Parameters
    ----------
    source : what to name in an error about something that is missing altogether.
    """

    def __init__(self, source: str | None = None) -> None:
        self.values: dict[str, Any] = {}
        self._origins: dict[Place, Origin] = {(): Origin(source)}

    @classmethod
    def read(cls, file: Path) -> Located:
        """Read a YAML file; an empty one is an empty tree.

        Raises
        ------
        ConfigError : it cannot be read, is no YAML, is not a mapping, or says a field twice.
        """
        import yaml

        tree = cls(str(file))
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"is not UTF-8 text: {error.reason}", file=str(file)) from None
        loader = None
        try:
            loader = yaml.SafeLoader(text)  # which looks for bytes that no text has
            node = loader.get_single_node()
            if node is not None:
                values = tree._plain(loader, node, (), ())
                if not isinstance(values, dict):
                    tree.fail(
                        (), f"the file must be a mapping such as 'processors: 8', not {values!r}"
                    )
                tree.values = values
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise ConfigError(
                f"is no YAML: {error.problem}{f', {error.context}' if error.context else ''}",
                file=str(file),
                line=mark.line + 1 if mark else None,
            ) from None
        except yaml.reader.ReaderError as error:
            raise ConfigError(
                f"is no YAML: character #x{error.character:04x}: {error.reason}",
                file=str(file),
                line=text.count("\n", 0, error.position) + 1,
            ) from None
        finally:
            if loader is not None:
                loader.dispose()
        return tree

    def _plain(
        self, loader: yaml.SafeLoader, node: yaml.Node, place: Place, above: tuple[yaml.Node, ...]
    ) -> Any:
        """Turn a node and all below it into plain values, noting their lines."""
        import yaml

        source = self._origins[()].source
        if place not in self._origins or not place:
            self._origins[place] = Origin(source, node.start_mark.line + 1)
        if any(node is other for other in above):
            self.fail(place, "refers to itself")
        above = (*above, node)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self._plain(loader, item, (*place, i), above) for i, item in items]
        if not isinstance(node, yaml.MappingNode):
            return loader.construct_object(node, deep=True)
        values: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in values:
                line = key.start_mark.line + 1
                raise ConfigError(
                    "is given twice; keep one",
                    file=source,
                    line=line,
                    field=dotted((*place, name)),
                )
            # An error is looked for where the field is named, not where its value begins.
            self._origins[*place, name] = Origin(source, key.start_mark.line + 1)
            values[name] = self._plain(loader, value, (*place, name), above)
        return values

    def put(self, place: Place, value: Any, origin: Origin) -> None:
        """Lay a value over the tree; mappings on the way are made where they are missing.

        Raises
        ------
        ConfigError : something on the way is no mapping.
        """
        values = self.values
        for depth, step in enumerate(place[:-1], 1):
            values = values.setdefault(str(step), {})
            if not isinstance(values, dict):
                self.fail(place[:depth], f"must be a mapping, got {values!r}")
        values[str(place[-1])] = value
        for known in [known for known in self._origins if known[: len(place)] == place]:
            del self._origins[known]
        self._origins[place] = origin

    def get(self, place: Place) -> Any:
        """Give the value at a place; None if there is none."""
        value: Any = self.values
        for step in place:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def origin(self, place: Place) -> Origin:
        """Where the value at a place, or the nearest one above it, came from."""
        while place not in self._origins:
            place = place[:-1]
        return self._origins[place]

    def fail(self, place: Place, message: str) -> NoReturn:
        """Raise a ConfigError about a place."""
        origin = self.origin(place)
        raise ConfigError(
            message, file=origin.source, line=origin.line, field=dotted(place) or None
        )

    def convert(self, kind: type[T], also: tuple[str, ...] = ()) -> T:
        """Check the tree by the types of a struct and make one of it.

        Parameters
        ----------
        also : further names at the top that a reader may have meant, to be offered too.

        Raises
        ------
        ConfigError : the first value that is unknown, missing, of a wrong type or out of range.
        """
        try:
            return msgspec.convert(self.values, kind)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `")
            place = self._place(kind, _STEP.findall(where))
            if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
                name = unknown[1]
                known = fields_at(kind, place) + (() if place else also)
                self.fail((*place, name), f"unknown field{nearest(name, known)}")
            if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
                self.fail((*place, missing[1]), "is missing")
            choices = kind if "..." in place else _type_at(kind, place)
            self.fail(place, f"{_in_words(what, choices)}, got {self.get(place)!r}")

    def _place(self, kind: Any, steps: list[tuple[str, str]]) -> Place:
        """Place of an error as msgspec tells it, which names no key of a dict but "..."."""
        place: Place = ()
        for item, name in steps:
            step: str | int = name
            if item == "...":
                wanted, values = get_args(_plain_type(kind))[1], self.get(place)
                wrong = (key for key, value in values.items() if not _fits(value, wanted))
                step = next(wrong, "...")
            elif item:
                step = int(item)
            kind, place = _below(kind, step), (*place, step)
        return place


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _below(kind: Any, step: str | int) -> Any:
    """Type of what is at a step below a struct, a dict, a list or tuple[type, ...], or a choice."""
    kind = _plain_type(kind)
    if get_origin(kind) in (Union, UnionType):  # such as `NetworkFields | None`
        members = [_plain_type(member) for member in get_args(kind)]
        sequences = [member for member in members if get_origin(member) in (list, tuple)]
        mappings = [
            member
            for member in members
            if get_origin(member) is dict or hasattr(member, "__struct_fields__")
        ]
        return _below((sequences if isinstance(step, int) else mappings)[0], step)
    if isinstance(step, int):
        return get_args(kind)[0]
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    return get_type_hints(kind, include_extras=True).get(step, Any)  # of a tag it knows nothing


def _plain_type(kind: Any) -> Any:
    """Type without what is annotated to it, such as a range."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def dotted(place: Place) -> str:
    """Write a place as ``nodes[0].processors``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".")


def fields_at(kind: Any, place: Place) -> tuple[str, ...]:
    """Names of the fields that the struct at a place below `kind` has."""
    return tuple(_type_at(kind, place).__struct_fields__)


def _type_at(kind: Any, place: Place) -> Any:
    for step in place:
        kind = _below(kind, step)
    return _plain_type(kind)


def converted(values: Any, kind: type[V], field: str = "") -> V:
    """Make what is wanted, such as a struct, of plain values; numbers may be text.

    Parameters
    ----------
    field : which field the values are of, to be named in errors.

    Raises
    ------
    ConfigError : an unknown field, or the first value that is of a wrong type or out of range.
    """
    known: tuple[str, ...] | None = getattr(kind, "__struct_fields__", None)
    if known is not None and isinstance(values, Mapping):
        for name in values:
            if name not in known:
                told = f"unknown field{nearest(name, known)}"
                raise ConfigError(told, field=_joined(field, name))
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        value, wanted = values, kind
        for step in filter(None, where.rstrip("`").split(".")):
            if not isinstance(value, Mapping) or step not in value:
                break  # in a list, or the like
            field, value, wanted = _joined(field, step), value[step], _below(wanted, step)
        if what.startswith(("Expected ", "Invalid enum value ")):  # else it is the struct's own
            what = f"{_in_words(what, wanted)}, got {value!r}"
        raise ConfigError(what, field=field or None) from None


def _joined(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _in_words(what: str, kind: Any) -> str:
    """Say what msgspec expected of a value of some type in words that need no Python."""
    if choices := _choices(kind):
        return f"must be {' or '.join(choices)}"
    expected = what.partition(", got ")[0].removeprefix("Expected ")
    names = re.search(r"`([^`]*)`", expected)
    if names is None:
        return what
    words = " or ".join(dict.fromkeys(_WORDS.get(n, n) for n in names[1].split(" | ")))
    limit = expected.replace(names[0], "").strip().removesuffix(".0")
    return f"must be {words} {limit}".rstrip()


def _choices(kind: Any) -> list[str]:
    """What a value may be, if its type names that."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return []
