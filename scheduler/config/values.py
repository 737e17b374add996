"""Values that several parts of a configuration have: their types, and how they are read."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from reshape.times import parse_duration
from scheduler.text.located import FieldPath, Located

#: Value of a field of a scenario.
Value: TypeAlias = bool | int | float | str | None
Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
Amount = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Names = Annotated[list[str], msgspec.Meta(min_length=1)]


def read_duration(tree: Located, field: FieldPath) -> None:
    """Convert a time that is written as 10:00 to seconds.

    Raises
    ------
    ConfigError : it is neither a time nor a number.
    """
    value = tree.get(field)
    if isinstance(value, str):
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = parse_duration(value)
            except ValueError as error:
                tree.fail(field, f"{error}, or a number of seconds")
        tree.override(field, seconds, tree.origin(field))


def check_parameters(tree: Located, above: FieldPath) -> None:
    """Check that the parameters below a path have dotted names, and one value each.

    Raises
    ------
    ConfigError : they have not.
    """
    parameters = (*above, "parameters")
    here = tree.get(above)
    if not isinstance(here, dict) or "parameters" not in here:
        return
    values = here["parameters"]
    if not isinstance(values, dict):
        tree.fail(parameters, f"must be a mapping of fields to values, got {values!r}")
    for name, value in values.items():
        if isinstance(value, dict) and value:
            field, inner = next(iter(value.items()))
            tree.fail(
                (*parameters, name, field),
                f"write the name of the field with dots, as in parameters: {{{name}.{field}:"
                f" {inner}}}",
            )
        if not isinstance(value, Value):
            tree.fail((*parameters, name), f"must be one value, got {value!r}")


def read_named(tree: Located, kind: str) -> None:
    """Read the queues or partitions of a tree: a name alone has the defaults.

    Parameters
    ----------
    kind : "queues" or "partitions".

    Raises
    ------
    ConfigError : a time or a parameter is written wrongly.
    """
    named = tree.values.get(kind)
    if not isinstance(named, dict):
        return
    for name, fields in named.items():
        if fields is None:
            named[name] = {}
        check_parameters(tree, (kind, name))
        for field in ("max_walltime_s", "default_walltime_s"):
            read_duration(tree, (kind, name, field))
