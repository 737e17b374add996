"""Plain values with their origins, so that an error message can name file, line and field.

A :class:`Located` holds the contents of a YAML file, overridden by values from other sources.
`Located.convert` checks the values against the types of a msgspec struct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    import yaml  # imported late: most commands read no YAML

    from scheduler.text.yaml_text import Loader

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")
#: Path from the root to a value, such as ("nodes", 0, "processors").
FieldPath: TypeAlias = tuple[str | int, ...]
#: Bytes of a file, at most.
MOST_BYTES = 1 << 28
#: Characters of a value in a message, at most.
SHOWN = 200
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[`]+)")


class Origin(NamedTuple):
    """Source of a value: a file with a line (from 1), or an option."""

    source: str | None = None
    line: int | None = None


class Located:
    """A tree of plain values with the origin of each.

    Parameters
    ----------
    source : file to name in errors about values that are missing.
    """

    def __init__(self, source: str | None = None) -> None:
        self.values: dict[str, Any] = {}
        self._converted = 0  # values read so far
        self._origins: dict[FieldPath, Origin] = {(): Origin(source)}

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str | None = None) -> Located:
        """Tree of plain values that come from no file."""
        tree = cls(source)
        tree.values = dict(values)
        return tree

    @classmethod
    def read(cls, file: Path) -> Located:
        """Read a YAML file; an empty file gives an empty tree.

        Raises
        ------
        ConfigError : the file cannot be read, is not YAML, is not a mapping, or repeats a field.
        """
        tree = cls(str(file))
        values = tree._unfolded(_text(file))
        if values is not None and not isinstance(values, dict):
            tree.fail(
                (), f"the file must be a mapping such as 'processors: 8', not {shown(values)}"
            )
        tree.values = values or {}
        return tree

    def _unfolded(self, text: str) -> Any:
        """Convert YAML to plain values; None of an empty text."""
        import yaml

        from scheduler.text.yaml_text import Loader  # late, as all that needs YAML

        source, loader = self._origins[()].source, None
        try:
            loader = Loader(text)  # checks for characters that YAML forbids
            node = loader.get_single_node()
            return None if node is None else self._to_values(loader, node, (), ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise ConfigError(
                f"is not YAML: {error.problem}{f', {error.context}' if error.context else ''}",
                file=source,
                line=mark.line + 1 if mark else None,
            ) from None
        except yaml.reader.ReaderError as error:
            raise ConfigError(
                f"is not YAML: character #x{error.character:04x}: {error.reason}",
                file=source,
                line=text.count("\n", 0, error.position) + 1,
            ) from None
        finally:
            if loader is not None:
                loader.dispose()

    def _to_values(
        self, loader: Loader, node: yaml.Node, field: FieldPath, above: tuple[yaml.Node, ...]
    ) -> Any:
        """Convert a YAML node and its descendants to plain values, and record their lines."""
        import yaml

        from scheduler.text.yaml_text import MOST_REPEATED

        source = self._origins[()].source

        def refuse(message: str, at: yaml.Node, place: FieldPath = field) -> NoReturn:
            line = at.start_mark.line + 1
            raise ConfigError(
                message, file=source, line=line, field=dotted(place) or None
            ) from None

        if field not in self._origins or not field:
            self._origins[field] = Origin(source, node.start_mark.line + 1)
        if any(node is other for other in above):
            self.fail(field, "refers to itself")
        self._converted += 1
        if self._converted > loader.composed + MOST_REPEATED:
            self.fail(field, f"aliases repeat more than {MOST_REPEATED} values; write them out")
        above = (*above, node)
        if isinstance(node, yaml.SequenceNode):
            items = enumerate(node.value)
            return [self._to_values(loader, item, (*field, i), above) for i, item in items]
        if not isinstance(node, yaml.MappingNode):
            try:
                return loader.scalar(node)
            except yaml.MarkedYAMLError as error:
                refuse(str(error.problem), node)
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                refuse("the name of a field must be a text, not a list or a mapping", key)
            name = str(key.value)
            if len(name) > SHOWN:
                refuse(f"a field has a name of {len(name)} characters, more than {SHOWN}", key)
            if name in values:
                refuse("is given twice; keep one", key, (*field, name))
            # Errors refer to the line of the field name, not to the line on which its value begins.
            self._origins[*field, name] = Origin(source, key.start_mark.line + 1)
            values[name] = self._to_values(loader, value, (*field, name), above)
        return values

    def override(self, field: FieldPath, value: Any, origin: Origin) -> None:
        """Set a value; missing mappings on the path to it are created.

        Raises
        ------
        ConfigError : a value on the path is not a mapping.
        """
        values = self.values
        for depth, step in enumerate(field[:-1], 1):
            if str(step) not in values:
                self._origins[field[:depth]] = origin
            values = values.setdefault(str(step), {})
            if not isinstance(values, dict):
                self.fail(field[:depth], f"must be a mapping, got {shown(values)}")
        values[str(field[-1])] = value
        for path in [path for path in self._origins if path[: len(field)] == field]:
            del self._origins[path]
        self._origins[field] = origin

    def get(self, field: FieldPath) -> Any:
        """Return the value at a path, or None if there is none."""
        return _value_at(self.values, field)

    def origin(self, field: FieldPath) -> Origin:
        """Origin of the value at a path, or of its nearest ancestor that has one."""
        while field not in self._origins:
            field = field[:-1]
        return self._origins[field]

    def fail(self, field: FieldPath, message: str) -> NoReturn:
        """Raise a ConfigError that names a path and its origin."""
        origin = self.origin(field)
        raise ConfigError(
            message, file=origin.source, line=origin.line, field=dotted(field) or None
        )

    def convert(self, kind: type[T], also: Sequence[str] = ()) -> T:
        """Convert the tree to a struct and check the types of all fields.

        Parameters
        ----------
        also : further names to suggest for an unknown field at the top level.

        Raises
        ------
        ConfigError : a value is unknown, missing, of the wrong type or out of range; the first one
            is named.
        """
        try:
            return msgspec.convert(self.values, kind)
        except msgspec.ValidationError as error:
            self.fail(*_misfit(error, self.values, kind, also, strict=True))


def _text(file: Path) -> str:
    """Text of a file.

    Raises
    ------
    ConfigError : it cannot be read, is too large, or is not UTF-8.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"is larger than {MOST_BYTES >> 20} MiB", file=str(file))
        return data.decode()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text: {error.reason}", file=str(file)) from None
    except ValueError as error:  # a null character in the path
        raise ConfigError(f"cannot be read: {error}", file=str(file)) from None


def value_of(text: str) -> Any:
    """Plain value of YAML text that is in no file, such as that of an option.

    Raises
    ------
    ConfigError : it is not YAML.
    """
    return Located()._unfolded(text)


def shown(value: object) -> str:
    """Value as a message shows it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _misfit(
    error: msgspec.ValidationError, values: Any, kind: Any, also: Sequence[str], *, strict: bool
) -> tuple[FieldPath, str]:
    """Path and message of an error of `msgspec.convert`; `also` as of `Located.convert`."""
    what, _, where = str(error).partition(" - at `")
    field: FieldPath = ()
    of_field = kind
    for item, name in _STEP.findall(where):
        step: str | int = int(item) if item.isdigit() else item or name
        of_field, owner = _below(of_field, step), _value_at(values, field)
        if item == "...":  # any key of a dict
            step = next((key for key in owner if not _fits(owner[key], of_field, strict)), item)
        field = (*field, step)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        names = [*_fields_of(of_field), *(() if field else also)]
        return (*field, unknown[1]), f"unknown field{nearest(unknown[1], names)}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return (*field, missing[1]), "is missing"
    if not what.startswith(("Expected ", "Invalid enum value ")):  # the struct has raised it
        return field, what
    choices = _choices(_without_annotation(of_field))
    text = f"must be {' or '.join(choices)}" if choices else what.partition(", got ")[0]
    value = shown(_value_at(values, field))
    return field, f"{text[0].lower()}{text[1:].replace('`', '')}, got {value}"


def _value_at(values: Any, field: FieldPath) -> Any:
    """Value at a path, None if there is none."""
    for step in field:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def _fits(value: Any, kind: Any, strict: bool) -> bool:
    try:
        msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        return False
    return True


def _below(kind: Any, step: str | int) -> Any:
    """Type of a member of a struct, dict, list, tuple[type, ...] or union."""
    kind = _without_annotation(kind)
    if get_origin(kind) in (Union, UnionType):  # such as `NetworkFields | None`
        members = [_without_annotation(member) for member in get_args(kind)]
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
    return get_type_hints(kind, include_extras=True).get(step, Any)  # hints lack a struct's tag


def _without_annotation(kind: Any) -> Any:
    """Strip the annotations, such as a range, from a type."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def dotted(field: FieldPath) -> str:
    """Write a path as ``nodes[0].processors``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in field)
    return text.removeprefix(".")


def _fields_of(kind: Any) -> tuple[str, ...]:
    """Names of the fields of a struct, or of the structs of a union."""
    own = _without_annotation(kind)
    kinds = get_args(own) if get_origin(own) in (Union, UnionType) else (own,)
    structs = map(_without_annotation, kinds)
    return tuple(name for struct in structs for name in getattr(struct, "__struct_fields__", ()))


def converted(values: Any, kind: type[V], field: str = "") -> V:
    """Convert plain values to a type such as a struct; numbers may be given as text.

    Parameters
    ----------
    field : name of the field that holds the values, for error messages.

    Raises
    ------
    ConfigError : a field is unknown, or a value has the wrong type or is out of range; the first
        one is named.
    """
    above = (field,) if field else ()
    names: tuple[str, ...] | None = getattr(kind, "__struct_fields__", None)
    if names is not None and isinstance(values, Mapping):  # also if the struct ignores others
        for name in values:
            if name not in names:
                message = f"unknown field{nearest(name, names)}"
                raise ConfigError(message, field=dotted((*above, name)))
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        below, message = _misfit(error, values, kind, (), strict=False)
        raise ConfigError(message, field=dotted((*above, *below)) or None) from None


def _choices(kind: Any) -> list[str]:
    """Permitted values, if the type enumerates them."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    if get_origin(kind) in (Union, UnionType):  # such as `PenaltyRule | None`
        return [choice for member in get_args(kind) for choice in _choices(member)]
    return []
