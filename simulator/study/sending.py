"""Send objects to processes that share nothing with this one, with classes of a notebook or script.

That is what cloudpickle is for. A class that it sends as a whole arrives without the fields that
msgspec reads when a class is made, so that classes of msgspec are made anew from their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, get_annotations, signature
from io import BytesIO
from types import new_class
from typing import Any

import msgspec

from reshape.errors import ConfigError

#: Options of a class of msgspec that its instances depend on.
OPTIONS = ("frozen", "eq", "order", "omit_defaults", "forbid_unknown_fields", "weakref", "dict")


def sent(value: object) -> bytes:
    """What `received` makes the object of again, in another process.

    Raises
    ------
    ConfigError : cloudpickle is not installed.
    """
    base = _cloudpickle().Pickler

    class Pickler(base):  # type: ignore[misc, valid-type]  # of a module that may be missing
        def reducer_override(self, obj: Any) -> Any:
            reduced = super().reducer_override(obj)
            is_struct = isinstance(obj, type) and issubclass(obj, msgspec.Struct)
            if not is_struct or reduced is NotImplemented:  # the class is imported there
                return reduced
            _, _, state, *rest = reduced
            return _struct, _parts(obj), state, *rest

    file = BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def received(data: bytes) -> Any:
    """The object that `sent` made the data of."""
    return _cloudpickle().loads(data)


def _parts(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Arguments of `_struct` for a class."""
    annotations, parameters = get_annotations(kind), signature(kind).parameters
    defaults = {
        field.name: {"default": field.default, "default_factory": field.default_factory}
        for field in msgspec.structs.fields(kind)
        if field.name in annotations
    }
    options = {name: getattr(kind.__struct_config__, name) for name in OPTIONS}
    options["kw_only"] = any(parameters[name].kind is Parameter.KEYWORD_ONLY for name in defaults)
    own = {"__module__": kind.__module__, "__annotations__": annotations}
    if "__post_init__" in vars(kind):  # msgspec looks for it when it makes a class
        own["__post_init__"] = vars(kind)["__post_init__"]
    return kind.__name__, kind.__bases__, own, defaults, options


def _struct(
    name: str,
    bases: tuple[type, ...],
    own: Mapping[str, Any],
    defaults: Mapping[str, Mapping[str, Any]],
    options: dict[str, Any],
) -> type:
    """Class of msgspec with its fields; cloudpickle adds the rest."""
    fields = {field: msgspec.field(**each) for field, each in defaults.items()}
    return new_class(name, bases, options, lambda namespace: namespace.update(own, **fields))


def _cloudpickle() -> Any:
    try:
        return import_module("cloudpickle")
    except ModuleNotFoundError:
        raise ConfigError(
            "an executor needs cloudpickle, which is not installed: pip install"
            " 'reshape-mpi[executors]'",
            field="executor",
        ) from None
