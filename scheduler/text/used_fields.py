"""Fields of a policy that have an effect only with certain values of others.

A struct of parameters lists such fields in one table, ``field_needs``: name of the field ->
`Needs`. A field that the table does not name always has an effect. `check` refuses fields of a
struct, and of the structs in it, that were set although they have no effect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from reshape.errors import ConfigError


class Needs(NamedTuple):
    """What a field needs in order to have an effect.

    Parameters
    ----------
    is_met : function of the struct with the table: whether the field has an effect.
    text : the same in words, as the end of "it is used only ...".
    """

    is_met: Callable[[Any], bool]
    text: str


@runtime_checkable
class HasFieldNeeds(Protocol):
    """Struct with a table of needs.

    Attributes
    ----------
    field_needs : field -> what it needs. The name may be dotted (``backfill.reserve``) for a field
        of a struct in this one.
    """

    field_needs: Mapping[str, Needs]


class UnusedFieldError(ConfigError):
    """A field was set that has no effect.

    Parameters
    ----------
    path : names of the structs and, as the last one, of the field.
    """

    def __init__(self, message: str, path: tuple[str, ...]) -> None:
        super().__init__(message, field=".".join(path))
        self.path = path


def check(struct: object, title: str, path: tuple[str, ...] = ()) -> None:
    """Check that every field of a struct that differs from its default has an effect.

    Parameters
    ----------
    title : the struct in messages, such as "scenario easy".
    path : names that lead to the struct.

    Raises
    ------
    UnusedFieldError : a field of it, or of the structs in it, has none; the message says what the
        field needs.
    """
    if isinstance(struct, Mapping):
        for key, item in struct.items():
            check(item, title, (*path, str(key)))
    if not (isinstance(struct, msgspec.Struct) or dataclasses.is_dataclass(struct)):
        return
    if isinstance(struct, HasFieldNeeds):
        for name, needs in struct.field_needs.items():
            *above, last = name.split(".")
            owner: Any = struct
            for step in above:
                owner = getattr(owner, step)
            value, default = getattr(owner, last), _default(owner, last)
            if value == default or needs.is_met(struct):
                continue
            user = "" if not path and not above else f" by {type(owner).__name__}"
            raise UnusedFieldError(
                f"{_text(value)} has no effect in {title}: it is used{user} only {needs.text};"
                f" change that, or leave {last} at {_text(default)}",
                (*path, *above, last),
            )
    if isinstance(struct, msgspec.Struct):
        for name in struct.__struct_fields__:
            check(getattr(struct, name), title, (*path, name))


def _default(struct: object, name: str) -> Any:
    """Default of a field of a struct or dataclass."""
    return _defaults(type(struct)).get(name)  # type: ignore[arg-type]  # classes are hashable


@cache
def _defaults(cls: type) -> dict[str, Any]:
    """Defaults of the fields by name; msgspec evaluates all annotations to list them."""
    kind: Any = msgspec.structs if issubclass(cls, msgspec.Struct) else dataclasses
    return {field.name: field.default for field in kind.fields(cls)}


def _text(value: object) -> str:
    """Value as a user writes it; a policy by the name of its class."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return type(value).__name__ if isinstance(value, msgspec.Struct) else str(value)
