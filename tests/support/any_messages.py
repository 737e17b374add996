"""Hypothesis strategies for all messages of a protocol, with values at the limits of types."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

#: Whole numbers at the limits of what MessagePack, SQLite and C hold, and usual ones.
_WHOLE = [*range(-2, 6), 100, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
NUMBERS = st.sampled_from([*_WHOLE, -(2**31), -(2**63)])
REALS = st.sampled_from([0.0, -0.0, 1.0, 1e-320, 0.5, -1.0, 60.0, 1e9, 1e18, 1e300, -1e300])
_WORDS = "a ann local main 1 1_2 afterok:1 singleton 0-3%2 1e9 ../.. / /dev/null %j% %x slurm psij"
_ODD = ["", "\0", "\n", "\x1b[31m", "\ud7ff", "é" * 200, "USR1@60", "list:1,2", "downey:4,1"]
_LONG = ["x" * 300, "x" * 5000, "9" * 5000, "(" * 2000, "-" * 2000]
TEXTS = st.sampled_from([*_WORDS.split(), *_ODD, *_LONG])
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | REALS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def messages(
    union: Any, known: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Messages of a union of types, as mappings of their fields.

    Parameters
    ----------
    known : values that a field of this name often has, such as a token, so that messages get past
        the first check.
    """
    kinds = inspect.type_info(union)
    types = kinds.types if isinstance(kinds, inspect.UnionType) else (kinds,)
    return st.one_of([_struct(kind, known) for kind in types])


def _struct(kind: Any, known: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    required, optional = {}, {}
    for field in kind.fields:
        value = _values(field.type, known)
        if field.name in known:
            value = known[field.name] | value
        (required if field.required else optional)[field.encode_name] = value
    fields = st.fixed_dictionaries(required, optional=optional)
    tag = {} if kind.tag is None else {kind.tag_field: kind.tag}
    return fields.map(lambda given: {**tag, **given})


def _values(kind: Any, known: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.IntType():
            return NUMBERS
        case inspect.FloatType():
            return REALS | NUMBERS
        case inspect.StrType():
            return TEXTS
        case inspect.BytesType():
            return st.binary(max_size=20)
        case inspect.LiteralType(values=values):
            return st.sampled_from(list(values))
        case inspect.UnionType(types=types):
            return st.one_of([_values(each, known) for each in types])
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return st.lists(_values(item, known), max_size=3)
        case inspect.TupleType(item_types=items):
            return st.tuples(*(_values(item, known) for item in items))
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values(key, known), _values(value, known), max_size=3)
        case inspect.StructType():
            return _struct(kind, known)
        case _:
            return ANY
